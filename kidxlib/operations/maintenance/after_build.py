"""Merges small files of tables after a build has recorded everything: each table in one commit, which gives way to
commits of other runs.

Each build adds files with rows of all partitions that have grown. Small files are merged into one. A run is a sequence
of large files that do not overlap in the order of the table. A query for one partition reads one or two files of each
run, so the number of runs is kept low, too: runs are merged. A run is merged only with files that together have at
least half of its size. So a row is rewritten only when the data that it lies in has grown by half, however many builds
there are.
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

#: A piece is merged with smaller ones only if it is at most so many times as large as these together.
_RATIO: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizedTable:
    """A table with files that were worth merging.

    Attributes:
        files_before, files_after: the number of files that the whole table had and has.
        gave_way: another run changed the table in between; then nothing was merged.
    """

    table: str
    merged_files: int
    files_before: int
    files_after: int
    gave_way: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizeLimits:
    """
    Attributes:
        small_files_max: so many small files and runs of large files may stay unmerged.
        bytes_max: so many bytes of a table's files are merged after one build at most.
    """

    small_files_max: int
    bytes_max: int


def files_to_merge(table: Table, files: pa.Table, limits: OptimizeLimits) -> list[str]:
    """The paths of files to merge, of those that `Maintenance.files` returns; none if it is not worth it."""
    of_table = [_File.of(table, row) for row in files.to_pylist()]
    small = [[file] for file in of_table if file.size < SMALL_FILE_BYTES]
    pieces = sorted([*small, *_runs([file for file in of_table if file.size >= SMALL_FILE_BYTES])], key=_size)
    for start in range(len(pieces)):
        merged = list(_merged(pieces[start:], limits.bytes_max))
        if len(merged) > limits.small_files_max:
            return [file.path for piece in merged for file in piece]
    return []


#: A value of a column, or a place before or after all values.
_Place: TypeAlias = tuple[Any, ...]
_FIRST: Final[_Place] = (0,)
_LAST: Final[_Place] = (2,)


@dataclass(frozen=True, slots=True)
class _File:
    """A file, and where it begins and ends in the table's order by the bounds of its columns.

    The bounds of a file with several topics give the first and the last topic, but not their partitions. Such a file is
    taken to begin at the end of its first topic, and to end at the beginning of its last one. So files of one run that
    share a topic do not count as overlapping.
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
            if least is None or greatest is None:  # a file without statistics
                begin, end = [*begin, _FIRST], [*end, _LAST]
                break
            begin, end = [*begin, (1, least)], [*end, (1, greatest)]
            if least != greatest:
                begin, end = [*begin, _LAST], [*end, _FIRST]
                break
        return cls(row["path"], counted_bytes(row["size_bytes"], row["num_records"]), tuple(begin), tuple(end))


def _runs(files: Sequence[_File]) -> list[list[_File]]:
    """The files in as few runs as possible: each file goes to the run that ends nearest before it."""
    runs: list[list[_File]] = []
    for file in sorted(files, key=lambda file: (file.begin, file.end)):
        before = [run for run in runs if run[-1].end <= file.begin]
        if before:
            max(before, key=lambda run: run[-1].end).append(file)
        else:
            runs.append([file])
    return runs


def _merged(pieces: Sequence[list[_File]], bytes_max: int) -> Iterator[list[_File]]:
    """The first pieces, which are merged into one. The smallest files and runs come first."""
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
    """Merge files of tables where it is worth it. An error is only a warning: the build itself has succeeded."""
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
    return [asdict(table) for table in optimized]


def optimized_as_line(optimized: Sequence[OptimizedTable]) -> str:
    """The text for the summary; empty if nothing was merged."""
    return "; ".join(map(_line, optimized))


def _line(table: OptimizedTable) -> str:
    if table.gave_way:
        return f"{table.table} left for a later build, as another run has changed it"
    return f"{table.table} put in order: {counted(table.files_after, 'file')}, where there were {table.files_before:,}"
