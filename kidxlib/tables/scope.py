"""Which rows of a table a change is about."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.catalog.change import Found
from kidxlib.catalog.conditions import Among, Between, Condition
from kidxlib.catalog.matching import Values

#: A column with more values than that is bounded by the least and the largest.
_VALUES_MAX: Final = 1000


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
        elif pa.types.is_integer(values.type):
            bounds: dict[str, int] = pc.min_max(values).as_py()  # type: ignore[assignment]
            conditions.append(Between(name, bounds["min"], bounds["max"]))
    return conditions
