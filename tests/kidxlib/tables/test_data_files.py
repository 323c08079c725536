"""Rows read from a table's files by themselves are those that delta-rs reads, whoever wrote them."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kidxlib.catalog.segments import SEGMENTS
from kidxlib.catalog.tables import TABLES
from kidxlib.storage.store.s3 import file_system_of
from kidxlib.tables.data_files import files_of, rows_in, sizes_of
from kidxlib.tables.delta_tables import DeltaTables
from tests.docs.pages import PROJECT
from tests.support.catalog import append_rows


@pytest.mark.parametrize("version", [6, 7], ids=["by Spark", "by delta-rs"])
def test_rows_are_those_that_delta_rs_reads(version: int, tmp_path: Path) -> None:
    """In the schema of now; columns that an older version has not, or called otherwise, are null."""
    with tarfile.open(PROJECT / "tests" / "catalogs" / f"version-{version}.tar.gz") as packed:
        packed.extractall(tmp_path, filter="data")
    tables = DeltaTables(str(tmp_path / "catalog"))
    there_are = [(table, delta) for table in TABLES if (delta := tables.opened(table)) is not None]
    assert len(there_are) >= 8
    for table, delta in there_are:
        place = file_system_of(delta)
        rows = pa.concat_tables([rows_in(place, table, path) for path in sizes_of(files_of(table, delta))])
        assert rows.schema == table.schema() and rows.num_rows > 0
        there = [field.name for field in delta.schema().fields if field.name in table.column_names]
        expected = tables.rows(table, delta, there, "true")
        order: list[tuple[str, Literal["ascending"]]] = [(name, "ascending") for name in table.key]
        assert rows.select(there).sort_by([*order]).to_pylist() == expected.sort_by([*order]).to_pylist()
        assert all(rows[name].null_count == rows.num_rows for name in set(table.column_names) - set(there))


def test_timestamps_of_the_first_kind_reach_as_far_as_others(tmp_path: Path) -> None:
    """A user's own Spark writes them, as that of a table which is copied by a query."""
    append_rows(tmp_path, SEGMENTS, {"max_timestamp_ms": 0})
    delta = DeltaTables(str(tmp_path)).opened(SEGMENTS)
    assert delta is not None
    place = file_system_of(delta)
    [path] = sizes_of(files_of(SEGMENTS, delta))
    far = pa.array([253_402_300_799_999_999], pa.timestamp("us", "UTC"))
    rows = rows_in(place, SEGMENTS, path)
    at = SEGMENTS.column_names.index("max_timestamp")
    rows = rows.set_column(at, rows.schema.field(at), far)
    pq.write_table(rows, tmp_path / "segments" / "first.parquet", use_deprecated_int96_timestamps=True)
    assert rows_in(place, SEGMENTS, "first.parquet", ["max_timestamp"])["max_timestamp"].combine_chunks().equals(far)
