"""Changes of one table that are held back, and committed together: readers in this process see them at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from kidxlib.catalog.change import Change, Found, TableChange
from kidxlib.catalog.conditions import Condition, rows_where
from kidxlib.catalog.matching import positions_in
from kidxlib.catalog.rows import Table
from kidxlib.tables.protocol import ArrowStream, Tables
from kidxlib.tables.scope import scope_of


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
        self._pending = TableChange.adding(table, table.schema().empty_table())

    @property
    def path(self) -> str:
        """See `Tables.path`."""
        return self._tables.path

    def version(self, table: Table) -> int | None:
        """See `Tables.version`."""
        return self._tables.version(table)

    def catalog_version(self, table: Table) -> int | None:
        """See `Tables.catalog_version`."""
        return self._tables.catalog_version(table)

    def make(self, table: Table) -> None:
        """See `Tables.make`."""
        self._tables.make(table)

    def read(
        self,
        table: Table,
        names: Sequence[str] | None = None,
        where: Sequence[Condition] = (),
        version: int | None = None,
    ) -> pa.Table:
        """See `Tables.read`. The latest rows are those that will be there after `commit`."""
        pending = self._pending
        if table is not self._table or version is not None or pending.is_empty:
            return self._tables.read(table, names, where, version)
        schema = table.schema(names)
        rows = self._tables.read(table, [*schema.names, *table.key], where)
        written = pa.concat_tables([pending.inserts, pending.updates])
        over = pa.concat_tables([written.select(table.key), pending.deletes])
        kept = rows.filter(pa.array(positions_in(rows, over, table.key) < 0))
        return pa.concat_tables([part.select(schema.names) for part in (kept, rows_where(written, where))])

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
            self._pending = _both(table, self._pending, made)
        return made.counted

    def append(self, table: Table, rows: pa.Table | ArrowStream) -> None:
        """See `Tables.append`."""
        self._tables.append(table, rows)

    def commit(self) -> None:
        """Commit what is held, as one change: all are asked again, each with what those before it led to.

        Raises:
            CatalogError: as `Tables.change`.
        """
        if not self._held:
            return
        held, table = self._held, self._table
        found = {name: each.found[kind] for each in held for name, kind in each.kinds.items()}

        def change(known: pa.Table, found: Found) -> TableChange:
            made = TableChange.adding(table, table.schema().empty_table())
            for each in held:
                made = _both(table, made, each.change(_after(table, known, made), each.of(found)))
            return made

        self._tables.change(table, found, change, by=table.key, since=self._since, build_id=self._build_id)
        self._held, self._pending = [], TableChange.adding(table, table.schema().empty_table())


def _after(table: Table, known: pa.Table, change: TableChange) -> pa.Table:
    """The rows of a table after a change."""
    over = pa.concat_tables([change.updates.select(table.key), change.deletes])
    return pa.concat_tables([_without(table, known, over), change.updates, change.inserts])


def _both(table: Table, first: TableChange, second: TableChange) -> TableChange:
    """One change that does what two do, one after the other."""
    over = pa.concat_tables([second.updates.select(table.key), second.deletes])
    is_new = positions_in(second.updates, first.inserts, table.key) >= 0
    of_new = second.updates.filter(pa.array(is_new))
    of_known = second.updates.filter(pa.array(~is_new))
    is_back = positions_in(second.inserts, first.deletes, table.key) >= 0
    gone = positions_in(second.deletes, first.inserts, table.key) < 0
    return TableChange(
        inserts=pa.concat_tables(
            [_without(table, first.inserts, over), of_new, second.inserts.filter(pa.array(~is_back))]
        ),
        updates=pa.concat_tables(
            [_without(table, first.updates, over), of_known, second.inserts.filter(pa.array(is_back))]
        ),
        deletes=pa.concat_tables(
            [_without(table, first.deletes, second.inserts), second.deletes.filter(pa.array(gone))]
        ),
        counted=first.counted + second.counted,
    )


def _without(table: Table, rows: pa.Table, keys: pa.Table) -> pa.Table:
    return rows.filter(pa.array(positions_in(rows, keys, table.key) < 0))
