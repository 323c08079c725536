"""What a run asks of a catalog's tables, whoever keeps them: delta-rs, Spark, or memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import pyarrow as pa

from kidxlib.catalog.change import Change, Found
from kidxlib.catalog.conditions import Condition
from kidxlib.catalog.rows import Table
from kidxlib.tables.grouped import Ends


class ArrowStream(Protocol):
    """Rows that Arrow takes a batch at a time, from the first on whenever it begins: a table, or rows in files."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Arrow's own interface between libraries."""


class TablesToRead(Protocol):
    """Tables of one catalog as they are read. Those for workers go to a worker within an item."""

    def version(self, table: Table) -> int | None:
        """The version of a table in Delta's history; None where there is no such table.

        Raises:
            CatalogError: it cannot be read.
        """

    def read(
        self,
        table: Table,
        names: Sequence[str] | None = None,
        where: Sequence[Condition] = (),
        version: int | None = None,
    ) -> pa.Table:
        """Some columns of the rows of which all conditions are true, in the catalog's own schema and in any order.

        Args:
            names: None for all columns.
            version: None for the latest. A table that does not exist has no rows.

        Raises:
            CatalogError: it cannot be read.
        """

    def counts(
        self, table: Table, names: Sequence[str], where: Sequence[Condition] = (), version: int | None = None
    ) -> pa.Table:
        """How many of the rows of which all conditions are true have the same values in some columns: these columns,
        each combination once and in any order, and `rows`. No row is held.

        Raises:
            CatalogError: it cannot be read.
        """

    def ends(self, table: Table, by: Sequence[str], ends: Ends, where: Sequence[Condition] = ()) -> pa.Table:
        """Where the rows that agree in some columns begin and end: these columns, each combination once and in any
        order, `first` and `last`. No row is held.

        Raises:
            CatalogError: it cannot be read.
        """


@dataclass(frozen=True, slots=True)
class Question:
    """SQL as Spark reads it, in words that DataFusion has, too, but for `explode`.

    Attributes:
        name: what messages call it.
        sql: of the tables by their names.
        tables: those that it names.
        schema: of the answer.
    """

    name: str
    sql: str
    tables: tuple[Table, ...]
    schema: pa.Schema

    @property
    def for_datafusion(self) -> str:
        """SQL in DataFusion's words, where `explode` is called `unnest`."""
        return self.sql.replace("explode(", "unnest(")


@runtime_checkable
class TablesToAsk(TablesToRead, Protocol):
    """Tables that answer SQL."""

    def ask(self, question: Question) -> pa.Table:
        """The answer, in the question's own schema; no row where one of its tables is not there.

        Raises:
            CatalogError: a table cannot be read, or lacks a column, as an older release made it.
        """


class Tables(TablesToRead, Protocol):
    """Tables of one catalog. Each change is one commit of one table."""

    @property
    def path(self) -> str:
        """The directory or URL below which they are."""

    def catalog_version(self, table: Table) -> int | None:
        """The version of the catalog's columns that a table has; None where there is no such table.

        Raises:
            CatalogError: it cannot be read, is not one of a catalog, or a newer release made it.
        """

    def for_workers(self) -> TablesToRead | None:
        """The tables as workers read them; None where this process alone can."""

    def make(self, table: Table) -> None:
        """Make a table that is not there, without rows.

        Raises:
            CatalogError: it cannot be made; or it is there, and an older release made it.
        """

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
        """Commit what rows that were found change. A table is made once it gets rows.

        Args:
            change: asked again with the latest rows each time that another writer committed first.
            by: columns of the key; `change` gets all rows of the table that agree in these with a row that was found.
            since: of `SCANNED`, the version that the run compared its listing with; what another run has recorded since
                then of a later state of a log stays.
            build_id: of the run, with `since`.

        Returns:
            How many rows were added or changed, as the change counts them. Nothing is committed where it is empty.

        Raises:
            CatalogError: others committed first, each time that it was tried; or the table cannot be written.
        """

    def append(self, table: Table, rows: pa.Table | ArrowStream) -> None:
        """Commit rows whose keys nobody else has, as those of a run with its own id.

        Args:
            rows: in the table's own schema. A table is sorted; what comes as a stream is written as it comes.

        Raises:
            CatalogError: as `change`.
        """
