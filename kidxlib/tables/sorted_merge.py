"""A change by keys that keeps a table's layout: the files that hold a row of it are written anew, in the table's order.

delta-rs' own MERGE puts the rows of all files that it touches into one, in no order; its statistics leave out nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from numpy.typing import NDArray
from pyarrow.fs import FileSystem

from kidxlib.catalog.change import TableChange
from kidxlib.catalog.matching import Flags, Values, positions_in
from kidxlib.catalog.rows import Table
from kidxlib.tables.data_files import (
    counted_bytes_of,
    file_system_of,
    files_of,
    has_plain_files,
    remove_files,
    replace_files,
    rows_in,
    sizes_of,
)
from kidxlib.tables.layout import FILE_BYTES
from kidxlib.tables.sorted_files import FILES_AT_ONCE, SortedFile, write_sorted

#: Files of so many bytes are held, sorted and written at a time.
BYTES_AT_ONCE: Final = FILES_AT_ONCE * FILE_BYTES

_BEGINS: Final = "min."
_FILE: Final = "_file"


def merge_sorted(table: Table, delta: DeltaTable, change: TableChange) -> bool:
    """Commit a change right after a version of a table.

    Returns:
        False where delta-rs has to do it: one of the files is too large to be held, or the table asks for more of who
        writes to it than those that are made here.

    Raises:
        CommitFailedError: another writer was faster.
        DeltaError, OSError, pa.ArrowException: it cannot be read or written.
    """
    if not has_plain_files(delta):
        return False
    place = file_system_of(delta)
    files = files_of(table, delta).sort_by([(_BEGINS + name, "ascending") for name in table.order])
    touched = _touched(place, table, files, change)
    old = sizes_of(files.take(pa.array(touched.stays, pa.int64())))
    if max(old.values(), default=0) > BYTES_AT_ONCE:
        return False
    new: list[SortedFile] = []
    with contextlib.ExitStack() as stack:
        # What is no file of the table would stay until it is vacuumed.
        stack.callback(remove_files, place, new)
        for rows, count in _parts(place, table, files, touched, change):
            new += write_sorted(place, table, rows, count)
        stack.pop_all()  # from now on they may be committed
        replace_files(delta, old, new, data_change=True, said=_said(change, len(old), len(new)))
    return True


@dataclass(frozen=True, slots=True)
class _Touched:
    """What a change does to the files of a table.

    Attributes:
        stays: for each file that holds a row that goes, by its position: which of its rows stay.
        file_of_update: for each row that takes the place of another, the position of the file that this is in; −1 for
            none.
    """

    stays: Mapping[int, Flags]
    file_of_update: NDArray[np.int64]


def _touched(place: FileSystem, table: Table, files: pa.Table, change: TableChange) -> _Touched:
    goes = pa.concat_tables([change.updates.select(table.key), change.deletes.select(table.key)])
    stays: dict[int, Flags] = {}
    file_of = np.full(goes.num_rows, -1, np.int64)
    for number, path in enumerate(sizes_of(files)):
        among = np.flatnonzero(_may_be_in(files.slice(number, 1), goes))
        if not len(among):
            continue
        keys = rows_in(place, table, path, table.key)
        at = positions_in(keys, goes.take(pa.array(among, pa.int64())), table.key)
        if (at >= 0).any():
            stays[number] = at < 0
            file_of[among[at[at >= 0]]] = number
    return _Touched(stays, file_of[: change.updates.num_rows])


def _may_be_in(file: pa.Table, keys: pa.Table) -> Flags:
    """Which keys may be those of rows in a file, by what the log says of that."""
    found = np.ones(keys.num_rows, np.bool_)
    for name in keys.column_names:
        least, greatest = (file[f"{bound}.{name}"][0] for bound in ("min", "max"))
        if least.is_valid and greatest.is_valid:
            inside: Values = pc.and_(pc.greater_equal(keys[name], least), pc.less_equal(keys[name], greatest))
            found &= inside.to_numpy()
    return found


def _parts(
    place: FileSystem, table: Table, files: pa.Table, touched: _Touched, change: TableChange
) -> Iterator[tuple[pa.Table, int]]:
    """Rows that are to be written together, and into how many files: of neighbouring files what stays in them and what
    belongs there; at last what belongs to files that are not touched.
    """
    new = pa.concat_tables([change.updates, change.inserts])
    file_of = np.concatenate([touched.file_of_update, np.full(change.inserts.num_rows, -1, np.int64)])
    file_of = np.where(file_of < 0, _file_of(table, files, new), file_of)
    counted = counted_bytes_of(files)
    paths, sizes = list(counted), list(counted.values())
    for numbers in _neighbours(sorted(touched.stays), sizes):
        old = [rows_in(place, table, paths[number]).filter(pa.array(touched.stays[number])) for number in numbers]
        rows = pa.concat_tables([*old, new.filter(pa.array(np.isin(file_of, numbers)))])
        held = sum(len(touched.stays[number]) for number in numbers)
        yield rows, _count(sum(sizes[number] for number in numbers) * rows.num_rows // held)
    rows = new.filter(pa.array(~np.isin(file_of, list(touched.stays))))
    if rows.num_rows:
        yield rows, _count(sum(sizes) * rows.num_rows // int(pc.sum(files["num_records"]).as_py() or 1))


def _file_of(table: Table, files: pa.Table, rows: pa.Table) -> NDArray[np.int64]:
    """For each row the position of the last file that begins before it; of the first file where all begin later."""
    begins = pa.table([files[_BEGINS + name] for name in table.order], list(table.order))
    begins = begins.append_column(_FILE, pa.array(np.arange(files.num_rows), pa.int64()))
    keys = rows.select(table.order).append_column(
        _FILE, pa.repeat(pa.scalar(files.num_rows, pa.int64()), rows.num_rows)
    )
    both = pa.concat_tables([begins, keys.cast(begins.schema)])
    order = pc.sort_indices(both, [(name, "ascending") for name in (*table.order, _FILE)]).to_numpy()
    found = np.empty(both.num_rows, np.int64)
    found[order] = np.maximum.accumulate(np.where(order < files.num_rows, order, 0))
    return found[files.num_rows :]


def _neighbours(numbers: Sequence[int], sizes: Sequence[int]) -> Iterator[list[int]]:
    """Runs of numbers that follow one another, of files that are held at a time."""
    run: list[int] = []
    for number in numbers:
        if run and (number > run[-1] + 1 or sum(sizes[each] for each in [*run, number]) > BYTES_AT_ONCE):
            yield run
            run = []
        run.append(number)
    if run:
        yield run


def _count(size: int) -> int:
    return max(1, -(-size // FILE_BYTES))


def _said(change: TableChange, removed: int, added: int) -> dict[str, Any]:
    """What the history says of it, under the names that it has for a MERGE; delta-rs itself says what kind of commit
    it is.
    """
    metrics = {
        "num_target_rows_inserted": change.inserts.num_rows,
        "num_target_rows_updated": change.updates.num_rows,
        "num_target_rows_deleted": change.deletes.num_rows,
        "num_target_files_added": added,
        "num_target_files_removed": removed,
    }
    return {"kidx.operation": "merge", "isBlindAppend": False, "operationMetrics": metrics}
