"""Rows that workers have put into Parquet files, to be counted and recorded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from kidxlib.catalog.change import Found
from kidxlib.catalog.conditions import Condition, rows_where
from kidxlib.catalog.matching import Values


class Staged(Protocol):
    """Rows of several kinds, as `kidxlib.catalog.rows.kinds_of` has them."""

    def rows(self, kind: str, names: Sequence[str] | None = None, where: Sequence[Condition] = ()) -> pa.Table:
        """The rows of one kind of which all conditions are true, in any order.

        Args:
            names: of columns; None for all.
            where: of any columns.
        """

    def batches(self, kind: str) -> Iterator[pa.RecordBatch]:
        """The rows of one kind in the order of the units, and as each gave them."""

    def found(self, *kinds: str) -> Found:
        """All rows of some kinds."""

    def remove(self) -> None:
        """They are not needed any more."""


@dataclass(frozen=True, slots=True)
class StagedFiles:
    """Rows in files that this process can read.

    Attributes:
        files: paths, in the order of the units; those of units that were not done are not among them.
    """

    files: Sequence[str]
    schema: pa.Schema

    def rows(self, kind: str, names: Sequence[str] | None = None, where: Sequence[Condition] = ()) -> pa.Table:
        """See `Staged.rows`. Of one file at a time all rows are held."""
        of_kind, asked = self.schema.field(kind).type, {condition.column for condition in where}
        wanted = [each.name for each in of_kind if names is None or each.name in names]
        schema = pa.schema([each for each in of_kind if each.name in wanted or each.name in asked])
        of_files = (rows_where(_rows_of(file, kind, schema), where) for file in self.files)
        return pa.concat_tables([schema.empty_table(), *of_files]).select(wanted)

    def batches(self, kind: str) -> Iterator[pa.RecordBatch]:
        for file in self.files:
            with pq.ParquetFile(file) as opened:
                for batch in opened.iter_batches(columns=[kind]):
                    yield batch_of_kind(batch.column(kind))

    def found(self, *kinds: str) -> Found:
        return {kind: self.rows(kind) for kind in kinds}

    def remove(self) -> None:
        for file in self.files:
            Path(file).unlink()


def _rows_of(file: str, kind: str, schema: pa.Schema) -> pa.Table:
    """The rows of one kind in one file. Of the others the file is not read: each kind has columns of its own there."""
    with pq.ParquetFile(file) as opened:
        column = opened.read(columns=[f"{kind}.{name}" for name in schema.names]).column(kind)
    filled: Values = column.filter(column.is_valid())
    parts = [pa.Table.from_arrays(part.flatten(), schema.names) for part in filled.chunks]
    return pa.concat_tables([part.cast(schema) for part in parts]) if parts else schema.empty_table()


def batch_of_kind(rows: Values) -> pa.RecordBatch:
    """The rows of one kind, of a column that has them.

    Args:
        rows: an array of structs, null where the row is of another kind.
    """
    filled = rows.filter(rows.is_valid()) if rows.null_count else rows
    return pa.RecordBatch.from_struct_array(filled)
