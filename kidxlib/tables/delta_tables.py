"""A catalog's tables through delta-rs, without Spark.

Every commit lands right after the version that it was computed from, or not at all: delta-rs is told not to try a
later version. So whoever is overtaken computes its change again, from what the table then holds. Two appends of rows
that both find missing would otherwise both land.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Self

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, QueryBuilder, Schema, WriterProperties
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from kidxlib.catalog.change import Change, Found, TableChange
from kidxlib.catalog.conditions import Condition, sql_of
from kidxlib.catalog.rows import Table
from kidxlib.catalog.tables import CATALOG_VERSION, LAYOUT_VERSION
from kidxlib.catalog.updates import not_overtaken
from kidxlib.errors import CatalogError
from kidxlib.storage.store.s3 import is_object
from kidxlib.tables.commit_lock import committing
from kidxlib.tables.commit_once import commit_once
from kidxlib.tables.data_files import file_system_of, has_plain_files, remove_files, replace_files
from kidxlib.tables.dropped import ATTEMPTS, attempts, was_dropped, whole_answer
from kidxlib.tables.grouped import ROWS, Ends
from kidxlib.tables.layout import commented_schema, properties_of
from kidxlib.tables.place import storage_options
from kidxlib.tables.protocol import ArrowStream, Question
from kidxlib.tables.scope import scope_of
from kidxlib.tables.sorted_files import SortedFile, write_as_it_comes
from kidxlib.tables.sorted_merge import merge_sorted
from kidxlib.tables.version import made_by_an_older_release, version_of

_DELETED: Final = "_deleted"


@dataclass(frozen=True, slots=True)
class DeltaTables:
    """The tables below a catalog's directory or URL.

    Attributes:
        path: without a slash at its end.
    """

    path: str

    def version(self, table: Table) -> int | None:
        """See `Tables.version`."""
        delta = self.opened(table)
        return None if delta is None else delta.version()

    def catalog_version(self, table: Table) -> int | None:
        """See `Tables.catalog_version`."""
        delta = self.opened(table)
        return None if delta is None else self._catalog_version(table, delta)

    def for_workers(self) -> DeltaTables:
        """See `Tables.for_workers`."""
        return self

    def make(self, table: Table) -> None:
        """See `Tables.make`."""
        if (delta := self.opened(table)) is None:
            with committing(self.path):
                delta = self.opened(table) or self._made(table)
        if (found := self._catalog_version(table, delta)) < LAYOUT_VERSION:
            raise made_by_an_older_release(self.place(table), found)
        if found < CATALOG_VERSION:
            self._commit(table, partial(self._of_this_version, table))

    def read(
        self,
        table: Table,
        names: Sequence[str] | None = None,
        where: Sequence[Condition] = (),
        version: int | None = None,
    ) -> pa.Table:
        """See `Tables.read`."""
        delta = self.opened(table, version)
        return table.schema(names).empty_table() if delta is None else self.rows(table, delta, names, sql_of(where))

    def counts(
        self, table: Table, names: Sequence[str], where: Sequence[Condition] = (), version: int | None = None
    ) -> pa.Table:
        """See `TablesToRead.counts`."""
        schema, delta = table.schema(names).append(ROWS), self.opened(table, version)
        grouped = _quoted(schema.names[:-1])
        asked = f'SELECT {grouped}, count(*) AS "{ROWS.name}" FROM rows WHERE {sql_of(where)} GROUP BY {grouped}'
        return schema.empty_table() if delta is None else self._asked(table, delta, asked, schema)

    def ends(self, table: Table, by: Sequence[str], ends: Ends, where: Sequence[Condition] = ()) -> pa.Table:
        """See `TablesToRead.ends`."""
        schema, delta = ends.schema(table, by), self.opened(table)
        grouped, last = _quoted(schema.names[:-2]), f'last_value("{ends.of_last}" ORDER BY "{ends.order}")'
        chosen = f'{grouped}, min("{ends.order}") AS first, {last} AS last'
        asked = f"SELECT {chosen} FROM rows WHERE {sql_of(where)} GROUP BY {grouped}"
        return schema.empty_table() if delta is None else self._asked(table, delta, asked, schema)

    def ask(self, question: Question) -> pa.Table:
        """See `TablesToAsk.ask`."""
        opened = {table.name: self.opened(table) for table in question.tables}
        builder = QueryBuilder()
        for name, delta in opened.items():
            if delta is None:
                return question.schema.empty_table()
            builder = builder.register(name, delta)

        def read() -> pa.Table:
            rows = builder.execute(question.for_datafusion)
            return pa.RecordBatchReader.from_stream(rows).read_all().cast(question.schema)

        try:
            return whole_answer(read)
        except (DeltaError, OSError, pa.ArrowException) as error:
            raise CatalogError(f"{self.path}: cannot be asked for {question.name}: {one_line(error)}") from error

    def change(
        self,
        table: Table,
        found: Found,
        change: Change,
        *,
        by: Sequence[str],
        since: int | None = None,
        build_id: str = "",
    ) -> int:
        """See `Tables.change`."""
        scope = scope_of(found, by)

        def commit_of(delta: DeltaTable) -> _Commit:
            known, still_found = self.rows(table, delta, None, sql_of(scope)), found
            if since is not None and delta.version() > since:
                before = self.read(table, [*table.key, "build_id"], scope, since)
                still_found = not_overtaken(found, before, known, build_id)
            return _Commit.of(table, delta, change(known, still_found))

        return self._commit(table, commit_of)

    def append(self, table: Table, rows: pa.Table | ArrowStream) -> None:
        """See `Tables.append`."""
        if isinstance(rows, pa.Table):
            change = TableChange.adding(table, rows)
            self._commit(table, lambda delta: _Commit.of(table, delta, change))
        else:
            self._commit(table, lambda delta: _Commit(0, partial(_append, table, delta, rows)))

    def opened(self, table: Table, version: int | None = None) -> DeltaTable | None:
        """A version of a table, the latest by default; None where there is no such table.

        Raises:
            CatalogError: it cannot be read, is not one of a catalog, or a newer release made it.
        """
        try:
            delta = whole_answer(
                lambda: DeltaTable(self.place(table), version=version, storage_options=storage_options(self.path))
            )
        except TableNotFoundError:
            return None
        except (DeltaError, OSError) as error:
            raise CatalogError(f"{self.place(table)}: cannot be read: {one_line(error)}") from error
        self._catalog_version(table, delta)
        return delta

    def rows(self, table: Table, delta: DeltaTable, names: Sequence[str] | None, where: str) -> pa.Table:
        """Some columns of a version of a table.

        Args:
            where: a condition as DataFusion reads it, and what may stand after one.

        Raises:
            CatalogError: they cannot be read, or a column is not there.
        """
        schema = table.schema(names)
        missing = set(schema.names) - {field.name for field in delta.schema().fields}
        if missing and self._catalog_version(table, delta) < LAYOUT_VERSION:
            raise CatalogError(
                f"{self.place(table)}: no column {min(missing)}; an older release made it, run build_index once"
            )
        columns = ", ".join(f'NULL AS "{name}"' if name in missing else f'"{name}"' for name in schema.names)
        return self._asked(table, delta, f"SELECT {columns} FROM rows WHERE {where}", schema)

    def _asked(self, table: Table, delta: DeltaTable, sql: str, schema: pa.Schema) -> pa.Table:
        """What SQL gives, which leaves out files by their statistics. A table's `to_pyarrow_table` takes five times as
        long, as it imports pandas.

        Args:
            sql: as DataFusion reads it, of the table `rows`.
        """

        def read() -> pa.Table:
            rows = QueryBuilder().register("rows", delta).execute(sql)
            return pa.RecordBatchReader.from_stream(rows).read_all().cast(schema)

        try:
            return whole_answer(read)
        except (DeltaError, OSError, pa.ArrowException) as error:
            raise CatalogError(f"{self.place(table)}: cannot be read: {one_line(error)}") from error

    def place(self, table: Table) -> str:
        """The directory or URL of a table."""
        return f"{self.path}/{table.name}"

    def _catalog_version(self, table: Table, delta: DeltaTable) -> int:
        return version_of(self.place(table), delta.metadata().configuration)

    def _commit(self, table: Table, commit_of: Callable[[DeltaTable], _Commit]) -> int:
        delta = self.opened(table)
        if delta is not None:
            commit = commit_of(delta)
            if commit.write is None:
                return commit.counted
            with committing(self.path):
                if self._is_committed(table, commit.write):
                    return commit.counted
        # Others write, too. On a local disk they wait from now on; an object store has no lock, so there it is tried.
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
        """What gives a table this version's columns and properties, and with these its version."""
        is_so = self._catalog_version(table, delta) == CATALOG_VERSION
        return _Commit(0, None if is_so else partial(_bring_up_to_date, table, delta))

    def _made(self, table: Table) -> DeltaTable:
        if other := self._not_ours(table):
            raise CatalogError(
                f"{self.place(table)}: cannot make the table {table.name}: no Delta table, and it holds {other}; "
                "give --catalog a new or empty directory"
            )
        for _ in attempts():
            try:
                # Without rows: all that makes a table with some (`write_deltalake`, `create_table_with_add_actions`,
                # `convert_to_deltalake`) refuses a property that is not Delta's.
                return DeltaTable.create(
                    self.place(table),
                    commented_schema(table),
                    description=table.comment,
                    configuration=dict(properties_of(table)),
                    storage_options=storage_options(self.path),
                    commit_properties=CommitProperties(max_commit_retries=0),  # else it is made a second time
                    raise_if_key_not_exists=False,  # one is this project's own
                )
            except (DeltaError, OSError) as error:
                failed = error
            if (delta := self.opened(table)) is not None:  # in an object store, where there is no lock
                return delta
            if not was_dropped(failed):
                break
        raise CatalogError(f"{self.place(table)}: cannot make the table {table.name}: {one_line(failed)}") from failed

    def _not_ours(self, table: Table) -> str | None:
        """What somebody has put where a table is to be made; what Delta itself begins is hidden or the table's log."""
        place = Path(self.place(table))
        names = sorted(os.listdir(place)) if not is_object(self.path) and place.is_dir() else []
        return next((name for name in names if not name.startswith((".", "_delta_log"))), None)

    def _is_committed(self, table: Table, write: Callable[[], None]) -> bool:
        """Commit right after a version; False if another writer was faster, or a connection ended before there was a
        commit.
        """
        try:
            write()
        except CommitFailedError:
            return False
        except (DeltaError, OSError, pa.ArrowException) as error:
            if was_dropped(error):  # amid the files: `commit_once` has looked for the commit itself
                return False
            raise CatalogError(f"{self.place(table)}: cannot be written: {one_line(error)}") from error
        return True


