"""A unit of work and the Parquet file that it fills, in whatever process it is done."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from kidxlib.engine.row_batches import row_batches
from kidxlib.engine.work import ItemRows, Work
from kidxlib.storage.scratch import writing_in
from kidxlib.storage.store.requests import Requests, requests_made
from kidxlib.terminal.phase import Span

#: Rows that a worker holds before it writes them. Few segments have as many, but one may have millions of events.
_ROWS_PER_GROUP: Final = 65_536


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit of work, and the file that it fills."""

    items: Sequence[Any]
    do: Callable[[Iterable[Any], bool], Iterator[ItemRows]]
    schema: pa.Schema
    path: str


@dataclass(frozen=True, slots=True)
class UnitDone:
    """What became of a unit: its file, and what it read when.

    Attributes:
        requests: that it made of object stores.
    """

    path: str
    segments: int
    log_bytes: int
    span: Span
    requests: Requests


def units_of(work: Work[Any], directory: Path) -> list[Unit]:
    """The units of some work, each with a file of its own in a new directory.

    Raises:
        KidxError: the directory cannot be made.
    """
    with writing_in(directory.parent):
        directory.mkdir(parents=True)
    return [
        Unit(items, work.do, work.schema, str(directory / f"{number:06}.parquet"))
        for number, items in enumerate(work.units)
    ]


def do_unit(unit: Unit, use_mmap: bool, until_stopped: Callable[[Iterable[Any]], Iterator[Any]] = iter) -> UnitDone:
    """Do a unit, and write what it gives.

    Args:
        until_stopped: gives the items that are still to be done.

    Raises:
        KidxError: its file cannot be written; or as its work.
    """
    begin, made_before = time.time(), requests_made()
    segments = log_bytes = 0

    def rows() -> Iterator[dict[str, Any] | pa.RecordBatch]:
        nonlocal segments, log_bytes
        for done in unit.do(until_stopped(unit.items), use_mmap):
            yield from done.batches
            yield from done.rows
            segments += done.segments
            log_bytes += done.log_bytes

    _write(unit.path, row_batches(rows(), unit.schema), unit.schema)
    return UnitDone(unit.path, segments, log_bytes, Span(begin, time.time()), requests_made() - made_before)


def _write(path: str, batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> None:
    place = Path(path).parent.parent
    with contextlib.ExitStack() as stack:
        with writing_in(place):
            writer = stack.enter_context(pq.ParquetWriter(path, schema, compression="lz4"))
        for group in _groups(batches):
            with writing_in(place):
                writer.write_table(pa.Table.from_batches(group, schema), row_group_size=_ROWS_PER_GROUP)
        with writing_in(place):
            writer.close()


def _groups(batches: Iterator[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """Batches until they have as many rows as a group of a file."""
    group: list[pa.RecordBatch] = []
    for batch in batches:
        group.append(batch)
        if sum(each.num_rows for each in group) >= _ROWS_PER_GROUP:
            yield group
            group = []
    if group:
        yield group
