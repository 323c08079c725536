"""What is in a log after its valid batches: an unfinished append, or damage; and how much of it can be counted.

Recovery truncates both. An unfinished append is no loss: no batch in it was ever whole.
`kidxlib.recovery.unfinished_append` tells it from damage.

A complete batch with a wrong checksum is damage, even if it is the last one: nothing shows whether its bytes never came
or were changed later. Bytes that are no header of the next batch, such as random bytes, are damage too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kidxlib.format import layouts as formats
from kidxlib.recovery.options import RecoverOptions
from kidxlib.recovery.outcome import Status
from kidxlib.recovery.segment import RecoveredSegment, recover
from kidxlib.recovery.unfinished_append import HEADER, MAGIC_AT, SIZE, SMALLEST, header_fields, is_unfinished
from kidxlib.storage.log_bytes import LogBytes, LogTail

#: After so many damaged batches nothing is counted any more.
_DAMAGED_MAX: Final = 1_000

#: With so large an interval there is no index point, and nothing that is wrong with an index.
_WITHOUT_INDEXES: Final = RecoverOptions(interval_bytes=formats.SEGMENT_BYTES_MAX)
_V1_ATTRIBUTES_AT: Final = formats.field_position(formats.MESSAGE_V1, "attributes")


@dataclass(frozen=True, slots=True)
class PastEnd:
    """What stands after the end of a scan.

    Attributes:
        unfinished: there is only what an unfinished append leaves.
        batches: whole and damaged ones; None where not all can be distinguished.
        records: in them; None if their number is not certain. The number of a batch with a wrong checksum is certain
            if its header gives it twice.
    """

    unfinished: bool
    batches: int | None
    records: int | None


def past_end(log: LogBytes, recovered: RecoveredSegment, base_offset: int) -> PastEnd:
    """What is in a log after the end of its scan.

    Args:
        log: all of the segment's.
        recovered: what the scan of it gave.

    Raises:
        OSError, LogChangedError: the log cannot be read.
    """
    end, next_offset = recovered.end, recovered.facts.next_offset
    if end.position >= log.size:
        return PastEnd(unfinished=False, batches=0, records=0)
    if end.status is Status.TRUNCATED and is_unfinished(log, end.position, base_offset, next_offset):
        return PastEnd(unfinished=True, batches=0, records=0)
    batches, records = _count(log, end.position, base_offset, next_offset)
    return PastEnd(unfinished=False, batches=batches, records=records)


def _count(log: LogBytes, position: int, base_offset: int, next_offset: int) -> tuple[int | None, int | None]:
    """Batches from a position on, and their records."""
    batches: int = 0
    records: int | None = 0
    for _ in range(_DAMAGED_MAX):
        found = recover(LogTail(log, position), base_offset, _WITHOUT_INDEXES)
        facts = found.facts
        position += found.end.position
        batches += facts.batches
        records = None if records is None or facts.records is None else records + facts.records
        if facts.batches:
            next_offset = facts.next_offset
        if found.end.status is Status.OK:
            return batches, records
        if found.end.reason == "crc-mismatch":
            size, records_of_it, next_offset = _damaged(log, position, next_offset)
            if size is None:
                return None, None
            position += size
            batches += 1
            records = None if records is None or records_of_it is None else records + records_of_it
        elif found.end.reason != "invalid-control-record":  # after which recovery ends, and batches go on
            is_truncated = found.end.status is Status.TRUNCATED
            nothing_whole = log.size - position < SMALLEST
            if is_truncated and (nothing_whole or is_unfinished(log, position, base_offset, next_offset)):
                return batches, records
            return None, None
    return None, None


def _damaged(log: LogBytes, position: int, next_offset: int) -> tuple[int | None, int | None, int]:
    """The size, the records and the next offset of a batch whose checksum is wrong. The size is None where its header
    is not what would follow.
    """
    header = log.read(position, HEADER.size)
    size = formats.LOG_OVERHEAD + int.from_bytes(header[SIZE], signed=True)
    first = int.from_bytes(header[:8], signed=True)
    if first < next_offset:
        return None, None, next_offset
    if header[MAGIC_AT] > formats.MAGIC_V2:
        return size, None, first + 1
    if header[MAGIC_AT] < formats.MAGIC_V2:
        is_wrapper = header[_V1_ATTRIBUTES_AT] & formats.ATTRIBUTE_CODEC
        return size, None if is_wrapper else 1, first + 1
    fields = header_fields(header)
    count, delta = fields["records_count"], fields["last_offset_delta"]
    agree = count == delta + 1 >= 1
    return size, count if agree else None, first + (delta + 1 if agree else 1)
