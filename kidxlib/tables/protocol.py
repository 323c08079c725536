"""What a run, and the upkeep of tables, ask of a catalog's tables, whoever keeps them: delta-rs, Spark, or memory;
which rows a change is about, and rows in groups.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Protocol, runtime_checkable

import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.catalog.change import Change, Found
from kidxlib.catalog.conditions import Among, Between, Condition
from kidxlib.catalog.matching import Values
from kidxlib.catalog.rows import Table

#: A column with more values than that is bounded by the least and the largest.
_VALUES_MAX: Final = 1000

#: How long a vacuum keeps files that a table does not need any more, for those who began to read it before; longer
#: where the table's own `delta.deletedFileRetentionDuration` is. It is Delta's default, and never less.
VACUUM_KEEPS: Final = timedelta(days=7)

#: The column of a count.
ROWS: Final = pa.field("rows", pa.int64())


class ArrowStream(Protocol):
    """Rows that Arrow takes a batch at a time, from the first on whenever it begins: a table, or rows in files."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Arrow's own interface between libraries."""


@dataclass(frozen=True, slots=True)
class Ends:
    """What is asked of the first and of the last row of a group.

    Attributes:
        order: a column of numbers that differ within a group, never null: its least value is `first`.
        of_last: the column whose value in the row with the largest number is `last`.
    """

    order: str
    of_last: str

    def schema(self, table: Table, by: Sequence[str]) -> pa.Schema:
        """The columns of the answer."""
        first, last = (table.schema([name]).field(0) for name in (self.order, self.of_last))
        return pa.schema([*table.schema(by), first.with_name("first"), last.with_name("last").with_nullable(True)])


def counts_of(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """How many rows have the same values in some columns: these columns, each combination once, and `ROWS`."""
    return rows.group_by(list(names)).aggregate([([], "count_all")]).rename_columns([*names, ROWS.name])


def ends_of(rows: pa.Table, by: Sequence[str], ends: Ends) -> pa.Table:
    """Where the rows that agree in some columns begin and end: these columns, each combination once, and what `Ends`
    says.
    """
    keep_nulls = pc.ScalarAggregateOptions(skip_nulls=False)
    found = (
        rows.sort_by(ends.order)
        .group_by(list(by), use_threads=False)  # in order
        .aggregate([(ends.order, "first"), (ends.of_last, "last", keep_nulls)])
    )
    return found.rename_columns([*by, "first", "last"])


def summed(counts: Sequence[pa.Table], names: Sequence[str]) -> pa.Table:
    """Counts of the same columns, added up; those that come to nothing are left out."""
    rows = pa.concat_tables(counts).group_by(list(names)).aggregate([(ROWS.name, "sum")])
    rows = rows.rename_columns([*names, ROWS.name])
    return rows.filter(pc.field(ROWS.name) > 0)


def negated(counts: pa.Table) -> pa.Table:
    """Counts that are to be taken away."""
    less: Values = pc.negate(counts[ROWS.name])
    return counts.set_column(counts.num_columns - 1, ROWS.name, less)


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


def scope_of(found: Found, by: Sequence[str]) -> list[Condition]:
    """Conditions that hold for each row of a table that agrees in some columns with a row that was found, and perhaps
    for others. They leave out files by the statistics that these have.

    Args:
        by: columns of text or of whole numbers, never null; all kinds of rows that were found have them.
    """
    conditions: list[Condition] = []
    for name in by:
        columns = [rows[name] for rows in found.values()]
        values: Values = pc.unique(
            pa.chunked_array([chunk for column in columns for chunk in column.chunks], columns[0].type)
        )
        if len(values) <= _VALUES_MAX:
            conditions.append(Among(name, values.to_pylist()))
        else:
            bounds: dict[str, Any] = pc.min_max(values).as_py()  # type: ignore[assignment]
            conditions.append(Between(name, bounds["min"], bounds["max"]))
    return conditions


class Maintenance(Protocol):
    """Tables of one catalog that are kept small and quick to ask. Only `expire` changes what a table says."""

    def files(self, table: Table) -> pa.Table:
        """The files of a table's latest version, as `files_schema` has them; none where there is no such table.

        Raises:
            CatalogError: it cannot be read.
        """

    def sample(self, table: Table, rows: int) -> pa.Table:
        """Keys of some rows of a table's latest version, or of all where these are fewer: the same ones each time.

        Raises:
            CatalogError: it cannot be read.
        """

    def expire(self, table: Table, expired: Callable[[], pa.Table]) -> None:
        """Remove the rows that agree with one of some rows, in one commit.

        Args:
            expired: some columns of the key; asked again each time that another writer committed first.

        Raises:
            CatalogError: others committed first, each time that it was tried; or the table cannot be written.
        """

    def rewrite(self, table: Table) -> None:
        """Write all rows anew, in the table's order and in files of one size, in one commit. Files that a query need
        not read are then left out by what the log says of each.

        Raises:
            CatalogError: as `expire`.
        """

    def compact(self, table: Table, paths: Collection[str]) -> bool:
        """Write the rows of some files anew in the table's order, in as few files as they fill, in one commit. It gives
        way to others.

        Args:
            paths: of the files, as `files` has them.

        Returns:
            False where others have changed one of these files meanwhile, or have committed first: then nothing is
            changed.

        Raises:
            CatalogError: the table cannot be read or written.
        """

    def vacuum(self, table: Table, *, apply: bool) -> int:
        """Remove files that no version needs that was current within `VACUUM_KEEPS`, by the machine's clock.

        Args:
            apply: False only counts them.

        Returns:
            How many files that are.

        Raises:
            CatalogError: as `expire`.
        """


#: The upkeep of some tables, by who keeps them.
MaintenanceOf = Callable[[Tables], Maintenance]


def files_schema(table: Table) -> pa.Schema:
    """A file's path, size and rows, and the least and the greatest value of the columns that Delta's log has statistics
    of; null where the log says nothing, or a column has no value in it.
    """
    of_table = table.schema()
    fields: list[pa.Field[Any]] = [
        pa.field("path", pa.string(), nullable=False),
        pa.field("size_bytes", pa.int64(), nullable=False),
        pa.field("num_records", pa.int64()),
    ]
    for bound in ("min", "max"):
        fields += [pa.field(f"{bound}.{name}", of_table.field(name).type) for name in table.statistics]
    return pa.schema(fields)
