"""The facts of a log that need all of its bytes: both checksums, and facts of all records' timestamps."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from kidxlib.format import checksums, layouts
from kidxlib.format.layouts import batch_size
from kidxlib.java import as_long
from kidxlib.records.batch_headers import parse_batch
from kidxlib.records.record_times import read_record_times
from kidxlib.recovery.facts import (
    FactCells,
    HourRecords,
    SegmentFacts,
    SmallestTimestamp,
    empty_facts,
    smallest_timestamp,
)
from kidxlib.recovery.record_facts_kernel import DONE, NEEDS_BYTES, fold_record_facts, fold_timestamps
from kidxlib.storage.log_bytes import LogBytes

#: The most records of one batch that are read in place.
_ROOM: Final = 65_536
_PIECE_BYTES: Final = 256 * 1024


def with_all_facts(log: LogBytes, facts: SegmentFacts) -> SegmentFacts:
    """Complete a scan's facts from all bytes of the log. Facts whose bytes cannot be read stay.

    Args:
        facts: from a scan of this log.
    """
    try:
        log_crc32c, log_crc64nvme = _checksums(log)
        by_records = _fold_records(log, facts.valid_bytes)
    except OSError:  # the scan did not need these bytes, and its facts are valid
        return facts
    facts = replace(facts, log_crc32c=log_crc32c, log_crc64nvme=log_crc64nvme)
    if by_records is None:
        return facts
    smallest, by_hour = by_records
    return replace(
        facts, smallest_timestamp_ms=smallest_timestamp(smallest), smallest_timestamps=smallest, records_by_hour=by_hour
    )


def _checksums(log: LogBytes) -> tuple[int, int]:
    """CRC-32C and CRC-64/NVME of the whole log, the latter as Java's long."""
    crc32c = crc64nvme = position = 0
    while position < log.size:
        start, window = log.window(position)
        for at in range(position - start, len(window), _PIECE_BYTES):
            piece = window[at : at + _PIECE_BYTES].tobytes()  # small enough to be cached for the second checksum
            crc32c = checksums.extend_crc32c(crc32c, piece)
            crc64nvme = checksums.extend_crc64nvme(crc64nvme, piece)
        position = start + len(window)
    return crc32c, as_long(crc64nvme)


def _fold_records(log: LogBytes, end: int) -> tuple[tuple[SmallestTimestamp, ...], tuple[HourRecords, ...]] | None:
    """The smallest timestamps and the hours of all records of a log; None if some cannot be read.

    Args:
        end: where the log's valid batches end.
    """
    cells = FactCells.empty()
    into = empty_facts([log.size]), cells.stretches, cells.hours
    room = np.empty(_ROOM, np.int64), np.empty(_ROOM, np.int64)
    position, window_position, window, outcome = 0, 0, np.empty(0, np.uint8), NEEDS_BYTES
    window.setflags(write=False)
    while True:
        position, outcome = fold_record_facts(window, window_position, position, end, *into, *room)
        if outcome == DONE:
            return cells.gather()
        if outcome == NEEDS_BYTES:
            window_position, window = log.window(position)
            continue
        head = log.read(position, layouts.BATCH_V2_BYTES_MIN)
        size = batch_size(head)
        records = read_record_times(log, parse_batch(position, size, head))
        if records is None or not records.complete:
            return None
        fold_timestamps(*into, position, np.ascontiguousarray(records.timestamps))
        position += size
