"""The partitions in which questions are looked up, besides those of a log dir: of a catalog, and of a bucket of tiered
storage; and the message for one that is not there.

No directory is listed, and no file is opened before it is needed. Files are checked against the catalog: a log that is
missing, or whose size differs from its row, is reported and not searched.
"""

from __future__ import annotations

import difflib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Self

import pyarrow as pa

from kidxlib.catalog.partitions import PartitionToSearch
from kidxlib.catalog.rows import PARTITION_KEY
from kidxlib.catalog.segments import SegmentToSearch
from kidxlib.errors import UsageError
from kidxlib.format.checkpoint_files import EpochEntry, LeaderEpochs, parse_epoch_entries
from kidxlib.format.segment_files import LOG_SUFFIX
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.index.time import TimestampOffset
from kidxlib.indexing.source import PartitionDirectory
from kidxlib.log.log import Log, LogDirEvidence
from kidxlib.log.remote.layout import EPOCHS_SUFFIX
from kidxlib.lookup.checked_segment import CheckedSegment, ExpectedFiles
from kidxlib.lookup.seeker import Seeker
from kidxlib.recovery.outcome import USABLE, Status
from kidxlib.storage.location import Location, location
from kidxlib.storage.log_dir import read_leader_epochs
from kidxlib.text.times import NS_PER_MS

#: How many names a message lists.
_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class CatalogedPartition:
    """A partition of one source.

    Attributes:
        facts: its row of `partitions`.
        segments: its present rows of `segments`, with the columns of `SegmentToSearch`.
    """

    facts: PartitionToSearch
    segments: pa.Table

    def seeker(self, of_log_dir: LogDirEvidence | None = None) -> Seeker | str:
        """The seeker that answers questions to this partition, or the reason why there is none."""
        rows = sorted(SegmentToSearch.of_arrow(self.segments), key=lambda row: row.base_offset)
        if not rows:
            return f"{self.facts.directory}: no segment was there when the catalog was built"
        log = Log(
            [_segment(row) for row in rows],
            name=self.facts.directory,
            log_start_offset=self.facts.log_start_offset or 0,
            log_end_offset=self.facts.log_end_offset,
            leader_epochs=_leader_epochs(rows),
            of_log_dir=of_log_dir,
            next_offsets={row.base_offset: row.next_offset for row in rows if row.next_offset is not None},
        )
        return Seeker(log)


def _segment(row: SegmentToSearch) -> CheckedSegment:
    is_usable = row.status in USABLE
    problem = None if row.status is Status.OK else _problem(row)
    expected = ExpectedFiles(
        log_bytes=row.log_bytes,
        valid_bytes=row.valid_bytes,
        offset_index_bytes=row.offset_index_bytes,
        time_index_bytes=row.time_index_bytes,
        broken=None if is_usable else problem,
        truncation=problem if is_usable else None,
    )
    return CheckedSegment(
        location(row.log_path),
        row.base_offset,
        location(row.index_directory),
        expected,
        mtime_ms=None if row.log_mtime_ns is None else row.log_mtime_ns // NS_PER_MS,
        # If a segment cannot be searched, its row has only the batches before the scan ended.
        max_timestamp=_max_timestamp(row) if is_usable else None,
    )


def _max_timestamp(row: SegmentToSearch) -> TimestampOffset | None:
    if row.max_timestamp_ms is None:
        return None
    offset = row.offset_of_max_timestamp
    return TimestampOffset(row.max_timestamp_ms, row.base_offset if offset is None else offset)


def _problem(row: SegmentToSearch) -> str:
    where = "" if row.reason_position is None else f" at byte {row.reason_position}"
    reason = "" if row.reason is None else f" ({row.reason}{where})"
    return f"{row.log_path} was {row.status}{reason} when the catalog was built"


def _leader_epochs(rows: Iterable[SegmentToSearch]) -> LeaderEpochs:
    """The leader epochs of a partition, as recovery assigns them."""
    epochs = LeaderEpochs()
    for row in rows:
        epochs.assign_new(EpochEntry(entry["epoch"], entry["start_offset"]) for entry in row.leader_epochs or ())
    return epochs


