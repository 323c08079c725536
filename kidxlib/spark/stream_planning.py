"""Which offsets of which partition a micro-batch of a stream holds, where it ends if a limit is given, and what is read
for it. What lies there is looked at anew for each micro-batch.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from kidxlib.errors import DamagedLogError, LostRecordsError
from kidxlib.format.checkpoint_files import HIGH_WATERMARK_CHECKPOINT
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.indexing.source import PartitionDirectory
from kidxlib.reading.aborted import AbortedRanges
from kidxlib.reading.absent import BrokersMetadata, not_of_one_time, of_other_topics
from kidxlib.reading.left_out import LeftOut, Why, lines_of
from kidxlib.reading.places import LogEnd, PartitionLogs, Place, listed_logs
from kidxlib.reading.plan import ReadPlan, plan_reads
from kidxlib.reading.request import READ_COMMITTED, OffsetRange
from kidxlib.reading.segment_read import SegmentRead
from kidxlib.reading.transactions import FollowedTransactions
from kidxlib.records.bulk.wanted import Wanted
from kidxlib.spark.limits import LATEST
from kidxlib.spark.options import Limits, SourceOptions, StreamOptions
from kidxlib.spark.planning import absent_of, ensure_may_be_skipped, offsets_of, source_request, threads
from kidxlib.spark.stream_offsets import Numbers, StreamOffsets
from kidxlib.spark.task_rows import PART_BYTES, damage_taker
from kidxlib.storage.small_files import Checkpoints, read_checkpoints

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True)
class Lag:
    """The unread offsets of a partition, with an exclusive end."""

    partition: TopicPartition
    logs: PartitionLogs
    begin: int
    end: int

    @cached_property
    def start(self) -> Place:
        return Place(self.logs.position_of(self.begin), self.begin)

    @cached_property
    def log_bytes(self) -> int:
        """From the first batch of it on, to the batch that follows its last one."""
        return self.logs.position_of(self.end) - self.start.position

    @property
    def first_batch(self) -> int:
        """The size of the first batch, in bytes."""
        return min(self.logs.place_after(self.start).position - self.start.position, self.log_bytes)

    def up_to(self, log_bytes: int) -> Taken:
        """The batches within a number of bytes, at least the first one."""
        if log_bytes >= self.log_bytes:
            return Taken(self.end, self.log_bytes)
        place = self.logs.last_place(self.start, self.start.position + log_bytes)
        return Taken(min(place.offset, self.end), place.position - self.start.position)


@dataclass(frozen=True, slots=True)
class Taken:
    """The part of a partition in a micro-batch: the offsets below an end, and the bytes of their batches."""

    end: int
    log_bytes: int


def _cut(lags: Sequence[Lag], limits: Limits) -> dict[TopicPartition, Taken]:
    """What a micro-batch takes of what is to be read: of each partition nothing, or from its beginning on. Of bytes
    whole batches are taken, and one where that alone is more than the limit.
    """
    if limits.log_bytes is not None:
        sizes = [lag.log_bytes for lag in lags]
        parts = shares(sizes, [lag.first_batch for lag in lags], limits.log_bytes)
        return {
            lag.partition: lag.up_to(part)
            for lag, part, size in zip(lags, parts, sizes, strict=True)
            if part > 0 or size == 0
        }
    if limits.offsets is not None:
        parts = shares([lag.end - lag.begin for lag in lags], [1] * len(lags), limits.offsets)
        lags = [
            Lag(lag.partition, lag.logs, lag.begin, lag.begin + part)
            for lag, part in zip(lags, parts, strict=True)
            if part > 0
        ]
    return {lag.partition: Taken(lag.end, lag.log_bytes) for lag in lags}


def shares(sizes: Sequence[int], firsts: Sequence[int], limit: int) -> list[int]:
    """How much may be taken of each partition: in proportion to what each has, as in Spark's Kafka source
    (`KafkaMicroBatchStream.rateLimit`), so that all come to their ends together. But before, each is given its first
    piece, those with the most first, as far as there is room: so all go on, and those that had to wait have the most
    at last.

    Args:
        sizes: what each partition has, as bytes.
        firsts: the size of its first piece, of which no part can be taken.
        limit: 1 or more. The sum of the shares is not above it, unless all of it is one first piece.
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


@dataclass(frozen=True, slots=True)
class Available:
    """The available offsets of a partition.

    Attributes:
        first_offset: records below it are gone.
        log_end: where the last whole batch ends.
        limit: the end of the log, or its high watermark if nothing from there on is read.
        end: up to where a consumer reads: that, or the last stable offset.
        aborted: transactions whose records are left out.
    """

    directory: PartitionDirectory
    logs: PartitionLogs
    first_offset: int
    log_end: int
    limit: int
    end: int
    aborted: AbortedRanges


