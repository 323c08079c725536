"""What is known of two places before a log is read: the cluster's metadata in one of them, and which partitions'
directories both have. `gaps` finds the offsets that both lack, once the logs are compared.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from kidxlib.audit.gaps import FACTS, Directories, gaps_in
from kidxlib.catalog.results import LogPairRow
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.format.segment_files import LOG_SUFFIX
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.indexing.source import Source
from kidxlib.log.cluster_metadata.image import ConfigValue
from kidxlib.operations.compare.finding import Finding, Kind, PartitionResult
from kidxlib.operations.compare.place import ListedDirectory, Place
from kidxlib.recovery.outcome import Status
from kidxlib.run.known_topics import KnownTopics, read_known_topics
from kidxlib.terminal.console import warn_of_first
from kidxlib.text.words import counted

_POLICY = "cleanup.policy"
#: The name of the source that both sides together are, where gaps between logs are looked for.
_BOTH = "both"


@dataclass(frozen=True, slots=True)
class MetadataOfPlaces:
    """The cluster's metadata in A or B.

    Attributes:
        names: the log dirs, which stand for sources in `topics`; those of A first.
    """

    topics: KnownTopics
    names: Sequence[str]

    @classmethod
    def of(cls, one: Place, other: Place) -> MetadataOfPlaces:
        """Read the metadata of the places that have it. Warns of metadata that cannot be read."""
        sources = [Source(str(log_dir), log_dir) for place in (one, other) for log_dir in place.log_dirs]
        topics = read_known_topics(sources)
        warn_of_first(topics.warnings)
        return cls(topics, [source.name for source in sources])

    def policy(self, topic: str) -> ConfigValue | None:
        """The `cleanup.policy` of a topic; None where nobody knows it."""
        values = (self.topics.config(name, topic, _POLICY) for name in self.names)
        return next((value for value in values if value is not None), None)

    def nodes(self, partition: TopicPartition) -> frozenset[str]:
        """The ids of the nodes that a partition is assigned to; none where nobody knows them."""
        assignments = (metadata.to_end.assignments.get(partition) for metadata in self.topics.read())
        assignment = next((assignment for assignment in assignments if assignment is not None), None)
        return frozenset() if assignment is None else frozenset(map(str, assignment.replicas))


def gaps(partitions: Iterable[tuple[ListedDirectory, Sequence[LogPairRow]]], known: MetadataOfPlaces) -> list[Finding]:
    """The findings on offsets between two segments that neither side has, and that no compaction explains. The logs of
    a partition are in the order of base offsets.
    """
    paths, rows = {}, []
    for directory, logs in partitions:
        if (partition := directory.topic_partition) is not None:
            paths[_BOTH, partition.topic, partition.partition] = directory.path
            rows += [_facts(partition, directory.topic_id, row) for row in logs]
    table = pa.Table.from_pylist(rows, SEGMENTS.schema(FACTS))
    lost = gaps_in(table, lambda _, topic: known.policy(topic), Directories(paths)).lost
    return [
        Finding(
            kind=Kind.NEITHER,
            directory=TopicPartition(gap.topic, gap.partition).directory,
            first_offset=gap.first_offset,
            last_offset=gap.last_offset,
            detail=f"{gap.detail} of either side: {gap.consequence}",
        )
        for gap in lost
    ]


def _facts(partition: TopicPartition, topic_id: str | None, row: LogPairRow) -> dict[str, object]:
    """A log of both sides as a row of segments, which ends where the longer one does."""
    ends = (row.one_end_offset or -1, row.one_beyond_records), (row.other_end_offset or -1, row.other_beyond_records)
    end, beyond = max(ends, key=lambda side: side[0])
    is_pair = row.one_bytes is not None and row.other_bytes is not None
    records = None if beyond is None or (is_pair and row.same_records is None) else beyond + (row.same_records or 0)
    is_whole = row.problem is None and row.one_damaged is None and row.other_damaged is None
    return {
        "source": _BOTH,
        "topic": partition.topic,
        "partition": partition.partition,
        "base_offset": row.base_offset,
        "topic_id": topic_id,
        "status": (Status.OK if is_whole else Status.TRUNCATED).value,
        "next_offset": None if row.problem is not None else max(end, row.base_offset),
        "records": records,
        "log_bytes": max(row.one_bytes or 0, row.other_bytes or 0),
    }


@dataclass(frozen=True, slots=True)
class DirectoryPair:
    """A directory that both sides have."""

    one: ListedDirectory
    other: ListedDirectory


def _is_wanted(name: str, place: Place, topics: re.Pattern[str]) -> bool:
    """Whether a directory is to be compared; one that a broker moves or has set aside always is."""
    partition = place.directories[name].topic_partition
    return partition is None or topics.fullmatch(partition.topic) is not None


def pair_directories(
    one: Place, other: Place, topics: re.Pattern[str]
) -> tuple[list[DirectoryPair], list[PartitionResult], list[Finding]]:
    """The directories of both sides that can be compared, and the results and findings on all others."""
    findings: list[Finding] = []
    results: list[PartitionResult] = []
    pairs = []
    wanted = {name for place in (one, other) for name in place.directories if _is_wanted(name, place, topics)}
    for name in sorted(wanted):
        finding = _finding_on_directory(name, one.directories.get(name), other.directories.get(name))
        for side, place in (("A", one), ("B", other)):
            if name in place.duplicates:
                first, second = place.duplicates[name]
                detail = (
                    f"{side} has it twice, in {first} and {second}, and the first was compared; a broker does not start"
                )
                findings.append(Finding(kind=Kind.NOT_COMPARABLE, directory=name, detail=detail))
        if finding is None:
            pairs.append(DirectoryPair(one.directories[name], other.directories[name]))
        else:
            findings.append(finding)
            results.append(PartitionResult(directory=name, verdict=finding.kind.value))
    for side, place in (("A", one), ("B", other)):
        for path in place.other_directories:
            detail = f"{path}, in {side}: it is no partition's"
            findings.append(Finding(kind=Kind.NOT_COMPARED, detail=detail))
    return pairs, results, findings


def _finding_on_directory(name: str, one: ListedDirectory | None, other: ListedDirectory | None) -> Finding | None:
    """The finding on a directory that is not compared; None where it can be."""
    if name.endswith("-delete"):
        side = "A and B" if one and other else "A" if one else "B"
        return Finding(kind=Kind.NOT_COMPARED, directory=name, detail=f"in {side}: a broker was deleting it")
    for side, directory in (("A", one), ("B", other)):
        if directory is not None and directory.problem is not None:
            return Finding(kind=Kind.NOT_COMPARABLE, directory=name, detail=f"in {side}: {directory.problem}")
    if one is None or other is None:
        directory = one or other
        assert directory is not None
        logs = {file: listed.size or 0 for file, listed in directory.files.items() if file.endswith(LOG_SUFFIX)}
        amount = f"{counted(len(logs), 'segment')}, {sum(logs.values()):,} bytes"
        kind, where = (Kind.ONLY_IN_B, "A") if one is None else (Kind.MISSING, "B")
        return Finding(
            kind=kind, directory=name, bytes=sum(logs.values()), detail=f"{where} has no such directory; {amount}"
        )
    if other.link is not None and os.path.realpath(other.path) == os.path.realpath(one.path):
        detail = f"{other.path} leads to {one.path}: it is the same directory, and no copy"
        return Finding(kind=Kind.NO_COPY, directory=name, detail=detail)
    return None
