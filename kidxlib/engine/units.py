"""Does a unit of work, in any process, and writes its rows to a Parquet file, or returns them as Arrow batches for
mapInArrow.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from kidxlib.engine.staged import StagedFiles
from kidxlib.engine.work import ItemRows, Work
from kidxlib.storage.scratch import writing_in
from kidxlib.storage.store.requests import Requests, requests_made
from kidxlib.text.times import Span

#: How many rows a worker holds before it writes them. Few segments have as many, but one may have millions of events.
_ROWS_PER_GROUP: Final = 65_536

_ROWS_PER_BATCH: Final = 1000

#: Yields units or items until the run is interrupted.
UntilStopped: TypeAlias = Callable[[Iterable[Any]], Iterator[Any]]


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit of work, and the path of the file for its rows."""

    items: Sequence[Any]
    do: Callable[..., Iterator[ItemRows]]
    schema: pa.Schema
    path: str
    maps: bool


@dataclass(frozen=True, slots=True)
class UnitDone:
    """The result of a unit: its file, what it read, when, and its requests to object stores."""

    path: str
    segments: int
    log_bytes: int
    span: Span
    requests: Requests


def units_of(work: Work[Any], directory: Path) -> list[Unit]:
    """The units of some work, each with a file of its own in a new directory."""
    with writing_in(directory.parent):
        directory.mkdir(parents=True)
    return [
        Unit(items, work.do, work.schema, str(directory / f"{number:06}.parquet"), work.maps)
        for number, items in enumerate(work.units)
    ]


def row_batches(rows: Iterable[dict[str, Any] | pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Rows in batches of 1,000. A batch among the rows is passed on at once, before the gathered rows."""
    gathered: list[dict[str, Any]] = []
    for row in rows:
        if isinstance(row, pa.RecordBatch):
            yield row
            continue
        gathered.append(row)
        if len(gathered) == _ROWS_PER_BATCH:
            yield pa.RecordBatch.from_pylist(gathered, schema)
            gathered.clear()
    if gathered:
        yield pa.RecordBatch.from_pylist(gathered, schema)


def do_unit(unit: Unit, use_mmap: bool, until_stopped: UntilStopped) -> UnitDone:
    """Do a unit, and write its rows."""
    begin, made_before = time.time(), requests_made()
    segments = log_bytes = 0

    def rows() -> Iterator[dict[str, Any] | pa.RecordBatch]:
        nonlocal segments, log_bytes
        items = until_stopped(unit.items)
        for done in unit.do(items, use_mmap) if unit.maps else unit.do(items):
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
    """Batches that make a row group of a file."""
    group: list[pa.RecordBatch] = []
    for batch in batches:
        group.append(batch)
        if sum(batch.num_rows for batch in group) >= _ROWS_PER_GROUP:
            yield group
            group = []
    if group:
        yield group


def run_in_process(
    work: Work[Any], directory: Path, until_stopped: UntilStopped, take: Callable[[UnitDone], None]
) -> StagedFiles:
    """Do the units of some work in sequence, with the files in a new directory; `take` gets each finished unit. No file
    is mapped: a log that shrinks would kill the process.
    """
    done = []
    for unit in until_stopped(units_of(work, directory)):
        done.append(do_unit(unit, False, until_stopped))
        take(done[-1])
    return StagedFiles([unit.path for unit in done], work.schema)
