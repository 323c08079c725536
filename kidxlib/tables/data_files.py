"""The files of a Delta table: their entries in its log, the rows in one, and new files of one size, written in the
table's order, so that a file's rows are neighbours.

delta-rs cannot write so: its Z-order interleaves the bytes of texts, many of which topic names have in common, and its
threads cut a stream into files in any order.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import uuid
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyarrow.fs import FileSystem

from kidxlib.catalog.conditions import literal
from kidxlib.catalog.matching import Values
from kidxlib.catalog.rows import Table
from kidxlib.catalog.tables import FILE_BYTES, READER_VERSION, WRITER_VERSION, counted_bytes
from kidxlib.tables.protocol import ArrowStream, files_schema


def files_of(table: Table, delta: DeltaTable) -> pa.Table:
    """The files of a version, as `files_schema` has them."""
    schema = files_schema(table)
    actions = pa.table(delta.get_add_actions(flatten=True))
    return in_schema(actions, schema)  # without a column of bounds if no file has a value in that column


def sizes_of(files: pa.Table) -> dict[str, int]:
    """The sizes of files (`files_of`) in bytes, by path."""
    return {row["path"]: row["size_bytes"] for row in files.select(["path", "size_bytes"]).to_pylist()}


def counted_bytes_of(files: pa.Table) -> dict[str, int]:
    """`counted_bytes` of files, by path."""
    rows = files.select(["path", "size_bytes", "num_records"]).to_pylist()
    return {row["path"]: counted_bytes(row["size_bytes"], row["num_records"]) for row in rows}


def rows_in(place: FileSystem, table: Table, path: str, names: Collection[str] | None = None) -> pa.Table:
    """Columns (None: all) of the rows of one file in the table's directory, in the catalog's schema; a column that the
    file lacks is null. The path is from the table's log.
    """
    schema = table.schema(names)
    # Spark writes Parquet's oldest timestamps, in nanoseconds, whose range is smaller than ours.
    with pq.ParquetFile(unquote(path), filesystem=place, coerce_int96_timestamp_unit="us", pre_buffer=True) as file:
        return in_schema(file.read(schema.names), schema)


def in_schema(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows that were read from the data files of a Delta table, or its log, with the columns of a schema; a column that
    they lack is null.
    """
    present = set(rows.column_names)
    nulls = pa.nulls(rows.num_rows)
    return pa.table(
        [(rows[field.name] if field.name in present else nulls).cast(field.type) for field in schema], schema=schema
    )


def has_plain_files(delta: DeltaTable) -> bool:
    """Whether a table's rows are exactly those of its data files, so that kidx may write files itself. Somebody may
    have enabled more features, such as deletion vectors.
    """
    protocol = delta.protocol()
    return (protocol.min_reader_version, protocol.min_writer_version) == (READER_VERSION, WRITER_VERSION)


@contextlib.contextmanager
def uncommitted_files(place: FileSystem) -> Iterator[tuple[list[SortedFile], contextlib.ExitStack]]:
    """A list for new files, and the stack that removes them at the end of the context: they would stay until the next
    vacuum. It is emptied (`pop_all`) once they may be committed.
    """
    new: list[SortedFile] = []
    with contextlib.ExitStack() as removing:
        removing.callback(remove_uncommitted_files, place, new)
        yield new, removing


def remove_uncommitted_files(place: FileSystem, files: Sequence[SortedFile]) -> None:
    for file in files:
        place.delete_file(file.name)


#: How many files are read, sorted and written at a time: up to 500,000 segments, which take 500 MB of memory.
FILES_AT_ONCE: Final = 4
#: Readers skip row groups, too, by the statistics in the file.
_ROWS_PER_GROUP: Final = 16_384


@dataclass(frozen=True, slots=True)
class KeyRange:
    """The rows from one key to before another, in an order of columns that are never null.

    Attributes:
        names: the columns of the order.
        first: the first key; empty: the first row's.
        end: the first key of the next range; empty: there is none.
        files: how many files the rows are to fill.
    """

    names: tuple[str, ...]
    first: tuple[str | int, ...]
    end: tuple[str | int, ...]
    files: int

    @property
    def sql(self) -> str:
        """The key range as a condition for DataFusion. Simple bounds at its beginning prune the table's files."""
        parts = list(self._bounds())
        parts += [_from(self.names, self.first)] if self.first else []
        parts += [f"NOT {_from(self.names, self.end)}"] if self.end else []
        return " AND ".join(parts) or "true"

    @property
    def expression(self) -> pc.Expression:
        """The key range as a condition for Arrow, which prunes the row groups of a file by it."""
        within = pc.scalar(True)
        for name, least, greatest in self._by_column():
            within = within if least is None else within & (pc.field(name) >= least)
            within = within if greatest is None else within & (pc.field(name) <= greatest)
        within = within & _from_expression(self.names, self.first) if self.first else within
        return within & ~_from_expression(self.names, self.end) if self.end else within

    def _bounds(self) -> Iterator[str]:
        for name, least, greatest in self._by_column():
            if least is not None:
                yield f'"{name}" >= {literal(least)}'
            if greatest is not None:
                yield f'"{name}" <= {literal(greatest)}'

    def _by_column(self) -> Iterator[tuple[str, str | int | None, str | int | None]]:
        """Each column's least and greatest value, as far as they follow from the columns before it."""
        for number, name in enumerate(self.names):
            yield name, self.first[number] if self.first else None, self.end[number] if self.end else None
            if self.first[: number + 1] != self.end[: number + 1]:
                break


