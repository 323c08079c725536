"""What stands at the end of a partition's logs, as far as headers of batches tell: where they end, and what they have
from an offset on.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kidxlib.errors import MalformedRecordsError
from kidxlib.format.batch_header import ATTRIBUTE_CONTROL
from kidxlib.format.layouts import MAGIC_V2
from kidxlib.reading.aborted import AbortedRanges
from kidxlib.reading.bounds import ListedLog, bounds_of
from kidxlib.reading.rows import rows_of
from kidxlib.reading.segment_read import SegmentRead
from kidxlib.records.arrow.schema import CONSUMED
from kidxlib.records.bulk.batch_table import BatchWalk
from kidxlib.records.bulk.batch_table_kernel import UNKNOWN_COUNT
from kidxlib.records.bulk.wanted import Wanted
from kidxlib.storage.location import Location
from kidxlib.storage.opened_log import opened_log

#: Of more bytes of logs records are not counted: headers lie too far apart for a plan to wait for them.
_COUNTED_BYTES: Final = 1024 * 1024 * 1024
#: Of more bytes it is not looked which records have the times that are asked for.
_DECODED_BYTES: Final = 256 * 1024 * 1024
_OFFSETS: Final = pa.schema([CONSUMED.field("offset")])


@dataclass(frozen=True, slots=True)
class Tail:
    """What stands from an offset on.

    Attributes:
        end_offset: behind the last batch.
        is_whole: the walk came to the end of the log, or to an append that was not finished. Else something is damaged,
            and there may be more.
        first_offset, last_offset: of the batches that may hold something wanted; None where none does.
        records: of these batches, without markers; None where they do not say it, or are too many to look at.
    """

    end_offset: int
    is_whole: bool
    first_offset: int | None = None
    last_offset: int | None = None
    records: int | None = 0


def tail_of(logs: Sequence[ListedLog], index_of: Callable[[ListedLog], Location], wanted: Wanted) -> Tail:
    """Look at the end of a partition.

    Args:
        logs: all of a partition in their order, one or more.
        index_of: where a log's `.index` is, which tells where to begin.
        wanted: from its first offset on it is looked; records without its times do not count.

    Raises:
        OSError, LogChangedError: a log cannot be read.
    """
    first = max(bisect_right([log.base_offset for log in logs], wanted.first_offset) - 1, 0)
    is_counted = sum(log.size for log in logs[first:]) <= _COUNTED_BYTES or first == len(logs) - 1
    asked = replace(wanted, last_offset=Wanted().last_offset)
    found = Tail(wanted.first_offset, is_whole=True)
    for log in logs[first:] if is_counted else logs[-1:]:
        found = _with(found, log, index_of(log), asked)
    if not is_counted:
        return replace(found, first_offset=wanted.first_offset, records=None)
    if found.first_offset is not None and has_times(wanted):
        return _with_times(found, logs[first:], index_of, asked)
    return found


def has_times(wanted: Wanted) -> bool:
    """Whether not records of all times are wanted."""
    return (wanted.first_ms, wanted.last_ms) != (Wanted().first_ms, Wanted().last_ms)


def _with_times(
    found: Tail, logs: Sequence[ListedLog], index_of: Callable[[ListedLog], Location], wanted: Wanted
) -> Tail:
    """With the records alone that have the times that are wanted: headers do not tell which they are."""
    if sum(log.size for log in logs) > _DECODED_BYTES:
        return replace(found, records=None)
    reads = [_read(log, index_of(log), wanted) for log in logs if log.size]
    rows = list(rows_of(reads, _OFFSETS, lambda _: None, goes_on=False, threads=1))
    offsets = np.concatenate([np.empty(0, np.int64), *(each.column(0).to_numpy() for each in rows)])
    if not len(offsets):
        return replace(found, first_offset=None, last_offset=None, records=0)
    return replace(found, first_offset=int(offsets[0]), last_offset=int(offsets[-1]), records=len(offsets))


def _read(log: ListedLog, index: Location, wanted: Wanted) -> SegmentRead:
    start = bounds_of(log, index, Wanted.between(wanted.first_offset), None)[0]
    assert start.offset is not None
    with opened_log(str(log.path)) as opened:
        version = opened.version
    return SegmentRead(
        topic="",
        partition=0,
        base_offset=log.base_offset,
        log_path=str(log.path),
        version=version,
        position=start.position,
        end_position=log.size,
        last_offset_before=start.offset - 1,
        end_offset=log.end_offset,
        wanted=wanted,
        must_reach=None,
        aborted=AbortedRanges(),
    )


def _with(before: Tail, log: ListedLog, index: Location, wanted: Wanted) -> Tail:
    start = bounds_of(log, index, Wanted.between(wanted.first_offset), None)[0] if log.size else log.whole[0]
    assert start.offset is not None
    first, last, records = before.first_offset, before.last_offset, before.records
    with opened_log(str(log.path)) as opened:
        content = opened.log(log.size, use_mmap=False)
        walk = BatchWalk(content, start.position, wanted, whole=False, last_offset=start.offset - 1)
        is_whole = before.is_whole
        try:
            for rows in _rows(walk):
                begins = np.where(rows["magic"] >= MAGIC_V2, rows["offset_field"], rows["last_offset"])
                first = max(int(begins[0]), wanted.first_offset) if first is None else first
                last = int(rows["last_offset"][-1])
                records = _counted(records, rows, begins, wanted)
        except MalformedRecordsError:
            is_whole = False
    return Tail(walk.last_offset + 1, is_whole, first, last, records)


def _rows(walk: BatchWalk) -> Iterator[NDArray[np.void]]:
    return (table.rows for table in walk.tables())


def _counted(so_far: int | None, rows: NDArray[np.void], begins: NDArray[np.int64], wanted: Wanted) -> int | None:
    """How many records batches have, with those before; None where not all say it, or only some of one are wanted."""
    is_data = (rows["magic"] < MAGIC_V2) | (rows["attributes"] & ATTRIBUTE_CONTROL == 0)
    counts = rows["records_count"][is_data]
    if so_far is None or (begins < wanted.first_offset).any() or (counts <= UNKNOWN_COUNT).any():
        return None
    return so_far + int(counts.sum(dtype=np.int64))
