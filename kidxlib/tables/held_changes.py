"""Changes of one table that wait and are committed together: readers in this process see them at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from kidxlib.catalog.change import Change, Found, TableChange
from kidxlib.catalog.conditions import Condition, rows_where
from kidxlib.catalog.matching import positions_in
from kidxlib.catalog.rows import Table
from kidxlib.tables.protocol import (
    ArrowStream,
    FirstAndLast,
    Tables,
    TablesToRead,
    counts_of,
    first_and_last_of_groups,
    negated,
    scope_of,
    summed,
)


@dataclass(frozen=True, slots=True)
class _WaitingChange:
    """A change to be committed. `kinds` are the kinds of its own rows, by their names in the common commit."""

    kinds: dict[str, str]
    found: Found
    change: Change

    def own_rows(self, found: Found) -> Found:
        """The change's own rows among those of all changes, without overtaken ones."""
        return {kind: found[name] for name, kind in self.kinds.items()}


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
        """See `Tables.read`. The latest rows are those after `commit`: waiting changes override what others have
        committed meanwhile.
        """
        pending = self._pending
        if table is not self._table or version is not None or pending.is_empty:
            return self._tables.read(table, names, where, version)
        schema = table.schema(names)
        rows = self._tables.read(table, [*schema.names, *table.key], where)
        written = rows_where(pa.concat_tables([pending.inserts, pending.updates]), where)
        return pa.concat_tables([part.select(schema.names) for part in (pending.kept(table, rows), written)])

    def counts(
        self, table: Table, names: Sequence[str], where: Sequence[Condition] = (), version: int | None = None
    ) -> pa.Table:
        """See `TablesToRead.counts`. Waiting rows count, and rows that they replace do not."""
        pending = self._pending
        if table is not self._table or version is not None or pending.is_empty:
            return self._tables.counts(table, names, where, version)
        names, keys, now = table.schema(names).names, pending.keys(table), self._tables.version(table)
        rows = self._tables.read(table, [*names, *table.key], [*where, *scope_of({"key": keys}, table.key)], now)
        replaced = rows.filter(positions_in(rows, keys, table.key) >= 0)
        written = rows_where(pa.concat_tables([pending.inserts, pending.updates]), where)
        committed = self._tables.counts(table, names, where, now)
        return summed([committed, counts_of(written, names), negated(counts_of(replaced, names))], names)

    def first_and_last(
        self, table: Table, by: Sequence[str], columns: FirstAndLast, where: Sequence[Condition] = ()
    ) -> pa.Table:
        """See `TablesToRead.first_and_last`. Groups with waiting changes are read whole; `by` is of the key."""
        committed, pending = self._tables.first_and_last(table, by, columns, where), self._pending
        if table is not self._table or pending.is_empty:
            return committed
        changed = pending.keys(table)
        rows = self.read(table, [*by, columns.order, columns.last_column], [*where, *scope_of({"key": changed}, by)])
        rows = rows.filter(positions_in(rows, changed, by) >= 0)
        after = first_and_last_of_groups(rows, committed.column_names[:-2], columns).cast(committed.schema)
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
        """Commit the waiting changes as one. Each is computed again, from the rows after the changes before it."""
        if not self._waiting:
            return
        waiting, table = self._waiting, self._table
        found = {name: held.found[kind] for held in waiting for name, kind in held.kinds.items()}

        def change(known: pa.Table, found: Found) -> TableChange:
            together = TableChange.none(table)
            for held in waiting:
                together = together.then(table, held.change(together.after(table, known), held.own_rows(found)))
            return together

        self._tables.change_rows(table, found, change, by=table.key, since=self._since, build_id=self._build_id)
        self._waiting, self._pending = [], TableChange.none(table)
        self._since, self._build_id = None, ""  # these belong to the committed changes: the next may have none
