"""Plans in the driver which parts of which segments are read: of a DataFrame (`plan_source`), and of each micro-batch
of a stream (`StreamPlanner`). Then divides these among tasks (`divide_into_tasks`).

A micro-batch has some offsets of each partition, and ends where a limit is reached, if one is given. Partitions and
their logs are listed anew for each.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, Protocol, TypeVar

from kidxlib.errors import DamagedLogError, LostRecordsError, UsageError
from kidxlib.format.checkpoint_files import HIGH_WATERMARK_CHECKPOINT
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.indexing.source import PartitionDirectory, existing_index_dir
from kidxlib.jit.machine import cores
from kidxlib.reading.aborted_ranges import AbortedRanges
from kidxlib.reading.brokers_metadata import BrokersMetadata
from kidxlib.reading.left_out import (
    LeftOut,
    WhyLeftOut,
    absent_as_left_out,
    in_older_log_dirs,
    lines_of_left_out,
    other_topic_ids_as_left_out,
)
from kidxlib.reading.plan import ReadPlan, plan_reads
from kidxlib.reading.positions import JoinedLogs, JoinedLogsEnd, PartitionPlace, listed_logs
from kidxlib.reading.request import ISOLATIONS, READ_COMMITTED, OffsetRange, ReadRequest, Times, read_request
from kidxlib.reading.segment_read import SegmentRead
from kidxlib.reading.transactions import FollowedTransactions
from kidxlib.reading.walk import walk_to_time
from kidxlib.records.wanted_records import WantedRecords
from kidxlib.run.context import existing_catalog_tables
from kidxlib.spark.pushed_filters import Pushed
from kidxlib.spark.source_options import (
    LATEST,
    SourceLimitOption,
    SourceOptions,
    SourceTopicsOption,
    StreamOptions,
    TriggerLimits,
)
from kidxlib.spark.stream_offsets import Numbers, StreamOffsets
from kidxlib.spark.task_rows import damage_taker
from kidxlib.storage.log_dir import Checkpoints, read_checkpoints

_log: Final = logging.getLogger(__name__)

_EVERYTHING: Final[OffsetRange] = (None, None)
_EVERY: Final = WantedRecords()

#: A larger segment is read by several tasks, where its index tells how to divide it.
PART_BYTES: Final = 128 * 1024 * 1024
#: One task reads segments of about so many bytes together; a larger segment, or each part of it, has its own task. To
#: start a task takes Spark as long as to read a few megabytes.
_TASK_BYTES: Final = 32 * 1024 * 1024


class _HasLogBytes(Protocol):
    @property
    def log_bytes(self) -> int: ...


_R = TypeVar("_R", bound=_HasLogBytes)


def divide_into_tasks(reads: Iterable[_R]) -> list[tuple[_R, ...]]:
    """Divide segments to read or to scan, and parts of segments, among tasks of Spark, in order."""
    tasks: list[tuple[_R, ...]] = []
    task: list[_R] = []
    size = 0
    for read in reads:
        if task and size + read.log_bytes > _TASK_BYTES:
            tasks.append(tuple(task))
            task, size = [], 0
        task.append(read)
        size += read.log_bytes
    return [*tasks, tuple(task)] if task else tasks


def plan_source(options: SourceOptions, pushed: Pushed) -> ReadPlan:
    """Plan the reads, narrowed by filters, as `plan_reads`. If options have times, logs are scanned for the offsets."""
    everything = _source_request(options, None)
    there = everything.partitions()
    partitions = options.topics.among(there)
    for limit in (options.start, options.end):
        limit.ensure_names(partitions)
    partitions = [partition for partition in partitions if pushed.holds(partition)]
    starts = _offsets_of(options, options.start, partitions)
    ends = _offsets_of(options, options.end, partitions)
    offsets: dict[TopicPartition, OffsetRange] = {}
    for partition in partitions:
        start, end = starts[partition], ends[partition]
        if options.start.is_time and start is None:
            _ensure_may_be_skipped(options, partition)
            continue
        first = pushed.wanted.first_offset if start is None else max(start, pushed.wanted.first_offset)
        until = pushed.wanted.last_offset + 1 if end is None else min(end, pushed.wanted.last_offset + 1)
        if first < until:  # None where nobody asked for a limit: the plan tells what is missing up to a limit
            offsets[partition] = (
                None if first <= max(_EVERY.first_offset, 0) else first,
                None if until > _EVERY.last_offset else until,
            )
    times = (pushed.wanted.first_ms, pushed.wanted.last_ms + 1) if offsets else None
    plan = _plan(options, _source_request(options, offsets, options.isolation, times))
    brokers = BrokersMetadata(everything.log_dirs)
    absent = _absent_of(options, everything, brokers, {directory.topic_partition for directory in there})
    absent = [left for left in absent if pushed.holds(left.partition)]
    plan = replace(plan, left_out=(*plan.left_out, *absent))
    if options.fails_on_loss and not options.start.is_time:
        _ensure_not_gone(options, offsets, plan)
    return plan


def _ensure_not_gone(options: SourceOptions, offsets: Mapping[TopicPartition, OffsetRange], plan: ReadPlan) -> None:
    for partition, first in plan.first_offsets.items():
        start = options.start.of_partition(partition)
        if start is not None and first > (offsets[partition][0] or 0):
            raise UsageError(
                f"{options.start.option} of {partition.directory}: {start}, but the first offset "
                f"that is left is {first}; failOnDataLoss=false begins there"
            )


class StreamPlanner:
    """Plans the micro-batches of a stream, one after the other, where the driver is.

    Attributes:
        latest: the ends of partitions when they were looked at last; None before that.
    """

    def __init__(self, options: StreamOptions) -> None:
        self.latest: Numbers | None = None
        self._options = options.source
        self._logs = _StreamLogs(options.source)
        self._until: Numbers | None = None
        self._warned: set[str] = set()

    def stop_at_what_is_there(self) -> None:
        """Read no records that are written from now on, and no new partitions. The log tells which offsets are left out
        beyond high watermarks: the query ends before them.
        """
        there = self._logs.look({})
        self._until = {partition: available.end for partition, available in there.items()}
        beyond = [
            LeftOut(
                partition=partition,
                why=WhyLeftOut.BEYOND_HIGH_WATERMARK,
                first_offset=available.limit,
                end_offset=available.log_end,
                edge=available.limit,
            )
            for partition, available in sorted(there.items())
            if available.limit < available.log_end
        ]
        for line in lines_of_left_out(beyond):
            _log.warning("%s", line)

    def next_end(self, start: StreamOffsets | None, limits: TriggerLimits) -> StreamOffsets:
        """Where the micro-batch from a start on ends: at the start, if there is nothing to read. `start` is None at the
        beginning of a stream.
        """
        if self.latest is None:
            self._warn_of_log_dirs()
        there = self._logs.look({} if start is None else start.ends, at_start=start is None)
        starts = self._starts(there) if start is None else start.ends
        begins = {
            partition: self._begin(partition, starts.get(partition, 0), there.get(partition))
            for partition in starts.keys() | there
        }
        self.latest = {partition: available.end for partition, available in there.items()}
        ends = self.latest
        if (until := self._until) is not None:
            ends = {partition: min(end, until[partition]) for partition, end in ends.items() if partition in until}
        lags = [
            _StreamLag(partition, there[partition].logs, begins[partition], end)
            for partition, end in ends.items()
            if end > begins[partition]
        ]
        taken = _cut(sorted(lags, key=lambda lag: lag.partition), limits)
        new_ends = {partition: begins[partition] for partition in starts}
        new_ends |= {partition: part.end for partition, part in taken.items()}
        if start is not None and new_ends == start.ends:
            return start
        log_bytes = {partition: part.log_bytes for partition, part in taken.items()}
        return StreamOffsets(new_ends, log_bytes, starts if start is None else None)

    def _warn_of_log_dirs(self) -> None:
        """Warn of log dirs that are older than others, and of partitions with another topic's id or without a
        directory: once, and not for each micro-batch.
        """
        request = _source_request(self._options, None)
        brokers, listed = BrokersMetadata(request.log_dirs), request.partitions()
        _, older = in_older_log_dirs(brokers, ())
        there = ((directory.topic_partition, directory.log_dir) for directory in filter(request.names, listed))
        absent = _absent_of(self._options, request, brokers, {directory.topic_partition for directory in listed})
        doubtful = [*other_topic_ids_as_left_out(brokers, there), *(left for left in absent if left.is_problem)]
        for line in (*older, *lines_of_left_out(doubtful)):
            _log.warning("%s", line)

    def _starts(self, there: Mapping[TopicPartition, _Available]) -> Numbers:
        limit, partitions = self._options.start, sorted(there)
        limit.ensure_names(partitions)
        if limit.is_time:
            offsets = _offsets_of(self._options, limit, partitions)
            for partition, offset in offsets.items():
                if offset is None:
                    _ensure_may_be_skipped(self._options, partition)
            return {
                partition: there[partition].end if offset is None else offset for partition, offset in offsets.items()
            }
        return {partition: _start(limit.of_partition(partition), there[partition]) for partition in partitions}

    def _begin(self, partition: TopicPartition, start: int, available: _Available | None) -> int:
        """Where reading of a partition goes on: at its start, or at the end of its log if that is before."""
        if available is None:
            self._lose(partition, f"it was read up to offset {start}, and is not there any more, or not asked for")
            return start
        log_end = available.log_end
        if start > log_end:
            self._lose(
                partition,
                f"offsets {log_end} to {start - 1} are gone: the log ends before {log_end}, and was read up to "
                f"{start}; it was truncated",
            )
        return min(start, log_end)

    def plan(self, start: StreamOffsets | None, end: StreamOffsets) -> ReadPlan | None:
        """The reads of a micro-batch, also of one that a process has planned that has ended since; None if there are
        none.
        """
        starts = (end.starts or {}) if start is None else start.ends
        wanted = {partition: (starts.get(partition, 0), until) for partition, until in sorted(end.ends.items())}
        wanted = {partition: limits for partition, limits in wanted.items() if limits[0] < limits[1]}
        there = self._logs.look(starts) if wanted else {}
        if any(available.end < wanted[each][1] for each, available in there.items() if each in wanted):
            # The high watermark went back. The log tells how transactions ended that were decided then.
            there = _StreamLogs(replace(self._options, to_log_end=True)).look(starts)
        offsets: dict[TopicPartition, OffsetRange] = {}
        for partition, (first, until) in wanted.items():
            available = there.get(partition)
            if (lost := _lost(available, first, until, end.log_bytes.get(partition))) is not None:
                self._lose(partition, lost)
            if available is not None and max(first, available.first_offset) < min(until, available.log_end):
                offsets[partition] = max(first, available.first_offset), min(until, available.log_end)
        if not offsets:
            return None
        # The planned offsets are read, wherever the high watermark is now.
        request = _source_request(replace(self._options, to_log_end=True), offsets)
        plan = plan_reads(request, goes_on=False, threads=cores(), part_bytes=PART_BYTES, looks_around=False)
        return replace(plan, reads=tuple(_without_aborted(read, there) for read in plan.reads))

    def _lose(self, partition: TopicPartition, what: str) -> None:
        message = f"{', '.join(self._options.paths)}: {partition.directory}: {what}"
        if self._options.fails_on_loss:
            raise LostRecordsError(f"{message}; failOnDataLoss=false goes on with what is there")
        if message not in self._warned:
            self._warned.add(message)
            _log.warning("%s", message)


def _start(number: int | None, available: _Available) -> int:
    """The offset for an option's number."""
    if number is None:
        return available.first_offset
    return available.end if number == LATEST else number


