"""An unfinished append: what a broker was about to write when it stopped, or when its disk was snapshotted.

Only these count as unfinished appends:

- a part of a batch at the end of the file: its header fits the next batch, the file ends before the batch does, and no
  whole batch is in it or after it. A wrong size field looks alike at first, but then the batch's checksum fits at the
  end of the file, or whole batches follow;
- zeros up to the end of the file: preallocated space (`preallocate`), or space that a file system allocated before a
  crash and never filled.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from kidxlib.format import layouts as formats
from kidxlib.recovery import check_kernel
from kidxlib.recovery.segment import batch_checksum
from kidxlib.storage.log_bytes import LogBytes

#: So many bytes are looked at, at a time; twice as many are in memory.
_PIECE_BYTES: Final = 4 * 1024 * 1024
#: The smallest batch of any format.
SMALLEST: Final = formats.LOG_OVERHEAD + formats.ENTRY_SIZE_MIN

HEADER: Final = formats.as_struct(formats.BATCH_V2)
SIZE: Final = slice(8, 12)
MAGIC_AT: Final = formats.field_position(formats.BATCH_V2, "magic")


def is_unfinished(log: LogBytes, position: int, base_offset: int, next_offset: int) -> bool:
    if _is_zeros(log, position):
        return True
    most = base_offset + formats.RELATIVE_OFFSET_MAX
    return _may_begin(log, position, next_offset, most) and not _holds_whole_batch(log, position, next_offset, most)


def _is_zeros(log: LogBytes, position: int) -> bool:
    while position < log.size:
        start, window = log.window(position)
        if window[position - start :].any():
            return False
        position = start + len(window)
    return True


def _may_begin(log: LogBytes, position: int, least_offset: int, most_offset: int) -> bool:
    """Whether the bytes that are left are the beginning of the batch that would come next, and no more."""
    left = log.size - position
    header = log.read(position, min(left, HEADER.size))
    of_offset = min(left, 8)
    least, most = (offset.to_bytes(8)[:of_offset] for offset in (least_offset, most_offset))
    if not least <= header[:of_offset] <= most:
        return False
    if left < SIZE.stop:
        return True
    size = formats.LOG_OVERHEAD + int.from_bytes(header[SIZE], signed=True)
    if not left < size <= formats.SEGMENT_BYTES_MAX - position:
        return False
    if left <= MAGIC_AT:
        return True
    if header[MAGIC_AT] != formats.MAGIC_V2 or len(header) < HEADER.size:
        return header[MAGIC_AT] <= formats.MAGIC_V2
    fields = header_fields(header)
    return (
        0 <= fields["records_count"] <= fields["last_offset_delta"] + 1
        and fields["attributes"] >> 8 == 0
        and min(fields["partition_leader_epoch"], fields["producer_id"], fields["producer_epoch"]) >= -1
    )


def _holds_whole_batch(log: LogBytes, position: int, least_offset: int, most_offset: int) -> bool:
    """Whether the file ends with the batch at a position, or a whole one stands after it."""
    left = log.size - position
    magic = log.read(position + MAGIC_AT, 1)
    if not magic:
        return False
    header_bytes = formats.BATCH_V2_BYTES_MIN if magic[0] >= formats.MAGIC_V2 else SMALLEST
    if left >= header_bytes and batch_checksum(log, position, left) == _stored_checksum(log, position, magic[0]):
        return True
    return next_whole_batch(log, position + 1, least_offset, most_offset) is not None


def next_whole_batch(log: LogBytes, position: int, least_offset: int, most_offset: int) -> int | None:
    """Where the first whole batch starts, from a position on, that has one of these offsets in its first field and the
    right checksum; None where there is none.
    """
    for start in range(position, log.size, _PIECE_BYTES):
        data = np.frombuffer(log.read(start, 2 * _PIECE_BYTES), np.uint8)
        found, more = -1, (log.size - start, least_offset, most_offset)
        while (found := check_kernel.find_whole_batch(data, found + 1, _PIECE_BYTES, *more)) >= 0:
            if _is_whole(log, start + found):
                return int(start + found)
    return None


def _is_whole(log: LogBytes, position: int) -> bool:
    """Whether the checksum of the batch fits whose header stands there; it may be larger than what is in memory."""
    header = log.read(position, HEADER.size)
    size = formats.LOG_OVERHEAD + int.from_bytes(header[SIZE], signed=True)
    return batch_checksum(log, position, size) == _stored_checksum(log, position, header[MAGIC_AT])


def _stored_checksum(log: LogBytes, position: int, magic: int) -> int:
    layout = formats.BATCH_V2 if magic >= formats.MAGIC_V2 else formats.MESSAGE_V1
    return int.from_bytes(log.read(position + formats.field_position(layout, "crc"), 4))


def header_fields(header: bytes) -> dict[str, int]:
    return dict(zip(formats.BATCH_V2.names or (), HEADER.unpack(header), strict=True))
