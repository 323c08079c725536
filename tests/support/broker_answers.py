"""A broker's answers that no command and no call of kidx needs: what a fetch gets of a log (`read_log`), and whether a
new segment begins (`should_roll`). Made of the library's logs, segments and indexes, they ask these what Kafka's own
classes ask theirs, so that a comparison of the answers compares those, too.
"""

from __future__ import annotations

from dataclasses import dataclass

from kidxlib.index.offset import OffsetPosition
from kidxlib.index.transaction import AbortedTransaction
from kidxlib.java import as_long
from kidxlib.log.log import Log
from kidxlib.log.segment import BatchPosition, LogSegment
from kidxlib.records.batch_headers import batches


@dataclass(frozen=True, slots=True)
class LogOffset:
    """A place in a log (`LogOffsetMetadata`).

    Attributes:
        offset: the base offset of the batch that starts there, or the log end offset.
        segment_base_offset: the segment that holds it.
        position: in the segment's log, in bytes.
    """

    offset: int
    segment_base_offset: int
    position: int


@dataclass(frozen=True, slots=True)
class _FetchedBytes:
    """What a fetch gets of one segment's log (`FetchDataInfo`).

    Attributes:
        batch: the first batch, which may also hold offsets below the requested one.
        size: bytes from `batch.position` on; the last batch in them may be incomplete.
        first_batch_incomplete: whether the fetch allows fewer bytes than `batch` has.
    """

    batch: BatchPosition
    size: int
    first_batch_incomplete: bool


@dataclass(frozen=True, slots=True)
class Fetched:
    """What a fetch gets of a log (`FetchDataInfo`).

    Attributes:
        start: where the bytes begin.
        size: how many bytes; the last batch in them may be incomplete.
        first_batch_incomplete: whether the fetch allows fewer bytes than the first batch has.
        aborted: the aborted transactions in them, and perhaps a few after them; None: not requested.
    """

    start: LogOffset
    size: int
    first_batch_incomplete: bool
    aborted: tuple[AbortedTransaction, ...] | None


def _read_segment(
    segment: LogSegment,
    start_offset: int,
    max_bytes: int,
    max_position: int | None = None,
    *,
    min_one_message: bool = False,
) -> _FetchedBytes | None:
    """Which bytes a fetch from an offset gets of a segment (`LogSegment.read`).

    Args:
        max_bytes: the most bytes to return.
        max_position: the position in the file at which to stop; None: the end.
        min_one_message: whether the first batch is given whole, even if it is larger than `max_bytes`.

    Returns:
        None if all batches end below the offset.

    Raises:
        MalformedRecordsError: as `LogSegment.translate_offset`.
    """
    assert max_bytes >= 0
    batch = segment.translate_offset(start_offset)
    if batch is None:
        return None
    limit = max(max_bytes, batch.size) if min_one_message else max_bytes
    if limit == 0:
        return _FetchedBytes(batch, 0, False)
    end = segment.size if max_position is None else max_position
    assert end >= batch.position
    size = min(end - batch.position, limit, segment.size - batch.position)
    return _FetchedBytes(batch, size, limit < batch.size)


def read_log(
    log: Log,
    start_offset: int,
    max_bytes: int,
    *,
    min_one_message: bool = False,
    max_offset: int | None = None,
    with_aborted: bool = False,
) -> Fetched:
    """Which bytes a fetch from an offset gets (`UnifiedLog.read`, `LocalLog.read`). All are of one segment.

    Args:
        max_bytes: the most bytes to return.
        min_one_message: whether the first batch is given whole, even if it is larger than `max_bytes`.
        max_offset: the offset at which to stop: the high watermark, or the last stable offset for a consumer with
            `read_committed`. None: the log end offset.
        with_aborted: whether to return the transactions that such a consumer has to skip.

    Raises:
        OffsetOutOfRangeError: `start_offset` is below the log start offset or above the log end offset.
        MalformedRecordsError: as `LogSegment.translate_offset`.
    """
    log.check_range(start_offset)
    limit = _log_end(log) if max_offset is None else _fetch_start(log, max_offset)
    nothing = () if with_aborted else None
    if start_offset >= limit.offset:
        start = limit if start_offset == limit.offset else _fetch_start(log, start_offset)
        return Fetched(start, 0, False, nothing)
    for segment in log.segments_from(start_offset):
        fetched = _read_segment_up_to(limit, segment, start_offset, max_bytes, min_one_message)
        if fetched is not None:
            start = LogOffset(fetched.batch.base_offset, segment.base_offset, fetched.batch.position)
            aborted = _aborted_in(log, start_offset, segment, fetched) if with_aborted else None
            return Fetched(start, fetched.size, fetched.first_batch_incomplete, aborted)
    return Fetched(_log_end(log), 0, False, None)  # Kafka gives no aborted transactions here