def _without_aborted(read: SegmentRead, there: Mapping[TopicPartition, _Available]) -> SegmentRead:
    end_offset = WantedRecords().last_offset if read.end_offset is None else read.end_offset
    aborted = there[TopicPartition(read.topic, read.partition)].aborted
    return replace(read, aborted=aborted.between(read.last_offset_before + 1, end_offset))


def _lost(available: _Available | None, first: int, until: int, log_bytes: int | None) -> str | None:
    """Which of the planned offsets are gone, in words; None if nothing shows a loss.

    Holes of compaction are no loss if they were there when the micro-batch was planned: in an unchanged log the same
    number of bytes lies between two offsets.
    """
    if available is None:
        return f"offsets {first} to {until - 1} are gone, with the log"
    if available.first_offset > first:
        left = f"the first one that is left is {available.first_offset}"
        return f"offsets {first} to {min(until, available.first_offset) - 1} are gone: {left}"
    if available.log_end < until:
        left = f"the log ends before {available.log_end}; it was truncated"
        return f"offsets {max(first, available.log_end)} to {until - 1} are gone: {left}"
    now = available.logs.position_of(until) - available.logs.position_of(first)
    if log_bytes is not None and now != log_bytes:
        return (
            f"offsets {first} to {until - 1} are {now} bytes of batches, and were {log_bytes} when they were planned: "
            "they were compacted since, or truncated and others written"
        )
    return None


