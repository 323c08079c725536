"""The plan of a reading: which part of which segment is read. It is made from names, checkpoints and indexes; logs are
read at single batches only. Begin at `plan_reads`.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, Final, TypeVar

from kidxlib.errors import KidxError, UsageError, describe_error
from kidxlib.format.checkpoint_files import HIGH_WATERMARK_CHECKPOINT
from kidxlib.format.layouts import NO_TIMESTAMP
from kidxlib.format.segment_files import LOG_SUFFIX, OFFSET_INDEX_SUFFIX, OFFSET_MAX, TIME_INDEX_SUFFIX, segment_file
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.indexing.listing import SkippedEntries, settled_segments
from kidxlib.indexing.source import NOT_SEEN, PartitionDirectory
from kidxlib.log.overlaps import LogRange, Overlap, overlaps_of
from kidxlib.log.remote.segments import VisibleOffsets
from kidxlib.lookup.checkpoint_evidence import ReadOffsets
from kidxlib.reading.aborted_ranges import AbortedRanges
from kidxlib.reading.brokers_metadata import log_dirs_without_metadata
from kidxlib.reading.cataloged_logs import CatalogedEvents, CatalogedLog, CatalogedLogs, CatalogedPartitionLogs
from kidxlib.reading.left_out import (
    LeftOut,
    WhyLeftOut,
    absent_as_left_out,
    folders_passed_over,
    gaps_between_logs,
    in_older_log_dirs,
    lines_of_left_out,
    may_be_elsewhere,
    other_topic_ids_as_left_out,
    remedy_of_unmounted,
    unmounted_log_dirs,
)
from kidxlib.reading.partition_ends import PartitionEnds, ReadingEnds
from kidxlib.reading.positions import (
    Bound,
    ListedLog,
    as_listed_logs,
    end_offset_by_index,
    index_path_of,
    read_between,
    reading_bounds,
    with_ends,
)
from kidxlib.reading.request import ReadRequest
from kidxlib.reading.segment_read import LogRead, SegmentRead
from kidxlib.reading.transactions import (
    LogToScan,
    PartitionToScan,
    ScanLogs,
    ScannedLog,
    Transactions,
    scan_in_threads,
    transactions_of,
)
from kidxlib.records.wanted_records import WantedRecords
from kidxlib.storage.location import FileVersion, location
from kidxlib.storage.log_dir import read_offset_checkpoint
from kidxlib.tables.protocol import TablesToRead
from kidxlib.text.words import counted

_Planned = TypeVar("_Planned")

_log: Final = logging.getLogger(__name__)

#: How many partitions are listed before their reads are planned: their logs may be scanned at the same time.
_PARTITIONS_AT_ONCE: Final = 1_000


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """What is read of which segment, and what is not read.

    Attributes:
        reads: in the order of topics, partitions and offsets.
        named_partitions: how many topics and offsets name, also if nothing in them is wanted.
        skipped_partitions, skipped_segments: how many have nothing wanted, by their names or by a catalog.
        skipped_bytes: the bytes of such segments, and those before and after the wanted part of others.
        first_offsets: the first wanted offset that may be there, for each partition that has wanted offsets.
        left_out: offsets that are not read, or are asked for and not there.
        failed: partitions that cannot be planned, and why, if that does not end the planning.
        unreadable: checkpoint files that are malformed, and what is done without them, a line each; and log dirs
            without the cluster's metadata, while another log dir is empty.
        of_another_time: log dirs that may be older than others of their broker, and copies of the metadata that cannot
            be read, so that older ones count; a line each.
        notes: what a person should know besides, a line each.
    """

    reads: tuple[SegmentRead, ...]
    named_partitions: int
    skipped_partitions: int
    skipped_segments: int
    skipped_bytes: int
    first_offsets: Mapping[TopicPartition, int]
    left_out: tuple[LeftOut, ...]
    failed: Mapping[TopicPartition, str]
    unreadable: tuple[str, ...]
    of_another_time: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def log_bytes(self) -> int:
        """The largest number of bytes of logs that are read."""
        return sum(read.log_bytes for read in self.reads)

    @property
    def segments(self) -> int:
        return len({read.log_path for read in self.reads})

    def __str__(self) -> str:
        return (
            f"{counted(self.segments, 'segment')} to read, {self.log_bytes:,} bytes of logs; passed over: "
            f"{counted(self.skipped_partitions, 'partition')}, {counted(self.skipped_segments, 'segment')}, "
            f"{self.skipped_bytes:,} bytes"
        ) + "".join(f"; {note}" for note in self.notes)

    @property
    def problems(self) -> list[str]:
        """What the caller should look at, a line for each kind."""
        problems = lines_of_left_out(left for left in self.left_out if left.is_problem)
        return [*self.unreadable, *self.of_another_time, *problems]

    @property
    def remarks(self) -> list[str]:
        """What else was asked for and is not there, or is left out as the caller asked, a line for each kind."""
        return list(lines_of_left_out(left for left in self.left_out if not left.is_problem))

    def warn_of_left_out(self) -> None:
        """Log what the plan leaves out, a line for each reason: problems as warnings, most remarks as information."""
        if not self.named_partitions:
            _log.warning("%s", "; ".join(self.notes))
        remarks = [left for left in self.left_out if not left.is_problem]
        not_known = [left for left in remarks if left.why is WhyLeftOut.FIRST_LOGS_NOT_KNOWN]
        for line in [*self.problems, *lines_of_left_out(not_known)]:
            _log.warning("%s", line)
        for line in lines_of_left_out(left for left in remarks if left.why is not WhyLeftOut.FIRST_LOGS_NOT_KNOWN):
            _log.info("%s", line)


def plan_reads(
    request: ReadRequest,
    *,
    goes_on: bool,
    threads: int = 1,
    scan: ScanLogs | None = None,
    part_bytes: int | None = None,
    catalog: TablesToRead | None = None,
    isolates: bool = False,
    looks_around: bool = True,
    read_offsets: ReadOffsets = read_offset_checkpoint,
) -> ReadPlan:
    """Plan what is read. Directories are listed, and checkpoint files are read. If reading begins or ends inside a
    segment, or the segment is divided, its `.index` is read, and a batch at each such place. If only committed records
    are read, logs of the partitions are scanned, see `transactions_of`.

    Args:
        goes_on: reading goes on after damage. Then each segment is read as a whole: on a damaged disk no index and no
            catalog is believed.
        threads: how many scan logs, if no `scan` is given.
        scan: scans logs elsewhere.
        part_bytes: larger segments are divided into parts of about so many bytes, if their indexes tell how; None to
            divide none.
        catalog: tells which times and transactions are in segments that have not changed since it was written; other
            segments are read.
        isolates: a partition that cannot be planned is told in the plan, and the others are read.
        looks_around: also tell which partitions are asked for and absent, and which of several log dirs of a broker are
            older than others.
        read_offsets: reads a checkpoint file.
    """
    skipped = SkippedEntries()
    directories = request.partitions(skipped)
    asked = [(directory, wanted) for directory in directories if (wanted := request.wanted(directory)) is not None]
    known, known_events = None, None
    if catalog is not None and not goes_on:
        known = CatalogedLogs.from_catalog(catalog, {directory.topic_partition.topic for directory, _ in asked})
        known_events = CatalogedEvents(catalog) if request.committed else None
    planner = _Planner(request, read_offsets, goes_on=goes_on, part_bytes=part_bytes, known=known, isolates=isolates)
    planner.named_partitions = sum(map(request.names, directories))
    planner.skipped_partitions = len(directories) - len(asked)
    for start in range(0, len(asked), _PARTITIONS_AT_ONCE):
        listed = planner.for_each(planner.list_logs, asked[start : start + _PARTITIONS_AT_ONCE])
        if request.committed:
            listed = planner.limit_to_committed(listed, scan or scan_in_threads(threads), known_events)
        planner.for_each(planner.add_partition, [(partition,) for partition in listed])
    if not planner.listed_segments and planner.skipped_partitions < max(len(directories), 1):
        raise UsageError(
            next(iter(planner.failed.values()), None)
            or f"{request.place}: no segment found; expected files named <20 digits>{LOG_SUFFIX}"
            + _if_unmounted(request)
        )
    there = {directory.topic_partition for directory in directories}
    if looks_around:
        planner.note_doubtful_partitions([directory for directory, _ in asked])
        planner.note_absent_partitions(there)
    planner.note_missing_names(there)
    planner.notes += _notes_on_sources(request, directories, len(asked), skipped)
    left_out_topics = {directory.topic_partition.topic for directory in directories if request.leaves_out(directory)}
    planner.left_out_topics = sorted(left_out_topics)
    return planner.plan()


def _if_unmounted(request: ReadRequest) -> str:
    unmounted = unmounted_log_dirs([source.path for source in request.sources])
    return "" if unmounted is None else f"; {remedy_of_unmounted(unmounted)}"


def _notes_on_sources(
    request: ReadRequest, directories: Sequence[PartitionDirectory], asked: int, skipped: SkippedEntries
) -> Iterator[str]:
    if directories and not asked:
        yield f"{request.place}: it has {counted(len(directories), 'partition')}, none of which is asked for"
    there = [directory.topic_partition for directory in directories]
    yield from folders_passed_over(request.place, skipped, there, filter(request.asks_for, there))
    for source in request.sources:
        if source.remote is not None and source.remote.visible is None:
            yield (
                f"{source.path}: all segments that lie there are read, also those that brokers do not read yet or any "
                "more, as no metadata is named (--tiered-metadata)"
            )


def _has_wanted_offsets(log: ListedLog, wanted: WantedRecords) -> bool:
    is_below = log.end_offset is not None and log.end_offset <= wanted.first_offset
    return not (wanted.is_empty or is_below or log.base_offset > wanted.last_offset)


@dataclass(frozen=True, slots=True)
class _LogToRead:
    """A segment's log as it was listed, and a catalog's facts of its present state.

    Attributes:
        visible: the offsets that consumers get of it, if its other offsets are copied in another segment, too; None for
            all.
        overlap: why it may not be the partition's, so that nothing of it is read; None for most.
    """

    listed: ListedLog
    version: FileVersion
    facts: CatalogedLog | None
    visible: VisibleOffsets | None = None
    overlap: Overlap | None = None

    def narrowed(self, wanted: WantedRecords) -> WantedRecords:
        """The part of a partition's wanted records that consumers get of this log."""
        if self.visible is None:
            return wanted
        first, last = self.visible.first_offset, self.visible.last_offset
        return replace(wanted, first_offset=max(wanted.first_offset, first), last_offset=min(wanted.last_offset, last))

    def to_scan(self, end_offset: int, *, goes_on: bool) -> LogToScan:
        """The log, to be scanned for what producers did before an offset, as far as consumers get it."""
        first_offset = 0 if self.visible is None else self.visible.first_offset
        return LogToScan(
            path=str(self.listed.path),
            base_offset=self.listed.base_offset,
            size=self.listed.size,
            is_last=self.visible is None and self.listed.end_offset is None,
            first_offset=first_offset,
            end_offset=end_offset if self.visible is None else min(end_offset, self.visible.last_offset + 1),
            goes_on=goes_on,
            known=self.facts if first_offset <= self.listed.base_offset else None,
        )

    def may_hold(self, wanted: WantedRecords) -> bool:
        is_without = self.facts is not None and self.facts.has_no_wanted_time(wanted)
        return _has_wanted_offsets(self.listed, wanted) and not is_without


