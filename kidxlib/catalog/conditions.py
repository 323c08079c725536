"""Conditions on rows of a table, as SQL and as a mask of Arrow."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.catalog.matching import Values
from kidxlib.recovery.outcome import ABSENT


@dataclass(frozen=True, slots=True)
class Among:
    """A column has one of some values, and is not null.

    Attributes:
        negated: it has none of them, or is null.
    """

    column: str
    values: Collection[str | int]
    negated: bool = False

    @property
    def sql(self) -> str:
        """The condition as DataFusion reads it, which delta-rs asks. Spark would take a backslash for an escape."""
        literals = ", ".join(map(literal, self.values))
        found = f"{self.column} IN ({literals})" if literals else "false"
        return f"NOT coalesce({found}, false)" if self.negated else found

    def mask(self, rows: pa.Table) -> Values:
        """Whether it is true, for each row."""
        column = rows[self.column]
        found: Values = pc.is_in(column, value_set=pa.array(list(self.values), column.type))
        return pc.invert(found) if self.negated else found


@dataclass(frozen=True, slots=True)
class Between:
    """A column of numbers or of text, by its bytes, is not below one bound, not above another, and not null."""

    column: str
    least: int | str
    most: int | str

    @property
    def sql(self) -> str:
        """The condition as DataFusion reads it."""
        return f"{self.column} BETWEEN {literal(self.least)} AND {literal(self.most)}"

    def mask(self, rows: pa.Table) -> Values:
        """Whether it is true, for each row."""
        column: Values = rows[self.column]
        least, most = (pa.scalar(bound, column.type) for bound in (self.least, self.most))
        inside: Values = pc.and_(pc.greater_equal(column, least), pc.less_equal(column, most))
        return inside.fill_null(False)


Condition = Among | Between

#: Of rows of `segments`: they were in their source when that was last listed, and were not deleted since.
PRESENT = Among("status", tuple(status.value for status in ABSENT), negated=True)


def sql_of(where: Sequence[Condition]) -> str:
    """All of some conditions as one; without any it is true of every row."""
    return " AND ".join(condition.sql for condition in where) or "true"


def rows_where(rows: pa.Table, where: Sequence[Condition]) -> pa.Table:
    """The rows of which all conditions are true."""
    for condition in where:
        rows = rows.filter(condition.mask(rows))
    return rows


def literal(value: str | int) -> str:
    """A value as DataFusion reads it."""
    return str(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'"
