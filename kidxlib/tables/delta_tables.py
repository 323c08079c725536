"""A catalog's tables through delta-rs, without Spark.

Every commit lands right after the version that it was computed from, or not at all: delta-rs must not try a later
version. A writer that is overtaken computes its change again, from the table's new rows. Otherwise two writers that
both miss a row would both append it.

A change by keys keeps a table's layout: the files with changed rows are rewritten in the table's order. delta-rs' MERGE
would put the rows of all these files into one, unsorted, whose statistics prune nothing.

Delta tables of users, outside a catalog, are read and written here, too (`read_delta`, `write_delta`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, QueryBuilder, Schema, WriterProperties, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from numpy.typing import NDArray
from pyarrow.fs import FileSystem

from kidxlib.catalog.change import Change, Found, TableChange
from kidxlib.catalog.conditions import Condition, scope_of, sql_of
from kidxlib.catalog.matching import Flags, Values, positions_in
from kidxlib.catalog.rows import Table
from kidxlib.catalog.tables import (
    CATALOG_VERSION,
    FILE_BYTES,
    LAYOUT_VERSION,
    catalog_version_of,
    delta_properties,
    made_by_an_older_release,
)
from kidxlib.catalog.updates import not_overtaken
from kidxlib.errors import CatalogError, NoDeltaTableError
from kidxlib.storage.packed import SCHEME, in_catalog
from kidxlib.storage.store.s3 import file_system_of, is_object, storage_options
from kidxlib.tables.data_files import (
    FILES_AT_ONCE,
    counted_bytes_of,
    files_of,
    has_plain_files,
    rows_in,
    sizes_of,
    uncommitted_files,
    write_as_it_comes,
    write_sorted,
)
from kidxlib.tables.delta_commits import (
    AMID_THE_ANSWER,
    ATTEMPTS,
    attempts,
    commit_once,
    committing,
    replace_files,
    was_dropped,
)
from kidxlib.tables.protocol import ROWS, ArrowStream, FirstAndLast, SqlQuestion

_T = TypeVar("_T")

_DELETED: Final = "_deleted"

#: The most bytes of files that are held, sorted and written at a time.
_BYTES_AT_ONCE: Final = FILES_AT_ONCE * FILE_BYTES

_BEGINS: Final = "min."
_FILE: Final = "_file"


@dataclass(frozen=True, slots=True)
class DeltaTables:
    """The tables below a catalog's directory or URL (without a slash at its end)."""

    path: str

    def version(self, table: Table) -> int | None:
        delta = self.opened(table)
        return None if delta is None else delta.version()

    def catalog_version(self, table: Table) -> int | None:
        delta = self.opened(table)
        return None if delta is None else self._catalog_version(table, delta)

    def for_workers(self) -> DeltaTables:
        return self

    def make(self, table: Table) -> None:
        if (delta := self.opened(table)) is None:
            with committing(self.path):
                delta = self.opened(table) or self._made(table)
        if (version := self._catalog_version(table, delta)) < LAYOUT_VERSION:
            raise made_by_an_older_release(self.place(table), version)
        if version < CATALOG_VERSION:
            self._commit(table, partial(self._of_this_version, table))

    def read(
        self,
        table: Table,
        names: Sequence[str] | None = None,
        where: Sequence[Condition] = (),
        version: int | None = None,
    ) -> pa.Table:
        delta = self.opened(table, version)
        if delta is None:
            return table.schema(names).empty_table()
        return _with_packed_here(self.rows(table, delta, names, sql_of(where)), self.path)

    def counts(
        self, table: Table, names: Sequence[str], where: Sequence[Condition] = (), version: int | None = None
    ) -> pa.Table:
        schema, delta = table.schema(names).append(ROWS), self.opened(table, version)
        grouped = _quoted(schema.names[:-1])
        sql = f'SELECT {grouped}, count(*) AS "{ROWS.name}" FROM rows WHERE {sql_of(where)} GROUP BY {grouped}'
        if delta is None:
            return schema.empty_table()
        return _with_packed_here(self._answer(table, delta, sql, schema), self.path)

    def first_and_last(
        self, table: Table, by: Sequence[str], columns: FirstAndLast, where: Sequence[Condition] = ()
    ) -> pa.Table:
        schema, delta = columns.schema(table, by), self.opened(table)
        grouped, last = _quoted(schema.names[:-2]), f'last_value("{columns.last_column}" ORDER BY "{columns.order}")'
        selected = f'{grouped}, min("{columns.order}") AS first, {last} AS last'
        sql = f"SELECT {selected} FROM rows WHERE {sql_of(where)} GROUP BY {grouped}"
        return schema.empty_table() if delta is None else self._answer(table, delta, sql, schema)

    def ask(self, question: SqlQuestion) -> pa.Table:
        opened: dict[str, DeltaTable] = {}
        for table in question.tables:
            if (delta := self.opened(table)) is None:
                return question.schema.empty_table()
            opened[table.name] = delta
        try:
            return _answer(opened, question.sql.replace("explode(", "unnest("), question.schema)  # DataFusion's name
        except (DeltaError, OSError, pa.ArrowException) as error:
            raise CatalogError(f"{self.path}: cannot be asked for {question.name}: {one_line(error)}") from error

    def change_rows(
        self,
        table: Table,
        found: Found,
        change: Change,
        *,
        by: Sequence[str],
        since: int | None = None,
        build_id: str = "",
    ) -> int:
        scope = scope_of(found, by)

        def commit_of(delta: DeltaTable) -> _Commit:
            known, still_found = self.rows(table, delta, None, sql_of(scope)), found
            if since is not None and delta.version() > since:
                before = self.read(table, [*table.key, "build_id"], scope, since)
                still_found = not_overtaken(found, before, known, build_id)
            return _Commit.of(table, delta, change(known, still_found))

        return self._commit(table, commit_of)

    def append(self, table: Table, rows: pa.Table | ArrowStream) -> None:
        if isinstance(rows, pa.Table):
            change = TableChange.adding(table, rows)
            self._commit(table, lambda delta: _Commit.of(table, delta, change))
        else:
            self._commit(table, lambda delta: _Commit(0, partial(_append, table, delta, rows)))

    def opened(self, table: Table, version: int | None = None) -> DeltaTable | None:
        """A version of a table, the latest by default; None if there is no such table."""
        try:
            delta = _whole_answer(
                lambda: DeltaTable(self.place(table), version=version, storage_options=storage_options(self.path))
            )
        except TableNotFoundError:
            return None
        except (DeltaError, OSError) as error:
            raise CatalogError(f"{self.place(table)}: cannot be read: {one_line(error)}") from error
        self._catalog_version(table, delta)
        return delta

    def rows(self, table: Table, delta: DeltaTable, names: Sequence[str] | None, where: str) -> pa.Table:
        """Columns of rows in a version of a table. `where` is DataFusion's SQL after WHERE."""
        schema = table.schema(names)
        missing = set(schema.names) - {field.name for field in delta.schema().fields}
        if missing and self._catalog_version(table, delta) < LAYOUT_VERSION:
            raise CatalogError(
                f"{self.place(table)}: no column {min(missing)}; an older release made it, run build_index once"
            )
        columns = ", ".join(f'NULL AS "{name}"' if name in missing else f'"{name}"' for name in schema.names)
        return self._answer(table, delta, f"SELECT {columns} FROM rows WHERE {where}", schema)

    def _answer(self, table: Table, delta: DeltaTable, sql: str, schema: pa.Schema) -> pa.Table:
        """The answer to DataFusion's SQL, in which the table is named `rows`."""
        try:
            return _answer({"rows": delta}, sql, schema)
        except (DeltaError, OSError, pa.ArrowException) as error:
            raise CatalogError(f"{self.place(table)}: cannot be read: {one_line(error)}") from error

    def place(self, table: Table) -> str:
        return f"{self.path}/{table.name}"

    def _catalog_version(self, table: Table, delta: DeltaTable) -> int:
        return catalog_version_of(self.place(table), delta.metadata().configuration)

    def _commit(self, table: Table, commit_of: Callable[[DeltaTable], _Commit]) -> int:
        delta = self.opened(table)
        if delta is not None:
            commit = commit_of(delta)
            if commit.write is None:
                return commit.counted
            with committing(self.path):
                if self._is_committed(table, commit.write):
                    return commit.counted
        # Another writer was faster. On a local disk the lock now excludes others; an object store needs more attempts.
        for _ in attempts():
            with committing(self.path):
                commit = commit_of(self.opened(table) or self._made(table))
                if commit.write is None or self._is_committed(table, commit.write):
                    return commit.counted
        raise CatalogError(
            f"{self.place(table)}: other runs changed the table, or the store was not reached, at each of {ATTEMPTS} "
            "attempts to commit; the index files are in place: run the same command again to record them"
        )

    def _of_this_version(self, table: Table, delta: DeltaTable) -> _Commit:
        """The commit that gives a table this version's columns and properties, which contain the version."""
        is_up_to_date = self._catalog_version(table, delta) == CATALOG_VERSION
        return _Commit(0, None if is_up_to_date else partial(_bring_up_to_date, table, delta))

    def _made(self, table: Table) -> DeltaTable:
        if file := self._foreign_file(table):
            raise CatalogError(
                f"{self.place(table)}: cannot make the table {table.name}: no Delta table, and it holds {file}; "
                "give --catalog a new or empty directory"
            )
        for _ in attempts():
            try:
                # Without rows: all functions that make a table with rows (`write_deltalake`,
                # `create_table_with_add_actions`, `convert_to_deltalake`) refuse properties that are not Delta's.
                return DeltaTable.create(
                    self.place(table),
                    _commented_schema(table),
                    description=table.comment,
                    configuration=dict(delta_properties(table)),
                    storage_options=storage_options(self.path),
                    commit_properties=CommitProperties(max_commit_retries=0),  # else it may be made twice
                    raise_if_key_not_exists=False,  # one key is this project's own
                )
            except (DeltaError, OSError) as error:
                failed = error
            if (delta := self.opened(table)) is not None:  # in an object store, where there is no lock
                return delta
            if not was_dropped(failed):
                break
        raise CatalogError(f"{self.place(table)}: cannot make the table {table.name}: {one_line(failed)}") from failed

    def _foreign_file(self, table: Table) -> str | None:
        """A file or directory, not Delta's, where a table is to be made. Delta's are hidden, or the table's log."""
        place = Path(self.place(table))
        names = sorted(os.listdir(place)) if not is_object(self.path) and place.is_dir() else []
        return next((name for name in names if not name.startswith((".", "_delta_log"))), None)

    def _is_committed(self, table: Table, write: Callable[[], None]) -> bool:
        """Commit right after a version; False if another writer was faster, or a connection ended before the commit."""
        try:
            write()
        except CommitFailedError:
            return False
        except (DeltaError, OSError, pa.ArrowException) as error:
            if was_dropped(error):  # while writing files: `commit_once` has looked for the commit itself
                return False
            raise CatalogError(f"{self.place(table)}: cannot be written: {one_line(error)}") from error
        return True