ZSTD: Final = WriterProperties(compression="ZSTD")


@dataclass(frozen=True, slots=True)
class _Commit:
    """A commit right after one version of a table.

    Attributes:
        counted: how many rows it adds or changes.
        write: makes it; None where there is nothing to commit.
    """

    counted: int
    write: Callable[[], None] | None

    @classmethod
    def of(cls, table: Table, delta: DeltaTable, change: TableChange) -> Self:
        """The commit of a change."""
        return cls(change.counted, None if change.is_empty else partial(_write, table, delta, change))


def _write(table: Table, delta: DeltaTable, change: TableChange) -> None:
    if not (change.updates.num_rows or change.deletes.num_rows):
        _append(table, delta, _in_order(table, change.inserts))
    elif not merge_sorted(table, delta, change):
        _merge(table, delta, change)


def _bring_up_to_date(table: Table, delta: DeltaTable) -> None:
    """Whoever is stopped between the two commits leaves columns that older releases do not ask for."""
    present = {field.name for field in delta.schema().fields}
    if added := [field for field in commented_schema(table) if field.name not in present]:
        fields = Schema.from_arrow(pa.schema(added)).fields
        commit_once(
            delta.table_uri,
            delta.version() + 1,
            lambda properties: delta.alter.add_columns(fields, commit_properties=properties),
        )

    def write(properties: CommitProperties) -> None:
        delta.alter.set_table_properties(
            dict(properties_of(table)),
            raise_if_not_exists=False,  # one is this project's own
            commit_properties=properties,
        )

    commit_once(delta.table_uri, delta.version() + 1, write)


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _in_order(table: Table, rows: pa.Table) -> pa.Table:
    """In the table's order, which puts neighbours into one file."""
    return rows.sort_by([(name, "ascending") for name in table.order])


