"""Tables in memory, wholly or in part. `MemoryTables` has the tables of a run without a catalog, in memory or in mapped
files. `HeldChanges` holds changes of one table and commits them together; readers in this process see them at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.catalog.change import Change, Found, TableChange
from kidxlib.catalog.conditions import Condition, rows_where, scope_of
from kidxlib.catalog.matching import Values, positions_in
from kidxlib.catalog.rows import Table
from kidxlib.catalog.tables import CATALOG_VERSION
from kidxlib.storage.scratch import writing_in
from kidxlib.tables.protocol import ROWS, ArrowStream, FirstAndLast, Tables, TablesToRead, counts_of


@dataclass(frozen=True, slots=True)
class MemoryTables:
    """See `kidxlib.tables.protocol.Tables`. The tables end with the process, and nobody else writes to them.

    Attributes:
        path: the catalog's name in messages.
        directory: added rows are kept in files there, to save memory; None: in memory.
    """

    path: str
    directory: Path | None = None
    _rows: dict[str, pa.Table] = field(default_factory=dict)
    _versions: dict[str, int] = field(default_factory=dict)

    def version(self, table: Table) -> int | None:
        return self._versions.get(table.name)

    def catalog_version(self, table: Table) -> int | None:
        return CATALOG_VERSION if table.name in self._rows else None

    def for_workers(self) -> TablesToRead | None:
        return None

    def make(self, table: Table) -> None:
        if table.name not in self._rows:
            self._put(table, table.schema().empty_table())

    def read(
        self,
        table: Table,
        names: Sequence[str] | None = None,
        where: Sequence[Condition] = (),
        version: int | None = None,
    ) -> pa.Table:
        """See `Tables.read`. There is only the latest version."""
        schema = table.schema(names)
        rows = self._rows.get(table.name, table.schema().empty_table())
        return rows_where(rows, where).select(schema.names).cast(schema)

    def counts(
        self, table: Table, names: Sequence[str], where: Sequence[Condition] = (), version: int | None = None
    ) -> pa.Table:
        rows = self.read(table, names, where, version)
        return counts_of(rows, rows.column_names)

    def first_and_last(
        self, table: Table, by: Sequence[str], columns: FirstAndLast, where: Sequence[Condition] = ()
    ) -> pa.Table:
        schema = columns.schema(table, by)
        rows = self.read(table, [*by, columns.order, columns.last_column], where)
        return _first_and_last_of_groups(rows, schema.names[:-2], columns).cast(schema)

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
        committed = change(self.read(table, None, scope_of(found, by)), found)
        if not committed.is_empty:
            stored = replace(committed, inserts=self._stored(committed.inserts))
            self._put(table, stored.after(table, self.read(table)))
        return committed.counted

    def append(self, table: Table, rows: pa.Table | ArrowStream) -> None:
        self._put(table, pa.concat_tables([self.read(table), self._stored(pa.table(rows).cast(table.schema()))]))

    def _stored(self, rows: pa.Table) -> pa.Table:
        """Rows to keep, mapped from a new file if there is a directory."""
        if self.directory is None or not rows.num_rows:
            return rows
        path = self.directory / f"rows-{sum(self._versions.values())}-{rows.num_columns}.arrow"
        with writing_in(self.directory), pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, rows.schema) as file:
            file.write_table(rows)
        with pa.memory_map(str(path)) as source:
            return pa.ipc.open_file(source).read_all()

    def _put(self, table: Table, rows: pa.Table) -> None:
        self._rows[table.name] = rows
        self._versions[table.name] = self._versions.get(table.name, -1) + 1


@dataclass(frozen=True, slots=True)
class _WaitingChange:
    """A change to be committed. `kinds` has the kinds of its rows, by the names of the rows in the common commit."""

    kinds: dict[str, str]
    found: Found
    change: Change


class HeldChanges:
    """See `kidxlib.tables.protocol.Tables`. Changes of one table wait for `commit`; other calls pass through."""

    def __init__(self, tables: Tables, table: Table) -> None:
        self._tables, self._table = tables, table
        self._waiting: list[_WaitingChange] = []
        self._since: int | None = None
        self._build_id = ""
        self._pending = TableChange.none(table)

    @property
    def path(self) -> str:
        return self._tables.path

    def version(self, table: Table) -> int | None:
        return self._tables.version(table)

    def catalog_version(self, table: Table) -> int | None:
        return self._tables.catalog_version(table)

    def for_workers(self) -> TablesToRead | None:
        return self._tables.for_workers()

    def make(self, table: Table) -> None:
        self._tables.make(table)

    def read(
        self,
        table: Table,
        names: Sequence[str] | None = None,
        where: Sequence[Condition] = (),
        version: int | None = None,
    ) -> pa.Table:
        """See `Tables.read`. The latest rows are those that `commit` would leave: waiting changes override what others
        have committed meanwhile.
        """
        pending = self._pending
        if table is not self._table or version is not None or pending.is_empty:
            return self._tables.read(table, names, where, version)
        schema = table.schema(names)
        rows = self._tables.read(table, [*schema.names, *table.key], where)
        waiting_rows = rows_where(pa.concat_tables([pending.inserts, pending.updates]), where)
        return pa.concat_tables([part.select(schema.names) for part in (pending.kept(table, rows), waiting_rows)])

    def counts(
        self, table: Table, names: Sequence[str], where: Sequence[Condition] = (), version: int | None = None
    ) -> pa.Table:
        """See `TablesToRead.counts`. Waiting rows are counted; the rows that they replace are not."""
        pending = self._pending
        if table is not self._table or version is not None or pending.is_empty:
            return self._tables.counts(table, names, where, version)
        names, keys, latest = table.schema(names).names, pending.keys(table), self._tables.version(table)
        rows = self._tables.read(table, [*names, *table.key], [*where, *scope_of({"key": keys}, table.key)], latest)
        replaced = rows.filter(positions_in(rows, keys, table.key) >= 0)
        waiting_rows = rows_where(pa.concat_tables([pending.inserts, pending.updates]), where)
        committed = self._tables.counts(table, names, where, latest)
        return _summed([committed, counts_of(waiting_rows, names), _negated(counts_of(replaced, names))], names)

    def first_and_last(
        self, table: Table, by: Sequence[str], columns: FirstAndLast, where: Sequence[Condition] = ()
    ) -> pa.Table:
        """See `TablesToRead.first_and_last`. Groups with waiting changes are read whole. `by` is a part of the key."""
        committed, pending = self._tables.first_and_last(table, by, columns, where), self._pending
        if table is not self._table or pending.is_empty:
            return committed
        changed = pending.keys(table)
        rows = self.read(table, [*by, columns.order, columns.last_column], [*where, *scope_of({"key": changed}, by)])
        rows = rows.filter(positions_in(rows, changed, by) >= 0)
        after = _first_and_last_of_groups(rows, committed.column_names[:-2], columns).cast(committed.schema)
        return pa.concat_tables([committed.filter(positions_in(committed, changed, by) < 0), after])

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
        if table is not self._table:
            return self._tables.change_rows(table, found, change, by=by, since=since, build_id=build_id)
        table_change = change(self.read(table, None, scope_of(found, by)), found)
        if not table_change.is_empty:
            number = len(self._waiting)
            # With `since`, `SCANNED` rows keep their name: the check of overtaken rows looks for it.
            kinds = {kind if since is not None else f"{number}: {kind}": kind for kind in found}
            self._waiting.append(_WaitingChange(kinds, found, change))
            if since is not None:
                self._since, self._build_id = since, build_id
            self._pending = self._pending.then(table, table_change)
        return table_change.counted

    def append(self, table: Table, rows: pa.Table | ArrowStream) -> None:
        self._tables.append(table, rows)

    def commit(self) -> None:
        """Commit the waiting changes as one. Each is computed again, from the rows that the one before it leaves."""
        if not self._waiting:
            return
        waiting, table = self._waiting, self._table
        found = {name: part.found[kind] for part in waiting for name, kind in part.kinds.items()}

        def combined_change(known: pa.Table, found: Found) -> TableChange:
            combined = TableChange.none(table)
            for part in waiting:
                own_rows = {kind: found[name] for name, kind in part.kinds.items()}  # without overtaken ones
                combined = combined.then(table, part.change(combined.after(table, known), own_rows))
            return combined

        self._tables.change_rows(
            table, found, combined_change, by=table.key, since=self._since, build_id=self._build_id
        )
        self._waiting, self._pending = [], TableChange.none(table)
        self._since, self._build_id = None, ""  # the next changes may have none


def _first_and_last_of_groups(rows: pa.Table, by: Sequence[str], columns: FirstAndLast) -> pa.Table:
    """A row for each group of rows with the same values in `by`: these values, and values of the group's first and last
    row (`first`, `last`).
    """
    keep_nulls = pc.ScalarAggregateOptions(skip_nulls=False)
    groups = (
        rows.sort_by(columns.order)
        .group_by(list(by), use_threads=False)  # threads would lose the order
        .aggregate([(columns.order, "first"), (columns.last_column, "last", keep_nulls)])
    )
    return groups.rename_columns([*by, "first", "last"])


def _summed(counts: Sequence[pa.Table], names: Sequence[str]) -> pa.Table:
    """Add up counts of the same columns, and leave out zeros."""
    rows = pa.concat_tables(counts).group_by(list(names)).aggregate([(ROWS.name, "sum")])
    rows = rows.rename_columns([*names, ROWS.name])
    return rows.filter(pc.field(ROWS.name) > 0)


def _negated(counts: pa.Table) -> pa.Table:
    """Counts that `_summed` then subtracts."""
    negative: Values = pc.negate(counts[ROWS.name])
    return counts.set_column(counts.num_columns - 1, ROWS.name, negative)
