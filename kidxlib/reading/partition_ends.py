"""Where reading of a partition begins and ends, and which offsets it leaves out: by checkpoint files, by the ends of
logs, and by what is asked for. `ReadingEnds.of_partition` is the way in.

If a partition has no other replica, and no broker is at work on it, all of its log is read: with one replica the high
watermark follows each append (`Partition.maybeIncrementLeaderHW`), and its checkpoint is only some seconds late.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kidxlib.errors import CheckpointError, LogChangedError, MalformedRecordsError
from kidxlib.format.checkpoint_files import HIGH_WATERMARK_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT
from kidxlib.format.layouts import ATTRIBUTE_CONTROL, MAGIC_V2
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.index.offset import read_last_entry
from kidxlib.indexing.source import PartitionDirectory
from kidxlib.log.log import MissingStart
from kidxlib.lookup.checkpoint_evidence import ReadOffsets, evidence_of_missing_start
from kidxlib.reading.brokers_metadata import BrokersMetadata, OnlyReplicas
from kidxlib.reading.left_out import LeftOut, WhyLeftOut, timestamp_ms_behind_left_out
from kidxlib.reading.positions import ListedLog, index_path_of, is_index_credible, read_between, reading_bounds
from kidxlib.reading.request import OffsetRange, ReadRequest
from kidxlib.reading.rows import record_rows_of
from kidxlib.reading.segment_read import SegmentRead
from kidxlib.records.arrow_columns import CONSUMED
from kidxlib.records.batch_table import BatchWalk
from kidxlib.records.batch_table_kernel import UNKNOWN_COUNT
from kidxlib.records.wanted_records import WantedRecords
from kidxlib.storage.location import Location
from kidxlib.storage.log_dir import read_leader_epochs
from kidxlib.storage.logs_aside import LogsAside
from kidxlib.storage.opened_log import opened_log

#: Gives the place of a log's `.index`.
IndexOf: TypeAlias = Callable[[ListedLog], Location]
_Offsets: TypeAlias = Mapping[TopicPartition, int]

_OFFSET_MAX: Final = WantedRecords().last_offset

#: Records in more bytes of logs are not counted: headers lie too far apart for a plan to wait for them.
_COUNTED_BYTES: Final = 1024 * 1024 * 1024
#: Records in more bytes are not decoded to see which have the times that are asked for.
_DECODED_BYTES: Final = 256 * 1024 * 1024
_OFFSETS: Final = pa.schema([CONSUMED.field("offset")])


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionEnds:
    """Where reading of a partition begins and ends.

    Attributes:
        seen: the wanted offsets and times, within what consumers see.
        high_watermark: by a checkpoint; None if none has it.
        limit: the high watermark, if nothing from there on is read; else None.
        beyond: how many offsets beyond the high watermark are read, as this is the only replica.
        is_short: the log is known to end before the high watermark.
        left_out: the offsets that are not read, or are asked for and not there.
    """

    seen: WantedRecords
    high_watermark: int | None
    limit: int | None = None
    beyond: int = 0
    is_short: bool = False
    left_out: Sequence[LeftOut] = ()


@dataclass(frozen=True, slots=True)
class _Tail:
    """The end of a partition, from an offset on.

    Attributes:
        end_offset: behind the last batch.
        is_whole: the walk came to the end of the log, or to an append that was not finished. Else something is damaged,
            and there may be more.
        first_offset, last_offset: of the batches that may hold something wanted; None if none does.
        records: how many these batches have, without markers; None if headers do not say it, or there are too many.
    """

    end_offset: int
    is_whole: bool
    first_offset: int | None = None
    last_offset: int | None = None
    records: int | None = 0


def _read_tail(logs: Sequence[ListedLog], index_of: IndexOf, wanted: WantedRecords) -> _Tail:
    """The end of a partition from the first wanted offset on, by all of its logs, one or more. Records without wanted
    times do not count.
    """
    first = max(bisect_right([log.base_offset for log in logs], wanted.first_offset) - 1, 0)
    is_counted = sum(log.size for log in logs[first:]) <= _COUNTED_BYTES or first == len(logs) - 1
    asked = replace(wanted, last_offset=WantedRecords().last_offset)
    tail = _Tail(wanted.first_offset, is_whole=True)
    for log in logs[first:] if is_counted else logs[-1:]:
        tail = _extended(tail, log, index_of(log), asked)
    if not is_counted:
        return replace(tail, first_offset=wanted.first_offset, records=None)
    if tail.first_offset is not None and wanted.has_times:
        return _at_wanted_times(tail, logs[first:], index_of, asked)
    return tail


def _at_wanted_times(tail: _Tail, logs: Sequence[ListedLog], index_of: IndexOf, wanted: WantedRecords) -> _Tail:
    """A tail with only the records that have wanted times: headers do not tell which these are."""
    if sum(log.size for log in logs) > _DECODED_BYTES:
        return replace(tail, records=None)
    reads = [_read_from(log, index_of(log), wanted) for log in logs if log.size]
    rows = list(record_rows_of(reads, _OFFSETS, lambda _: None, goes_on=False, threads=1))
    offsets = np.concatenate([np.empty(0, np.int64), *(batch.column(0).to_numpy() for batch in rows)])
    if not len(offsets):
        return replace(tail, first_offset=None, last_offset=None, records=0)
    return replace(tail, first_offset=int(offsets[0]), last_offset=int(offsets[-1]), records=len(offsets))


def _read_from(log: ListedLog, index: Location, wanted: WantedRecords) -> SegmentRead:
    start = reading_bounds(log, index, WantedRecords.between(wanted.first_offset), None)[0]
    with opened_log(str(log.path)) as opened:
        return read_between(TopicPartition("", 0), log, opened.version, (start, log.whole[1]), wanted)


def _extended(before: _Tail, log: ListedLog, index: Location, wanted: WantedRecords) -> _Tail:
    start = (
        reading_bounds(log, index, WantedRecords.between(wanted.first_offset), None)[0] if log.size else log.whole[0]
    )
    assert start.offset is not None
    first, last, records = before.first_offset, before.last_offset, before.records
    with opened_log(str(log.path)) as opened:
        content = opened.log(log.size, use_mmap=False)
        walk = BatchWalk(content, start.position, wanted, whole=False, last_offset=start.offset - 1)
        is_whole = before.is_whole
        try:
            for table in walk.tables():
                rows = table.rows
                begins = np.where(rows["magic"] >= MAGIC_V2, rows["offset_field"], rows["last_offset"])
                first = max(int(begins[0]), wanted.first_offset) if first is None else first
                last = int(rows["last_offset"][-1])
                records = _counted(records, rows, begins, wanted)
        except MalformedRecordsError:
            is_whole = False
    return _Tail(walk.last_offset + 1, is_whole, first, last, records)


def _counted(
    so_far: int | None, rows: NDArray[np.void], begins: NDArray[np.int64], wanted: WantedRecords
) -> int | None:
    """The number of records so far; None if a header does not have it, or only a part of a batch is wanted."""
    is_data = (rows["magic"] < MAGIC_V2) | (rows["attributes"] & ATTRIBUTE_CONTROL == 0)
    counts = rows["records_count"][is_data]
    if so_far is None or (begins < wanted.first_offset).any() or (counts <= UNKNOWN_COUNT).any():
        return None
    return so_far + int(counts.sum(dtype=np.int64))


class ReadingEnds:
    """Finds where reading of partitions begins and ends, and remembers the checkpoints of log dirs.

    Attributes:
        unreadable: checkpoint files that are malformed, and what is done without them.
    """

    def __init__(self, request: ReadRequest, read_offsets: ReadOffsets) -> None:
        self._request = request
        self.brokers = BrokersMetadata(request.log_dirs)
        self.unreadable: list[str] = []
        self._checkpoints: dict[Location, tuple[_Offsets, _Offsets]] = {}
        self._offsets_in: ReadOffsets = cache(read_offsets)
        self._only_replicas = OnlyReplicas(self.brokers)
        self._aside = LogsAside(self.brokers.log_dirs)

    def of_partition(
        self, directory: PartitionDirectory, logs: Sequence[ListedLog], wanted: WantedRecords
    ) -> PartitionEnds:
        """Where reading of a partition begins and ends, by all of its logs in order."""
        index_of = partial(index_path_of, directory, self._request.index_dir)
        log_starts, high_watermarks = self._checkpoints_of(directory.log_dir)
        partition = directory.topic_partition
        high_watermark = high_watermarks.get(partition)
        log_start = _moved_start(directory.path, log_starts.get(partition, 0), logs)
        seen = replace(wanted, first_offset=max(wanted.first_offset, log_start))
        if not logs:
            remedy = self._aside.remedy_of_empty(directory.path)
            no_log = LeftOut(partition=partition, why=WhyLeftOut.NO_LOG, remedy=remedy)
            return PartitionEnds(seen=seen, high_watermark=high_watermark, left_out=[no_log])
        asked = _OffsetsBeyondEnds(partition, self._request.offsets_of(directory), log_start, logs[0].base_offset)
        missing = None
        if asked.first_base > seen.first_offset and _may_begin_before(logs[0], wanted.first_ms):
            missing = evidence_of_missing_start(directory.path, partition, asked.first_base, self._offsets_in)
        left_out = list(asked.before_first_segment(wanted, missing, directory.path, self._aside))
        left_out += asked.below_start(missing)
        if not left_out and log_start > asked.first_base:
            is_last = log_start > logs[-1].base_offset
            tail = _tail(logs, index_of, replace(wanted, first_offset=_OFFSET_MAX)) if is_last else None
            left_out += asked.hidden(wanted, tail)
        ends = PartitionEnds(seen=seen, high_watermark=high_watermark)
        left_out += self._behind_end(directory, logs, seen, high_watermark or 0, index_of)
        if high_watermark is not None:
            ends, beyond = self._to_high_watermark(directory, logs, seen, high_watermark, index_of, asked)
            left_out += beyond
        elif asked.may_be_beyond(logs[-1]):
            # Nothing but the end of the log is asked: from the last entry of the last index on.
            left_out += asked.beyond_end(_tail(logs, index_of, replace(seen, first_offset=_OFFSET_MAX)))
        in_log = [part for left in left_out if (part := self._in_log(left, logs)) is not None]
        return replace(ends, left_out=in_log)

    def _behind_end(
        self,
        directory: PartitionDirectory,
        logs: Sequence[ListedLog],
        seen: WantedRecords,
        known_end: int,
        index_of: IndexOf,
    ) -> Iterator[LeftOut]:
        """Offsets that the last log has no longer, though the index beside it has: a power cut leaves it so, and a kill
        does not. Other replicas have these offsets, or a leader had this one truncate them, which leaves old entries in
        the index of a broker that is killed.

        Offsets that are missing below `known_end`, the high watermark, are told of elsewhere.
        """
        index = index_of(logs[-1])
        if self._request.index_dir is not None or not isinstance(index, Path):
            return
        entry = read_last_entry(index, logs[-1].base_offset)
        if entry is None or entry.offset < known_end:
            return
        tail = _tail(logs, index_of, replace(seen, first_offset=_OFFSET_MAX))
        first, end = max(tail.end_offset, known_end, seen.first_offset), min(entry.offset, seen.last_offset) + 1
        if not tail.is_whole or first >= end or not is_index_credible(logs[-1], index):
            return
        yield LeftOut(
            partition=directory.topic_partition,
            why=WhyLeftOut.ENDS_BEFORE_INDEX,
            first_offset=first,
            end_offset=end,
            edge=tail.end_offset,
            remedy=self._aside.remedy(directory.path, first, end),
            is_problem=self._request.to_log_end is not False and not self._only_replicas.has_others(directory),
        )

    def _to_high_watermark(
        self,
        directory: PartitionDirectory,
        logs: Sequence[ListedLog],
        seen: WantedRecords,
        high_watermark: int,
        index_of: IndexOf,
        asked: _OffsetsBeyondEnds,
    ) -> tuple[PartitionEnds, list[LeftOut]]:
        tail = _tail(logs, index_of, replace(seen, first_offset=max(high_watermark, seen.first_offset)))
        limited = replace(seen, last_offset=min(seen.last_offset, high_watermark - 1))
        ends = PartitionEnds(seen=limited, high_watermark=high_watermark, limit=high_watermark)
        if self._request.to_log_end:
            ends = PartitionEnds(seen=seen, high_watermark=high_watermark)
        left_out = list(asked.beyond_end(tail))
        if tail.is_whole and tail.end_offset < high_watermark:
            missing = LeftOut(
                partition=asked.partition,
                why=WhyLeftOut.ENDS_BELOW_HIGH_WATERMARK,
                first_offset=tail.end_offset,
                end_offset=high_watermark,
                edge=high_watermark,
                remedy=self._aside.remedy(directory.path, tail.end_offset, high_watermark),
            )
            return replace(ends, is_short=True), [*left_out, missing]
        end = min(tail.end_offset, seen.last_offset + 1 if seen.last_offset < _OFFSET_MAX else _OFFSET_MAX)
        if self._request.to_log_end or tail.first_offset is None or tail.first_offset >= end:
            return ends, left_out
        if self._request.to_log_end is None and self._only_replicas.holds(directory):
            return replace(ends, seen=seen, limit=None, beyond=end - tail.first_offset), left_out
        if tail.last_offset is not None and seen.has_times:
            end = min(end, tail.last_offset + 1)
        beyond = LeftOut(
            partition=asked.partition,
            why=WhyLeftOut.BEYOND_HIGH_WATERMARK,
            first_offset=tail.first_offset,
            end_offset=end,
            edge=high_watermark,
            records=tail.records if seen.last_offset >= tail.end_offset - 1 else None,
            is_problem=self._request.to_log_end is None or seen.first_offset >= high_watermark,
        )
        return ends, [*left_out, beyond]

    def _in_log(self, left_out: LeftOut, logs: Sequence[ListedLog]) -> LeftOut | None:
        """The part that is in the only log that is asked for; all of it if all logs are."""
        log = next((log for log in logs if log.path.name == self._request.log_name), None)
        if log is None or log.end_offset is None:
            return left_out if log is None or left_out.first_offset >= log.base_offset else None
        first = max(left_out.first_offset, log.base_offset)
        end = min(log.end_offset if left_out.end_offset is None else left_out.end_offset, log.end_offset)
        return replace(left_out, first_offset=first, end_offset=end, records=None) if first < end else None

    def _checkpoints_of(self, log_dir: Location) -> tuple[_Offsets, _Offsets]:
        """The log starts and the high watermarks in a log dir."""
        if log_dir not in self._checkpoints:
            self._checkpoints[log_dir] = (
                self._offsets(log_dir / LOG_START_OFFSET_CHECKPOINT, "logs are read from their first segments on"),
                self._offsets(log_dir / HIGH_WATERMARK_CHECKPOINT, "logs are read to their ends"),
            )
        return self._checkpoints[log_dir]

    def _offsets(self, path: Location, without: str) -> _Offsets:
        try:
            return self._offsets_in(path) or {}
        except CheckpointError as error:
            self.unreadable.append(f"{error}; without it {without}")
            return {}


def _tail(logs: Sequence[ListedLog], index_of: IndexOf, wanted: WantedRecords) -> _Tail:
    """The end of a partition, or an unknown one if a log cannot be read: reading the log says why."""
    try:
        return _read_tail(logs, index_of, wanted)
    except (OSError, LogChangedError):
        return _Tail(wanted.first_offset, is_whole=False)


def _may_begin_before(log: ListedLog, first_ms: int) -> bool:
    """Whether records from a time on may be missing before a log: not if its own first records are older."""
    if first_ms == WantedRecords().first_ms:
        return True
    begins = timestamp_ms_behind_left_out(log.path)
    return begins < 0 or begins >= first_ms


def _moved_start(directory: Location, log_start: int, logs: Sequence[ListedLog]) -> int:
    """The log start of a partition, also if a broker has deleted logs since its checkpoint: it cuts leader epochs at
    once, and writes the checkpoint once a minute.
    """
    first_base = logs[0].base_offset if logs else 0
    if not 0 < log_start < first_base:
        return log_start
    try:
        epochs = read_leader_epochs(directory)
    except (CheckpointError, OSError):
        return log_start
    is_cut = epochs is not None and epochs.first is not None and epochs.first.start_offset >= first_base
    return first_base if is_cut else log_start


@dataclass(frozen=True, slots=True)
class _OffsetsBeyondEnds:
    """The offsets that are asked for, beside those that the logs have.

    Attributes:
        log_start: by a checkpoint; 0 if none has it.
        first_base: the base offset of the first segment.
    """

    partition: TopicPartition
    range: OffsetRange
    log_start: int
    first_base: int

    def before_first_segment(
        self, wanted: WantedRecords, missing: MissingStart | None, directory: Location, aside: LogsAside
    ) -> Iterator[LeftOut]:
        """Offsets that the log has by a checkpoint, or had by its leader epochs (`missing`), and that are in no segment
        here.
        """
        if missing is not None:
            first, end = max(missing.first_offset, wanted.first_offset), min(self.first_base, wanted.last_offset + 1)
            if first < end:
                why = WhyLeftOut.FIRST_LOGS_MISSING if missing.is_lost else WhyLeftOut.FIRST_LOGS_NOT_KNOWN
                left = self._left_out(why, first, end, self.first_base)
                is_problem = missing.is_lost or self.range[0] is not None
                yield replace(left, remedy=aside.remedy(directory, first, end), is_problem=is_problem)
            return
        first, end = max(self.log_start, wanted.first_offset), min(self.first_base, wanted.last_offset + 1)
        if self.log_start > 0 and first < end:
            yield self._left_out(WhyLeftOut.BEFORE_FIRST_SEGMENT, first, end, self.first_base)

    def below_start(self, missing: MissingStart | None) -> Iterator[LeftOut]:
        """Offsets that are asked for and gone."""
        start, end = self.range
        log_start = (self.log_start or self.first_base) if missing is None else missing.first_offset
        if start is not None and start < log_start and (end is None or start < end):
            below = log_start if end is None else min(end, log_start)
            yield self._left_out(WhyLeftOut.BELOW_LOG_START, start, below, log_start)

    def hidden(self, wanted: WantedRecords, tail: _Tail | None) -> Iterator[LeftOut]:
        """Offsets that the logs may have below the log start. `DeleteRecords` leaves them; a log start above the log
        end is wrong, or the end is lost. `tail` is None if the log start is not in the last log.
        """
        is_above = tail is not None and tail.is_whole and self.log_start > tail.end_offset
        end = min(tail.end_offset if is_above and tail is not None else self.log_start, wanted.last_offset + 1)
        first = max(self.first_base, wanted.first_offset)
        if first < end and (is_above or not wanted.has_times):
            why = WhyLeftOut.LOG_START_ABOVE_END if is_above else WhyLeftOut.HIDDEN_BELOW_LOG_START
            yield replace(self._left_out(why, first, end, self.log_start), is_problem=is_above)

    def may_be_beyond(self, last: ListedLog) -> bool:
        """Whether offsets may be asked for that no record has yet, as far as can be told without reading the log."""
        start, end = self.range
        is_beyond = start is not None and (start > last.base_offset or last.size == 0)
        return is_beyond if end is None else end > last.base_offset

    def beyond_end(self, tail: _Tail) -> Iterator[LeftOut]:
        """Offsets that are asked for and that no record has yet."""
        start, end = self.range
        first = max(start or 0, tail.end_offset)
        is_asked = first < end if end is not None else start is not None and start >= tail.end_offset
        if tail.is_whole and is_asked:
            left = self._left_out(WhyLeftOut.BEYOND_LOG_END, first, end, tail.end_offset)
            yield replace(left, is_problem=start is not None and start > tail.end_offset)

    def _left_out(self, why: WhyLeftOut, first: int, end: int | None, edge: int) -> LeftOut:
        return LeftOut(partition=self.partition, why=why, first_offset=first, end_offset=end, edge=edge)
