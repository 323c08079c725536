"""The plan of a build or an audit: the segments of sources as they are listed (`find_segments`), each with the
directory of its index files; and the tasks of workers: segments to read (`ScanTask`, `BuildTask`), and partitions to
finish once theirs were read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.catalog.matching import Flags, Longs, Positions, Values, numbers_in
from kidxlib.catalog.partitions import rows_of_keys
from kidxlib.catalog.segments import IntervalSource
from kidxlib.errors import CheckpointError, UsageError, describe_error
from kidxlib.format.segment_files import LOG_SUFFIX, NotASegment
from kidxlib.format.topic_partition import PartitionKey, TopicPartition
from kidxlib.indexing.bins import bins_of, threads_per_segment
from kidxlib.indexing.listed_segments import (
    LISTED,
    TO_READ,
    ListedSegments,
    partition_numbers,
    rows_of_partitions,
    runs_of_partitions,
    sum_of_bytes,
)
from kidxlib.indexing.listing import (
    SkippedEntries,
    UnlistableDirectory,
    list_segments,
    list_source_partitions,
    warnings_of_unlistable,
)
from kidxlib.indexing.source import FoundSegment, IndexPlace, PartitionDirectory, Source, SourceLog
from kidxlib.records.arrow_columns import numbers_array, words_array
from kidxlib.recovery.options import OptionsOfTopic, RecoverOptions
from kidxlib.storage.location import Directory, FileVersion, Location
from kidxlib.storage.log_dir import Checkpoints, read_topic_id, why_no_partitions
from kidxlib.storage.store.requests import in_order
from kidxlib.storage.store.s3 import ObjectPath
from kidxlib.text.words import counted

if TYPE_CHECKING:  # whoever reads no log does not wait for compiled loops
    from kidxlib.recovery.kept_scans import KeptScans
    from kidxlib.recovery.partition_fold import FoldState


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionTask:
    """One partition to finish.

    Attributes:
        key: its source, topic and number.
        segments_directory: where its logs are, and a broker's snapshots.
        index_directory: where its index files go.
        in_place: both are the same directory, so a broker's file is kept if no better one is certain.
        snapshots: publish producer snapshots too.
        epochs: publish the leader epoch checkpoint too.
        only: names of the files that may be written or removed; None for all.
        recovered: base offsets of segments that a broker would recover as it starts. Their transaction indexes, and the
            producer snapshots behind them, become those that it would make, also where what is there may know more.
        start: the state after the segments that are not folded again; None where all are.
        earlier: the base offsets of those segments that are present.
    """

    key: PartitionKey
    segments_directory: Directory
    index_directory: Directory
    in_place: bool
    snapshots: bool
    epochs: bool
    only: frozenset[str] | None = None
    recovered: frozenset[int] = frozenset()
    start: FoldState | None = None
    earlier: Sequence[int] = ()

    def may_write(self, name: str) -> bool:
        return self.only is None or name in self.only


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanTask:
    """One segment to read, and what its indexes are built with and where they go; or should be like, and are.

    Attributes:
        threads: how many may work on it at the same time.
    """

    segment: SourceLog
    options: RecoverOptions
    index_directory: Directory
    threads: int = 1

    @property
    def log_bytes(self) -> int:
        """The log's bytes as it was listed; 0 if it could not be looked at."""
        return self.segment.version.size if self.segment.version else 0

    def with_threads(self, threads: int) -> Self:
        return replace(self, threads=threads)


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildTask(ScanTask):
    """One segment to read and to index.

    Attributes:
        topic_id: from `partition.metadata`; None where there is none.
        interval_source: who chose the interval of its indexes, `settings` (or an option) or `compaction`.
        in_place: they go to the segment's own directory, so new files take the log's owner, group and mode.
        publish_truncated: publish the index of a valid prefix too.
        only: names of the files that may be written; None for all.
        all_facts: read all bytes for facts that headers do not give.
        kept_scans: of its partition; None where none were kept.
    """

    topic_id: str | None
    interval_source: IntervalSource
    in_place: bool
    publish_truncated: bool
    only: frozenset[str] | None = None
    all_facts: bool = False
    kept_scans: KeptScans | None = None


