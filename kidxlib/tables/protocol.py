"""The interface of a catalog's tables, for runs and for maintenance, whoever keeps the tables: delta-rs, Spark, or
memory; and counts of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Protocol, runtime_checkable

import pyarrow as pa

from kidxlib.catalog.change import Change, Found
from kidxlib.catalog.conditions import Condition
from kidxlib.catalog.rows import Table

#: How long a vacuum keeps files that a table no longer needs, for readers that began before. The table's property
#: `delta.deletedFileRetentionDuration` may make it longer. This is Delta's default.
VACUUM_KEEPS: Final = timedelta(days=7)

#: The column of a count.
ROWS: Final = pa.field("rows", pa.int64())


class ArrowStream(Protocol):
    """Rows that Arrow reads batch by batch, each time from the first on: a table, or rows in files."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Arrow's own interface between libraries."""


@dataclass(frozen=True, slots=True)
class FirstAndLast:
    """Which values to take from the first and the last row of a group.

    Attributes:
        order: a column of distinct numbers within a group, never null; its least value is `first`.
        last_column: the column whose value in the row with the greatest number is `last`.
    """

    order: str
    last_column: str

    def schema(self, table: Table, by: Sequence[str]) -> pa.Schema:
        """The schema of what `TablesToRead.first_and_last` returns."""
        first, last = (table.schema([name]).field(0) for name in (self.order, self.last_column))
        return pa.schema([*table.schema(by), first.with_name("first"), last.with_name("last").with_nullable(True)])


def counts_of(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """Rows counted as by `TablesToRead.counts`: by their values in some columns, each combination once, with `ROWS`."""
    return rows.group_by(list(names)).aggregate([([], "count_all")]).rename_columns([*names, ROWS.name])


class TablesToRead(Protocol):
    """Reads one catalog's tables. Workers get such tables within an item. A table that cannot be read is a
    `CatalogError`.
    """

    def version(self, table: Table) -> int | None:
        """The version of a table in Delta's history; None if there is no such table."""

    def read(
        self,
        table: Table,
        names: Sequence[str] | None = None,
        where: Sequence[Condition] = (),
        version: int | None = None,
    ) -> pa.Table:
        """Columns (None: all) of the rows that meet all conditions, in the catalog's schema and in any order. Without a
        version it is the latest. A missing table has no rows.
        """

    def counts(
        self, table: Table, names: Sequence[str], where: Sequence[Condition] = (), version: int | None = None
    ) -> pa.Table:
        """Count the rows that meet all conditions, by their values in some columns: these columns, each combination
        once and in any order, and `rows`. No row is held.
        """

    def first_and_last(
        self, table: Table, by: Sequence[str], columns: FirstAndLast, where: Sequence[Condition] = ()
    ) -> pa.Table:
        """Values of the first and last row of each group of rows with the same values in the columns `by`, among those
        that meet all conditions: these columns, each combination once and in any order, `first` and `last`. No row is
        held.
        """


@dataclass(frozen=True, slots=True)
class SqlQuestion:
    """A question in SQL that both Spark and DataFusion understand, except for `explode`.

    Attributes:
        name: the question's name in messages.
        sql: the query; `tables` are those that it names.
        schema: the answer's schema.
    """

    name: str
    sql: str
    tables: tuple[Table, ...]
    schema: pa.Schema


@runtime_checkable
class TablesToAsk(TablesToRead, Protocol):
    """Tables that answer SQL."""

    def ask(self, question: SqlQuestion) -> pa.Table:
        """The answer, in the question's schema; no row if one of the tables is missing. It is a `CatalogError` if a
        table lacks a column, as an older release made it.
        """


class Tables(TablesToRead, Protocol):
    """Tables of one catalog. Each change is one commit of one table. It is a `CatalogError` if a table cannot be read,
    made or written, if a newer release made it, or if others committed first at each attempt.
    """

    @property
    def path(self) -> str:
        """The directory or URL of the catalog."""

    def catalog_version(self, table: Table) -> int | None:
        """The catalog version of a table; None if there is no such table. One that is no table of a catalog is a
        `CatalogError`.
        """

    def for_workers(self) -> TablesToRead | None:
        """The tables for workers to read; None if only this process can."""

    def make(self, table: Table) -> None:
        """Make a table without rows, unless it exists. One that an older release made is a `CatalogError`."""

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
        """Commit the changes that found rows make. A missing table is made once it gets rows. An empty change is not
        committed. The answer is how many rows were added or changed, as the change counts them.

        Args:
            change: called again with the latest rows each time that another writer committed first.
            by: columns of the key; `change` gets all rows of the table with the same values there as a found row.
            since: for `SCANNED` rows, the version that the run compared its listing with: rows stay that another run
                has since recorded for a later state of a log.
            build_id: the run's, with `since`.
        """

    def append(self, table: Table, rows: pa.Table | ArrowStream) -> None:
        """Commit rows in the table's schema, with keys that nobody else uses, such as a run's own id. A `pa.Table` is
        sorted; a stream is written as it comes.
        """


class Maintenance(Protocol):
    """Keeps one catalog's tables small and quick to query. Only `expire` changes their rows. It is a `CatalogError` if
    a table cannot be read or written, or (except by `compact`) if others committed first at each attempt.
    """

    def files(self, table: Table) -> pa.Table:
        """The files of a table's latest version, in `files_schema`; none if there is no such table."""

    def sample(self, table: Table, rows: int) -> pa.Table:
        """The keys of up to `rows` rows of a table's latest version, the same ones each time."""

    def expire(self, table: Table, expired: Callable[[], pa.Table]) -> None:
        """Remove the rows with the keys of expired rows, in one commit. `expired` returns columns of the key; it is
        called again each time that another writer committed first.
        """

    def rewrite(self, table: Table) -> None:
        """Rewrite all rows, in the table's order and in files of one size, in one commit. Queries then skip files by
        their bounds in the table's log.
        """

    def compact(self, table: Table, paths: Collection[str]) -> bool:
        """Rewrite some files (paths from `files`) in the table's order, as few files as the rows fill, in one commit.
        It gives way to other writers: False if others have changed one of these files meanwhile or have committed
        first; then nothing is changed.
        """

    def vacuum(self, table: Table, *, apply: bool) -> int:
        """Remove files that no version needs that was current within `VACUUM_KEEPS`, by the machine's clock; without
        `apply` only count them. The answer is how many.
        """


#: Makes the maintenance of some tables, for their kind.
MaintenanceOf = Callable[[Tables], Maintenance]


def files_schema(table: Table) -> pa.Schema:
    """The schema of what `Maintenance.files` returns: path, size, rows, and the least and greatest value of each column
    with statistics in Delta's log; null if the log has none, or all values are null.
    """
    schema = table.schema()
    fields: list[pa.Field[Any]] = [
        pa.field("path", pa.string(), nullable=False),
        pa.field("size_bytes", pa.int64(), nullable=False),
        pa.field("num_records", pa.int64()),
    ]
    for bound in ("min", "max"):
        fields += [pa.field(f"{bound}.{name}", schema.field(name).type) for name in table.statistics]
    return pa.schema(fields)