@dataclass(frozen=True, slots=True)
class SortedFile:
    """A file that was written and not yet committed.

    Attributes:
        name: below the table's directory.
        size: in bytes.
        rows: how many rows it has.
        statistics: the JSON for Delta's log.
    """

    name: str
    size: int
    rows: int
    statistics: str


def key_ranges(keys: pa.Table, order: Sequence[str], table_bytes: int, at_once: int = FILES_AT_ONCE) -> list[KeyRange]:
    """Cut a table into key ranges of `at_once` data files each, which fit into memory. `keys` are the columns
    `order` of all rows, or of an even sample; `table_bytes` are the counted bytes of the files with the rows.
    """
    files = max(1, min(-(-table_bytes // FILE_BYTES), keys.num_rows))
    starts = range(0, files, at_once)
    in_order = keys.select(order).sort_by([(name, "ascending") for name in order])
    heads = in_order.take(pa.array([keys.num_rows * start // files for start in starts[1:]], pa.int64()))
    firsts = [(), *(tuple(head.values()) for head in heads.to_pylist()), ()]
    return [
        KeyRange(tuple(order), first, end, min(at_once, files - start))
        for (first, end), start in zip(itertools.pairwise(firsts), starts, strict=True)
    ]


def write_sorted(place: FileSystem, table: Table, rows: pa.Table, files: int) -> Iterator[SortedFile]:
    """Write whole rows, in any order, into new files of about as many rows each."""
    in_order = rows.sort_by([(name, "ascending") for name in table.order])
    for number in range(files):
        start, end = (in_order.num_rows * border // files for border in (number, number + 1))
        if start < end:
            yield _written(place, table, number, iter([in_order.slice(start, end - start)]))


def write_as_it_comes(place: FileSystem, table: Table, rows: ArrowStream) -> Iterator[SortedFile]:
    """Write whole rows as they come into new files of the standard size, holding one row group at a time."""
    groups = _groups(table, rows)
    for number, first in enumerate(groups):
        yield _written(place, table, number, itertools.chain([first], groups))


def _groups(table: Table, rows: ArrowStream) -> Iterator[pa.Table]:
    """Rows in row groups; the last may be smaller."""
    reader = pa.RecordBatchReader.from_stream(rows)
    held = reader.schema.empty_table()
    for batch in reader:
        held = pa.concat_tables([held, pa.Table.from_batches([batch])])
        while held.num_rows >= (group := _rows_per_group(table, held)):
            yield held.slice(0, group)
            held = held.slice(group)
    if held.num_rows:
        yield held


def _rows_per_group(table: Table, rows: pa.Table) -> int:
    """How many of some rows fill a row group, if they are about equally large."""
    if table.group_bytes is None or not rows.num_rows:
        return _ROWS_PER_GROUP
    return min(_ROWS_PER_GROUP, max(1, table.group_bytes * rows.num_rows // max(1, rows.nbytes)))


def _parquet_options(table: Table) -> dict[str, Any]:
    """Where rows may be large, only the columns by which they are found have dictionaries and bounds."""
    if table.group_bytes is None:
        return {}
    found_by = list(table.statistics)
    return {"use_dictionary": found_by, "write_statistics": found_by}


def _written(place: FileSystem, table: Table, number: int, rows: Iterator[pa.Table]) -> SortedFile:
    """Write a new file until it is full. If that fails, the file is removed."""
    name, bounded, counted = f"part-{number:05}-{uuid.uuid4()}-c000.zstd.parquet", [], 0
    try:
        with place.open_output_stream(name) as sink:
            with pq.ParquetWriter(sink, table.schema(), compression="zstd", **_parquet_options(table)) as file:
                for part in rows:
                    file.write_table(part, _rows_per_group(table, part))
                    bounded.append(part.select(table.statistics))
                    counted += part.num_rows
                    if counted_bytes(sink.tell(), counted) * (1 + part.num_rows / counted) > FILE_BYTES:
                        break  # another group would make it too large
            size = sink.tell()
    except BaseException:
        with contextlib.suppress(OSError):  # in an object store there may be no file yet
            place.delete_file(name)
        raise
    return SortedFile(name, size, counted, _statistics(table, pa.concat_tables(bounded)))


def _statistics(table: Table, rows: pa.Table) -> str:
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    for name in table.statistics:
        bounds: Values = pc.min_max(rows[name])
        if bounds["min"].is_valid:
            # Delta's log has milliseconds, the values have microseconds.
            least[name] = _in_delta_log(bounds["min"].as_py())
            greatest[name] = _in_delta_log(bounds["max"].as_py(), timedelta(microseconds=999))
    counts = {name: rows[name].null_count for name in table.statistics}
    return json.dumps(
        {"numRecords": rows.num_rows, "minValues": least, "maxValues": greatest, "nullCount": counts},
        ensure_ascii=False,
    )


def _in_delta_log(value: str | int | datetime, rounding: timedelta = timedelta(0)) -> str | int:
    if not isinstance(value, datetime):
        return value
    return (value.astimezone(UTC) + rounding).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _from(names: Sequence[str], values: Sequence[str | int]) -> str:
    """SQL for rows with these values or after them."""
    name, value = names[0], literal(values[0])
    if len(names) == 1:
        return f'"{name}" >= {value}'
    return f'("{name}" > {value} OR ("{name}" = {value} AND {_from(names[1:], values[1:])}))'


def _from_expression(names: Sequence[str], values: Sequence[str | int]) -> pc.Expression:
    """`_from` for Arrow."""
    column, value = pc.field(names[0]), values[0]
    if len(names) == 1:
        return column >= value
    return (column > value) | ((column == value) & _from_expression(names[1:], values[1:]))
