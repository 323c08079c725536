"""A catalog's tables that end with the run: in memory, or in mapped files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa

from kidxlib.catalog.change import Change, Found
from kidxlib.catalog.conditions import Condition, rows_where
from kidxlib.catalog.rows import Table
from kidxlib.catalog.tables import CATALOG_VERSION
from kidxlib.storage.scratch import writing_in
from kidxlib.tables.protocol import (
    ArrowStream,
    FirstAndLast,
    TablesToRead,
    counts_of,
    first_and_last_of_groups,
    scope_of,
)


@dataclass(frozen=True, slots=True)
class MemoryTables:
    """See `kidxlib.tables.protocol.Tables`. The tables end with the process, and nobody else writes to them.

    Attributes:
        path: the catalog's name in messages.
        directory: where added rows are kept in files, to save memory; None: in memory.
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
        return first_and_last_of_groups(rows, schema.names[:-2], columns).cast(schema)

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
            kept = replace(committed, inserts=self._kept(committed.inserts))
            self._put(table, kept.after(table, self.read(table)))
        return committed.counted

    def append(self, table: Table, rows: pa.Table | ArrowStream) -> None:
        self._put(table, pa.concat_tables([self.read(table), self._kept(pa.table(rows).cast(table.schema()))]))

    def _kept(self, rows: pa.Table) -> pa.Table:
        """The rows, in a new file if there is a directory for them."""
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
