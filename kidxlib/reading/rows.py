"""The rows of segments in the order of a plan, made by several threads, in bounded memory."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from kidxlib.errors import KidxError
from kidxlib.reading.damage import Damage, TakeDamage
from kidxlib.reading.decode import Decoder
from kidxlib.reading.gaps_met import TakeLog
from kidxlib.reading.segment_read import SegmentRead
from kidxlib.reading.walk import Item, WalkOptions, items_of
from kidxlib.records.bulk.batch_table import BatchTable

#: A thread makes so many bytes of rows ahead of who takes them, about, and then waits for others before it goes on.
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
    """The rows of segments in their order.

    Args:
        schema: columns of `CONSUMED`.
        on_damage: is given damage when all that stands before it was taken; what it raises ends the reading.
        goes_on: look for what follows damage.
        threads: that make rows; with 1 the caller's does all.
        on_end: see `WalkOptions`.

    Raises:
        LogChangedError: a log is not the one that was planned, or shrinks.
        OSError: it cannot be read.
    """
    options = WalkOptions(goes_on=goes_on, on_end=on_end)
    items = ((read, item) for read in reads for item in items_of(read, options))
    found = _in_turn(items, schema) if threads == 1 else _ahead(items, schema, threads)
    for rows in found:
        if isinstance(rows, Damage):
            on_damage(rows)
        else:
            yield rows


def _in_turn(items: Iterable[tuple[SegmentRead, Item]], schema: pa.Schema) -> Iterator[pa.RecordBatch | Damage]:
    decoder = Decoder(schema)
    for read, item in items:
        if isinstance(item, Damage):
            yield item
        else:
            yield from decoder.rows(read, item)


@dataclass(frozen=True, slots=True)
class _Begun:
    """The rows of a table of batches: those that were made ahead, and those that are made when they are asked for."""

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
                # The walk goes on in its window while threads work on what was in it.
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
