"""What a consumer gets of a segment's log, record by record, in plain Python."""

from __future__ import annotations

import zlib
from typing import Final, NamedTuple

import google_crc32c
import numpy as np

from kidxlib.errors import MalformedRecordsError
from kidxlib.format import layouts
from kidxlib.records import batch_headers, reader
from kidxlib.records.batch_headers import BatchHeader
from kidxlib.records.reader import Record
from kidxlib.storage.log_bytes import WholeLog

_V2_COVERED_FROM: Final = layouts.field_position(layouts.BATCH_V2, "attributes")
_V1_COVERED_FROM: Final = layouts.field_position(layouts.MESSAGE_V1, "magic")


class Consumed(NamedTuple):
    """What it gets.

    Attributes:
        records: with their batches, markers left out.
        end: the byte up to which the log is sound.
    """

    records: list[tuple[BatchHeader, Record]]
    end: int


def consume(data: bytes, base_offset: int) -> Consumed:
    """All records up to the first batch that a broker would not have written there."""
    log = WholeLog(np.frombuffer(data, np.uint8))
    found: list[tuple[BatchHeader, Record]] = []
    end, last_offset = 0, base_offset - 1
    try:
        for batch in batch_headers.batches(log):
            first = batch.offset_field if batch.is_v2 else batch.last_offset
            increases = last_offset < first <= batch.last_offset <= base_offset + layouts.RELATIVE_OFFSET_MAX
            if batch.magic > layouts.MAGIC_V2 or not increases or not crc_is_right(data, batch):
                break
            if not batch.is_control:
                found += [(batch, record) for record in reader.records(log, batch)]
            end, last_offset = batch.next_position, batch.last_offset
    except MalformedRecordsError:
        pass
    return Consumed(found, end)


def crc_is_right(data: bytes, batch: BatchHeader) -> bool:
    whole = data[batch.position : batch.next_position]
    if batch.is_v2:
        return bool(google_crc32c.value(whole[_V2_COVERED_FROM:]) == batch.crc)
    return zlib.crc32(whole[_V1_COVERED_FROM:]) == batch.crc
