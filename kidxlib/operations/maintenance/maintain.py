"""The catalog's tables made smaller and faster: old rows go, files are written anew, files that no version needs go."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

import pyarrow as pa

from kidxlib.catalog.rows import Table
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.catalog.tables import TABLES
from kidxlib.compaction.policy import Expiry
from kidxlib.operations.maintenance.expiry import expired
from kidxlib.operations.maintenance.table_state import TableState, table_state
from kidxlib.tables.maintenance import Maintenance
from kidxlib.tables.protocol import Tables
from kidxlib.terminal import interrupts
from kidxlib.terminal.progress import begin_phase


class Upkeep(StrEnum):
    """What is done with tables, in this order."""

    EXPIRE = "expire"
    OPTIMIZE = "optimize"
    VACUUM = "vacuum"


ALL: Final = frozenset(Upkeep)


@dataclass(frozen=True, slots=True)
class MaintainedTable:
    """A table before and after.

    Attributes:
        after: None where nothing was done.
        expired_rows: rows that go.
        vacuumed_files: files that no version needs which is young enough; they go.
    """

    table: str
    before: TableState
    after: TableState | None
    expired_rows: int
    vacuumed_files: int


def maintain_tables(
    tables: Tables, maintenance: Maintenance, expiry: Expiry, upkeep: Collection[Upkeep], *, apply: bool
) -> list[MaintainedTable]:
    """Look at all tables, and where `apply` is given expire rows, write files anew where that is worth it, and vacuum.

    Readers are not disturbed: each commit is a version of its own, and files of versions that readers may still have
    open stay for `VACUUM_KEEPS`. Run again after a stop it goes on.

    Raises:
        CatalogError: other runs commit all the time, or a table cannot be read or written.
    """
    begin_phase("maintaining tables" if apply else "looking at tables")
    now = datetime.now(UTC)  # whatever --now says: VACUUM goes by the clock, too
    with interrupts.telling(lambda: "each table is as before, or done; run the same command again to go on"):
        before = {table.name: table_state(maintenance, table) for table in TABLES}
        rows = {table.name: _expired_rows(tables, table, expiry, upkeep, now) for table in TABLES}
        after = dict(before) if apply else {}
        if apply:
            # Segments first: what is left elsewhere of their rows belongs to none then, and goes in the next run too.
            for table in sorted(TABLES, key=lambda table: table is not SEGMENTS):
                if rows[table.name]:
                    _expire(tables, maintenance, table, expiry, now)
                    after[table.name] = table_state(maintenance, table)
            for table in TABLES:
                if Upkeep.OPTIMIZE in upkeep and after[table.name].needs_rewrite:
                    maintenance.rewrite(table)
                    after[table.name] = table_state(maintenance, table)
        vacuumed = {
            table.name: maintenance.vacuum(table, apply=apply) if Upkeep.VACUUM in upkeep else 0 for table in TABLES
        }
    return [
        MaintainedTable(
            table=table.name,
            before=before[table.name],
            after=after.get(table.name),
            expired_rows=rows[table.name],
            vacuumed_files=vacuumed[table.name],
        )
        for table in TABLES
    ]


def _expired_rows(tables: Tables, table: Table, expiry: Expiry, upkeep: Collection[Upkeep], now: datetime) -> int:
    found = expired(tables, table, expiry, now) if Upkeep.EXPIRE in upkeep else None
    return 0 if found is None else found.rows


def _expire(tables: Tables, maintenance: Maintenance, table: Table, expiry: Expiry, now: datetime) -> None:
    def keys() -> pa.Table:
        found = expired(tables, table, expiry, now)
        return table.schema(table.key).empty_table() if found is None else found.keys

    maintenance.expire(table, keys)