def _append(table: Table, delta: DeltaTable, rows: ArrowStream) -> None:
    """Add rows. delta-rs makes the files of a table that asks for more of its writers than is done here."""
    if not has_plain_files(delta):
        _merge(table, delta, TableChange.adding(table, pa.RecordBatchReader.from_stream(rows).read_all()))
        return
    place = file_system_of(delta)
    new: list[SortedFile] = []
    with contextlib.ExitStack() as stack:
        # What is no file of the table would stay until it is vacuumed.
        stack.callback(remove_files, place, new)
        new += write_as_it_comes(place, table, rows)
        stack.pop_all()  # from now on they may be committed
        # As delta-rs says it of what it has written.
        metrics = {"num_added_files": len(new), "num_added_rows": sum(file.rows for file in new)}
        replace_files(delta, {}, new, data_change=True, said={"operationMetrics": metrics})


def _merge(table: Table, delta: DeltaTable, change: TableChange) -> None:
    key = " AND ".join(f'old."{name}" = new."{name}"' for name in table.key)
    values = {f'"{name}"': f'new."{name}"' for name in table.column_names}

    def write(properties: CommitProperties) -> None:
        merge = delta.merge(
            _marked_rows(table, change),
            key,
            source_alias="new",
            target_alias="old",
            streamed_exec=False,  # else the least and largest keys do not leave out files
            commit_properties=properties,
            writer_properties=ZSTD,
        )
        merge = merge.when_matched_delete(f"new.{_DELETED}").when_matched_update(values)
        merge.when_not_matched_insert(values, f"NOT new.{_DELETED}").execute()

    commit_once(delta.table_uri, delta.version() + 1, write)


def _marked_rows(table: Table, change: TableChange) -> pa.Table:
    """All rows of a change in the table's order; and which are to go."""
    whole = pa.concat_tables([change.inserts, change.updates])
    rows = whole.append_column(_DELETED, pa.repeat(False, whole.num_rows))
    if count := change.deletes.num_rows:
        nullable = pa.schema([field.with_nullable(True) for field in rows.schema])
        values = {**{name: change.deletes[name] for name in table.key}, _DELETED: pa.repeat(True, count)}
        columns = [values.get(field.name, pa.nulls(count, field.type)) for field in nullable]
        rows = pa.concat_tables([rows.cast(nullable), pa.table(columns, schema=nullable)])
    return _in_order(table, rows)


def one_line(error: Exception) -> str:
    """An error of delta-rs without colours, and without the frames of a stack that Rust adds in lines of their own."""
    lines = re.sub("\x1b\\[[0-9;]*m", "", str(error)).splitlines()
    return " ".join(line.strip() for line in lines if not re.match(r"\s*(at |[0-9]+: )", line))
