"""Compares two places by their files, or two sources of a catalog by their rows, without reading a log."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kidxlib.catalog.conditions import Among
from kidxlib.catalog.partitions import PARTITIONS
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.engine.protocol import Engine
from kidxlib.errors import UsageError
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.operations.compare.catalog_replica_verdict import ReplicaRelation, ReplicaVerdict
from kidxlib.operations.compare.catalog_replicas import compare_catalog_replicas
from kidxlib.operations.compare.comparison import (
    As,
    Comparison,
    ComparisonFinding,
    FindingKind,
    PartitionComparison,
    comparison_verdict,
)
from kidxlib.operations.compare.copy import compare_copy
from kidxlib.operations.compare.place import ComparedPlace, MetadataOfPlaces, ensure_two_places, list_place
from kidxlib.operations.compare.replica import compare_replicas_of_places
from kidxlib.operations.damage.known_damage import DAMAGED
from kidxlib.run.sources import sources_in_one_directory
from kidxlib.tables.protocol import TablesToRead
from kidxlib.terminal.console import begin_phase

_KINDS = {
    ReplicaRelation.DIFFERS: FindingKind.DIFFERS,
    ReplicaRelation.EPOCHS_DISAGREE: FindingKind.DIFFERS,
    ReplicaRelation.LACKS: FindingKind.LACKS,
    ReplicaRelation.NOT_COMPARABLE: FindingKind.NOT_COMPARABLE,
    ReplicaRelation.SAME_UP_TO: FindingKind.NOT_COMPARABLE,
}


def compare_places(a: str, b: str, how: As, topics: re.Pattern[str], engine: Engine) -> Comparison:
    """Compare two places as the user gave them: a log dir, several with commas between them, or a partition's
    directory. `topics` matches full names. Nothing is written.
    """
    begin_phase("listing")
    one, other = _places(a, b, topics)
    known = MetadataOfPlaces.of(one, other)
    compare = compare_copy if how is As.COPY else compare_replicas_of_places
    return compare(one, other, topics, known, engine)


def compare_sources(tables: TablesToRead, one: str, other: str, topics: re.Pattern[str]) -> Comparison:
    """Compare two sources of a catalog as if they were two places, by digests of their batches."""
    if one == other:
        raise UsageError(f"{one}: it is on both sides, and is the same as itself; name two sources")
    begin_phase("asking the catalog")
    for directory in sources_in_one_directory(tables, (one, other)):
        raise UsageError(f"{directory}: it is on both sides, and is the same as itself; name two sources")
    extents = {name: _extents(tables, name, topics) for name in (one, other)}
    findings, results = list[ComparisonFinding](), list[PartitionComparison]()
    wanted = sorted({(topic, number) for partitions in extents.values() for topic, number, _ in partitions})
    if not wanted:
        raise UsageError(
            f"{one}, {other}: no partition of a topic that matches {topics.pattern}; give another --topics"
        )
    for topic, number in wanted:
        finding = _only_one(extents, one, other, topic, number)
        if finding is not None:
            findings.append(finding)
            results.append(PartitionComparison(directory=str(finding.directory), verdict=finding.kind.value))
    damaged = _damaged(tables, (one, other))
    for verdict in compare_catalog_replicas(tables, sources=(one, other)):
        if topics.fullmatch(verdict.topic):
            of_partition = list(_findings(verdict, one))
            key = verdict.topic, verdict.partition, verdict.topic_id
            if verdict.compacted is None:  # a cleaner may have left nothing at the start of a compacted one
                of_partition += _before_start(extents[one][key], extents[other][key], one, other, verdict)
            else:  # digests, which tell of damage, are not compared
                of_partition += damaged.get(key[:2], ())
            findings += of_partition
            results.append(
                PartitionComparison(
                    directory=TopicPartition(verdict.topic, verdict.partition).directory,
                    verdict=comparison_verdict(of_partition),
                    same_to_offset=verdict.compared_to if not of_partition else None,
                )
            )
    ordered = sorted(results, key=lambda result: result.directory)
    return Comparison(findings=findings, partitions=ordered, logs=0, log_bytes=0, files=0)


#: A partition by its topic, number and topic id.
_Key = tuple[str, int, str | None]


@dataclass(frozen=True, slots=True)
class _Extent:
    """Where a replica begins and ends; None without a log, or if the end is not known."""

    start: int | None
    end: int | None


def _extents(tables: TablesToRead, source: str, topics: re.Pattern[str]) -> Mapping[_Key, _Extent]:
    names = ("topic", "partition", "topic_id", "present", "log_start_offset", "first_base_offset", "log_end_offset")
    rows = tables.read(PARTITIONS, names, [Among("source", (source,))])
    extents = {
        (row["topic"], row["partition"], row["topic_id"]): _Extent(
            None if row["first_base_offset"] is None else max(row["log_start_offset"] or 0, row["first_base_offset"]),
            row["log_end_offset"],
        )
        for row in rows.to_pylist()
        if row["present"]
    }
    if not extents:
        raise UsageError(f"{source}: the catalog has no partition of such a source; name one that a build has recorded")
    return {key: extent for key, extent in extents.items() if topics.fullmatch(key[0])}


def _damaged(tables: TablesToRead, sources: tuple[str, str]) -> Mapping[tuple[str, int], Sequence[ComparisonFinding]]:
    """Findings on the first damaged log of each replica, by topic and partition."""
    columns = (*SEGMENTS.key, "reason", "log_path")
    rows = tables.read(SEGMENTS, columns, [Among("source", sources), DAMAGED])
    first: dict[tuple[str, str, int], dict[str, Any]] = {}
    for row in rows.sort_by([(name, "ascending") for name in SEGMENTS.key]).to_pylist():
        first.setdefault((row["source"], row["topic"], row["partition"]), row)
    findings: dict[tuple[str, int], list[ComparisonFinding]] = defaultdict(list)
    for (source, topic, number), row in first.items():
        detail = f"source {source}: {row['log_path']} is damaged: {row['reason']}"
        directory = TopicPartition(topic, number).directory
        findings[topic, number].append(
            ComparisonFinding(kind=FindingKind.NOT_COMPARABLE, directory=directory, detail=detail)
        )
    return findings


def _before_start(
    ours: _Extent, theirs: _Extent, one: str, other: str, verdict: ReplicaVerdict
) -> Iterator[ComparisonFinding]:
    """The finding on offsets of A below the log start of B, which digests do not cover."""
    if ours.start is None or (theirs.start is not None and theirs.start <= ours.start):
        return
    ends = [end for end in (ours.end, theirs.start) if end is not None]
    if not ends or min(ends) <= ours.start:
        return
    starts = "has no log" if theirs.start is None else f"starts at {theirs.start}"
    first, last = ours.start, min(ends) - 1
    yield ComparisonFinding(
        kind=FindingKind.LACKS,
        directory=TopicPartition(verdict.topic, verdict.partition).directory,
        first_offset=first,
        last_offset=last,
        detail=f"source {other} {starts}, and lacks offsets {first}–{last}, which {one} has",
    )


def _only_one(
    extents: Mapping[str, Mapping[_Key, _Extent]], one: str, other: str, topic: str, number: int
) -> ComparisonFinding | None:
    """The finding on a partition that only one source has, or that both have with different topic ids."""
    ids = {
        source: [key[2] for key in partitions if key[:2] == (topic, number)] for source, partitions in extents.items()
    }
    directory = TopicPartition(topic, number).directory
    if not ids[other]:
        return ComparisonFinding(
            kind=FindingKind.MISSING, directory=directory, detail=f"source {other} has no such partition"
        )
    if not ids[one]:
        return ComparisonFinding(
            kind=FindingKind.ONLY_IN_B, directory=directory, detail=f"source {one} has no such partition"
        )
    if ids[one] != ids[other]:
        detail = f"topic id {ids[other][0]}, in A {ids[one][0]}: another topic of the same name"
        return ComparisonFinding(kind=FindingKind.OTHER_ORIGIN, directory=directory, detail=detail)
    return None


def _findings(verdict: ReplicaVerdict, one: str) -> Iterator[ComparisonFinding]:
    if verdict.verdict is ReplicaRelation.SAME:
        return
    kind = _KINDS.get(verdict.verdict, FindingKind.BEHIND)
    if verdict.verdict is ReplicaRelation.BEHIND and verdict.source == one:
        kind = FindingKind.ONLY_IN_B
    elif verdict.verdict is ReplicaRelation.NOT_COMPARABLE and verdict.compacted is not None:
        kind = FindingKind.CLEANED
    if kind in (FindingKind.BEHIND, FindingKind.ONLY_IN_B) and verdict.undecided_offsets:
        yield _finding(verdict, FindingKind.NOT_COMPARABLE)
    yield _finding(verdict, kind)


def _finding(verdict: ReplicaVerdict, kind: FindingKind) -> ComparisonFinding:
    return ComparisonFinding(
        kind=kind,
        directory=TopicPartition(verdict.topic, verdict.partition).directory,
        first_offset=verdict.lacks.first_offset if verdict.lacks is not None else None,
        last_offset=verdict.lacks.last_offset if verdict.lacks is not None else None,
        detail=verdict.sentence(),
    )


def _places(a: str, b: str, topics: re.Pattern[str]) -> tuple[ComparedPlace, ComparedPlace]:
    one, other = list_place(a), list_place(b, is_copy=True)
    ensure_two_places(one, other)
    if one.is_partition and other.is_partition and set(one.directories) != set(other.directories):
        raise UsageError(
            f"A is {min(one.directories)}, B is {min(other.directories)}: two partitions; name the same of both sides"
        )
    if one.is_partition != other.is_partition:  # the log dir may hold others
        (name,) = (one if one.is_partition else other).directories
        one, other = (place if place.is_partition else place.only(name) for place in (one, other))
    partitions = [directory.topic_partition for place in (one, other) for directory in place.directories.values()]
    if not any(partition is not None and topics.fullmatch(partition.topic) for partition in partitions):
        raise UsageError(f"{a}, {b}: no partition of a topic that matches {topics.pattern}; give another --topics")
    return one, other
