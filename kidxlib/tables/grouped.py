"""Rows in groups: how many there are of each, and where each begins and ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.catalog.matching import Values
from kidxlib.catalog.rows import Table

#: The column of a count.
ROWS: Final = pa.field("rows", pa.int64())


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
