"""Reads headers of batches: gives a row for each batch, and counts records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kidxlib.format import layouts
from kidxlib.reading.damage import Damage, TakeDamage
from kidxlib.reading.gaps_between_logs import TakeLog, known_end_of
from kidxlib.reading.rows import Decoder, is_seen
from kidxlib.reading.segment_read import SegmentRead
from kidxlib.reading.walk import WalkOptions, items_of
from kidxlib.records.arrow_columns import CONSUMED, batch_rows
from kidxlib.records.batch_table import BatchTable
from kidxlib.records.batch_table_kernel import UNKNOWN_COUNT
from kidxlib.storage.opened_log import opened_log


def batch_rows_of(
    reads: Iterable[SegmentRead],
    schema: pa.Schema,
    on_damage: TakeDamage,
    *,
    goes_on: bool,
    on_end: TakeLog | None = None,
) -> Iterator[pa.RecordBatch]:
    """Rows of the batches that may hold something wanted by their headers, markers included, with columns of
    `LISTED_BATCHES`. Whole batches are read only for `crc_is_right`.
    """
    checks = "crc_is_right" in schema.names
    options = WalkOptions(goes_on=goes_on, judges=False, checks=checks, whole=checks, on_end=on_end)
    for read in reads:
        for item in items_of(read, options):
            if isinstance(item, Damage):
                on_damage(item)
            else:
                yield batch_rows(read.base_offset, item.rows, schema, (read.topic, read.partition))


def count_of(
    reads: Iterable[SegmentRead],
    on_damage: TakeDamage,
    *,
    goes_on: bool,
    threads: int,
    on_end: TakeLog | None,
) -> int:
    """Count the records that `rows_of` would give. A read may know its number from a catalog. Otherwise headers tell
    it, and checksums are not checked. Only batches at the ends of the wanted offsets are read as a whole, and
    compressed batches of magic 0 and 1, whose headers do not have the number. `on_end` is called in any of the threads.
    """
    count = 0
    with ThreadPoolExecutor(threads, thread_name_prefix="kidx-count") as pool:
        for counted, damages in pool.map(partial(_count, goes_on=goes_on, on_end=on_end), reads):
            count += counted
            for damage in damages:
                on_damage(damage)
    return count


def _count(read: SegmentRead, *, goes_on: bool, on_end: TakeLog | None) -> tuple[int, list[Damage]]:
    if read.records is not None:
        if on_end is not None and (known := known_end_of(read)) is not None:
            on_end(known)
        return read.records, []
    options = WalkOptions(goes_on=goes_on, judges=False, checks=False, whole=False, on_end=on_end)
    decoder = Decoder(pa.schema([CONSUMED.field("offset")]))
    count, damages = 0, list[Damage]()
    for item in items_of(read, options):
        if isinstance(item, Damage):
            damages.append(item)
            continue
        rows = item.rows[is_seen(read, item.rows)]
        is_told = _is_told(read, rows)
        count += int(rows["records_count"][is_told].sum(dtype=np.int64))
        if not is_told.all():
            count += _count_inside(read, rows[~is_told], decoder, damages.append)
    return count, damages


def _is_told(read: SegmentRead, rows: NDArray[np.void]) -> NDArray[np.bool_]:
    """Which batches are wanted as a whole and have the number of their records in the header."""
    begins = np.where(rows["magic"] >= layouts.MAGIC_V2, rows["offset_field"], rows["last_offset"])
    is_inside = (begins >= read.wanted.first_offset) & (rows["last_offset"] <= read.wanted.last_offset)
    return is_inside & (rows["records_count"] > UNKNOWN_COUNT)


def _count_inside(read: SegmentRead, rows: NDArray[np.void], decoder: Decoder, on_damage: TakeDamage) -> int:
    """Count the wanted records of some batches by reading them."""
    count = 0
    with opened_log(read.log_path) as opened:
        log = opened.log(read.version.size, use_mmap=False)
        for number in range(len(rows)):
            position, size = int(rows["position"][number]), int(rows["size"][number])
            table = BatchTable(position, np.frombuffer(log.read(position, size), np.uint8), rows[number : number + 1])
            for item in decoder.rows(read, table):
                if isinstance(item, Damage):
                    on_damage(item)
                else:
                    count += item.num_rows
    return count
