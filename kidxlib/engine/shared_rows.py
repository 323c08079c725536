"""Rows that a run gives to its workers: they lie in files, and an item of work says in which."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

#: Rows of a group of a file: a worker holds as many.
_ROWS_PER_GROUP: Final = 65_536


class SharedRows(Protocol):
    """Rows that `Engine.share` has put where workers read them. It goes to a worker within an item."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, in their order."""


@dataclass(frozen=True, slots=True)
class RowsInFile:
    """Rows in a Parquet file.

    Attributes:
        path: as every worker sees it.
    """

    path: str

    @classmethod
    def write(cls, rows: pa.Table, path: str) -> RowsInFile:
        """Put rows into a new file.

        Raises:
            OSError: it cannot be written.
        """
        pq.write_table(rows, path, row_group_size=_ROWS_PER_GROUP, compression="lz4")
        return cls(path)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """See `SharedRows.batches`."""
        with pq.ParquetFile(self.path) as file:
            yield from file.iter_batches()


@dataclass(frozen=True, slots=True)
class RowsInItem:
    """Rows that go along with the item, where driver and workers share no directory."""

    rows: pa.Table

    def batches(self) -> Iterator[pa.RecordBatch]:
        """See `SharedRows.batches`."""
        yield from self.rows.to_batches(_ROWS_PER_GROUP)
