"""The catalog's tables made smaller and faster: old rows go, small files become one, files that no version needs go."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from pyspark.sql import DataFrame

from jobs.common.catalog.catalog import Catalog
from jobs.common.catalog.merge import delete_rows
from jobs.common.compaction.expiry import rows_to_expire
from jobs.common.compaction.table_state import TableState, table_state
from kidxlib.catalog.rows import Table
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.catalog.tables import TABLES
from kidxlib.compaction.policy import Expiry
from kidxlib.tables.layout import FILE_BYTES

#: The size of files that OPTIMIZE writes; by default a GB, which is a table's only file.
_OPTIMIZED_BYTES: Final = "spark.databricks.delta.optimize.maxFileSize"


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


def maintain_tables(catalog: Catalog, expiry: Expiry, now: datetime, *, apply: bool) -> list[MaintainedTable]:
    """Look at all tables, and where `apply` is given expire rows, optimize and vacuum.

    Readers are not disturbed: each commit is a version of its own, and files of versions that readers may still have
    open stay for `VACUUM_KEEPS`. Run again after a stop it goes on.

    Args:
        now: by the machine's clock, which VACUUM goes by too.

    Raises:
        CatalogError: other jobs commit all the time.
    """
    expired = rows_to_expire(catalog, expiry, now)
    counts = {name: rows.count() for name, rows in expired.items()}
    before = _for_each_table(lambda table: table_state(catalog, table))
    if apply:
        # Segments first: what is left elsewhere of their rows belongs to none then, and goes in the next run too.
        for table in sorted(TABLES, key=lambda table: table is not SEGMENTS):
            if counts.get(table.name):
                _delete(catalog, table, expired[table.name])
        catalog.spark.conf.set(_OPTIMIZED_BYTES, FILE_BYTES)
        _for_each_table(lambda table: _optimize(catalog, table, table_state(catalog, table)))
    vacuumed = _for_each_table(lambda table: _vacuum(catalog, table, apply=apply))
    after = _for_each_table(lambda table: table_state(catalog, table)) if apply else {}
    return [
        MaintainedTable(
            table=table.name,
            before=before[table.name],
            after=after.get(table.name),
            expired_rows=counts.get(table.name, 0),
            vacuumed_files=vacuumed[table.name],
        )
        for table in TABLES
    ]


def _delete(catalog: Catalog, table: Table, keys: DataFrame) -> None:
    catalog.commit(table, lambda target: delete_rows(target, table, keys.distinct()))


def _optimize(catalog: Catalog, table: Table, before: TableState) -> None:
    """Small files together; of sorted tables so that files leave out queries by all columns of the order.

    ZORDER writes all files anew, and with each run another way; putting small files together without it would mix
    partitions. So it runs only where there are more files than the rows need.
    """
    if not table.sort_by:
        catalog.commit(table, lambda target: target.optimize().executeCompaction())
    elif before.files > max(1, math.ceil(before.bytes / FILE_BYTES)):
        catalog.commit(table, lambda target: target.optimize().executeZOrderBy(*table.sort_by))


def _vacuum(catalog: Catalog, table: Table, *, apply: bool) -> int:
    """Remove files that no version needs that was current in the last seven days of the clock; or only count them."""
    path = catalog.table_path(table).replace("`", "``")
    found = catalog.spark.sql(f"VACUUM delta.`{path}` DRY RUN").count()
    if apply and found:
        catalog.commit(table, lambda _: catalog.spark.sql(f"VACUUM delta.`{path}`"))
    return found


def _for_each_table(do: Callable[[Table], Any]) -> dict[str, Any]:
    """Do it for all tables at the same time: most of it is waiting."""
    with ThreadPoolExecutor(len(TABLES)) as threads:
        return dict(zip((table.name for table in TABLES), threads.map(do, TABLES), strict=True))
