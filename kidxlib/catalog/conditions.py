"""Conditions on rows of a table, as SQL and as a mask of Arrow; and those that all rows concerned by a change meet
(`scope_of`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.catalog.change import Found
from kidxlib.catalog.matching import Values
from kidxlib.recovery.outcome import ABSENT

#: A condition lists up to this many values of a column; if there are more, it has the least and the greatest.
_VALUES_MAX: Final = 1000


@dataclass(frozen=True, slots=True)
class Among:
    """A condition: a column has one of some values, and is not null; negated: it has none of them, or is null."""

    column: str
    values: Collection[str | int]
    negated: bool = False

    @property
    def sql(self) -> str:
        """The condition for DataFusion, in delta-rs. Spark would take a backslash for an escape."""
        literals = ", ".join(map(literal, self.values))
        is_among = f"{self.column} IN ({literals})" if literals else "false"
        return f"NOT coalesce({is_among}, false)" if self.negated else is_among

    def mask(self, rows: pa.Table) -> Values:
        column = rows[self.column]
        is_among: Values = pc.is_in(column, value_set=pa.array(list(self.values), column.type))
        return pc.invert(is_among) if self.negated else is_among


@dataclass(frozen=True, slots=True)
class Between:
    """A column of numbers or of text (by its bytes) is between two bounds, inclusive, and not null."""

    column: str
    least: int | str
    most: int | str

    @property
    def sql(self) -> str:
        return f"{self.column} BETWEEN {literal(self.least)} AND {literal(self.most)}"

    def mask(self, rows: pa.Table) -> Values:
        column: Values = rows[self.column]
        least, most = (pa.scalar(bound, column.type) for bound in (self.least, self.most))
        inside: Values = pc.and_(pc.greater_equal(column, least), pc.less_equal(column, most))
        return inside.fill_null(False)


Condition = Among | Between

#: Segments that were in their source when it was last listed, and were not deleted since.
PRESENT = Among("status", tuple(status.value for status in ABSENT), negated=True)


def sql_of(where: Sequence[Condition]) -> str:
    """Conditions on rows as one of SQL."""
    return " AND ".join(condition.sql for condition in where) or "true"


def rows_where(rows: pa.Table, where: Sequence[Condition]) -> pa.Table:
    """The rows that meet conditions."""
    for condition in where:
        rows = rows.filter(condition.mask(rows))
    return rows


def literal(value: str | int) -> str:
    """A value in a condition, as a literal for DataFusion."""
    return str(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'"


def scope_of(found: Found, by: Sequence[str]) -> list[Condition]:
    """The conditions on the rows of a table that a change concerns: each row with the same values as a found row in the
    columns `by` meets them. Other rows may meet them too. The conditions prune files by their statistics. The columns
    have text or whole numbers, are never null, and are in all kinds of found rows.
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
