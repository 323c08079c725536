"""Rows in a file that is mapped are those that were written, and the file goes with them; rows in Arrow batches."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest

from kidxlib.engine.work import mapped_table, row_batches
from kidxlib.errors import KidxError

_SCHEMA: Final = pa.schema([pa.field("number", pa.int64())]).append(pa.field("text", pa.string()))


def _batch(first: int) -> pa.RecordBatch:
    numbers = range(first, first + 1_000)
    return pa.RecordBatch.from_pydict({"number": [*numbers], "text": [None, *map(str, numbers[1:])]})


def test_they_are_read_from_a_file_without_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    batches = [_batch(first) for first in range(0, 5_000, 1_000)]
    allocated = pa.total_allocated_bytes()
    rows = mapped_table(iter(batches), _SCHEMA)
    assert rows == pa.Table.from_batches(batches).cast(_SCHEMA)
    assert rows.schema == _SCHEMA and not any(tmp_path.iterdir())
    assert pa.total_allocated_bytes() - allocated < rows.nbytes / 10
    assert _mapped_below(tmp_path) == 1
    del rows
    gc.collect()
    assert _mapped_below(tmp_path) == 0


def test_of_none_there_is_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert mapped_table([], _SCHEMA) == _SCHEMA.empty_table()


def test_where_no_file_can_be_it_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "gone"))
    with pytest.raises(KidxError, match="gone: rows wait there"):
        mapped_table([_batch(0)], _SCHEMA)


def _mapped_below(directory: Path) -> int:
    return sum(f"{directory}{os.sep}" in line for line in Path("/proc/self/maps").read_text().splitlines())


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
