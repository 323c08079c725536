"""Makes the rows of segments in the order of a plan: records as a consumer gets them, or a row for each batch; and
counts records. Several threads make records from checked batches, in bounded memory.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kidxlib.errors import KidxError, MalformedRecordsError
from kidxlib.format import layouts
from kidxlib.reading.segment_read import SegmentRead, TakeLog
from kidxlib.reading.walk import Damage, Item, TakeDamage, WalkOptions, walk_segment
from kidxlib.records.arrow_batches import batch_rows
from kidxlib.records.arrow_columns import CONSUMED, Array, attribute_flags, numbers_array, words_array
from kidxlib.records.arrow_records import pieces, record_batch
from kidxlib.records.batch_table import BatchTable
from kidxlib.records.batch_table_kernel import UNKNOWN_COUNT
from kidxlib.records.placed_records import BYTES_MAX, ROWS_MAX, RecordPlacer
from kidxlib.storage.opened_log import opened_log

#: About so many bytes of rows a thread makes before they are asked for; the rest of its table waits until then.
_AHEAD_BYTES: Final = 16 * 1024 * 1024


def record_rows_of(
    reads: Iterable[SegmentRead],
    schema: pa.Schema,
    on_damage: TakeDamage,
    *,
    goes_on: bool,
    threads: int,
    on_end: TakeLog | None = None,
) -> Iterator[pa.RecordBatch]:
    """The records of segments in order, as a consumer gets them: rows with columns of `CONSUMED`.

    `on_damage` is called after all rows before the damage were taken; an error that it raises ends the reading. Else
    the reading goes on after damage if `goes_on`. With one thread, the caller's thread does all.
    """
    options = WalkOptions(goes_on=goes_on, on_end=on_end)
    items = ((read, item) for read in reads for item in walk_segment(read, options))
    for rows in _in_turn(items, schema) if threads == 1 else _ahead(items, schema, threads):
        if isinstance(rows, Damage):
            on_damage(rows)
        else:
            yield rows


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
        for item in walk_segment(read, options):
            if isinstance(item, Damage):
                on_damage(item)
            else:
                yield batch_rows(read.base_offset, item.rows, schema, (read.topic, read.partition))


def count_records(
    reads: Iterable[SegmentRead],
    on_damage: TakeDamage,
    *,
    goes_on: bool,
    threads: int,
    on_end: TakeLog | None,
) -> int:
    """Count the records that `record_rows_of` would give. A read may know its number from a catalog. Otherwise headers
    tell it, and checksums are not checked. Only batches at the ends of the wanted offsets are read as a whole, and
    compressed batches of magic 0 and 1, whose headers do not have the number. `on_end` is called in any of the threads.
    """
    count = 0
    with ThreadPoolExecutor(threads, thread_name_prefix="kidx-count") as pool:
        for counted, damages in pool.map(partial(_count, goes_on=goes_on, on_end=on_end), reads):
            count += counted
            for damage in damages:
                on_damage(damage)
    return count


class RecordDecoder:
    """Makes rows of batches, with columns of `CONSUMED`. It has its own memory, so it works on the batches of one table
    at a time.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._placer = RecordPlacer()

    def rows(self, read: SegmentRead, table: BatchTable) -> Iterator[pa.RecordBatch | Damage]:
        """The records of batches as a consumer gets them, some at a time; a batch whose records do not match its header
        gives damage. The batches are the segment's, each with the right checksum.
        """
        table = table.filtered(gives_rows(read, table.rows))
        while len(table.rows):
            try:
                for placed in self._placer.placed(table, read.wanted):
                    for piece in pieces(placed, ROWS_MAX, BYTES_MAX):
                        yield record_batch(piece, self._schema, _constants(read, len(piece.places), self._schema))
            except MalformedRecordsError as error:
                number = int(np.searchsorted(table.rows["position"], error.position))
                yield _damage(read, table.rows[number], error)
                table = table.after(number)
            else:
                return