class _StreamLogs:
    """Remembers where logs end, so that only new batches are looked at."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._ends: dict[TopicPartition, LogEnd] = {}
        self._transactions: dict[TopicPartition, FollowedTransactions] = {}

    def look(self, since: Mapping[TopicPartition, int], *, at_start: bool = False) -> dict[TopicPartition, Available]:
        """Look at all partitions that are read, and have segments.

        Args:
            since: what was aborted before these offsets is not asked for, now and later.
            at_start: a topic or partition that is named has to be there.
        """
        request = source_request(self._options, None)
        listed = request.partitions()
        topics = self._options.topics
        chosen = {*(topics.among(listed) if at_start else topics.found(listed))}
        directories = [each for each in listed if each.topic_partition in chosen]
        # Before logs are listed: what a high watermark names is in a log by then.
        known = {each: read_checkpoints(each) for each in dict.fromkeys(each.log_dir for each in directories)}

        def look(directory: PartitionDirectory) -> Available | None:
            logs = listed_logs(directory, request.index_dir)
            start = since.get(directory.topic_partition, 0)
            return None if logs is None else self._available(directory, logs, known[directory.log_dir], start)

        with ThreadPoolExecutor(threads()) as pool:
            found = pool.map(look, directories)
            return {each.directory.topic_partition: each for each in found if each is not None}

    def _available(
        self, directory: PartitionDirectory, logs: PartitionLogs, known: Checkpoints, since: int
    ) -> Available:
        partition = directory.topic_partition
        fails = self._options.fails_on_loss
        self._ends[partition] = logs.end(self._ends.get(partition), damage_taker(fails=fails), goes_on=not fails)
        log_end = self._ends[partition].offset
        first_offset = max(logs.first_offset, (known.log_start_offsets or {}).get(partition, 0))
        high_watermark = (known.high_watermarks or {}).get(partition)
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
        return Available(directory, logs, first_offset, log_end, limit, end, aborted)


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
        """What is written from now on is not read, nor partitions that come. What is left out beyond high watermarks is
        told: the query ends before it.
        """
        there = self._logs.look({})
        self._until = {each: found.end for each, found in there.items()}
        beyond = [
            LeftOut(
                partition=each,
                why=Why.BEYOND_HIGH_WATERMARK,
                first_offset=found.limit,
                end_offset=found.log_end,
                edge=found.limit,
            )
            for each, found in sorted(there.items())
            if found.limit < found.log_end
        ]
        for line in lines_of(beyond):
            _log.warning("%s", line)

    def next_end(self, start: StreamOffsets | None, limits: Limits) -> StreamOffsets:
        """Where the micro-batch ends that begins at a start: there, if there is nothing to read.

        Args:
            start: None at the beginning of a stream.
        """
        if self.latest is None:
            self._warn_of_log_dirs()
        there = self._logs.look({} if start is None else start.ends, at_start=start is None)
        starts = self._starts(there) if start is None else start.ends
        begins = {each: self._begin(each, starts.get(each, 0), there.get(each)) for each in starts.keys() | there}
        self.latest = {each: found.end for each, found in there.items()}
        ends = self.latest
        if self._until is not None:
            ends = {each: min(end, self._until[each]) for each, end in ends.items() if each in self._until}
        lags = [Lag(each, there[each].logs, begins[each], end) for each, end in ends.items() if end > begins[each]]
        taken = _cut(sorted(lags, key=lambda lag: lag.partition), limits)
        until = {each: begins[each] for each in starts} | {each: found.end for each, found in taken.items()}
        if start is not None and until == start.ends:
            return start
        log_bytes = {each: found.log_bytes for each, found in taken.items()}
        return StreamOffsets(until, log_bytes, starts if start is None else None)

    def _warn_of_log_dirs(self) -> None:
        """Say which log dirs are not of one time, which partitions have another topic's id, and which are not there:
        once, and not for each micro-batch.
        """
        request = source_request(self._options, None)
        brokers, listed = BrokersMetadata(request.log_dirs), request.partitions()
        _, told = not_of_one_time(brokers, ())
        there = ((each.topic_partition, each.log_dir) for each in filter(request.names, listed))
        absent = absent_of(self._options, request, brokers, {each.topic_partition for each in listed})
        lacking = [*of_other_topics(brokers, there), *(each for each in absent if each.is_problem)]
        for line in (*told, *lines_of(lacking)):
            _log.warning("%s", line)

    def _starts(self, there: Mapping[TopicPartition, Available]) -> Numbers:
        """Where a stream begins."""
        limit, partitions = self._options.start, sorted(there)
        limit.ensure_names(partitions)
        if limit.is_time:
            found = offsets_of(self._options, limit, partitions)
            for each, number in found.items():
                if number is None:
                    ensure_may_be_skipped(self._options, each)
            return {each: there[each].end if number is None else number for each, number in found.items()}
        return {each: _start(limit.of(each), there[each]) for each in partitions}

    def _begin(self, partition: TopicPartition, start: int, found: Available | None) -> int:
        """Where reading of a partition goes on: at its start, or where its log ends before that."""
        if found is None:
            self._lose(partition, f"it was read up to offset {start}, and is not there any more, or not asked for")
            return start
        if start > found.log_end:
            self._lose(
                partition,
                f"offsets {found.log_end} to {start - 1} are gone: the log ends before {found.log_end}, and was read "
                f"up to {start}; it was truncated",
            )
        return min(start, found.log_end)

    def plan(self, start: StreamOffsets | None, end: StreamOffsets) -> ReadPlan | None:
        """What is read for a micro-batch, also for one that was planned by a process that has ended since; None for
        nothing.
        """
        starts = (end.starts or {}) if start is None else start.ends
        wanted = {each: (starts.get(each, 0), until) for each, until in sorted(end.ends.items())}
        wanted = {each: limits for each, limits in wanted.items() if limits[0] < limits[1]}
        there = self._logs.look(starts) if wanted else {}
        if any(found.end < wanted[each][1] for each, found in there.items() if each in wanted):
            # The high watermark is an older one. What becomes of transactions that were decided stands in the log.
            there = _StreamLogs(replace(self._options, to_log_end=True)).look(starts)
        offsets: dict[TopicPartition, OffsetRange] = {}
        for each, (first, until) in wanted.items():
            found = there.get(each)
            if (lost := _lost(found, first, until, end.log_bytes.get(each))) is not None:
                self._lose(each, lost)
            if found is not None and max(first, found.first_offset) < min(until, found.log_end):
                offsets[each] = max(first, found.first_offset), min(until, found.log_end)
        return self._plan(offsets, there) if offsets else None

    def _plan(
        self, offsets: Mapping[TopicPartition, OffsetRange], there: Mapping[TopicPartition, Available]
    ) -> ReadPlan:
        # What was planned is read, wherever the high watermark is now.
        request = source_request(replace(self._options, to_log_end=True), offsets)
        plan = plan_reads(request, goes_on=False, threads=threads(), part_bytes=PART_BYTES, looks_around=False)
        return replace(plan, reads=tuple(_without_aborted(read, there) for read in plan.reads))

    def _lose(self, partition: TopicPartition, what: str) -> None:
        message = f"{', '.join(self._options.paths)}: {partition.directory}: {what}"
        if self._options.fails_on_loss:
            raise LostRecordsError(f"{message}; failOnDataLoss=false goes on with what is there")
        if message not in self._warned:
            self._warned.add(message)
            _log.warning("%s", message)


def _start(number: int | None, found: Available) -> int:
    """The offset for an option's number."""
    if number is None:
        return found.first_offset
    return found.end if number == LATEST else number


