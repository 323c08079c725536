"""The offset that a time leads to, as a broker finds it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from kidxlib.errors import DamagedLogError, MalformedRecordsError
from kidxlib.reading.damage import Damage, TakeDamage
from kidxlib.reading.segment_read import SegmentRead
from kidxlib.reading.walk import WalkOptions, items_of
from kidxlib.records.bulk.batch_table import BatchTable
from kidxlib.records.bulk.decode import RecordPlacer
from kidxlib.records.bulk.wanted import Wanted


def first_offset_at(reads: Iterable[SegmentRead], time_ms: int, on_damage: TakeDamage, *, goes_on: bool) -> int | None:
    """The offset of the first record that has a timestamp or a later one; None where none has.

    Markers count, and what was aborted, as for a broker (`FileRecords.searchForTimestamp`). Logs are scanned until it
    is found: with timestamps in any order, nothing but their headers tells what is in batches.

    Args:
        reads: of one partition, in order.
        time_ms: ms since the epoch.
        on_damage, goes_on: as of `rows_of`.

    Raises:
        DamagedLogError: a batch that may hold it does not hold what it says.
        LogChangedError, OSError: as `rows_of`.
    """
    placer = RecordPlacer()
    for read in reads:
        wanted = replace(read.wanted, first_ms=time_ms)
        for item in items_of(replace(read, wanted=wanted), WalkOptions(goes_on=goes_on)):
            if isinstance(item, Damage):
                on_damage(item)
            elif (found := _first_of(read, item, wanted, placer)) is not None:
                return found
    return None


def _first_of(read: SegmentRead, table: BatchTable, wanted: Wanted, placer: RecordPlacer) -> int | None:
    try:
        for placed in placer.placed(table, wanted):
            if len(placed.places):
                return int(placed.places["offset"][0])
    except MalformedRecordsError as error:
        raise DamagedLogError(f"{read.log_path}: {error}; which offset a time leads to cannot be told") from error
    return None