ZSTD: Final = WriterProperties(compression="ZSTD")


@dataclass(frozen=True, slots=True)
class _Commit:
    """A commit right after one version of a table. `counted` is how many rows it adds or changes, and `write` makes it;
    None: there is nothing to commit.
    """

    counted: int
    write: Callable[[], None] | None

    @classmethod
    def of(cls, table: Table, delta: DeltaTable, change: TableChange) -> Self:
        return cls(change.counted, None if change.is_empty else partial(_write, table, delta, change))


def _merge_sorted(table: Table, delta: DeltaTable, change: TableChange) -> bool:
    """Commit a change right after a version of a table. False if delta-rs has to do it: a file is too large to be held,
    or the table has more features than kidx gives it.
    """
    if not has_plain_files(delta):
        return False
    place = file_system_of(delta)
    files = files_of(table, delta).sort_by([(_BEGINS + name, "ascending") for name in table.order])
    touched = _touched(place, table, files, change)
    old = sizes_of(files.take(pa.array(touched.rows_that_stay, pa.int64())))
    if max(old.values(), default=0) > _BYTES_AT_ONCE:
        return False
    with uncommitted_files(place) as (new, removing):
        for rows, count in _parts(place, table, files, touched, change):
            new += write_sorted(place, table, rows, count)
        removing.pop_all()  # from here on the files may be committed
        replace_files(delta, old, new, data_change=True, history=_merge_history(change, len(old), len(new)))
    return True


