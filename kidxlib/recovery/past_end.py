"""The bytes of a log after its valid batches: an unfinished append, or damage; and how many batches can be counted.

Recovery truncates both. An unfinished append is no loss: a broker was about to write it when it stopped, or when its
disk was snapshotted, and no batch in it was ever whole. Only these count as unfinished appends:

- a part of a batch at the end of the file: its header fits the next batch, the file ends before the batch does, and no
  whole batch is in it or after it. With a wrong size field it looks the same at first, but then the batch's checksum
  fits at the end of the file, or whole batches follow;
- zeros up to the end of the file: preallocated space (`preallocate`), or space that a file system allocated before a
  crash and never filled.

A complete batch with a wrong checksum is damage, even if it is the last one: nothing shows whether its bytes were never
written or changed later. Bytes that are not the next batch's header, such as random bytes, are damage too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from kidxlib.format import layouts
from kidxlib.format.layouts import BATCH_BYTES_MIN, MAGIC_AT, V1_ATTRIBUTES_AT, V1_CRC_AT, V2_CRC_AT, batch_size
from kidxlib.recovery import check_kernel
from kidxlib.recovery.log_checksums import batch_checksum
from kidxlib.recovery.options import WITHOUT_INDEXES
from kidxlib.recovery.outcome import Status
from kidxlib.recovery.recover import RecoveredSegment, recover
from kidxlib.storage.log_bytes import LogBytes, LogTail

#: Counting stops after this number of damaged batches.
_DAMAGED_MAX: Final = 1_000

#: How many bytes are searched at a time; twice as many are in memory.
_PIECE_BYTES: Final = 4 * 1024 * 1024
_HEADER: Final = layouts.as_struct(layouts.BATCH_V2)


@dataclass(frozen=True, slots=True)
class PastEnd:
    """The bytes after the end of a scan.

    Attributes:
        unfinished: they are only an unfinished append.
        batches: the number of whole and damaged batches; None if not all can be told apart.
        records: the records of these batches; None: not certain. In a batch with a wrong checksum the number is certain
            if the header has it twice.
    """

    unfinished: bool
    batches: int | None
    records: int | None


#: After a scan of the whole log.
NOTHING_PAST: Final = PastEnd(unfinished=False, batches=0, records=0)


def is_unfinished_append(log: LogBytes, position: int, base_offset: int, next_offset: int) -> bool:
    """Whether what follows the valid batches of a log is only an unfinished append: zeros, or part of a batch."""
    if _is_zeros(log, position):
        return True
    most = base_offset + layouts.RELATIVE_OFFSET_MAX
    return _may_begin(log, position, next_offset, most) and not _holds_whole_batch(log, position, next_offset, most)


def _is_zeros(log: LogBytes, position: int) -> bool:
    while position < log.size:
        start, window = log.window(position)
        if window[position - start :].any():
            return False
        position = start + len(window)
    return True


def _may_begin(log: LogBytes, position: int, least_offset: int, most_offset: int) -> bool:
    """Whether the remaining bytes are only the begin of the next batch."""
    left = log.size - position
    header = log.read(position, min(left, _HEADER.size))
    of_offset = min(left, 8)
    least, most = (offset.to_bytes(8)[:of_offset] for offset in (least_offset, most_offset))
    if not least <= header[:of_offset] <= most:
        return False
    if left < layouts.LOG_OVERHEAD:
        return True
    size = batch_size(header)
    if not left < size <= layouts.SEGMENT_BYTES_MAX - position:
        return False
    if left <= MAGIC_AT:
        return True
    if header[MAGIC_AT] != layouts.MAGIC_V2 or len(header) < _HEADER.size:
        return header[MAGIC_AT] <= layouts.MAGIC_V2
    fields = _header_fields(header)
    return (
        0 <= fields["records_count"] <= fields["last_offset_delta"] + 1
        and fields["attributes"] >> 8 == 0
        and min(fields["partition_leader_epoch"], fields["producer_id"], fields["producer_epoch"]) >= -1
    )


def _holds_whole_batch(log: LogBytes, position: int, least_offset: int, most_offset: int) -> bool:
    """Whether the file ends with the batch at a position, or a whole batch follows."""
    left = log.size - position
    magic = log.read(position + MAGIC_AT, 1)
    if not magic:
        return False
    header_bytes = layouts.BATCH_V2_BYTES_MIN if magic[0] >= layouts.MAGIC_V2 else BATCH_BYTES_MIN
    if left >= header_bytes and batch_checksum(log, position, left) == _stored_checksum(log, position, magic[0]):
        return True
    return next_whole_batch(log, position + 1, least_offset, most_offset) is not None


def next_whole_batch(log: LogBytes, position: int, least_offset: int, most_offset: int) -> int | None:
    """Where the first whole batch behind damage starts: from a position on, with one of these offsets in its first
    field and the right checksum; None if there is none.
    """
    for start in range(position, log.size, _PIECE_BYTES):
        data = np.frombuffer(log.read(start, 2 * _PIECE_BYTES), np.uint8)
        at, more = -1, (log.size - start, least_offset, most_offset)
        while (at := check_kernel.find_whole_batch(data, at + 1, _PIECE_BYTES, *more)) >= 0:
            if _is_whole(log, start + at):
                return int(start + at)
    return None


def _is_whole(log: LogBytes, position: int) -> bool:
    """Whether the checksum of the batch at a position is right. The batch may be larger than the bytes in memory."""
    header = log.read(position, _HEADER.size)
    size = batch_size(header)
    return batch_checksum(log, position, size) == _stored_checksum(log, position, header[MAGIC_AT])


def _stored_checksum(log: LogBytes, position: int, magic: int) -> int:
    return int.from_bytes(log.read(position + (V2_CRC_AT if magic >= layouts.MAGIC_V2 else V1_CRC_AT), 4))


def _header_fields(header: bytes) -> dict[str, int]:
    return dict(zip(layouts.BATCH_V2.names or (), _HEADER.unpack(header), strict=True))


def past_end(log: LogBytes, recovered: RecoveredSegment, base_offset: int) -> PastEnd:
    """Look at the bytes of a log after the end of its scan.

    Args:
        log: the whole log.
        recovered: the scan of the log.
    """
    end, next_offset = recovered.end, recovered.facts.next_offset
    if end.position >= log.size:
        return NOTHING_PAST
    if end.status is Status.TRUNCATED and is_unfinished_append(log, end.position, base_offset, next_offset):
        return PastEnd(unfinished=True, batches=0, records=0)
    batches, records = _counted_from(log, end.position, base_offset, next_offset)
    return PastEnd(unfinished=False, batches=batches, records=records)


def _counted_from(log: LogBytes, position: int, base_offset: int, next_offset: int) -> tuple[int | None, int | None]:
    """Count the batches from a position on, and their records."""
    batches: int = 0
    records: int | None = 0
    for _ in range(_DAMAGED_MAX):
        scan = recover(LogTail(log, position), base_offset, WITHOUT_INDEXES)
        facts = scan.facts
        position += scan.end.position
        batches += facts.batches
        records = None if records is None or facts.records is None else records + facts.records
        if facts.batches:
            next_offset = facts.next_offset
        if scan.end.status is Status.OK:
            return batches, records
        if scan.end.reason == "crc-mismatch":
            size, damaged_records, next_offset = _read_damaged_batch(log, position, next_offset)
            if size is None:
                return None, None
            position += size
            batches += 1
            records = None if records is None or damaged_records is None else records + damaged_records
        elif scan.end.reason != "invalid-control-record":  # recovery ends there, but batches follow
            is_truncated = scan.end.status is Status.TRUNCATED
            nothing_whole = log.size - position < BATCH_BYTES_MIN
            if is_truncated and (nothing_whole or is_unfinished_append(log, position, base_offset, next_offset)):
                return batches, records
            return None, None
    return None, None


def _read_damaged_batch(log: LogBytes, position: int, next_offset: int) -> tuple[int | None, int | None, int]:
    """The size, the records and the next offset of a batch with a wrong checksum. The size is None if the header does
    not fit the next batch.
    """
    header = log.read(position, _HEADER.size)
    size = batch_size(header)
    first = int.from_bytes(header[:8], signed=True)
    if first < next_offset:
        return None, None, next_offset
    if header[MAGIC_AT] > layouts.MAGIC_V2:
        return size, None, first + 1
    if header[MAGIC_AT] < layouts.MAGIC_V2:
        is_wrapper = header[V1_ATTRIBUTES_AT] & layouts.ATTRIBUTE_CODEC
        return size, None if is_wrapper else 1, first + 1
    fields = _header_fields(header)
    count, delta = fields["records_count"], fields["last_offset_delta"]
    agree = count == delta + 1 >= 1
    return size, count if agree else None, first + (delta + 1 if agree else 1)