def _without_aborted(read: SegmentRead, there: Mapping[TopicPartition, Available]) -> SegmentRead:
    end_offset = Wanted().last_offset if read.end_offset is None else read.end_offset
    aborted = there[TopicPartition(read.topic, read.partition)].aborted
    return replace(read, aborted=aborted.between(read.last_offset_before + 1, end_offset))


def _lost(found: Available | None, first: int, until: int, log_bytes: int | None) -> str | None:
    """What of offsets that were planned is gone; None where nothing shows that something is.

    That compaction has left holes is no loss if they were there when the micro-batch was planned: of a log that nobody
    has changed the same bytes lie between two offsets.
    """
    if found is None:
        return f"offsets {first} to {until - 1} are gone, with the log"
    if found.first_offset > first:
        left = f"the first one that is left is {found.first_offset}"
        return f"offsets {first} to {min(until, found.first_offset) - 1} are gone: {left}"
    if found.log_end < until:
        left = f"the log ends before {found.log_end}; it was truncated"
        return f"offsets {max(first, found.log_end)} to {until - 1} are gone: {left}"
    now = found.logs.position_of(until) - found.logs.position_of(first)
    if log_bytes is not None and now != log_bytes:
        return (
            f"offsets {first} to {until - 1} are {now} bytes of batches, and were {log_bytes} when they were planned: "
            "they were compacted since, or truncated and others written"
        )
    return None