@dataclass(frozen=True, slots=True)
class _Touched:
    """The files that a change affects.

    Attributes:
        rows_that_stay: by position of each affected file, which of its rows stay.
        file_of_update: for each updated row, the position of the file with its old version; −1: none.
    """

    rows_that_stay: Mapping[int, Flags]
    file_of_update: NDArray[np.int64]


def _touched(place: FileSystem, table: Table, files: pa.Table, change: TableChange) -> _Touched:
    replaced_keys = pa.concat_tables([change.updates.select(table.key), change.deletes.select(table.key)])
    rows_that_stay: dict[int, Flags] = {}
    file_of = np.full(replaced_keys.num_rows, -1, np.int64)
    for number, path in enumerate(sizes_of(files)):
        candidates = np.flatnonzero(_may_be_in(files.slice(number, 1), replaced_keys))
        if not len(candidates):
            continue
        keys = rows_in(place, table, path, table.key)
        positions = positions_in(keys, replaced_keys.take(pa.array(candidates, pa.int64())), table.key)
        if (positions >= 0).any():
            rows_that_stay[number] = positions < 0
            file_of[candidates[positions[positions >= 0]]] = number
    return _Touched(rows_that_stay, file_of[: change.updates.num_rows])


def _may_be_in(file: pa.Table, keys: pa.Table) -> Flags:
    """Which keys a file may contain, by its bounds in the table's log."""
    may_be = np.ones(keys.num_rows, np.bool_)
    for name in keys.column_names:
        least, greatest = (file[f"{bound}.{name}"][0] for bound in ("min", "max"))
        if least.is_valid and greatest.is_valid:
            inside: Values = pc.and_(pc.greater_equal(keys[name], least), pc.less_equal(keys[name], greatest))
            may_be &= inside.to_numpy()
    return may_be


