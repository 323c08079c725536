"""Which offsets of which partition a micro-batch of a stream holds, and what is read for it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from kidxlib.errors import LostRecordsError
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.reading.brokers_metadata import BrokersMetadata, not_of_one_time
from kidxlib.reading.left_out import LeftOut, Why, lines_of
from kidxlib.reading.plan import ReadPlan, plan_reads
from kidxlib.reading.request import OffsetRange
from kidxlib.reading.segment_read import SegmentRead
from kidxlib.records.bulk.wanted import Wanted
from kidxlib.spark.limits import LATEST
from kidxlib.spark.options import Limits, StreamOptions
from kidxlib.spark.planning import ensure_may_be_skipped, offsets_of, source_request, threads
from kidxlib.spark.rows import PART_BYTES
from kidxlib.spark.stream_cut import Lag, cut
from kidxlib.spark.stream_logs import Available, StreamLogs
from kidxlib.spark.stream_offsets import Numbers, StreamOffsets

_log: Final = logging.getLogger(__name__)


class StreamPlanner:
    """Plans the micro-batches of a stream, one after the other, where the driver is.

    Attributes:
        latest: the ends of partitions when they were looked at last; None before that.
    """

    def __init__(self, options: StreamOptions) -> None:
        self.latest: Numbers | None = None
        self._options = options.source
        self._logs = StreamLogs(options.source)
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

        Raises:
            LostRecordsError: the log of a partition ends before records that were read, or is gone, and
                `failOnDataLoss` is true.
            UsageError: options name what is not there.
            CheckpointError, DamagedLogError, LogChangedError, OSError: as `StreamLogs.look`.
        """
        if self.latest is None:
            self._warn_of_times()
        there = self._logs.look({} if start is None else start.ends, at_start=start is None)
        starts = self._starts(there) if start is None else start.ends
        begins = {each: self._begin(each, starts.get(each, 0), there.get(each)) for each in starts.keys() | there}
        self.latest = {each: found.end for each, found in there.items()}
        ends = self.latest
        if self._until is not None:
            ends = {each: min(end, self._until[each]) for each, end in ends.items() if each in self._until}
        lags = [Lag(each, there[each].logs, begins[each], end) for each, end in ends.items() if end > begins[each]]
        taken = cut(sorted(lags, key=lambda lag: lag.partition), limits)
        until = {each: begins[each] for each in starts} | {each: found.end for each, found in taken.items()}
        if start is not None and until == start.ends:
            return start
        log_bytes = {each: found.log_bytes for each, found in taken.items()}
        return StreamOffsets(until, log_bytes, starts if start is None else None)

    def _warn_of_times(self) -> None:
        """Say which log dirs are not of one time: once, and not for each micro-batch."""
        _, told = not_of_one_time(BrokersMetadata(source_request(self._options, None).log_dirs), ())
        for line in told:
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

        Raises:
            LostRecordsError: of what was planned something is gone, and `failOnDataLoss` is true.
            CheckpointError, DamagedLogError, LogChangedError, OSError: as `StreamLogs.look` and `plan_reads`.
        """
        starts = (end.starts or {}) if start is None else start.ends
        wanted = {each: (starts.get(each, 0), until) for each, until in sorted(end.ends.items())}
        wanted = {each: limits for each, limits in wanted.items() if limits[0] < limits[1]}
        there = self._logs.look(starts) if wanted else {}
        if any(found.end < wanted[each][1] for each, found in there.items() if each in wanted):
            # The high watermark is an older one. What becomes of transactions that were decided stands in the log.
            there = StreamLogs(replace(self._options, to_log_end=True)).look(starts)
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
        plan = plan_reads(request, goes_on=False, threads=threads(), part_bytes=PART_BYTES, compares_times=False)
        return replace(plan, reads=tuple(_without_aborted(read, there) for read in plan.reads))

    def _lose(self, partition: TopicPartition, what: str) -> None:
        """
        Raises:
            LostRecordsError: `failOnDataLoss` is true; else it is said once.
        """
        message = f"{', '.join(self._options.paths)}: {partition.directory}: {what}"
        if self._options.fails_on_loss:
            raise LostRecordsError(f"{message}; failOnDataLoss=false goes on with what is there")
        if message not in self._warned:
            self._warned.add(message)
            _log.warning("%s", message)


def _start(number: int | None, found: Available) -> int:
    """The offset that an option's number means."""
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