@dataclass(frozen=True, slots=True)
class _PartitionToRead:
    """A partition as it was listed, with its logs in order.

    Attributes:
        limit: transactions that end there or later do not count: the high watermark; None for no limit.
        must_reach: the log has to go on to this offset; None if no checkpoint says so, or it is told that it does not.
        seen: the wanted records, within what consumers see.
        aborted: the transactions whose records are left out.
    """

    directory: PartitionDirectory
    logs: Sequence[_LogToRead]
    limit: int | None
    must_reach: int | None
    seen: WantedRecords
    aborted: AbortedRanges = field(default_factory=AbortedRanges)


def _visible_part(directory: PartitionDirectory, base_offset: int) -> VisibleOffsets | None:
    """The offsets that consumers get of a segment; None if they get all."""
    visible = None if directory.remote is None else directory.remote.files().visible.get(base_offset)
    return None if visible is None or visible.is_whole else visible


def _known_end(partition: _PartitionToRead, log: _LogToRead, seen: WantedRecords) -> LogRead | None:
    """A log that is not read as a catalog knows that its times are not wanted, as if it were read to its end: a gap
    behind it may have had wanted times. None if the catalog does not know where it ends.
    """
    row, listed = None if log.facts is None else log.facts.row, log.listed
    if row is None or row.next_offset is None or log.overlap is not None:
        return None
    is_older = row.max_timestamp_ms is not None and row.max_timestamp_ms < seen.first_ms
    ends_ms = row.max_timestamp_ms if is_older else row.smallest_timestamp_ms
    goes_on = listed.end_offset is not None and row.next_offset <= seen.last_offset
    return LogRead(
        topic=partition.directory.topic_partition.topic,
        partition=partition.directory.topic_partition.partition,
        log_path=str(listed.path),
        next_offset=row.next_offset,
        end_offset=listed.end_offset if goes_on and listed.end_offset is not None else row.next_offset,
        lacks_records=row.records is not None and row.records < row.next_offset - listed.base_offset,
        ends_ms=NO_TIMESTAMP if ends_ms is None else ends_ms,
        first_ms=seen.first_ms,
        last_ms=seen.last_ms,
    )


