"""Rows that workers have put into Parquet files, to be counted and recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.dataset as ds

from kidxlib.catalog.change import Found


class Staged(Protocol):
    """Rows of several kinds, as `kidxlib.catalog.rows.kinds_of` has them."""

    def rows(self, kind: str, names: Sequence[str] | None = None) -> pa.Table:
        """The rows of one kind, in any order.

        Args:
            names: of columns; None for all.
        """

    def found(self, *kinds: str) -> Found:
        """All rows of some kinds."""

    def remove(self) -> None:
        """They are not needed any more."""


@dataclass(frozen=True, slots=True)
class StagedFiles:
    """Rows in files that this process can read.

    Attributes:
        files: paths; those of units that were not done are not among them.
    """

    files: Sequence[str]
    schema: pa.Schema

    def rows(self, kind: str, names: Sequence[str] | None = None) -> pa.Table:
        """See `Staged.rows`."""
        fields = [field for field in self.schema.field(kind).type if names is None or field.name in names]
        schema = pa.schema(fields)
        if not self.files:
            return schema.empty_table()
        rows = ds.dataset(list(self.files), schema=self.schema, format="parquet")
        columns = {field.name: ds.field(kind, field.name) for field in fields}
        is_filled: Any = ds.field(kind).is_valid()
        return rows.to_table(columns=columns, filter=is_filled).cast(schema)

    def found(self, *kinds: str) -> Found:
        """See `Staged.found`."""
        return {kind: self.rows(kind) for kind in kinds}

    def remove(self) -> None:
        """See `Staged.remove`."""
        for file in self.files:
            Path(file).unlink()