def gives_rows(read: SegmentRead, rows: NDArray[np.void]) -> NDArray[np.bool_]:
    """Which batches give rows of records: no markers, and no aborted batches if these are to be left out."""
    return ~(attribute_flags(rows, layouts.ATTRIBUTE_CONTROL) | read.aborted.are_aborted(rows))


def _constants(read: SegmentRead, rows: int, schema: pa.Schema) -> dict[str, Array]:
    """The columns that are the same for all records of a segment."""
    constants = {}
    if "topic" in schema.names:
        constants["topic"] = words_array([read.topic], np.zeros(rows, np.int32))
    if "partition" in schema.names:
        constants["partition"] = numbers_array(pa.int32(), np.full(rows, read.partition))
    return constants


def _damage(read: SegmentRead, batch: NDArray[np.void], error: MalformedRecordsError) -> Damage:
    position, last_offset = int(batch["position"]), int(batch["last_offset"])
    return Damage(
        path=read.log_path,
        topic=read.topic,
        partition=read.partition,
        position=position,
        end=position + int(batch["size"]),
        first_offset=int(batch["offset_field"]) if batch["magic"] >= layouts.MAGIC_V2 else read.base_offset,
        next_offset=last_offset + 1,
        reason=f"found {error.found}, expected {error.expected}",
    )


def _in_turn(items: Iterable[tuple[SegmentRead, Item]], schema: pa.Schema) -> Iterator[pa.RecordBatch | Damage]:
    decoder = RecordDecoder(schema)
    for read, item in items:
        if isinstance(item, Damage):
            yield item
        else:
            yield from decoder.rows(read, item)


#: Rows, and the decoder that makes them.
_Begun: TypeAlias = tuple[Iterator[pa.RecordBatch | Damage], RecordDecoder]


def _ahead(
    items: Iterable[tuple[SegmentRead, Item]], schema: pa.Schema, threads: int
) -> Iterator[pa.RecordBatch | Damage]:
    idle: list[RecordDecoder] = [RecordDecoder(schema) for _ in range(threads + 1)]

    def begin(read: SegmentRead, table: BatchTable) -> _Begun:
        """The rows of a table of batches: some are made ahead, the others on demand."""
        decoder = idle.pop()
        others = decoder.rows(read, table)
        ahead, size = [], 0
        while size < _AHEAD_BYTES and (rows := next(others, None)) is not None:
            ahead.append(rows)
            size += 0 if isinstance(rows, Damage) else rows.nbytes
        return itertools.chain(ahead, others), decoder

    def finish(first: Future[_Begun] | Damage) -> Iterator[pa.RecordBatch | Damage]:
        if isinstance(first, Damage):
            yield first
            return
        rows, decoder = first.result()
        yield from rows
        idle.append(decoder)

    pool = ThreadPoolExecutor(threads, thread_name_prefix="kidx-read")
    pending: deque[Future[_Begun] | Damage] = deque()
    try:
        try:
            for read, item in items:
                # The walk reuses its window while threads still work on the batches that were in it.
                pending.append(item if isinstance(item, Damage) else pool.submit(begin, read, item.copy()))
                while len(pending) > threads:
                    yield from finish(pending.popleft())
        except (OSError, KidxError):
            while pending:
                yield from finish(pending.popleft())
            raise
        while pending:
            yield from finish(pending.popleft())
    finally:
        pool.shutdown(cancel_futures=True)


def _count(read: SegmentRead, *, goes_on: bool, on_end: TakeLog | None) -> tuple[int, list[Damage]]:
    if read.records is not None:
        if on_end is not None and (known := read.as_cataloged()) is not None:
            on_end(known)
        return read.records, []
    options = WalkOptions(goes_on=goes_on, judges=False, checks=False, whole=False, on_end=on_end)
    decoder = RecordDecoder(pa.schema([CONSUMED.field("offset")]))
    count, damages = 0, list[Damage]()
    for item in walk_segment(read, options):
        if isinstance(item, Damage):
            damages.append(item)
            continue
        rows = item.rows[gives_rows(read, item.rows)]
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


def _count_inside(read: SegmentRead, rows: NDArray[np.void], decoder: RecordDecoder, on_damage: TakeDamage) -> int:
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