class _Planner:
    def __init__(
        self,
        request: ReadRequest,
        read_offsets: ReadOffsets,
        *,
        goes_on: bool,
        part_bytes: int | None,
        known: CatalogedLogs | None,
        isolates: bool,
    ) -> None:
        self.named_partitions = self.skipped_partitions = 0
        self.listed_segments = 0
        self.notes: list[str] = []
        self.left_out_topics: list[str] = []
        self.failed: dict[TopicPartition, str] = {}
        self._request, self._goes_on, self._part_bytes, self._known = request, goes_on, part_bytes, known
        self._isolates = isolates
        self._ends = ReadingEnds(request, read_offsets)
        self._left_out: list[LeftOut] = []
        self._known_ends: list[LogRead] = []
        self._of_another_time: list[str] = []
        self._reads: list[SegmentRead] = []
        self._skipped_segments = self._skipped_bytes = 0
        self._first_offsets: dict[TopicPartition, int] = {}
        self._ended_at_watermark = self._read_to_log_end = 0
        self._beyond_watermark: list[int] = []
        self._scanned_logs = self._scanned_bytes = 0

    def plan(self) -> ReadPlan:
        self._left_out += gaps_between_logs(self._known_ends)
        if self._ended_at_watermark:
            self.notes.append(
                f"read to the high watermark, which {HIGH_WATERMARK_CHECKPOINT} says: "
                f"{counted(self._ended_at_watermark, 'partition')}"
            )
        if self._beyond_watermark:
            self.notes.append(
                f"read to the end of the log, {counted(sum(self._beyond_watermark), 'offset')} beyond the high "
                f"watermark that {HIGH_WATERMARK_CHECKPOINT} has, as no broker runs on this log dir and the cluster's "
                f"metadata has no other replica: {counted(len(self._beyond_watermark), 'partition')}"
            )
        if self._read_to_log_end:
            self.notes.append(
                f"read to the end of the log, as no {HIGH_WATERMARK_CHECKPOINT} says how far: "
                f"{counted(self._read_to_log_end, 'partition')}"
            )
        if self.left_out_topics:
            self.notes.append(f"not read, as brokers keep them for themselves: {', '.join(self.left_out_topics)}")
        if self._scanned_logs:
            self.notes.append(
                f"scanned for transactions: {counted(self._scanned_logs, 'log')}, {self._scanned_bytes:,} bytes"
            )
        return ReadPlan(
            reads=tuple(self._reads),
            named_partitions=self.named_partitions,
            skipped_partitions=self.skipped_partitions,
            skipped_segments=self._skipped_segments,
            skipped_bytes=self._skipped_bytes,
            first_offsets=self._first_offsets,
            left_out=tuple(self._left_out),
            failed=self.failed,
            unreadable=tuple(self._ends.unreadable),
            of_another_time=tuple(self._of_another_time),
            notes=tuple(self.notes),
        )

    def for_each(self, step: Callable[..., _Planned], partitions: Iterable[tuple[Any, ...]]) -> list[_Planned]:
        """The results of a step for partitions. One that cannot be planned ends all, or is noted and left out.

        `partitions` are the arguments of the step, the first of which is a partition.
        """
        results: list[_Planned] = []
        for arguments in partitions:
            try:
                results.append(step(*arguments))
            except (OSError, KidxError) as error:
                if not self._isolates:
                    raise
                directory = arguments[0].directory if isinstance(arguments[0], _PartitionToRead) else arguments[0]
                self.failed[directory.topic_partition] = describe_error(error)
        return results

    def list_logs(self, directory: PartitionDirectory, wanted: WantedRecords) -> _PartitionToRead:
        known = CatalogedPartitionLogs() if self._known is None else self._known.of_partition(directory.topic_partition)
        listed_logs = as_listed_logs(directory, settled_segments(directory))
        overlaps = self._overlaps(directory, listed_logs, wanted, known)
        logs, in_sequence = list[_LogToRead](), list[tuple[ListedLog, FileVersion]]()
        for log, version in listed_logs:
            overlap = overlaps.get(log.base_offset)
            if overlap is None or not overlap.is_between:
                in_sequence.append((log, version))
            else:
                logs.append(_LogToRead(replace(log, end_offset=overlap.end_offset), version, None, overlap=overlap))
        in_sequence = with_ends(in_sequence)
        ends = self._ends.of_partition(directory, [log for log, _ in in_sequence], wanted)
        self._note_ends(ends)
        for log, version in in_sequence:
            visible = _visible_part(directory, log.base_offset)
            # Offsets beyond such a part are in another segment, too, and no damage.
            listed = log if visible is None else replace(log, end_offset=None)
            facts = known.log(log.path, log.base_offset, version)
            if facts is not None and log.end_offset is None and not facts.reaches(ends.high_watermark or 0):
                facts = None  # the log is damaged, and reading it tells so
            logs.append(_LogToRead(listed, version, facts, visible, overlaps.get(log.base_offset)))
        logs.sort(key=lambda log: log.listed.base_offset)
        must_reach = None if ends.is_short and self._isolates else ends.high_watermark
        return _PartitionToRead(directory, logs, ends.limit, must_reach, ends.seen)

    def _overlaps(
        self,
        directory: PartitionDirectory,
        logs: Sequence[tuple[ListedLog, FileVersion]],
        wanted: WantedRecords,
        known: CatalogedPartitionLogs,
    ) -> Mapping[int, Overlap]:
        """The wanted logs that may be another partition's, if indexes lead near the ends of logs: otherwise reading
        meets the overlap. In a bucket logs overlap as they should; a log that is asked for by its name is read as it
        is.
        """
        is_cheap = isinstance(directory.path, Path) or self._goes_on  # in an object store each look is two requests
        if directory.remote is not None or self._request.log_name is not None or not is_cheap:
            return {}

        @functools.cache
        def end(log: ListedLog, version: FileVersion, *, is_near: bool = False) -> int:
            facts = known.log(log.path, log.base_offset, version)
            index = index_path_of(directory, self._request.index_dir, log)
            offset = end_offset_by_index(log, index, is_near=is_near) if facts is None else facts.row.next_offset
            return log.base_offset if offset is None else max(offset, log.base_offset)

        asked = [number for number, (log, _) in enumerate(logs) if _has_wanted_offsets(log, wanted)]
        around = logs[max(asked[0] - 1, 0) : asked[-1] + 1] if asked else ()
        ends = [(end(log, version, is_near=True), log.end_offset) for log, version in around]
        if not any(following is not None and log_end > following for log_end, following in ends):
            return {}
        return overlaps_of([LogRange(log.base_offset, end(log, version)) for log, version in logs])

    def note_absent_partitions(self, there: Collection[TopicPartition]) -> None:
        """Note which partitions are asked for and have no directory, though the cluster's metadata has them; and log
        dirs without metadata.
        """
        whole = {source.path for source in self._request.sources if source.remote is None}
        by_name = self._request.is_by_name
        self._left_out += absent_as_left_out(whole, self._request.asks_for, self._ends.brokers, there, by_name=by_name)
        unmounted = unmounted_log_dirs(whole)
        without = log_dirs_without_metadata(whole, self._ends.brokers)
        lines = [may_be_elsewhere(log_dir, unmounted) for log_dir in without]
        if unmounted is None:
            self.notes += lines
        else:
            self._ends.unreadable += lines

    def note_missing_names(self, there: Collection[TopicPartition]) -> None:
        """Note which partitions are asked for by name and are not known anywhere, if others that are named exist."""
        if self.named_partitions:
            known = {*there, *(left.partition for left in self._left_out)}
            missing = self._request.missing_names(known)
            self._left_out += [LeftOut(partition=partition, why=WhyLeftOut.NOT_ANYWHERE) for partition in missing]

    def note_doubtful_partitions(self, directories: Iterable[PartitionDirectory]) -> None:
        """Note which partitions are in a log dir that is older than another one of its broker, or have another topic's
        id.
        """
        there = [(directory.topic_partition, directory.log_dir) for directory in directories]
        left_out, of_another_time = in_older_log_dirs(self._ends.brokers, there)
        self._of_another_time += of_another_time
        self._left_out += [*left_out, *other_topic_ids_as_left_out(self._ends.brokers, there)]

    def _note_ends(self, ends: PartitionEnds) -> None:
        self._left_out += ends.left_out
        if ends.beyond:
            self._beyond_watermark.append(ends.beyond)
        elif not self._request.to_log_end:
            self._ended_at_watermark += ends.high_watermark is not None
            self._read_to_log_end += ends.high_watermark is None

    def limit_to_committed(
        self, partitions: Sequence[_PartitionToRead], scan: ScanLogs, known_events: CatalogedEvents | None
    ) -> list[_PartitionToRead]:
        """Partitions up to their last stable offsets, without aborted transactions."""

        def scan_counted(logs: Sequence[LogToScan]) -> Generator[ScannedLog, None, None]:
            self._scanned_logs += len(logs)
            self._scanned_bytes += sum(log.log_bytes for log in logs)
            return scan(logs)

        def limited(*group: _PartitionToRead) -> list[_PartitionToRead]:
            transactions = transactions_of([*map(self._to_scan, group)], scan_counted, known_events)
            return [self._up_to_stable(*pair) for pair in zip(group, transactions, strict=True)]

        try:
            return limited(*partitions)
        except (OSError, KidxError):
            if not self._isolates:
                raise
        # One of them is damaged: each partition alone, so that the others are read.
        return [*chain.from_iterable(self.for_each(limited, [(partition,) for partition in partitions]))]

    def _up_to_stable(self, partition: _PartitionToRead, transactions: Transactions) -> _PartitionToRead:
        seen, stable = partition.seen, transactions.last_stable_offset
        if max(stable, seen.first_offset) <= seen.last_offset and stable < OFFSET_MAX and partition.logs:
            self._left_out.append(
                LeftOut(
                    partition=partition.directory.topic_partition,
                    why=WhyLeftOut.BEYOND_LAST_STABLE_OFFSET,
                    first_offset=max(stable, seen.first_offset),
                    end_offset=None if seen.last_offset == OFFSET_MAX else seen.last_offset + 1,
                    edge=stable,
                    is_problem=False,
                )
            )
        seen = replace(seen, last_offset=min(seen.last_offset, stable - 1))
        return replace(partition, seen=seen, aborted=transactions.aborted)

    def _to_scan(self, partition: _PartitionToRead) -> PartitionToScan:
        """A partition with the logs that may tell how transactions ended; with no log if none is wanted."""
        end_offset = OFFSET_MAX if partition.limit is None else partition.limit
        own = [log for log in partition.logs if log.overlap is None]
        wanted = [log for log in own if self._is_asked_for(log) and log.may_hold(partition.seen)]
        last = wanted[-1].listed.end_offset if wanted else None
        last_offset = partition.seen.last_offset if last is None else min(partition.seen.last_offset, last - 1)
        logs = [
            log.to_scan(end_offset, goes_on=self._goes_on)
            for log in (own if wanted else ())
            if log.listed.base_offset < end_offset
        ]
        return PartitionToScan(logs=logs, end_offset=end_offset, last_offset=last_offset)

    def _is_asked_for(self, log: _LogToRead) -> bool:
        return self._request.log_name in (None, log.listed.path.name)

    def add_partition(self, partition: _PartitionToRead) -> None:
        for log in partition.logs:
            if not self._is_asked_for(log):
                continue
            seen = log.narrowed(partition.seen)
            self.listed_segments += 1
            has_offsets = _has_wanted_offsets(log.listed, seen)
            if has_offsets:
                first_offset = max(log.listed.base_offset, seen.first_offset)
                self._first_offsets.setdefault(partition.directory.topic_partition, first_offset)
            if not log.may_hold(seen):
                self._skipped_segments += 1
                self._skipped_bytes += max(log.listed.size, 0)
                if has_offsets and (known_end := _known_end(partition, log, seen)) is not None:
                    self._known_ends.append(known_end)
                continue
            if log.listed.size == NOT_SEEN:
                log.listed.path.stat()  # raises what is wrong with it
            if log.overlap is not None:
                self._add_refused(partition, log, log.overlap)
            else:
                self._add_log(partition, log)

    def _add_refused(self, partition: _PartitionToRead, log: _LogToRead, overlap: Overlap) -> None:
        """Add a log of which nothing is read, as damage."""
        name, wanted = partition.directory.topic_partition, log.narrowed(partition.seen)
        read = read_between(name, log.listed, log.version, log.listed.whole, wanted)
        self._reads.append(replace(read, next_offset=overlap.end_offset, refused=overlap.why))

    def _add_log(self, partition: _PartitionToRead, log: _LogToRead) -> None:
        directory, listed, facts, seen = partition.directory, log.listed, log.facts, log.narrowed(partition.seen)
        bounds = self._bounds(directory, listed, seen, facts)
        self._skipped_bytes += listed.size - (bounds[-1].position - bounds[0].position)
        for start, stop in pairwise(bounds):
            read = read_between(directory.topic_partition, listed, log.version, (start, stop), seen)
            end_offset = OFFSET_MAX if stop.offset is None else stop.offset
            aborted = partition.aborted.between(read.last_offset_before + 1, end_offset)
            records = facts.records(seen) if facts is not None and bounds == listed.whole and not aborted else None
            self._reads.append(
                replace(
                    read,
                    must_reach=partition.must_reach if stop.offset is None else None,
                    aborted=aborted,
                    records=records,
                    next_offset=None if facts is None or records is None else facts.row.next_offset,
                    goes_on_at=None if log.visible is None or stop.offset is not None else log.visible.last_offset + 1,
                )
            )

    def _bounds(
        self, directory: PartitionDirectory, log: ListedLog, seen: WantedRecords, facts: CatalogedLog | None
    ) -> tuple[Bound, ...]:
        if self._goes_on:
            return log.whole
        if self._request.index_dir is not None:
            indexes = self._request.index_dir / directory.topic_partition.directory
        else:
            indexes = directory.path if facts is None else location(facts.row.index_directory)
        is_beside = indexes == directory.path
        index_name = segment_file(log.base_offset, OFFSET_INDEX_SUFFIX)
        index_path = directory.file(log.base_offset, OFFSET_INDEX_SUFFIX) if is_beside else indexes / index_name
        if facts is None:
            return reading_bounds(log, index_path, seen, self._part_bytes)
        time_index = indexes / segment_file(log.base_offset, TIME_INDEX_SUFFIX)
        first_offset = max(seen.first_offset, facts.first_offset(seen, time_index))
        offsets = replace(seen, first_offset=first_offset)
        return reading_bounds(log, index_path, offsets, self._part_bytes, facts.end_position(seen))
