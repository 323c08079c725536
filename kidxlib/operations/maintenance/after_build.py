"""What a build does for the tables once all is recorded: files that are too many become few, each table in one commit
that gives way to others.

Each build adds files, whose rows are of all partitions that have grown. Small files become one, and so do runs: large
files of which none begins before the one before it ends. Of each run a question about one partition reads a file or
two, so both are kept few. A run is merged only with what together is at least half of its size: each row is written
anew when what it lies in has grown by half, and not more often, however many builds there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, TypeAlias

import pyarrow as pa

from kidxlib.catalog.rows import Table
from kidxlib.errors import CatalogError
from kidxlib.tables.layout import SMALL_FILE_BYTES, counted_bytes
from kidxlib.tables.protocol import Maintenance
from kidxlib.terminal import interrupts
from kidxlib.terminal.console import warn
from kidxlib.terminal.progress import begin_phase
from kidxlib.text.words import counted

#: What is merged into others is at most so many times as large as these together.
_RATIO: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizedTable:
    """A table of which files were worth to be merged.

    Attributes:
        merged_files: how many these are.
        files_before, files_after: of the whole table.
        gave_way: another run has changed it meanwhile, so it stays as that has left it.
    """

    table: str
    merged_files: int
    files_before: int
    files_after: int
    gave_way: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizeLimits:
    """When files are merged, and how much at a time.

    Attributes:
        small_files_max: so many small files, and runs of large ones, may be left as they are.
        bytes_max: of the files that are merged after one build, of each table.
    """

    small_files_max: int
    bytes_max: int


def files_to_merge(table: Table, files: pa.Table, limits: OptimizeLimits) -> list[str]:
    """The paths of files that are to be written anew together; none where it does not pay.

    Args:
        files: of the table, as `Maintenance.files` has them.
    """
    of_table = [_File.of(table, row) for row in files.to_pylist()]
    small = [[file] for file in of_table if file.size < SMALL_FILE_BYTES]
    pieces = sorted([*small, *_runs([file for file in of_table if file.size >= SMALL_FILE_BYTES])], key=_size)
    for start in range(len(pieces)):
        merged = list(_merged(pieces[start:], limits.bytes_max))
        if len(merged) > limits.small_files_max:
            return [file.path for piece in merged for file in piece]
    return []


#: A value of a column, or what comes before or after all of them.
_Place: TypeAlias = tuple[Any, ...]
_FIRST: Final[_Place] = (0,)
_LAST: Final[_Place] = (2,)


@dataclass(frozen=True, slots=True)
class _File:
    """A file, and where it begins and ends in the table's order, as far as the bounds of its columns say that.

    Of a file with several topics they say which topics are the first and the last, and not which of their partitions:
    it is taken to begin at the end of the one, and to end where the other begins. So files of one run, which share a
    topic, do not count as overlapping. Its size is what it counts for.
    """

    path: str
    size: int
    begin: tuple[_Place, ...]
    end: tuple[_Place, ...]

    @classmethod
    def of(cls, table: Table, row: dict[str, Any]) -> _File:
        begin: list[_Place] = []
        end: list[_Place] = []
        for name in table.order:
            least, greatest = row[f"min.{name}"], row[f"max.{name}"]
            if least is None or greatest is None:  # somebody has written it without
                begin, end = [*begin, _FIRST], [*end, _LAST]
                break
            begin, end = [*begin, (1, least)], [*end, (1, greatest)]
            if least != greatest:
                begin, end = [*begin, _LAST], [*end, _FIRST]
                break
        return cls(row["path"], counted_bytes(row["size_bytes"], row["num_records"]), tuple(begin), tuple(end))


def _runs(files: Sequence[_File]) -> list[list[_File]]:
    """Files in as few runs as there can be. Each goes to the run that ends the nearest before it."""
    runs: list[list[_File]] = []
    for file in sorted(files, key=lambda file: (file.begin, file.end)):
        before = [run for run in runs if run[-1].end <= file.begin]
        if before:
            max(before, key=lambda run: run[-1].end).append(file)
        else:
            runs.append([file])
    return runs


def _merged(pieces: Sequence[list[_File]], bytes_max: int) -> Iterator[list[_File]]:
    """The first pieces that are merged together.

    Args:
        pieces: the smallest first.
    """
    size = 0
    for piece in pieces:
        is_large = size and _size(piece) >= max(SMALL_FILE_BYTES, _RATIO * size)
        if size + _size(piece) > bytes_max or is_large:
            return
        yield piece
        size += _size(piece)


def _size(piece: Sequence[_File]) -> int:
    return sum(file.size for file in piece)


def optimize_tables(maintenance: Maintenance, tables: Iterable[Table], limits: OptimizeLimits) -> list[OptimizedTable]:
    """Merge files of tables where it pays. What goes wrong with it is a warning: all that was asked for is done."""
    optimized: list[OptimizedTable] = []
    with interrupts.telling(lambda: "the build is done and recorded; tables that were not put in order are as before"):
        for table in tables:
            try:
                optimized += _optimized(maintenance, table, limits)
            except CatalogError as error:
                warn(f"{error}; the build is recorded")
    return optimized


def _optimized(maintenance: Maintenance, table: Table, limits: OptimizeLimits) -> list[OptimizedTable]:
    files = maintenance.files(table)
    merged = files_to_merge(table, files, limits)
    if not merged:
        return []
    begin_phase("putting tables in order")
    is_done = maintenance.compact(table, merged)
    return [
        OptimizedTable(
            table=table.name,
            merged_files=len(merged),
            files_before=files.num_rows,
            files_after=maintenance.files(table).num_rows if is_done else files.num_rows,
            gave_way=not is_done,
        )
    ]


def optimized_as_json(optimized: Sequence[OptimizedTable]) -> list[dict[str, Any]]:
    """A value of the JSON object's key `optimized`."""
    return [asdict(table) for table in optimized]


def optimized_as_line(optimized: Sequence[OptimizedTable]) -> str:
    """What the summary says of it; empty where there was nothing to do."""
    return "; ".join(map(_said, optimized))


def _said(table: OptimizedTable) -> str:
    if table.gave_way:
        return f"{table.table} left for a later build, as another run has changed it"
    return f"{table.table} put in order: {counted(table.files_after, 'file')}, where there were {table.files_before:,}"
