"""Which partitions both places have, what is said of those that only one has, and what the metadata in one of the
places says of topics and of what is missing on both sides.
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
from kidxlib.run.options import MetadataOptions
from kidxlib.terminal.console import warn_of_first
from kidxlib.text.words import counted

_POLICY = "cleanup.policy"
#: Of the gaps between logs: both sides together are one source.
_BOTH = "both"


@dataclass(frozen=True, slots=True)
class KnownOfPlaces:
    """What the cluster's metadata in A or B says.

    Attributes:
        topics: by log dirs, which stand for sources.
        names: of these, those of A first.
    """

    topics: KnownTopics
    names: Sequence[str]

    @classmethod
    def of(cls, one: Place, other: Place) -> KnownOfPlaces:
        """Read it, where a place has it. Warns of what cannot be read."""
        sources = [Source(str(log_dir), log_dir) for place in (one, other) for log_dir in place.log_dirs]
        topics = read_known_topics(MetadataOptions(), sources)
        warn_of_first(topics.warnings)
        return cls(topics, [source.name for source in sources])

    def policy(self, topic: str) -> ConfigValue | None:
        """The `cleanup.policy` of a topic; None where nobody knows it."""
        found = (self.topics.config(name, topic, _POLICY) for name in self.names)
        return next((value for value in found if value is not None), None)

    def nodes(self, partition: TopicPartition) -> frozenset[str]:
        """The ids of the nodes that are to have a partition; none where nobody knows it."""
        found = (metadata.to_end.assignments.get(partition) for metadata in self.topics.read())
        assignment = next((each for each in found if each is not None), None)
        return frozenset() if assignment is None else frozenset(map(str, assignment.replicas))


@dataclass(frozen=True, slots=True)
class LogsOfPartition:
    """A partition's logs on both sides, in the order of base offsets."""

    directory: ListedDirectory
    partition: TopicPartition
    logs: Sequence[LogPairRow]


def gaps(partitions: Iterable[LogsOfPartition], known: KnownOfPlaces) -> list[Finding]:
    """Offsets between two segments that neither side has, and that no compaction explains."""
    places, rows = {}, []
    for each in partitions:
        places[_BOTH, each.partition.topic, each.partition.partition] = each.directory.path
        rows += [_facts(each, row) for row in each.logs]
    table = pa.Table.from_pylist(rows, SEGMENTS.schema(FACTS))
    found = gaps_in(table, lambda _, topic: known.policy(topic), Directories(places))
    return [
        Finding(
            kind=Kind.NEITHER,
            directory=TopicPartition(gap.topic, gap.partition).directory,
            first_offset=gap.first_offset,
            last_offset=gap.last_offset,
            detail=f"{gap.detail} of either side: {gap.consequence}",
        )
        for gap in found.lost
    ]


def _facts(of: LogsOfPartition, row: LogPairRow) -> dict[str, object]:
    """A log of both sides as a row of segments: as far as the one goes that has more."""
    ends = (row.one_end_offset or -1, row.one_beyond_records), (row.other_end_offset or -1, row.other_beyond_records)
    end, beyond = max(ends, key=lambda each: each[0])
    is_pair = row.one_bytes is not None and row.other_bytes is not None
    records = None if beyond is None or (is_pair and row.same_records is None) else beyond + (row.same_records or 0)
    is_whole = row.problem is None and row.one_damaged is None and row.other_damaged is None
    return {
        "source": _BOTH,
        "topic": of.partition.topic,
        "partition": of.partition.partition,
        "base_offset": row.base_offset,
        "topic_id": of.directory.topic_id,
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
    """Whether a directory is of a topic that was asked for; one that a broker moves or has set aside always is."""
    partition = place.directories[name].topic_partition
    return partition is None or topics.fullmatch(partition.topic) is not None


def paired(
    one: Place, other: Place, topics: re.Pattern[str]
) -> tuple[list[DirectoryPair], list[PartitionResult], list[Finding]]:
    """Compare which directories there are.

    Returns:
        Those on both sides that can be compared; and what is said of all others.
    """
    findings: list[Finding] = []
    results: list[PartitionResult] = []
    pairs = []
    wanted = {name for place in (one, other) for name in place.directories if _is_wanted(name, place, topics)}
    for name in sorted(wanted):
        found = _of_directory(name, one.directories.get(name), other.directories.get(name))
        for side, place in (("A", one), ("B", other)):
            if name in place.twice:
                first, second = place.twice[name]
                detail = (
                    f"{side} has it twice, in {first} and {second}, and the first was compared; a broker does not start"
                )
                findings.append(Finding(kind=Kind.NOT_COMPARABLE, directory=name, detail=detail))
        if found is None:
            pairs.append(DirectoryPair(one.directories[name], other.directories[name]))
            continue
        findings.append(found)
        results.append(PartitionResult(directory=name, verdict=found.kind.value))
    for side, place in (("A", one), ("B", other)):
        for path in place.others:
            detail = f"{path}, in {side}: it is no partition's"
            findings.append(Finding(kind=Kind.NOT_COMPARED, detail=detail))
    return pairs, results, findings


def _of_directory(name: str, one: ListedDirectory | None, other: ListedDirectory | None) -> Finding | None:
    """What is said of a directory before anything in it is read; None where it is to be compared."""
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
