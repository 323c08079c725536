"""Makes the rows of segments in the order of a plan: records as a consumer gets them. Several threads make them from
checked batches, in bounded memory.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kidxlib.errors import KidxError, MalformedRecordsError
from kidxlib.format import layouts
from kidxlib.reading.damage import Damage, TakeDamage
from kidxlib.reading.gaps_between_logs import TakeLog
from kidxlib.reading.segment_read import SegmentRead
from kidxlib.reading.walk import Item, WalkOptions, items_of
from kidxlib.records.arrow_columns import Array, has_attribute, numbers, words
from kidxlib.records.arrow_records import pieces, record_batch
from kidxlib.records.batch_table import BatchTable
from kidxlib.records.placed_records import BYTES_MAX, ROWS_MAX, RecordPlacer

#: About so many bytes of rows a thread makes before they are asked for; the rest of its table waits until then.
_AHEAD_BYTES: Final = 16 * 1024 * 1024


def rows_of(
    reads: Iterable[SegmentRead],
    schema: pa.Schema,
    on_damage: TakeDamage,
    *,
    goes_on: bool,
    threads: int,
    on_end: TakeLog | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of segments in order, with columns of `CONSUMED`.

    `on_damage` is called after all rows before the damage were taken; an error that it raises ends the reading. Else
    the reading goes on after damage if `goes_on`. With one thread, the caller's thread does all.
    """
    options = WalkOptions(goes_on=goes_on, on_end=on_end)
    items = ((read, item) for read in reads for item in items_of(read, options))
    for rows in _in_turn(items, schema) if threads == 1 else _ahead(items, schema, threads):
        if isinstance(rows, Damage):
            on_damage(rows)
        else:
            yield rows


class Decoder:
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
        table = table.filtered(is_seen(read, table.rows))
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


def is_seen(read: SegmentRead, rows: NDArray[np.void]) -> NDArray[np.bool_]:
    """Which batches a consumer sees: no markers, and no aborted batches if these are to be left out."""
    return ~(has_attribute(rows, layouts.ATTRIBUTE_CONTROL) | read.aborted.are_aborted(rows))


def _constants(read: SegmentRead, rows: int, schema: pa.Schema) -> dict[str, Array]:
    """The columns that are the same for all records of a segment."""
    constants = {}
    if "topic" in schema.names:
        constants["topic"] = words([read.topic], np.zeros(rows, np.int32))
    if "partition" in schema.names:
        constants["partition"] = numbers(pa.int32(), np.full(rows, read.partition))
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
    decoder = Decoder(schema)
    for read, item in items:
        if isinstance(item, Damage):
            yield item
        else:
            yield from decoder.rows(read, item)


@dataclass(frozen=True, slots=True)
class _Begun:
    """The rows of a table of batches: those that were made ahead, and an iterator that makes the others on demand."""

    ahead: list[pa.RecordBatch | Damage]
    others: Iterator[pa.RecordBatch | Damage]
    decoder: Decoder


def _ahead(
    items: Iterable[tuple[SegmentRead, Item]], schema: pa.Schema, threads: int
) -> Iterator[pa.RecordBatch | Damage]:
    idle: list[Decoder] = [Decoder(schema) for _ in range(threads + 1)]

    def begin(read: SegmentRead, table: BatchTable) -> _Begun:
        decoder = idle.pop()
        others = decoder.rows(read, table)
        ahead, size = [], 0
        while size < _AHEAD_BYTES and (rows := next(others, None)) is not None:
            ahead.append(rows)
            size += 0 if isinstance(rows, Damage) else rows.nbytes
        return _Begun(ahead, others, decoder)

    def finish(first: Future[_Begun] | Damage) -> Iterator[pa.RecordBatch | Damage]:
        if isinstance(first, Damage):
            yield first
            return
        begun = first.result()
        yield from itertools.chain(begun.ahead, begun.others)
        idle.append(begun.decoder)

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
