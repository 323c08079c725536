"""What a fetch gets of a segment's log, and of a partition's: Kafka's `LogSegment.read` and `UnifiedLog.read`.

No job of kidx serves a fetch. kidxlib has Kafka's answers, and `tests/kafka` proves them against `UnifiedLog`.
"""

from __future__ import annotations

from dataclasses import dataclass

from kidxlib.errors import InvalidFetchError
from kidxlib.index.offset import OffsetPosition
from kidxlib.index.transaction import AbortedTransaction
from kidxlib.log.log import Log
from kidxlib.log.segment import BatchPosition, LogOffset, LogSegment


@dataclass(frozen=True, slots=True)
class _FetchedBytes:
    """What a fetch gets of a segment's log (`FetchDataInfo`).

    Attributes:
        batch: the first batch, which may also hold offsets below the requested one.
        size: bytes from `batch.position` on; the last batch in them may be incomplete.
        first_batch_incomplete: the fetch allows fewer bytes than `batch` has, and asks for no whole one.
    """

    batch: BatchPosition
    size: int
    first_batch_incomplete: bool


@dataclass(frozen=True, slots=True)
class Fetched:
    """What a fetch gets (`FetchDataInfo`).

    Attributes:
        start: where the bytes begin.
        size: how many bytes; the last batch in them may be incomplete.
        first_batch_incomplete: as in `_FetchedBytes`.
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
        min_one_message: whether the first batch is given whole, were it larger than `max_bytes`.

    Returns:
        None where all batches end below the offset.

    Raises:
        InvalidFetchError: `max_bytes` is negative, or `max_position` lies before the first batch.
        MalformedRecordsError: as `LogSegment.translate_offset`.
    """
    if max_bytes < 0:
        raise InvalidFetchError(f"a fetch of {max_bytes} bytes, expected 0 or more")
    batch = segment.translate_offset(start_offset)
    if batch is None:
        return None
    limit = max(max_bytes, batch.size) if min_one_message else max_bytes
    if limit == 0:
        return _FetchedBytes(batch, 0, False)
    end = segment.size if max_position is None else max_position
    if end < batch.position:
        raise InvalidFetchError(f"a fetch up to byte {end}, expected {batch.position}, where it starts, or more")
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
        min_one_message: whether the first batch is given whole, were it larger than `max_bytes`.
        max_offset: the offset at which to stop: the high watermark, or the last stable offset for a consumer with
            `read_committed`. None: the log end offset.
        with_aborted: whether to return the transactions that such a consumer has to skip.

    Raises:
        OffsetOutOfRangeError: `start_offset` is below the log start offset or above the log end offset.
        InvalidFetchError: `max_bytes` is negative.
        MalformedRecordsError: as `LogSegment.translate_offset`.
    """
    log.check_range(start_offset)
    limit = _end(log) if max_offset is None else _place(log, max_offset)
    nothing = () if with_aborted else None
    if start_offset >= limit.offset:
        start = limit if start_offset == limit.offset else _place(log, start_offset)
        return Fetched(start, 0, False, nothing)
    for segment in log.segments_from(start_offset):
        fetched = _read_up_to(limit, segment, start_offset, max_bytes, min_one_message)
        if fetched is not None:
            start = LogOffset(fetched.batch.base_offset, segment.base_offset, fetched.batch.position)
            aborted = _aborted_in(log, start_offset, segment, fetched) if with_aborted else None
            return Fetched(start, fetched.size, fetched.first_batch_incomplete, aborted)
    return Fetched(_end(log), 0, False, None)  # Kafka forgets about aborted ones here


def collect_aborted(log: Log, start_offset: int, upper_bound: int) -> tuple[AbortedTransaction, ...]:
    """The aborted transactions that have offsets from `start_offset` to below `upper_bound`, and perhaps a few that
    begin below the log start offset or are long decided (`UnifiedLog.collectAbortedTransactions`).

    Raises:
        UnknownVersionError: an index on the way has an entry that Kafka refuses.
    """
    segment = log.floor_segment(start_offset)
    return () if segment is None else _collect_aborted_from(log, segment, log.log_start_offset, upper_bound)


def _end(log: Log) -> LogOffset:
    active = log.segments[-1]
    return LogOffset(log.log_end_offset, active.base_offset, active.size)


def _place(log: Log, offset: int) -> LogOffset:
    """Where a fetch from an offset starts (`convertToOffsetMetadataOrThrow`)."""
    return read_log(log, offset, 1).start


def _read_up_to(
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
    """`LocalLog.addAbortedTransactions`."""
    start = OffsetPosition(fetched.batch.base_offset, fetched.batch.position)
    bound = segment.offset_index.fetch_upper_bound(start, fetched.size)
    if bound is not None:
        upper_bound = bound.offset
    else:
        higher = log.higher_segments(segment.base_offset)
        upper_bound = higher[0].base_offset if higher else log.log_end_offset
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
