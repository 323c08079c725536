"""The change that one commit makes to a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Self

import pyarrow as pa

from kidxlib.catalog.matching import positions_in
from kidxlib.catalog.rows import Table

#: Rows that a run has found, by kind (`kidxlib.catalog.results`).
Found = Mapping[str, pa.Table]


@dataclass(frozen=True, slots=True)
class TableChange:
    """Rows to write and rows to remove.

    Attributes:
        inserts: whole rows, in the table's schema, whose keys are not in the table.
        updates: whole rows, each of which replaces the row with its key.
        deletes: the keys of rows to remove.
        counted: how many rows a run reports as added or changed.
    """

    inserts: pa.Table
    updates: pa.Table
    deletes: pa.Table
    counted: int

    @classmethod
    def adding(cls, table: Table, rows: pa.Table) -> Self:
        none = table.schema().empty_table()
        return cls(rows, none, none.select(table.key), rows.num_rows)

    @classmethod
    def none(cls, table: Table) -> Self:
        return cls.adding(table, table.schema().empty_table())

    def after(self, table: Table, known: pa.Table) -> pa.Table:
        """The rows of a table after the change; `known` are those before it, at least all with keys of the change."""
        return pa.concat_tables([self.kept(table, known), self.updates, self.inserts])

    def kept(self, table: Table, known: pa.Table) -> pa.Table:
        """The rows of a table that the change leaves as they are. Inserted rows may be among `known`, if another writer
        has found the same.
        """
        return _without(table, known, self.keys(table))

    def keys(self, table: Table) -> pa.Table:
        return pa.concat_tables([rows.select(table.key) for rows in (self.inserts, self.updates, self.deletes)])

    def then(self, table: Table, second: Self) -> TableChange:
        """This change and another one after it, as one change."""
        overridden = pa.concat_tables([second.updates.select(table.key), second.deletes])
        is_new = positions_in(second.updates, self.inserts, table.key) >= 0
        is_back = positions_in(second.inserts, self.deletes, table.key) >= 0
        inserts = [
            _without(table, self.inserts, overridden),
            second.updates.filter(is_new),
            second.inserts.filter(~is_back),
        ]
        updates = [
            _without(table, self.updates, overridden),
            second.updates.filter(~is_new),
            second.inserts.filter(is_back),
        ]
        deletes = [_without(table, self.deletes, second.inserts), _without(table, second.deletes, self.inserts)]
        return TableChange(
            inserts=pa.concat_tables(inserts),
            updates=pa.concat_tables(updates),
            deletes=pa.concat_tables(deletes),
            counted=self.counted + second.counted,
        )

    @property
    def is_empty(self) -> bool:
        return not (self.inserts.num_rows or self.updates.num_rows or self.deletes.num_rows)


def _without(table: Table, rows: pa.Table, others: pa.Table) -> pa.Table:
    """The rows whose key no row of `others` has."""
    return rows.filter(positions_in(rows, others, table.key) < 0)


#: Computes the change that found rows make to a table. It gets at least all rows of the table with a found key. It is a
#: pure function: it is called again if another writer was faster, and may be called for each partition separately.
Change = Callable[[pa.Table, Found], TableChange]
