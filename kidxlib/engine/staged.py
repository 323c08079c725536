"""Rows that workers have written to Parquet files, to be counted and recorded."""

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
    """Rows of several kinds (`kidxlib.catalog.rows.kinds_of`)."""

    def rows(self, kind: str, names: Sequence[str] | None = None, where: Sequence[Condition] = ()) -> pa.Table:
        """The rows of one kind that meet all conditions, in any order. No names: all columns."""

    def batches(self, kind: str) -> Iterator[pa.RecordBatch]:
        """The rows of one kind, in the order of the units and of each unit's rows."""

    def found(self, *kinds: str) -> Found:
        """All rows of some kinds."""

    def remove(self) -> None: ...


@dataclass(frozen=True, slots=True)
class StagedFiles:
    """Rows in files that this process can read.

    Attributes:
        files: paths, in the order of the units, without unfinished units.
    """

    files: Sequence[str]
    schema: pa.Schema

    def rows(self, kind: str, names: Sequence[str] | None = None, where: Sequence[Condition] = ()) -> pa.Table:
        """All rows of one file at a time are held."""
        fields, in_conditions = self.schema.field(kind).type, {condition.column for condition in where}
        wanted = [field.name for field in fields if names is None or field.name in names]
        schema = pa.schema([field for field in fields if field.name in wanted or field.name in in_conditions])
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
    """Each kind has its own columns in the file, and others' are not read."""
    with pq.ParquetFile(file) as opened:
        column = opened.read(columns=[f"{kind}.{name}" for name in schema.names]).column(kind)
    filled: Values = column.filter(column.is_valid())
    parts = [pa.Table.from_arrays(part.flatten(), schema.names) for part in filled.chunks]
    return pa.concat_tables([part.cast(schema) for part in parts]) if parts else schema.empty_table()


def batch_of_kind(rows: Values) -> pa.RecordBatch:
    """The rows of one kind from its column of structs, which is null in rows of another kind."""
    filled = rows.filter(rows.is_valid()) if rows.null_count else rows
    return pa.RecordBatch.from_struct_array(filled)
