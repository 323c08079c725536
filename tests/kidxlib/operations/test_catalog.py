"""Pieces of a table: each row is in one, and few pieces have more rows than they should."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from kidxlib.catalog.conditions import rows_where
from kidxlib.catalog.partitions import PARTITIONS
from kidxlib.operations.catalog import pieces

_SCHEMA: Final = PARTITIONS.schema(["topic", "partition"])


@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 5)), max_size=40),
    st.integers(1, 12),
)
def test_each_row_is_in_one_piece(keys: list[tuple[str, int]], rows_at_once: int) -> None:
    rows = pa.Table.from_pylist([{"topic": topic, "partition": partition} for topic, partition in keys], _SCHEMA)
    found = [rows_where(rows, piece) for piece in pieces(rows, rows_at_once)]
    in_order = [sorted((row["topic"], row["partition"]) for row in part.to_pylist()) for part in found]
    assert [key for part in in_order for key in part] == sorted(keys)
    for part in in_order:
        assert len(part) <= rows_at_once or len(set(part)) == 1, "only one partition alone may be larger"
    for some, others in pairwise(in_order):
        assert len(some) + len(others) > rows_at_once or len({key[0] for key in some + others}) > 1