class _StreamLogs:
    """Remembers where logs end, so that only new batches are read."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._ends: dict[TopicPartition, JoinedLogsEnd] = {}
        self._transactions: dict[TopicPartition, FollowedTransactions] = {}

    def look(self, since: Mapping[TopicPartition, int], *, at_start: bool = False) -> dict[TopicPartition, _Available]:
        """The available offsets of all partitions that are read and have segments. Transactions that were aborted
        before the offsets of `since` are not asked for, now and later. `at_start`, named topics and partitions have to
        be there.
        """
        request = _source_request(self._options, None)
        listed = request.partitions()
        topics = self._options.topics
        chosen = {*(topics.among(listed) if at_start else topics.existing(listed))}
        directories = [directory for directory in listed if directory.topic_partition in chosen]
        # Checkpoints are read before logs are listed: offsets below a high watermark are in a log by then.
        log_dirs = dict.fromkeys(directory.log_dir for directory in directories)
        checkpoints = {log_dir: read_checkpoints(log_dir) for log_dir in log_dirs}

        def look(directory: PartitionDirectory) -> _Available | None:
            logs = listed_logs(directory, request.index_dir)
            start = since.get(directory.topic_partition, 0)
            return None if logs is None else self._available(directory, logs, checkpoints[directory.log_dir], start)

        with ThreadPoolExecutor(cores()) as pool:
            looks = zip(directories, pool.map(look, directories), strict=True)
            return {directory.topic_partition: available for directory, available in looks if available is not None}

    def _available(
        self, directory: PartitionDirectory, logs: JoinedLogs, checkpoints: Checkpoints, since: int
    ) -> _Available:
        partition = directory.topic_partition
        fails = self._options.fails_on_loss
        self._ends[partition] = logs.end(self._ends.get(partition), damage_taker(fails=fails), goes_on=not fails)
        log_end = self._ends[partition].offset
        first_offset = max(logs.first_offset, (checkpoints.log_start_offsets or {}).get(partition, 0))
        high_watermark = (checkpoints.high_watermarks or {}).get(partition)
        if high_watermark is None or self._options.to_log_end:
            end = log_end
        elif high_watermark > log_end and fails:
            raise DamagedLogError(
                f"{directory.path}: the log ends before offset {log_end}, expected records up to the high watermark "
                f"{high_watermark}, which {HIGH_WATERMARK_CHECKPOINT} says; failOnDataLoss=false reads what is there"
            )
        else:
            end = min(high_watermark, log_end)
        limit, aborted = end, AbortedRanges()
        if self._options.isolation == READ_COMMITTED:
            followed = self._transactions.setdefault(partition, FollowedTransactions(goes_on=not fails))
            transactions = followed.up_to(logs, end, since=since)
            end, aborted = transactions.last_stable_offset, transactions.aborted
        return _Available(logs, first_offset, log_end, limit, end, aborted)


@dataclass(frozen=True, slots=True)
class _Available:
    """The available offsets of a partition.

    Attributes:
        first_offset: records below it are gone.
        log_end: behind the last whole batch.
        limit: the end of the log, or its high watermark if nothing from there on is read.
        end: up to where a consumer reads: `limit`, or the last stable offset.
        aborted: transactions whose records are left out.
    """

    logs: JoinedLogs
    first_offset: int
    log_end: int
    limit: int
    end: int
    aborted: AbortedRanges


@dataclass(frozen=True)
class _StreamLag:
    """The unread offsets of a partition, with an exclusive end."""

    partition: TopicPartition
    logs: JoinedLogs
    begin: int
    end: int

    @cached_property
    def start(self) -> PartitionPlace:
        return PartitionPlace(self.logs.position_of(self.begin), self.begin)

    @cached_property
    def log_bytes(self) -> int:
        """The bytes of its batches."""
        return self.logs.position_of(self.end) - self.start.position

    @property
    def first_batch(self) -> int:
        return min(self.logs.place_after(self.start).position - self.start.position, self.log_bytes)

    def up_to(self, log_bytes: int) -> _Taken:
        """The batches within a number of bytes, and at least the first one."""
        if log_bytes >= self.log_bytes:
            return _Taken(self.end, self.log_bytes)
        place = self.logs.last_place(self.start, self.start.position + log_bytes)
        return _Taken(min(place.offset, self.end), place.position - self.start.position)


@dataclass(frozen=True, slots=True)
class _Taken:
    """The part of a partition in a micro-batch: the offsets below an end, and the bytes of their batches."""

    end: int
    log_bytes: int


def _cut(lags: Sequence[_StreamLag], limits: TriggerLimits) -> dict[TopicPartition, _Taken]:
    """The part of each unread partition that a micro-batch takes, from its beginning on; none of partitions without a
    share. A limit of bytes takes whole batches, and one batch if that alone is above the limit.
    """
    if limits.log_bytes is not None:
        sizes = [lag.log_bytes for lag in lags]
        parts = shares_of_limit(sizes, [lag.first_batch for lag in lags], limits.log_bytes)
        return {
            lag.partition: lag.up_to(part)
            for lag, part, size in zip(lags, parts, sizes, strict=True)
            if part > 0 or size == 0
        }
    if limits.offsets is not None:
        parts = shares_of_limit([lag.end - lag.begin for lag in lags], [1] * len(lags), limits.offsets)
        lags = [
            _StreamLag(lag.partition, lag.logs, lag.begin, lag.begin + part)
            for lag, part in zip(lags, parts, strict=True)
            if part > 0
        ]
    return {lag.partition: _Taken(lag.end, lag.log_bytes) for lag in lags}


def shares_of_limit(sizes: Sequence[int], firsts: Sequence[int], limit: int) -> list[int]:
    """How much may be taken of each partition: in proportion to its size, as in Spark's Kafka source
    (`KafkaMicroBatchStream.rateLimit`), so that all come to their ends together. But before that, each partition is
    given its first piece, which cannot be divided, the largest partition first, as far as there is room: so all go on,
    and a partition that had to wait is the largest at last.

    `limit` is 1 or more. The sum of the shares is not above it, unless all of it is one first piece.
    """
    if sum(sizes) <= limit:
        return list(sizes)
    taken = [0] * len(sizes)
    left = limit
    for number in sorted(range(len(sizes)), key=lambda number: -sizes[number]):
        if firsts[number] <= left or left == limit:
            taken[number] = firsts[number]
            left -= firsts[number]
    rest = sum(size - share for size, share in zip(sizes, taken, strict=True) if share)
    if left <= 0 or not rest:
        return taken
    return [
        share + min(size - share, left * (size - share) // rest) if share else 0
        for size, share in zip(sizes, taken, strict=True)
    ]


def _plan(options: SourceOptions, request: ReadRequest) -> ReadPlan:
    tables = None if options.catalog is None else existing_catalog_tables("catalog", options.catalog)
    goes_on = not options.fails_on_loss
    return plan_reads(request, goes_on=goes_on, threads=cores(), part_bytes=PART_BYTES, catalog=tables)


def _absent_of(
    options: SourceOptions, request: ReadRequest, brokers: BrokersMetadata, there: Collection[TopicPartition]
) -> list[LeftOut]:
    """The partitions that options mean and that have no directory. `request` asks for all partitions; those that have a
    directory are `there`.
    """
    whole = {source.path for source in request.sources if source.remote is None}
    by_name = options.topics != SourceTopicsOption()
    return absent_as_left_out(whole, options.topics.asks_for, brokers, there, by_name=by_name)


def _source_request(
    options: SourceOptions,
    offsets: Mapping[TopicPartition, OffsetRange] | None,
    isolation: str = ISOLATIONS[0],
    times: Times | None = None,
) -> ReadRequest:
    index_dir = options.index_dir
    return read_request(
        options.paths,
        offsets=None if offsets is None else {partition.directory: limits for partition, limits in offsets.items()},
        times=times,
        isolation=isolation,
        index_dir=None if index_dir is None else existing_index_dir("indexDir", index_dir),
        to_log_end=options.to_log_end,
        remote=options.remote,
    )


def _offsets_of(
    options: SourceOptions, limit: SourceLimitOption, partitions: list[TopicPartition]
) -> dict[TopicPartition, int | None]:
    """The offset of a limit in each partition; None for no limit."""
    if not limit.is_time:
        return {partition: limit.of_partition(partition) for partition in partitions}
    times = [time for partition in partitions if (time := limit.of_partition(partition)) is not None]
    since = min(times, default=None), None  # a catalog tells which segments hold nothing as late
    everything = _source_request(options, dict.fromkeys(partitions, _EVERYTHING), times=since)
    reads: dict[TopicPartition, list[SegmentRead]] = {partition: [] for partition in partitions}
    for read in _plan(options, everything).reads:
        reads[TopicPartition(read.topic, read.partition)].append(read)
    on_damage = damage_taker(fails=options.fails_on_loss)

    def first_offset(partition: TopicPartition) -> int | None:
        time = limit.of_partition(partition)
        assert time is not None
        return walk_to_time(reads[partition], time, on_damage, goes_on=not options.fails_on_loss)

    with ThreadPoolExecutor(cores()) as pool:
        return dict(zip(partitions, pool.map(first_offset, partitions), strict=True))


def _ensure_may_be_skipped(options: SourceOptions, partition: TopicPartition) -> None:
    if not options.skips_unmatched:
        start = options.start.of_partition(partition)
        raise UsageError(
            f"{options.start.option} {start}: {partition.directory} has no record that is as "
            "late; startingOffsetsByTimestampStrategy=latest reads nothing of it"
        )
