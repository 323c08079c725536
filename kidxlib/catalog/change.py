"""What one commit changes in a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Self

import pyarrow as pa

from kidxlib.catalog.rows import Table

#: Rows that a run has found, by their kind, as `kidxlib.catalog.results` has them.
Found = Mapping[str, pa.Table]


@dataclass(frozen=True, slots=True)
class TableChange:
    """Rows to write and rows to remove.

    Attributes:
        inserts: whole rows, in the table's own schema, whose keys are not in the table.
        updates: the same of rows that each take the place of the row with their key.
        deletes: the keys of rows to remove.
        counted: how many rows a run reports as added or changed.
    """

    inserts: pa.Table
    updates: pa.Table
    deletes: pa.Table
    counted: int

    @classmethod
    def adding(cls, table: Table, rows: pa.Table) -> Self:
        """The change that adds rows and no more."""
        none = table.schema().empty_table()
        return cls(rows, none, none.select(table.key), rows.num_rows)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is to be committed."""
        return not (self.inserts.num_rows or self.updates.num_rows or self.deletes.num_rows)


#: Says what rows that were found change, given the rows that the table has: all of those with a key that was found, and
#: perhaps others. It depends on nothing else, so it is asked again where another writer was faster, and it may be asked
#: for each partition alone.
Change = Callable[[pa.Table, Found], TableChange]
