"""Tables whose small changes the driver commits by itself, and whose large ones Spark does."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import pyarrow as pa

from kidxlib.catalog.change import Change, Found
from kidxlib.catalog.conditions import Condition
from kidxlib.catalog.rows import Table
from kidxlib.tables.protocol import ArrowStream, Ends, Maintenance, Question, Tables, TablesToAsk, TablesToRead

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TablesByRows:
    """See `kidxlib.tables.protocol.Tables`.

    Attributes:
        driver: tables that the driver reads and commits to.
        spark: gives the same tables through Spark, which is started then.
        driver_rows_max: how many rows a commit of the driver may be about.
    """

    driver: Tables
    spark: Callable[[], Tables]
    driver_rows_max: int

    @property
    def path(self) -> str:
        return self.driver.path

    def version(self, table: Table) -> int | None:
        return self.driver.version(table)

    def catalog_version(self, table: Table) -> int | None:
        return self.driver.catalog_version(table)

    def for_workers(self) -> TablesToRead | None:
        return self.driver.for_workers()

    def make(self, table: Table) -> None:
        self.driver.make(table)

    def read(
        self,
        table: Table,
        names: Sequence[str] | None = None,
        where: Sequence[Condition] = (),
        version: int | None = None,
    ) -> pa.Table:
        return self.driver.read(table, names, where, version)

    def counts(
        self, table: Table, names: Sequence[str], where: Sequence[Condition] = (), version: int | None = None
    ) -> pa.Table:
        return self.driver.counts(table, names, where, version)

    def ends(self, table: Table, by: Sequence[str], ends: Ends, where: Sequence[Condition] = ()) -> pa.Table:
        return self.driver.ends(table, by, ends, where)

    def ask(self, question: Question) -> pa.Table:
        assert isinstance(self.driver, TablesToAsk)
        return self.driver.ask(question)

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
        rows = sum(each.num_rows for each in found.values())
        return self._committing(table, rows).change(table, found, change, by=by, since=since, build_id=build_id)

    def append(self, table: Table, rows: pa.Table | ArrowStream) -> None:
        """See `Tables.append`. Of a stream the driver holds a batch at a time, however many there are."""
        tables = self._committing(table, rows.num_rows) if isinstance(rows, pa.Table) else self.driver
        tables.append(table, rows)

    def _committing(self, table: Table, rows: int) -> Tables:
        if rows <= self.driver_rows_max:
            return self.driver
        _log.info("%s: %d rows, which are more than spark.driver_rows_max: Spark commits them", table.name, rows)
        return self.spark()


@dataclass(frozen=True, slots=True)
class MaintenanceByRows:
    """See `kidxlib.tables.protocol.Maintenance`. The driver does it, but for the writing of large tables.

    Attributes:
        driver: the upkeep by the driver.
        spark: gives that through Spark, which is started then.
        driver_rows_max: how many rows a table may have that the driver writes anew.
    """

    driver: Maintenance
    spark: Callable[[], Maintenance]
    driver_rows_max: int

    def files(self, table: Table) -> pa.Table:
        return self.driver.files(table)

    def sample(self, table: Table, rows: int) -> pa.Table:
        return self.driver.sample(table, rows)

    def expire(self, table: Table, expired: Callable[[], pa.Table]) -> None:
        self.driver.expire(table, expired)

    def rewrite(self, table: Table) -> None:
        rows = sum(file["num_records"] or 0 for file in self.files(table).select(["num_records"]).to_pylist())
        if rows <= self.driver_rows_max:
            self.driver.rewrite(table)
            return
        _log.info("%s: %d rows, which are more than spark.driver_rows_max: Spark writes it anew", table.name, rows)
        self.spark().rewrite(table)

    def compact(self, table: Table, paths: Collection[str]) -> bool:
        """See `Maintenance.compact`. The driver does it, however many rows that are: it holds a few files at a time."""
        return self.driver.compact(table, paths)

    def vacuum(self, table: Table, *, apply: bool) -> int:
        return self.driver.vacuum(table, apply=apply)
