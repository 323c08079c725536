"""Rows in Arrow batches."""

from __future__ import annotations

import pyarrow as pa

from kidxlib.engine.units import row_batches


def test_rows_in_batches() -> None:
    schema = pa.schema([("number", pa.int64())])
    batches = list(row_batches(({"number": number} for number in range(2500)), schema))
    assert [len(batch) for batch in batches] == [1000, 1000, 500]
    assert pa.Table.from_batches(batches)["number"].to_pylist() == list(range(2500))
    assert [len(batch) for batch in row_batches([{"number": 1}] * 2000, schema)] == [1000, 1000]
    assert list(row_batches([], schema)) == []


def test_batches_go_out_first() -> None:
    """They take no room among the rows."""
    schema = pa.schema([("number", pa.int64())])
    whole = pa.RecordBatch.from_pylist([{"number": 7}], schema)
    batches = row_batches([{"number": 1}, whole, {"number": 2}], schema)
    assert [batch["number"].to_pylist() for batch in batches] == [[7], [1, 2]]
