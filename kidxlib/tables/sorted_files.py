"""The rows of a table in files of one size, each cut where the table's order has its rows side by side.

delta-rs' own ways do not give that: its Z-order interleaves the bytes of texts, of which names of topics have many in
common, and what it writes from a stream is cut in the order in which its threads come to it.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow.fs import FileSystem

from kidxlib.catalog.conditions import literal
from kidxlib.catalog.matching import Values
from kidxlib.catalog.rows import Table
from kidxlib.tables.layout import FILE_BYTES, counted_bytes
from kidxlib.tables.protocol import ArrowStream

#: So many files are read, sorted and written at a time: up to 500,000 segments, which take 500 MB of memory.
FILES_AT_ONCE: Final = 4
#: Readers leave out groups of rows, too, by the statistics in the file.
_ROWS_PER_GROUP: Final = 16_384


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Rows from one key on and before another, in some order of columns that are never null.

    Attributes:
        names: the columns of the order.
        first: where it begins; empty for the first of all rows.
        end: where the next one begins; empty for none.
        files: how many files its rows are to fill.
    """

    names: tuple[str, ...]
    first: tuple[str | int, ...]
    end: tuple[str | int, ...]
    files: int

    @property
    def sql(self) -> str:
        """The condition as DataFusion reads it. Its beginning is of a kind by which that leaves out files."""
        parts = list(self._bounds())
        parts += [_from(self.names, self.first)] if self.first else []
        parts += [f"NOT {_from(self.names, self.end)}"] if self.end else []
        return " AND ".join(parts) or "true"

    @property
    def expression(self) -> pc.Expression:
        """The condition as Arrow reads it, which leaves out groups of rows by it."""
        found = pc.scalar(True)
        for name, least, greatest in self._by_column():
            found = found if least is None else found & (pc.field(name) >= least)
            found = found if greatest is None else found & (pc.field(name) <= greatest)
        found = found & _from_expression(self.names, self.first) if self.first else found
        return found & ~_from_expression(self.names, self.end) if self.end else found

    def _bounds(self) -> Iterator[str]:
        for name, least, greatest in self._by_column():
            if least is not None:
                yield f'"{name}" >= {literal(least)}'
            if greatest is not None:
                yield f'"{name}" <= {literal(greatest)}'

    def _by_column(self) -> Iterator[tuple[str, str | int | None, str | int | None]]:
        """The least and the greatest value that a column may have, where that follows from the columns before it."""
        for number, name in enumerate(self.names):
            yield name, self.first[number] if self.first else None, self.end[number] if self.end else None
            if self.first[: number + 1] != self.end[: number + 1]:
                break


@dataclass(frozen=True, slots=True)
class SortedFile:
    """A file that was written, and is not yet of the table.

    Attributes:
        name: below the table's directory.
        size: in bytes.
        rows: how many there are in it.
        statistics: what Delta's log says of its rows, as JSON.
    """

    name: str
    size: int
    rows: int
    statistics: str


def key_ranges(keys: pa.Table, order: Sequence[str], table_bytes: int, at_once: int = FILES_AT_ONCE) -> list[KeyRange]:
    """A table cut into ranges of so many files as fit into memory.

    Args:
        keys: the columns `order` of all rows, or of some that are evenly taken.
        table_bytes: what the files count for that the rows are in.
        at_once: so many files.
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
    """Write some rows into new files of about as many rows each.

    Args:
        place: the table's directory.
        rows: whole rows, in any order.
    """
    in_order = rows.sort_by([(name, "ascending") for name in table.order])
    for number in range(files):
        start, end = (in_order.num_rows * each // files for each in (number, number + 1))
        if start < end:
            yield _written(place, table, number, iter([in_order.slice(start, end - start)]))


def write_as_it_comes(place: FileSystem, table: Table, rows: ArrowStream) -> Iterator[SortedFile]:
    """Write some rows into new files, each as large as it is to be; of one file a group of rows at a time is held.

    Args:
        place: the table's directory.
        rows: whole rows, in the order in which the files are to have them.
    """
    groups = _groups(rows)
    for number, first in enumerate(groups):
        yield _written(place, table, number, itertools.chain([first], groups))


def _groups(rows: ArrowStream) -> Iterator[pa.Table]:
    """Rows, as many at a time as a group has; of the last ones fewer."""
    reader = pa.RecordBatchReader.from_stream(rows)
    held = reader.schema.empty_table()
    for batch in reader:
        held = pa.concat_tables([held, pa.Table.from_batches([batch])])
        while held.num_rows >= _ROWS_PER_GROUP:
            yield held.slice(0, _ROWS_PER_GROUP)
            held = held.slice(_ROWS_PER_GROUP)
    if held.num_rows:
        yield held


def _written(place: FileSystem, table: Table, number: int, rows: Iterator[pa.Table]) -> SortedFile:
    """A new file of rows, of as many as it takes until it is full. One that cannot be written goes."""
    name, bounded, counted = f"part-{number:05}-{uuid.uuid4()}-c000.zstd.parquet", [], 0
    try:
        with place.open_output_stream(name) as sink:
            with pq.ParquetWriter(sink, table.schema(), compression="zstd") as file:
                for part in rows:
                    file.write_table(part, _ROWS_PER_GROUP)
                    bounded.append(part.select(table.statistics))
                    counted += part.num_rows
                    if counted_bytes(sink.tell(), counted) * (1 + _ROWS_PER_GROUP / counted) > FILE_BYTES:
                        break  # with another group it would be too large
            size = sink.tell()
    except BaseException:
        with contextlib.suppress(OSError):  # in an object store it may not have begun to be
            place.delete_file(name)
        raise
    return SortedFile(name, size, counted, _statistics(table, pa.concat_tables(bounded)))


def _statistics(table: Table, rows: pa.Table) -> str:
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    for name in table.statistics:
        bounds: Values = pc.min_max(rows[name])
        if bounds["min"].is_valid:
            # Delta's log has milliseconds, and these have microseconds.
            least[name] = _in_log(bounds["min"].as_py())
            greatest[name] = _in_log(bounds["max"].as_py(), timedelta(microseconds=999))
    counts = {name: rows[name].null_count for name in table.statistics}
    return json.dumps(
        {"numRecords": rows.num_rows, "minValues": least, "maxValues": greatest, "nullCount": counts},
        ensure_ascii=False,
    )


def _in_log(value: str | int | datetime, rounding: timedelta = timedelta(0)) -> str | int:
    if not isinstance(value, datetime):
        return value
    return (value.astimezone(UTC) + rounding).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _from(names: Sequence[str], values: Sequence[str | int]) -> str:
    """Whether a row is the one with these values, or comes after it."""
    name, value = names[0], literal(values[0])
    if len(names) == 1:
        return f'"{name}" >= {value}'
    return f'("{name}" > {value} OR ("{name}" = {value} AND {_from(names[1:], values[1:])}))'


def _from_expression(names: Sequence[str], values: Sequence[str | int]) -> pc.Expression:
    """What `_from` says, as Arrow reads it."""
    column, value = pc.field(names[0]), values[0]
    if len(names) == 1:
        return column >= value
    return (column > value) | ((column == value) & _from_expression(names[1:], values[1:]))
