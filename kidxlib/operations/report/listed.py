"""Questions whose answers may be too long for a page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from kidxlib.tables.protocol import Question

#: The column of `Listed.counts` that says how many.
COUNTED: Final = "found"


@dataclass(frozen=True, slots=True)
class Listed(Question):
    """A question of whose answer the page shows the first rows, and says how many there are.

    Attributes:
        limit: how many rows are shown.
        counted_by: columns; rows are counted by their values.
    """

    limit: int
    counted_by: tuple[str, ...]

    @property
    def first_rows(self) -> Question:
        """Asks for what is shown."""
        return Question(self.name, f"{self.sql}\nLIMIT {self.limit}", self.tables, self.schema)

    @property
    def counts(self) -> Question:
        """Asks how many rows there are, shown or not."""
        columns = [self.schema.field(name) for name in self.counted_by]
        counted = ", ".join((*self.counted_by, f"count(*) AS {COUNTED}"))
        grouped = f" GROUP BY {', '.join(self.counted_by)}" if columns else ""
        sql = f"SELECT {counted} FROM (\n{self.sql}\n) AS listed{grouped}"
        return Question(f"{self.name}, counted", sql, self.tables, pa.schema([*columns, pa.field(COUNTED, pa.int64())]))