def _parts(
    place: FileSystem, table: Table, files: pa.Table, touched: _Touched, change: TableChange
) -> Iterator[tuple[pa.Table, int]]:
    """The rows to write together, and into how many files: for each run of neighbouring files the rows that stay and
    the new rows between them; at last the new rows that belong to other files.
    """
    new = pa.concat_tables([change.updates, change.inserts])
    file_of = np.concatenate([touched.file_of_update, np.full(change.inserts.num_rows, -1, np.int64)])
    file_of = np.where(file_of < 0, _file_of(table, files, new), file_of)
    stay = touched.rows_that_stay
    size_of = counted_bytes_of(files)
    paths, sizes = list(size_of), list(size_of.values())
    for numbers in _neighbours(sorted(stay), sizes):
        old = [rows_in(place, table, paths[number]).filter(pa.array(stay[number])) for number in numbers]
        rows = pa.concat_tables([*old, new.filter(pa.array(np.isin(file_of, numbers)))])
        rows_before = sum(len(stay[number]) for number in numbers)
        yield rows, _file_count(sum(sizes[number] for number in numbers) * rows.num_rows // rows_before)
    rows = new.filter(pa.array(~np.isin(file_of, list(stay))))
    if rows.num_rows:
        yield rows, _file_count(sum(sizes) * rows.num_rows // int(pc.sum(files["num_records"]).as_py() or 1))


def _file_of(table: Table, files: pa.Table, rows: pa.Table) -> NDArray[np.int64]:
    """For each row the position of the last file that begins before it, or of the first file if all begin later."""
    begins = pa.table([files[_BEGINS + name] for name in table.order], list(table.order))
    begins = begins.append_column(_FILE, pa.array(np.arange(files.num_rows), pa.int64()))
    keys = rows.select(table.order).append_column(
        _FILE, pa.repeat(pa.scalar(files.num_rows, pa.int64()), rows.num_rows)
    )
    both = pa.concat_tables([begins, keys.cast(begins.schema)])
    order = pc.sort_indices(both, [(name, "ascending") for name in (*table.order, _FILE)]).to_numpy()
    last_file = np.empty(both.num_rows, np.int64)
    last_file[order] = np.maximum.accumulate(np.where(order < files.num_rows, order, 0))
    return last_file[files.num_rows :]


def _neighbours(numbers: Sequence[int], sizes: Sequence[int]) -> Iterator[list[int]]:
    """Runs of consecutive files that fit into memory, as their positions."""
    run: list[int] = []
    for number in numbers:
        if run and (number > run[-1] + 1 or sum(sizes[held] for held in [*run, number]) > _BYTES_AT_ONCE):
            yield run
            run = []
        run.append(number)
    if run:
        yield run


def _file_count(size: int) -> int:
    return max(1, -(-size // FILE_BYTES))


def _merge_history(change: TableChange, removed: int, added: int) -> dict[str, Any]:
    """The metadata of a change in the table's history, with Delta's names for a MERGE. delta-rs adds the kind of
    commit.
    """
    metrics = {
        "num_target_rows_inserted": change.inserts.num_rows,
        "num_target_rows_updated": change.updates.num_rows,
        "num_target_rows_deleted": change.deletes.num_rows,
        "num_target_files_added": added,
        "num_target_files_removed": removed,
    }
    return {"kidx.operation": "merge", "isBlindAppend": False, "operationMetrics": metrics}


def _write(table: Table, delta: DeltaTable, change: TableChange) -> None:
    if not (change.updates.num_rows or change.deletes.num_rows):
        _append(table, delta, _in_order(table, change.inserts))
    elif not _merge_sorted(table, delta, change):
        _merge(table, delta, change)


def _commented_schema(table: Table) -> pa.Schema:
    """The table's schema with the comments of its columns, in Delta's form."""
    return pa.schema([column.field.with_metadata({"comment": column.comment}) for column in table.columns])


def _bring_up_to_date(table: Table, delta: DeltaTable) -> None:
    """Add columns and properties, in two commits. If a run stops between them, older releases ignore the columns."""
    present = {field.name for field in delta.schema().fields}
    if added := [field for field in _commented_schema(table) if field.name not in present]:
        fields = Schema.from_arrow(pa.schema(added)).fields
        commit_once(
            delta.table_uri,
            delta.version() + 1,
            lambda properties: delta.alter.add_columns(fields, commit_properties=properties),
        )

    def write(properties: CommitProperties) -> None:
        delta.alter.set_table_properties(
            dict(delta_properties(table)),
            raise_if_not_exists=False,  # one key is this project's own
            commit_properties=properties,
        )

    commit_once(delta.table_uri, delta.version() + 1, write)


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _in_order(table: Table, rows: pa.Table) -> pa.Table:
    """Rows in the table's order, which puts neighbours into one file."""
    return rows.sort_by([(name, "ascending") for name in table.order])


def _append(table: Table, delta: DeltaTable, rows: ArrowStream) -> None:
    """Add rows. delta-rs writes the files of a table with more features than kidx gives it."""
    if not has_plain_files(delta):
        _merge(table, delta, TableChange.adding(table, pa.RecordBatchReader.from_stream(rows).read_all()))
        return
    place = file_system_of(delta)
    with uncommitted_files(place) as (new, removing):
        new += write_as_it_comes(place, table, rows)
        removing.pop_all()  # from here on the files may be committed
        # The names of delta-rs' own appends.
        metrics = {"num_added_files": len(new), "num_added_rows": sum(file.rows for file in new)}
        replace_files(delta, {}, new, data_change=True, history={"operationMetrics": metrics})


def _merge(table: Table, delta: DeltaTable, change: TableChange) -> None:
    key = " AND ".join(f'old."{name}" = new."{name}"' for name in table.key)
    values = {f'"{name}"': f'new."{name}"' for name in table.column_names}

    def write(properties: CommitProperties) -> None:
        merge = delta.merge(
            _marked_rows(table, change),
            key,
            source_alias="new",
            target_alias="old",
            streamed_exec=False,  # else the bounds of keys do not prune files
            commit_properties=properties,
            writer_properties=ZSTD,
        )
        merge = merge.when_matched_delete(f"new.{_DELETED}").when_matched_update(values)
        merge.when_not_matched_insert(values, f"NOT new.{_DELETED}").execute()

    commit_once(delta.table_uri, delta.version() + 1, write)


def _marked_rows(table: Table, change: TableChange) -> pa.Table:
    """All rows of a change in the table's order, with a column that marks the deleted ones."""
    written = pa.concat_tables([change.inserts, change.updates])
    rows = written.append_column(_DELETED, pa.repeat(False, written.num_rows))
    if count := change.deletes.num_rows:
        nullable = pa.schema([field.with_nullable(True) for field in rows.schema])
        values = {**{name: change.deletes[name] for name in table.key}, _DELETED: pa.repeat(True, count)}
        columns = [values.get(field.name, pa.nulls(count, field.type)) for field in nullable]
        rows = pa.concat_tables([rows.cast(nullable), pa.table(columns, schema=nullable)])
    return _in_order(table, rows)


#: The column with the directory of a segment's index files, which may be packed in the same catalog.
_INDEX_DIRECTORY: Final = "index_directory"


def _with_packed_here(rows: pa.Table, catalog: str) -> pa.Table:
    """Rows with the place of packed index files in the catalog as it is now: it may have moved since it was written."""
    if _INDEX_DIRECTORY not in rows.column_names:
        return rows
    column = rows[_INDEX_DIRECTORY]
    is_inside: Values = pc.starts_with(column, SCHEME)
    if not pc.any(is_inside).as_py():
        return rows
    encoded: Values = column.combine_chunks().dictionary_encode()
    words = pa.array([in_catalog(word, catalog) for word in encoded.dictionary.to_pylist()], pa.string())
    number = rows.schema.get_field_index(_INDEX_DIRECTORY)
    return rows.set_column(number, rows.schema.field(number), words.take(encoded.indices))


def _answer(opened: Mapping[str, DeltaTable], sql: str, schema: pa.Schema) -> pa.Table:
    """The answer to DataFusion's SQL about tables by their names there. It prunes files by their statistics.
    `DeltaTable.to_pyarrow_table` takes five times as long, as it imports pandas.
    """
    builder = QueryBuilder()
    for name, delta in opened.items():
        builder = builder.register(name, delta)

    def read() -> pa.Table:
        return pa.RecordBatchReader.from_stream(builder.execute(sql)).read_all().cast(schema)

    return _whole_answer(read)


def _whole_answer(read: Callable[[], _T]) -> _T:
    """Read a Delta table, again each time that a connection to its store ends in mid-answer. `read` has no effects."""
    for _ in attempts():
        try:
            return read()
        except (DeltaError, OSError, pa.ArrowException) as error:
            if AMID_THE_ANSWER not in str(error):
                raise
            failed = error
    raise failed


def one_line(error: Exception) -> str:
    """An error of delta-rs on one line, without colours and without the lines of Rust's stack trace."""
    lines = re.sub("\x1b\\[[0-9;]*m", "", str(error)).splitlines()
    return " ".join(line.strip() for line in lines if not re.match(r"\s*(at |[0-9]+: )", line))


def read_delta(path: str) -> Iterator[pa.RecordBatch]:
    """The rows of a Delta table, in any order; at least one batch, if it is empty."""
    try:
        rows = (
            QueryBuilder()
            .register("rows", DeltaTable(path, storage_options=storage_options(path)))
            .execute("SELECT * FROM rows")
        )
        reader = pa.RecordBatchReader.from_stream(rows)
        # Arrow has fewer functions for views of strings than for strings.
        schema = pa.schema([_plain(field) for field in reader.schema])
        yield pa.RecordBatch.from_pylist([], schema)  # callers look at its columns, even without rows
        yield from (batch.cast(schema) for batch in reader)
    except TableNotFoundError as error:
        raise NoDeltaTableError(f"{path}: no Delta table there") from error
    except (DeltaError, OSError, pa.ArrowException) as error:
        raise CatalogError(f"{path}: cannot be read: {one_line(error)}") from error


def write_delta(path: str, rows: Iterable[pa.RecordBatch], schema: pa.Schema) -> None:
    """Make a Delta table with rows, in one commit."""
    reader = pa.RecordBatchReader.from_batches(schema, iter(rows))
    try:
        commit_once(
            path,
            0,
            lambda properties: write_deltalake(
                path, reader, mode="error", storage_options=storage_options(path), commit_properties=properties
            ),
        )
    except (DeltaError, OSError) as error:
        raise CatalogError(f"{path}: cannot be written: {one_line(error)}") from error


def _plain(field: pa.Field[pa.DataType]) -> pa.Field[pa.DataType]:
    return field.with_type(pa.string()) if pa.types.is_string_view(field.type) else field
