"""Ranges of keys: each row is in one of them, and they follow one another."""

from __future__ import annotations

import tempfile
from typing import Final

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from kidxlib.catalog.segments import SEGMENTS
from kidxlib.catalog.tables import FILE_BYTES
from kidxlib.tables.sorted_files import KeyRange, key_ranges
from tests.conftest import one_in

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
