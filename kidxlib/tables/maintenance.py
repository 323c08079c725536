"""What the upkeep of a catalog's tables asks of who keeps them: delta-rs, or Spark."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import timedelta
from typing import Any, Final, Protocol

import pyarrow as pa

from kidxlib.catalog.rows import Table
from kidxlib.tables.protocol import Tables

#: How long a vacuum keeps files that a table does not need any more, for those who began to read it before; longer
#: where the table's own `delta.deletedFileRetentionDuration` is. It is Delta's default, and never less.
VACUUM_KEEPS: Final = timedelta(days=7)


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
