"""What one commit changes in a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Self

import pyarrow as pa

from kidxlib.catalog.matching import positions_in
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

    @classmethod
    def none(cls, table: Table) -> Self:
        """The change that changes nothing."""
        return cls.adding(table, table.schema().empty_table())

    def after(self, table: Table, known: pa.Table) -> pa.Table:
        """The rows that a table has after it.

        Args:
            known: those that it has before, or all of them that have keys of the change, and any others.
        """
        return pa.concat_tables([self.kept(table, known), self.updates, self.inserts])

    def kept(self, table: Table, known: pa.Table) -> pa.Table:
        """The rows that it leaves as they are, of some that a table has; by now it may have those that are inserted,
        too, as another writer has found the same.
        """
        return _without(table, known, self.keys(table))

    def keys(self, table: Table) -> pa.Table:
        """The keys of all rows that it writes or removes."""
        return pa.concat_tables([rows.select(table.key) for rows in (self.inserts, self.updates, self.deletes)])

    def then(self, table: Table, second: Self) -> TableChange:
        """One change that does what this one and another after it do."""
        over = pa.concat_tables([second.updates.select(table.key), second.deletes])
        of_new = positions_in(second.updates, self.inserts, table.key) >= 0
        is_back = positions_in(second.inserts, self.deletes, table.key) >= 0
        inserts = [_without(table, self.inserts, over), second.updates.filter(of_new), second.inserts.filter(~is_back)]
        updates = [_without(table, self.updates, over), second.updates.filter(~of_new), second.inserts.filter(is_back)]
        deletes = [_without(table, self.deletes, second.inserts), _without(table, second.deletes, self.inserts)]
        return TableChange(
            inserts=pa.concat_tables(inserts),
            updates=pa.concat_tables(updates),
            deletes=pa.concat_tables(deletes),
            counted=self.counted + second.counted,
        )

    @property
    def is_empty(self) -> bool:
        """Whether nothing is to be committed."""
        return not (self.inserts.num_rows or self.updates.num_rows or self.deletes.num_rows)


def _without(table: Table, rows: pa.Table, others: pa.Table) -> pa.Table:
    """The rows of which `others` has no row with the same key."""
    return rows.filter(positions_in(rows, others, table.key) < 0)


#: Says what rows that were found change, given the rows that the table has: all of those with a key that was found, and
#: perhaps others. It depends on nothing else, so it is asked again where another writer was faster, and it may be asked
#: for each partition alone.
Change = Callable[[pa.Table, Found], TableChange]