@dataclass(frozen=True, slots=True)
class AuxiliaryFiles:
    """Which files of a partition are written besides its indexes."""

    snapshots: bool = False
    epochs: bool = False


#: The words of the column `interval_source`.
INTERVAL_SOURCES: Final = [source.value for source in IntervalSource]
_INTERVAL_SOURCE: Final = {source.value: source for source in IntervalSource}
#: Segments of a share: an interrupted worker finishes the share that it has begun.
_SHARE_SEGMENTS: Final = 150
#: A repair may write all that is broken.
REPAIRED_AUXILIARY_FILES: Final = AuxiliaryFiles(snapshots=True, epochs=True)


@dataclass(frozen=True, slots=True)
class PlannedPartition:
    """A partition of a plan, as it was listed.

    Attributes:
        topic_id: None where there is no `partition.metadata`.
        index_directory: where its index files go, or are.
        choice: the options of its indexes, by the topic's id.
        only: names of the files that may be written; None for all.
        recovered: as in `PartitionTask`.
        kept_scans: as in `BuildTask`.
    """

    directory: PartitionDirectory
    topic_id: str | None
    index_directory: Directory
    choice: OptionsOfTopic
    only: frozenset[str] | None = None
    recovered: frozenset[int] = frozenset()
    kept_scans: KeptScans | None = None

    @property
    def key(self) -> PartitionKey:
        topic_partition = self.directory.topic_partition
        return self.directory.source.name, topic_partition.topic, topic_partition.partition

    @property
    def options(self) -> RecoverOptions:
        return self.choice.of_id(self.topic_id)

    @property
    def interval_source(self) -> IntervalSource:
        return IntervalSource.METADATA if self.choice.known_of(self.topic_id) else IntervalSource.SETTINGS

    @property
    def in_place(self) -> bool:
        """The index files are beside the logs."""
        return str(self.index_directory) == str(self.directory.path)

    def scan_tasks(self, rows: pa.Table) -> Iterator[ScanTask]:
        """The tasks to read segments. `rows` are of `LISTED`, all of this partition."""
        for row in rows.select(LISTED.names[1:]).to_pylist():
            segment = SourceLog(
                source=self.directory.source.name,
                topic_partition=self.directory.topic_partition,
                base_offset=row["base_offset"],
                path=str(self.directory.file(row["base_offset"], LOG_SUFFIX)),
                version=None
                if row["log_bytes"] is None
                else FileVersion(row["log_bytes"], row["log_mtime_ns"], row["log_inode"]),
                active=row["active"],
            )
            yield ScanTask(segment=segment, options=self.options, index_directory=self.index_directory)

    def to_build(self) -> PartitionToBuild:
        return PartitionToBuild(
            source=self.directory.source.name,
            topic_partition=self.directory.topic_partition,
            topic_id=self.topic_id,
            options=self.options,
            index_directory=self.index_directory,
            in_place=self.in_place,
            only=self.only,
            kept_scans=self.kept_scans,
        )

    def partition_task(self, auxiliary_files: AuxiliaryFiles) -> PartitionTask:
        return PartitionTask(
            key=self.key,
            segments_directory=Directory(str(self.directory.path), ""),
            index_directory=self.index_directory,
            in_place=self.in_place,
            snapshots=auxiliary_files.snapshots,
            epochs=auxiliary_files.epochs,
            only=self.only,
            recovered=self.recovered,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionToBuild:
    """What the tasks of a partition's segments have in common: see `BuildTask`."""

    source: str
    topic_partition: TopicPartition
    topic_id: str | None
    options: RecoverOptions
    index_directory: Directory
    in_place: bool
    only: frozenset[str] | None
    kept_scans: KeptScans | None

    def tasks(
        self, rows: pa.Table, paths: Sequence[str], *, publish_truncated: bool, threads: int
    ) -> Iterator[BuildTask]:
        """The tasks of segments, rows of `TO_READ`, whose logs have these paths."""
        columns = (rows[name].to_pylist() for name in TO_READ.names[1:])
        options = {
            interval: replace(self.options, interval_bytes=interval)
            for interval in np.unique(rows["interval_bytes"].to_numpy()).tolist()
        }
        for path, base_offset, log_bytes, mtime_ns, inode, active, interval, interval_source, all_facts in zip(
            paths, *columns, strict=True
        ):
            segment = SourceLog(
                source=self.source,
                topic_partition=self.topic_partition,
                base_offset=base_offset,
                path=path,
                version=None if log_bytes is None else FileVersion(log_bytes, mtime_ns, inode),
                active=active,
            )
            yield BuildTask(
                segment=segment,
                options=options[interval],
                index_directory=self.index_directory,
                threads=threads,
                topic_id=self.topic_id,
                interval_source=_INTERVAL_SOURCE[interval_source],
                in_place=self.in_place,
                publish_truncated=publish_truncated,
                only=self.only,
                all_facts=all_facts,
                kept_scans=self.kept_scans,
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentsToBuild:
    """Segments to read and to index, as columns: a worker gets them so, and makes their tasks.

    Attributes:
        partitions: those that the rows name by their position.
        rows: of `TO_READ`; those of a partition follow each other.
        paths: of the logs, a row each, as `os.fsencode` has them.
        publish_truncated: as in `BuildTask`.
        threads: as in `ScanTask`.
    """

    partitions: Sequence[PartitionToBuild]
    rows: pa.Table
    paths: Values
    publish_truncated: bool
    threads: int = 1

    def tasks(self) -> Iterator[BuildTask]:
        start = 0
        for number, rows in runs_of_partitions(self.rows):
            paths = [os.fsdecode(path) for path in self.paths.slice(start, rows.num_rows).to_pylist()]
            start += rows.num_rows
            yield from self.partitions[number].tasks(
                rows, paths, publish_truncated=self.publish_truncated, threads=self.threads
            )

    def in_bins(self, cores: int) -> list[list[SegmentsToBuild]]:
        """Cut the plan's segments into bins (`bins_of`), each in shares that a worker does one after the other."""
        threads = threads_per_segment(self.rows.num_rows, cores)
        return [
            [
                self._segments_at(np.array(bin_[start : start + _SHARE_SEGMENTS]), threads)
                for start in range(0, len(bin_), _SHARE_SEGMENTS)
            ]
            for bin_ in map(sorted, bins_of(numbers_in(self.rows["log_bytes"])[0].tolist(), cores))
        ]

    def _segments_at(self, which: Positions, threads: int) -> SegmentsToBuild:
        """Some of the segments: a copy, as a slice would take all of them to its worker."""
        places: Values = pa.array(which)
        rows = self.rows.take(places)
        kept = np.unique(partition_numbers(rows)).tolist()
        return replace(
            self,
            partitions=[self.partitions[number] for number in kept],
            rows=rows_of_partitions(rows, kept),
            paths=self.paths.take(places),
            threads=threads,
        )


@dataclass(slots=True)
class Plan:
    """The segments to read, what was skipped, and warnings for a person. A segment is a row of `segments`, and becomes
    a task only where it is read.
    """

    is_listed: bool = True  # else `segments` are not known: workers are to list the partitions
    segments: pa.Table = field(default_factory=LISTED.empty_table)  # rows of `LISTED`
    partitions: list[PlannedPartition] = field(default_factory=list)  # in the order of their keys
    log_dirs: set[str] = field(default_factory=set)  # names of sources that are log dirs, so were listed as a whole
    narrowed: set[str] = field(default_factory=set)  # names of sources some of whose topics were left out
    unlistable: dict[PartitionKey, UnlistableDirectory] = field(default_factory=dict)  # in the order of their keys
    empty: dict[str, Location] = field(default_factory=dict)  # by name, sources without any segment of any topic
    skipped: SkippedEntries = field(default_factory=SkippedEntries)
    warnings: list[str] = field(default_factory=list)
    checkpoints: Mapping[Location, Checkpoints] = field(default_factory=dict)  # of log dirs, from before the listing

    @property
    def log_bytes(self) -> int:
        return sum_of_bytes(self.segments)

    def by_partition(self) -> Iterator[tuple[PlannedPartition, pa.Table]]:
        """Each partition that has segments, with these."""
        for number, of_partition in runs_of_partitions(self.segments):
            yield self.partitions[number], of_partition

    def part(self, kept: Sequence[int], first: Sequence[int] | None = None) -> Plan:
        """A plan of the partitions with these numbers, in order; with `first`, only of their segments from these base
        offsets on.
        """
        segments = rows_of_partitions(self.segments, kept)
        if first is not None:
            from_offsets = np.array(first, np.int64)[partition_numbers(segments)]
            segments = segments.filter(pa.array(segments["base_offset"].to_numpy() >= from_offsets))
        return Plan(
            is_listed=self.is_listed,
            segments=segments,
            partitions=[self.partitions[number] for number in kept],
            unlistable=self.unlistable,
            empty=self.empty,
            skipped=self.skipped,
            checkpoints=self.checkpoints,
        )

    def scan_tasks(self) -> list[ScanTask]:
        return [task for listed, rows in self.by_partition() for task in listed.scan_tasks(rows)]

    def build_tasks(self, rows: pa.Table | None = None, *, publish_truncated: bool) -> list[BuildTask]:
        """The tasks of `to_build`."""
        return list(self.to_build(rows, publish_truncated=publish_truncated).tasks())

    def to_build(self, rows: pa.Table | None = None, *, publish_truncated: bool) -> SegmentsToBuild:
        """Segments to read and index. `rows` are of `TO_READ`; None for all segments. `publish_truncated`: also the
        index of a valid prefix.
        """
        rows = self.to_read() if rows is None else rows
        kept = np.unique(partition_numbers(rows)).tolist()
        return SegmentsToBuild(
            partitions=[self.partitions[number].to_build() for number in kept],
            rows=rows_of_partitions(rows, kept),
            paths=self.paths_in_bytes(rows),
            publish_truncated=publish_truncated,
        )

    def to_read(self) -> pa.Table:
        """All segments as rows of `TO_READ`, with the intervals that the options ask for."""
        intervals = np.array([partition.options.interval_bytes for partition in self.partitions], np.int64)
        sources = np.array(
            [INTERVAL_SOURCES.index(partition.interval_source) for partition in self.partitions], np.int32
        )
        rows, partitions = self.segments.num_rows, partition_numbers(self.segments)
        columns = [
            numbers_array(pa.int64(), intervals[partitions]),
            words_array(INTERVAL_SOURCES, sources[partitions]),
            pa.array(np.zeros(rows, np.bool_)),
        ]
        return pa.table([*self.segments.columns, *columns], schema=TO_READ)

    def keys(self, rows: pa.Table) -> pa.Table:
        """The catalog's keys of segments. `rows` are of `LISTED`, as in `paths_of_logs`."""
        keys = self.partition_keys().take(rows["listed_partition"])
        return keys.append_column("base_offset", rows["base_offset"])

    def partition_keys(self) -> pa.Table:
        return rows_of_keys([partition.key for partition in self.partitions])

    def paths_of_logs(self, rows: pa.Table) -> Values:
        """Paths as text: those that the catalog keeps are UTF-8 (`ensure_text`)."""
        return self.paths_in_bytes(rows).cast(pa.string())

    def paths_in_bytes(self, rows: pa.Table) -> Values:
        """The paths of logs as `os.fsencode` has them: a name on a disk may be any bytes."""
        beginnings: Values = pa.array(
            [os.fsencode(os.path.join(partition.directory.path, "")) for partition in self.partitions], pa.binary()
        )
        digits: Values = pc.utf8_lpad(rows["base_offset"].cast(pa.string()), 20, "0")
        names = pc.binary_join_element_wise(digits, LOG_SUFFIX, "").cast(pa.binary())
        paths: Values = pc.binary_join_element_wise(
            beginnings.take(rows["listed_partition"].combine_chunks()), names, b""
        )
        remote = np.array([partition.directory.remote is not None for partition in self.partitions], np.bool_)
        partitions = partition_numbers(rows)
        if not len(partitions) or not remote[partitions].any():
            return paths
        with_objects: list[Any] = paths.to_pylist()
        base_offsets = rows["base_offset"].to_pylist()
        for number in np.flatnonzero(remote[partitions]).tolist():
            directory = self.partitions[partitions[number]].directory
            with_objects[number] = os.fsencode(str(directory.file(base_offsets[number], LOG_SUFFIX)))
        return pa.chunked_array([pa.array(with_objects, pa.binary())])

    def bounds(self) -> Longs:
        """Where the rows of each partition begin in `segments`, and at the end the number of rows."""
        numbers = np.arange(len(self.partitions) + 1)
        return np.searchsorted(partition_numbers(self.segments), numbers).astype(np.int64)

    def have_segments(self) -> Flags:
        return np.diff(self.bounds()) > 0

    def judge_listing(
        self,
        sources: Iterable[Source],
        topics: re.Pattern[str],
        have_segments: Flags,
        may_be_empty: Callable[[Source], bool] = lambda source: False,
    ) -> None:
        """Say which sources have no segment, and warn of what was skipped. `have_segments` are flags of the partitions,
        `may_be_empty` is as in `find_segments`.
        """
        filled = {self.partitions[number].key[0] for number in np.flatnonzero(have_segments).tolist()}
        if not filled and not self.unlistable:
            raise UsageError(_nothing_found(sources, topics, self))
        in_part = {*self.narrowed, *(source for source, _, _ in self.unlistable)}
        for source in sources:
            is_listed = source.name not in in_part
            if source.name in filled or (is_listed and may_be_empty(source)):
                continue
            self.warnings.append(f"{source.path}: no segment found{why_no_partitions(source.path)}")
            if is_listed:
                self.empty[source.name] = source.path
        self.warnings[:0] = [
            *warnings_of_unlistable(self.unlistable.values()),
            *(f"{path}: skipped: {reason.in_words}" for path, reason in self.skipped.unexpected),
        ]

    def log_dirs_to_lock(self) -> list[Path]:
        """The log dirs of a plan that writes beside segments. Places where it may not are refused."""
        log_dirs = set()
        for partition in self.partitions:
            path = partition.directory.path
            if partition.directory.remote is not None:
                raise UsageError(
                    f"{path}: in a bucket of tiered storage, where a broker's plugin alone writes; write to "
                    "an --index-dir instead, and mend the bucket with kidx repair-tiered"
                )
            if not isinstance(path, Path):
                raise UsageError(
                    f"{path}: in an object store, where no lock keeps others out; write to an --index-dir instead"
                )
            if path.is_symlink():
                raise UsageError(
                    f"{path}: a symbolic link; writing in place follows none: name the directory it leads to"
                )
            log_dirs.add(path.parent)
        return sorted(log_dirs)


def find_segments(
    sources: Iterable[Source],
    topics: re.Pattern[str],
    index_place: IndexPlace,
    options_for: Callable[[PartitionDirectory], OptionsOfTopic],
    at_most: int | None = None,
    say_listed: Callable[[int], None] = lambda segments: None,
    may_be_empty: Callable[[Source], bool] = lambda source: False,
) -> Plan:
    """List the sources and plan the segments of topics whose full names match. Where there are more than `at_most`, the
    plan has partitions alone and is not `is_listed`. `say_listed` gets the number of segments that are listed so far;
    `may_be_empty` is asked about a source without a segment, and says whether nothing is missing there.
    """
    plan = find_partitions(sources, topics, index_place, options_for)
    if not add_segments(plan, at_most, say_listed):
        return find_partitions(sources, topics, index_place, options_for)
    plan.judge_listing(sources, topics, plan.have_segments(), may_be_empty)
    return plan


def find_partitions(
    sources: Iterable[Source],
    topics: re.Pattern[str],
    index_place: IndexPlace,
    options_for: Callable[[PartitionDirectory], OptionsOfTopic],
) -> Plan:
    """List the sources, but not what is in their partitions: a plan that is not `is_listed`."""
    plan = Plan(is_listed=False)
    for source in sources:
        partitions = list_source_partitions(source, plan.skipped)
        wanted = [partition for partition in partitions if topics.fullmatch(partition.topic_partition.topic)]
        if all(partition.path != source.path for partition in partitions):
            plan.log_dirs.add(source.name)
        if wanted != partitions:
            plan.narrowed.add(source.name)
        for directory in wanted:
            choice = options_for(directory)
            plan.partitions.append(PlannedPartition(directory, None, index_place.directory(directory), choice))
    plan.partitions.sort(key=lambda partition: partition.key)
    return plan


def add_segments(
    plan: Plan, at_most: int | None = None, say_listed: Callable[[int], None] = lambda segments: None
) -> bool:
    """List the partitions of a plan, those in object stores several at a time. One whose directory cannot be listed is
    noted, and the others are listed. Returns whether all were listed, as there are not more segments than `at_most`;
    else the plan is of no use any more.
    """
    listed, count = ListedSegments(), 0
    partitions = list(plan.partitions)
    is_in_store = any(isinstance(partition.directory.path, ObjectPath) for partition in partitions)
    listings = in_order(_listing_of, partitions) if is_in_store else map(_listing_of, partitions)
    for number, (partition, listing) in enumerate(zip(partitions, listings, strict=True)):
        if isinstance(listing, OSError):
            why = listing.strerror or type(listing).__name__
            plan.unlistable[partition.key] = UnlistableDirectory(str(partition.directory.path), why)
            plan.skipped.counts[NotASegment.UNLISTABLE_DIRECTORY] += 1
            continue
        plan.partitions[number] = replace(partition, topic_id=listing.topic_id)
        plan.skipped.merge(listing.skipped)
        plan.warnings += listing.warnings
        listed.add(number, listing.segments)
        count += len(listing.segments)
        say_listed(count)
        if at_most is not None and count > at_most:
            return False
    plan.segments = listed.table()
    plan.is_listed = True
    return True


@dataclass(frozen=True, slots=True)
class _Listing:
    segments: list[FoundSegment]
    skipped: SkippedEntries
    topic_id: str | None
    warnings: list[str]


def _listing_of(partition: PlannedPartition) -> _Listing | OSError:
    skipped, warnings = SkippedEntries(), list[str]()
    try:
        segments = list_segments(partition.directory, skipped)
    except OSError as error:
        return error
    if partition.directory.remote is not None:
        warnings += partition.directory.remote.warnings()
    return _Listing(segments, skipped, _topic_id(partition, warnings), warnings)


def _topic_id(partition: PlannedPartition, warnings: list[str]) -> str | None:
    if partition.directory.remote is not None:
        return partition.directory.remote.topic_id
    try:
        return read_topic_id(partition.directory.path)
    except (CheckpointError, OSError) as error:
        warnings.append(f"{describe_error(error)}; its topic id is taken as unknown")
        return None


def _nothing_found(sources: Iterable[Source], topics: re.Pattern[str], plan: Plan) -> str:
    where = ", ".join(str(source.path) for source in sources)
    if plan.partitions:
        directories = counted(len(plan.partitions), "partition directory", "partition directories")
        return f"{where}: no segment in {directories}; expected files named <20 digits>.log"
    of_topics = "" if topics.pattern == ".*" else f" of a topic that matches {topics.pattern}"
    why = "".join(why_no_partitions(source.path) for source in sources)
    return f"{where}: no partition directory{of_topics}; expected directories named <topic>-<partition>{why}"


def repair_plan(plan: Plan, broken: Mapping[PartitionKey, frozenset[str]]) -> Plan:
    """The part of a plan that rebuilds the files with these names, and no others."""
    part = plan.part([number for number, partition in enumerate(plan.partitions) if partition.key in broken])
    part.partitions = [replace(partition, only=broken[partition.key]) for partition in part.partitions]
    return part
