"""Work for an engine, and what comes of it: units of work, the rows that they share in mapped files, and the rows that
they give, staged as Parquet files.

Any process can do a unit (`do_unit`). It writes the rows to a file, or returns them as Arrow batches for mapInArrow.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from kidxlib.catalog.change import Found
from kidxlib.catalog.conditions import Condition, rows_where
from kidxlib.catalog.matching import Values
from kidxlib.storage.location import Location
from kidxlib.storage.scratch import temporary_place, writing_in
from kidxlib.storage.store.requests import Requests, requests_made
from kidxlib.text.times import Span

Item = TypeVar("Item")

#: A process takes a second to start; in that time it could read some hundred MB, or publish the indexes of 100
#: segments.
_SMALL_BYTES: Final = 64 * 1024 * 1024
_SMALL_ITEMS: Final = 100

#: Rows of a file's row group, which a worker holds in memory. Few segments have as many, but one may have millions of
#: events.
_ROWS_PER_GROUP: Final = 65_536
_ROWS_PER_BATCH: Final = 1000

#: Yields units or items until the run is interrupted.
UntilStopped: TypeAlias = Callable[[Iterable[Any]], Iterator[Any]]


@dataclass(frozen=True, slots=True)
class ItemRows:
    """The result of one item: how many segments it had, the bytes of their logs, and rows, those in `batches` first."""

    segments: int = 0
    log_bytes: int = 0
    batches: Iterable[pa.RecordBatch] = ()
    rows: Sequence[dict[str, Any]] = ()


@dataclass(frozen=True, slots=True)
class Work(Generic[Item]):
    """Units of work. Each goes to one worker, which does its items in sequence.

    Attributes:
        name: the name of the directory for the rows.
        units: in the order in which they are begun.
        do: does the items of a unit. Processes get it by name, so it must be a module's function. Repeated, it returns
            the same rows and files.
        schema: of the rows.
        directories: the directories whose logs are read, which every worker has to see.
        is_small: the work takes less time than workers need to start.
        maps: `do` maps files, and has an argument whether it may: a worker may have died of a mapped file.
    """

    name: str
    units: Sequence[Sequence[Item]]
    do: Callable[..., Iterator[ItemRows]]
    schema: pa.Schema
    directories: Sequence[Location] = ()
    is_small: bool = False
    maps: bool = False


def reads_little(read_bytes: int, items: int) -> bool:
    """Whether work takes less time than workers need to start: bytes of logs or of rows to read, and items of all
    units, for each of which files are written or a directory is listed.
    """
    return read_bytes <= _SMALL_BYTES and items <= _SMALL_ITEMS


class SharedRows(Protocol):
    """Rows that `Engine.share` has put where workers can read them. It is sent to a worker within an item."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, in their order."""


@dataclass(frozen=True, slots=True)
class RowsInFile:
    """Rows in a Parquet file, whose path is the same for every worker."""

    path: str

    @classmethod
    def write(cls, rows: pa.Table, path: str) -> RowsInFile:
        pq.write_table(rows, path, row_group_size=_ROWS_PER_GROUP, compression="lz4")
        return cls(path)

    def batches(self) -> Iterator[pa.RecordBatch]:
        with pq.ParquetFile(self.path) as file:
            yield from file.iter_batches()


@dataclass(frozen=True, slots=True)
class RowsInItem:
    """Rows within the item, if driver and workers share no directory."""

    rows: pa.Table

    def batches(self) -> Iterator[pa.RecordBatch]:
        yield from self.rows.to_batches(_ROWS_PER_GROUP)


def mapped_table(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    """The staged rows of workers as a table in a mapped file; one batch at a time is held. The file is in `TMPDIR`, or
    /tmp, is unlinked already, and is freed with the table.
    """
    place = temporary_place()
    with writing_in(place):
        descriptor, path = tempfile.mkstemp(prefix="kidx-", suffix=".arrow", dir=place)
    os.close(descriptor)
    try:
        with writing_in(place):
            sink = pa.OSFile(path, "wb")
        with sink, pa.ipc.new_file(sink, schema) as file:
            for batch in batches:
                rows = batch.cast(schema)
                with writing_in(place):
                    file.write_batch(rows)
        with pa.memory_map(path) as source:
            return pa.ipc.open_file(source).read_all()
    finally:
        os.unlink(path)


class StagedRows(Protocol):
    """Rows of several kinds (`kidxlib.catalog.rows.kinds_of`) that finished units of work have left for the engine's
    lifetime.
    """

    def rows(self, kind: str, names: Sequence[str] | None = None, where: Sequence[Condition] = ()) -> pa.Table:
        """The rows of one kind that meet all conditions, in any order. No names: all columns."""

    def batches(self, kind: str) -> Iterator[pa.RecordBatch]:
        """The rows of one kind, in the order of the units and of each unit's rows."""

    def found(self, *kinds: str) -> Found:
        """All rows of some kinds."""

    def remove(self) -> None: ...


@dataclass(frozen=True, slots=True)
class StagedFiles:
    """Rows in files that this process can read.

    Attributes:
        files: paths, in the order of the units, without unfinished units.
    """

    files: Sequence[str]
    schema: pa.Schema

    def rows(self, kind: str, names: Sequence[str] | None = None, where: Sequence[Condition] = ()) -> pa.Table:
        """The staged rows of one kind that meet all conditions; all rows of one file at a time are held."""
        fields, in_conditions = self.schema.field(kind).type, {condition.column for condition in where}
        wanted = [field.name for field in fields if names is None or field.name in names]
        schema = pa.schema([field for field in fields if field.name in wanted or field.name in in_conditions])
        of_files = (rows_where(_rows_of(file, kind, schema), where) for file in self.files)
        return pa.concat_tables([schema.empty_table(), *of_files]).select(wanted)

    def batches(self, kind: str) -> Iterator[pa.RecordBatch]:
        for file in self.files:
            with pq.ParquetFile(file) as opened:
                for batch in opened.iter_batches(columns=[kind]):
                    yield batch_of_kind(batch.column(kind))

    def found(self, *kinds: str) -> Found:
        return {kind: self.rows(kind) for kind in kinds}

    def remove(self) -> None:
        for file in self.files:
            Path(file).unlink()


def _rows_of(file: str, kind: str, schema: pa.Schema) -> pa.Table:
    """Each kind has its own columns in the file, and others' are not read."""
    with pq.ParquetFile(file) as opened:
        column = opened.read(columns=[f"{kind}.{name}" for name in schema.names]).column(kind)
    filled: Values = column.filter(column.is_valid())
    parts = [pa.Table.from_arrays(part.flatten(), schema.names) for part in filled.chunks]
    return pa.concat_tables([part.cast(schema) for part in parts]) if parts else schema.empty_table()


def batch_of_kind(rows: Values) -> pa.RecordBatch:
    """Staged rows of one kind, from their column of structs, which is null in rows of another kind."""
    filled = rows.filter(rows.is_valid()) if rows.null_count else rows
    return pa.RecordBatch.from_struct_array(filled)


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
    """The rows that a unit of work gives, in batches of 1,000. A batch among the rows is passed on at once, before the
    gathered rows.
    """
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
    """Do one unit of some `Work`, in any process: its rows go to its file."""
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
    """Do the units of some `Work` in sequence, without an engine's workers, and stage their rows in a new directory;
    `take` gets each finished unit. No file is mapped: a log that shrinks would kill the process.
    """
    done = []
    for unit in until_stopped(units_of(work, directory)):
        done.append(do_unit(unit, False, until_stopped))
        take(done[-1])
    return StagedFiles([unit.path for unit in done], work.schema)