def collect_aborted(log: Log, start_offset: int, upper_bound: int) -> tuple[AbortedTransaction, ...]:
    """The aborted transactions that have offsets from `start_offset` to below `upper_bound`, and perhaps a few that
    begin below the log start offset or are long decided (`UnifiedLog.collectAbortedTransactions`).

    Raises:
        UnknownVersionError: an index on the way has an entry that Kafka refuses.
    """
    segment = log.floor_segment(start_offset)
    return () if segment is None else _collect_aborted_from(log, segment, log.log_start_offset, upper_bound)


def _log_end(log: Log) -> LogOffset:
    active = log.segments[-1]
    return LogOffset(log.log_end_offset, active.base_offset, active.size)


def _fetch_start(log: Log, offset: int) -> LogOffset:
    """Where a fetch from an offset starts (`convertToOffsetMetadataOrThrow`)."""
    return read_log(log, offset, 1).start


def _read_segment_up_to(
    limit: LogOffset, segment: LogSegment, start_offset: int, max_bytes: int, min_one_message: bool
) -> _FetchedBytes | None:
    if segment.base_offset == limit.segment_base_offset:
        return _read_segment(segment, start_offset, max_bytes, limit.position, min_one_message=min_one_message)
    fetched = _read_segment(segment, start_offset, max_bytes, min_one_message=min_one_message)
    if fetched is not None and segment.base_offset > limit.segment_base_offset:
        return _FetchedBytes(fetched.batch, 0, False)
    return fetched


def _aborted_in(
    log: Log, start_offset: int, segment: LogSegment, fetched: _FetchedBytes
) -> tuple[AbortedTransaction, ...]:
    """The aborted transactions of a fetch (`LocalLog.addAbortedTransactions`)."""
    start = OffsetPosition(fetched.batch.base_offset, fetched.batch.position)
    entry = segment.offset_index.fetch_upper_bound(start, fetched.size)
    if entry is not None:
        upper_bound = entry.offset
    else:
        later_segments = log.higher_segments(segment.base_offset)
        upper_bound = later_segments[0].base_offset if later_segments else log.log_end_offset
    return _collect_aborted_from(log, segment, start_offset, upper_bound)


def _collect_aborted_from(
    log: Log, starting_segment: LogSegment, start_offset: int, upper_bound: int
) -> tuple[AbortedTransaction, ...]:
    aborted: list[AbortedTransaction] = []
    for segment in (starting_segment, *log.higher_segments(starting_segment.base_offset)):
        collected = segment.transaction_index.collect_aborted(start_offset, upper_bound)
        aborted += collected.transactions
        if collected.complete:
            break
    return tuple(aborted)


@dataclass(frozen=True, slots=True, kw_only=True)
class RollParams:
    """What is to be appended, and how large and old a segment may become (`RollParams`).

    Attributes:
        max_segment_ms: `segment.ms`; for a compacted topic the smaller of that and `max.compaction.lag.ms`.
        max_segment_bytes: `segment.bytes`.
        max_timestamp: the largest timestamp to be appended, in ms since the epoch.
        max_offset: the last offset to be appended.
        size: the bytes to be appended.
        now: the time, in ms since the epoch.
    """

    max_segment_ms: int
    max_segment_bytes: int
    max_timestamp: int
    max_offset: int
    size: int
    now: int


def should_roll(
    segment: LogSegment, params: RollParams, *, created_ms: int | None = None, roll_jitter_ms: int = 0
) -> bool:
    """Whether a broker begins a new segment rather than append to this one (`shouldRoll`).

    It does if the segment would become too large or has become too old, if one of its indexes is full, or if the offset
    is too far from the base offset. An index that was trimmed to its entries is full; a broker gives the active
    segment's indexes room again when it starts (`AbstractIndex.resize`).

    Args:
        created_ms: when the segment was created, in ms since the epoch. A broker takes the time at which it opened the
            file. None: when the log was modified.
        roll_jitter_ms: how much earlier than others this segment is rolled.
    """
    waited_ms = _time_waited_for_roll(segment, params, segment.mtime_ms if created_ms is None else created_ms)
    return (
        segment.size > params.max_segment_bytes - params.size
        or (segment.size > 0 and waited_ms > params.max_segment_ms - roll_jitter_ms)
        or segment.offset_index.is_full
        or segment.time_index.is_full
        or not segment.offset_index.can_append_offset(params.max_offset)
    )


def _time_waited_for_roll(segment: LogSegment, params: RollParams, created_ms: int | None) -> int:
    """How long ago the first batch was written, in ms (`timeWaitedForRoll`): by its records' timestamps, or, if they
    have none, since the segment was created.
    """
    first = next(batches(segment.log), None)
    if first is not None and first.max_timestamp >= 0:
        return as_long(params.max_timestamp - first.max_timestamp)
    assert created_ms is not None
    return as_long(params.now - created_ms)