def log_in_bucket(directory: PartitionDirectory, index_directory: Location | None, *, by_time: bool) -> Log:
    """The remote segments of a partition as one log, which begins at the first segment: the bucket does not say where a
    broker's log starts. `index_directory` has the index files; None for the objects of the segments. `by_time` tells
    that the log is asked for times.
    """
    assert directory.remote is not None
    files = directory.remote.files()
    if by_time:
        for base_offset, visible in files.visible.items():
            if not visible.is_whole:
                raise UsageError(
                    f"{directory.file(base_offset, LOG_SUFFIX)}: consumers get offsets {visible.first_offset} to "
                    f"{visible.last_offset} of it, and others of another segment; ask for an offset, or kidx export "
                    "--times"
                )
    segments = [
        CheckedSegment(
            directory.file(base_offset, LOG_SUFFIX),
            base_offset,
            partial(directory.file, base_offset) if index_directory is None else index_directory,
            ExpectedFiles(),
            mtime_ms=mtime_ns // NS_PER_MS,
        )
        for base_offset, _, mtime_ns, _ in files.segments
    ]
    epochs = None if index_directory is None else read_leader_epochs(index_directory)
    if epochs is None and segments:
        epochs = _epochs_in_bucket(directory, segments[-1].base_offset)
    return Log(segments, name=str(directory.path), leader_epochs=epochs)


def _epochs_in_bucket(directory: PartitionDirectory, base_offset: int) -> LeaderEpochs | None:
    """The epochs that were copied with a segment: all up to its end."""
    place = directory.file(base_offset, EPOCHS_SUFFIX)
    try:
        content = place.read_bytes()
    except FileNotFoundError:
        return None
    return LeaderEpochs(parse_epoch_entries(content, str(place)))


def not_cataloged(wanted: TopicPartition, source: str | None, known: Iterable[Mapping[str, Any]]) -> str:
    """The message for a partition, or for a source of it, that the catalog does not have. `known` has `source`, `topic`
    and `partition` of those that it has.
    """
    by_name: dict[TopicPartition, list[str]] = defaultdict(list)
    for row in known:
        by_name[TopicPartition(row["topic"], row["partition"])].append(row["source"])
    if source is not None and wanted in by_name:
        return f"{wanted.directory} is not in source {source}; it is in {', '.join(sorted(by_name[wanted]))}"
    return no_such_partition(wanted, by_name)


@dataclass(frozen=True, slots=True)
class KnownPartitions:
    """The sources of each partition in a catalog, by topic and number, for the message about one that is not there."""

    sources: Mapping[str, Mapping[int, Sequence[str]]]

    @classmethod
    def from_rows(cls, rows: pa.Table) -> Self:
        """The partitions in rows with `source`, `topic` and `partition`."""
        sources: dict[str, dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
        for source, topic, partition in zip(*(rows.column(name).to_pylist() for name in PARTITION_KEY), strict=True):
            sources[topic][partition].append(source)
        return cls(sources)

    def why_unknown(self, wanted: TopicPartition, source: str | None) -> str:
        """The message that a partition is not in the catalog, or not in a source, and which ones are."""
        numbers = self.sources.get(wanted.topic)
        if numbers is None:
            topics = _similar_names(wanted.topic, sorted(self.sources))
            return f"no partition of topic {wanted.topic} in the catalog; there are {topics}"
        if wanted.partition not in numbers:
            partitions = _some_names([str(number) for number in sorted(numbers)])
            return f"no partition {wanted.partition} of topic {wanted.topic} in the catalog; there are {partitions}"
        return (
            f"{wanted.directory} is not in source {source}; it is in {_some_names(sorted(numbers[wanted.partition]))}"
        )


def no_such_partition(wanted: TopicPartition, known: Iterable[TopicPartition]) -> str:
    """The message that a partition to be looked up does not exist, with the most similar names that do."""
    there = sorted(partition.directory for partition in set(known))
    return f"no partition {wanted.directory} in it; it has {_similar_names(wanted.directory, there)}"


def _similar_names(name: str, there: Sequence[str]) -> str:
    """The names most similar to one that is not there; the first names if none is similar."""
    return _some_names(there, difflib.get_close_matches(name, there, n=_NAMED))


def _some_names(there: Sequence[str], chosen: Sequence[str] = ()) -> str:
    """The chosen names, or the first ones, and how many others there are."""
    named = chosen or there[:_NAMED]
    more = f" and {len(there) - len(named)} more" if len(there) > len(named) else ""
    return f"{', '.join(named) or 'none'}{more}"
