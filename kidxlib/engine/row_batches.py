"""Rows of a unit of work on their way out: in Arrow batches, as mapInArrow and Parquet's writer take them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import pyarrow as pa

_ROWS_PER_BATCH: Final = 1000


def row_batches(rows: Iterable[dict[str, Any] | pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Rows in batches of 1,000. A batch among them goes out as it is, before the rows that are still being gathered."""
    gathered: list[dict[str, Any]] = []
    for row in rows:
        if isinstance(row, pa.RecordBatch):
            yield row
            continue
        gathered.append(row)
        if len(gathered) == _ROWS_PER_BATCH:
            yield pa.RecordBatch.from_pylist(gathered, schema)
            gathered.clear()
    if gathered:
        yield pa.RecordBatch.from_pylist(gathered, schema)
