"""Rows read from a table's files by themselves are those that delta-rs reads, whoever wrote them. Of ranges of keys,
each row is in one, and they follow one another.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final, Literal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from kidxlib.catalog.segments import SEGMENTS
from kidxlib.catalog.tables import FILE_BYTES, TABLES
from kidxlib.storage.store.s3 import file_system_of
from kidxlib.tables.data_files import KeyRange, files_of, key_ranges, rows_in, sizes_of
from kidxlib.tables.delta_tables import DeltaTables
from tests.conftest import one_in
from tests.support.catalog import append_rows, kept_catalog


@pytest.mark.parametrize("version", [6, 7], ids=["by Spark", "by delta-rs"])
def test_rows_are_those_that_delta_rs_reads(version: int, tmp_path: Path) -> None:
    """In the schema of now; columns that an older version has not, or called otherwise, are null."""
    tables = DeltaTables(str(kept_catalog(version, tmp_path)))
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


#: Each example writes a table, and asks it as often as there are ranges.
FEW: Final = one_in(5)
_NAMES: Final = ("topic", "partition", "base_offset")
_SCHEMA: Final = SEGMENTS.schema(_NAMES)
_KEY: Final = st.tuples(st.sampled_from(["", "a", "it's", 'q"ä', "\\"]), st.integers(-1, 2), st.integers(-(2**63), 9))


@FEW
@given(keys=st.lists(_KEY, max_size=30), files=st.integers(0, 9), at_once=st.integers(1, 4))
def test_each_row_is_in_one_range(keys: list[tuple[str, int, int]], files: int, at_once: int) -> None:
    """By the SQL that they are asked with, of which no part leaves out a row, and by Arrow's condition. Rows with one
    key stay together.
    """
    rows = pa.Table.from_pylist([dict(zip(_NAMES, key, strict=True)) for key in keys], _SCHEMA)
    ranges = key_ranges(rows, _NAMES, files * FILE_BYTES, at_once)
    assert sum(part.files for part in ranges) == max(1, min(files, len(keys)))
    assert max(part.files for part in ranges) <= at_once
    with tempfile.TemporaryDirectory() as directory:
        write_deltalake(directory, rows)
        query = QueryBuilder().register("rows", DeltaTable(directory))
        found = [
            pa.table(query.execute(f"SELECT * FROM rows WHERE {part.sql}").read_all()).to_pylist() for part in ranges
        ]
    parts = [sorted(tuple(row.values()) for row in part) for part in found]
    by_arrow = [rows.filter(part.expression).to_pylist() for part in ranges]
    assert [sorted(tuple(row.values()) for row in part) for part in by_arrow] == parts
    assert [key for part in parts for key in part] == sorted(keys, key=lambda key: (key[0].encode(), *key[1:]))


def test_a_range_leaves_out_files_by_its_first_columns() -> None:
    """What begins and ends with the same topic says so, and between which partitions it lies."""
    asked = KeyRange(_NAMES, ("a", 1, 5), ("a", 3, 0), 1).sql
    assert asked.startswith('"topic" >= \'a\' AND "topic" <= \'a\' AND "partition" >= 1 AND "partition" <= 3 AND (')
    assert KeyRange(_NAMES, (), (), 1).sql == "true"
