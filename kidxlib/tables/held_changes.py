"""Changes of one table that are held back, and committed together: readers in this process see them at once."""

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
    Ends,
    Tables,
    TablesToRead,
    counts_of,
    ends_of,
    negated,
    scope_of,
    summed,
)


@dataclass(frozen=True, slots=True)
class _Held:
    """A change to be committed.

    Attributes:
        kinds: of the rows that were found, by their names when all changes are asked at once.
    """

    kinds: dict[str, str]
    found: Found
    change: Change

    def of(self, found: Found) -> Found:
        """Its own rows, of what all changes have found: those that are not overtaken."""
        return {kind: found[name] for name, kind in self.kinds.items()}


class HeldChanges:
    """See `kidxlib.tables.protocol.Tables`. Changes of one table wait for `commit`; all else goes through.

    Args:
        tables: where they are committed to.
        table: the table whose changes wait.
    """

    def __init__(self, tables: Tables, table: Table) -> None:
        self._tables, self._table = tables, table
        self._held: list[_Held] = []
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
        """See `Tables.read`. The latest rows are those that will be there after `commit`: what is held takes the
        place of what others have committed meanwhile.
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
        """See `TablesToRead.counts`. Rows that are held count, and those that they take the place of do not."""
        pending = self._pending
        if table is not self._table or version is not None or pending.is_empty:
            return self._tables.counts(table, names, where, version)
        names, keys, now = table.schema(names).names, pending.keys(table), self._tables.version(table)
        rows = self._tables.read(table, [*names, *table.key], [*where, *scope_of({"key": keys}, table.key)], now)
        replaced = rows.filter(positions_in(rows, keys, table.key) >= 0)
        written = rows_where(pa.concat_tables([pending.inserts, pending.updates]), where)
        counted = self._tables.counts(table, names, where, now)
        return summed([counted, counts_of(written, names), negated(counts_of(replaced, names))], names)

    def ends(self, table: Table, by: Sequence[str], ends: Ends, where: Sequence[Condition] = ()) -> pa.Table:
        """See `TablesToRead.ends`. Of groups that held changes are about all rows are read.

        Args:
            by: columns of the key.
        """
        found, pending = self._tables.ends(table, by, ends, where), self._pending
        if table is not self._table or pending.is_empty:
            return found
        changed = pending.keys(table)
        rows = self.read(table, [*by, ends.order, ends.of_last], [*where, *scope_of({"key": changed}, by)])
        rows = rows.filter(positions_in(rows, changed, by) >= 0)
        again = ends_of(rows, found.column_names[:-2], ends).cast(found.schema)
        return pa.concat_tables([found.filter(positions_in(found, changed, by) < 0), again])

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
        if table is not self._table:
            return self._tables.change(table, found, change, by=by, since=since, build_id=build_id)
        made = change(self.read(table, None, scope_of(found, by)), found)
        if not made.is_empty:
            number = len(self._held)
            # What `since` looks at keeps its name.
            kinds = {kind if since is not None else f"{number}: {kind}": kind for kind in found}
            self._held.append(_Held(kinds, found, change))
            if since is not None:
                self._since, self._build_id = since, build_id
            self._pending = self._pending.then(table, made)
        return made.counted

    def append(self, table: Table, rows: pa.Table | ArrowStream) -> None:
        self._tables.append(table, rows)

    def commit(self) -> None:
        """Commit what is held, as one change: all are asked again, each with what those before it led to."""
        if not self._held:
            return
        held, table = self._held, self._table
        found = {name: each.found[kind] for each in held for name, kind in each.kinds.items()}

        def change(known: pa.Table, found: Found) -> TableChange:
            made = TableChange.none(table)
            for each in held:
                made = made.then(table, each.change(made.after(table, known), each.of(found)))
            return made

        self._tables.change(table, found, change, by=table.key, since=self._since, build_id=self._build_id)
        self._held, self._pending = [], TableChange.none(table)
        self._since, self._build_id = None, ""  # of the changes that were held: the next may have none
