"""Shares of a table: each row is in one, and few rows are read or shared at a time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from kidxlib.catalog.conditions import Condition, rows_where
from kidxlib.catalog.partitions import PARTITIONS, partition_keys
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.engine.shares import cut_by_weight, keys_with_rows, share_rows_of, shares
from kidxlib.tables.protocol import counts_of

_SCHEMA: Final = SEGMENTS.schema(SEGMENTS.key)
_PARTITION: Final = st.tuples(st.sampled_from("xy"), st.sampled_from("abcd"), st.integers(0, 5))


@given(
    st.dictionaries(_PARTITION, st.integers(0, 9), max_size=30),
    st.sets(_PARTITION),
    st.integers(1, 12),
    st.integers(1, 12),
    st.randoms(use_true_random=False),
)
def test_each_row_is_in_one_share(
    counts: dict[tuple[str, str, int], int],
    others: set[tuple[str, str, int]],
    share_rows: int,
    rows_at_once: int,
    random: np.random.Generator,
) -> None:
    """In order, in whatever order they are read; and without those of other partitions."""
    wanted = [(*key, offset) for key, count in counts.items() for offset in range(count)]
    all_rows = [*wanted, *((*key, 0) for key in others - counts.keys())]
    random.shuffle(all_rows)
    columns = list(zip(*all_rows, strict=True)) or [()] * len(_SCHEMA)
    rows = pa.table([list(column) for column in columns], schema=_SCHEMA)
    read: list[set[tuple[str, str, int]]] = []

    def read_some(scope: Sequence[Condition]) -> pa.Table:
        read.append(set(partition_keys(rows_where(rows, scope))) & counts.keys())
        return rows_where(rows, scope)

    partitions = keys_with_rows(counts, counts_of(rows, PARTITIONS.key))
    found = list(shares(read_some, partitions, share_rows, rows_at_once))
    assert sorted(key for of_share, _ in found for key in partition_keys(of_share)) == sorted(counts)
    in_shares = [list(zip(*of_share.to_pydict().values(), strict=True)) for _, of_share in found]
    assert sorted(row for share in in_shares for row in share) == sorted(wanted)
    for (of_share, _), share in zip(found, in_shares, strict=True):
        assert share == sorted(share) and {row[:3] for row in share} <= set(partition_keys(of_share))
        assert len(share) <= share_rows or of_share.num_rows == 1
    for keys in read:
        of_one_topic = len({topic for _, topic, _ in keys}) == 1
        assert of_one_topic or sum(counts[key] for key in keys) <= 2 * rows_at_once


@given(st.lists(st.integers(0, 9), max_size=40), st.integers(1, 12))
def test_a_piece_is_as_long_as_it_may_be(weights: list[int], most: int) -> None:
    pieces = [weights[start:end] for start, end in cut_by_weight(weights, most)]
    assert [weight for piece in pieces for weight in piece] == weights
    assert all(sum(piece) <= most or len(piece) == 1 for piece in pieces)
    assert all(sum(piece) + following[0] > most for piece, following in pairwise(pieces))


def test_each_core_has_some_shares() -> None:
    partitions = keys_with_rows(
        [("s", "t", number) for number in range(1000)], counts_of(_SCHEMA.empty_table(), SEGMENTS.key)
    )
    assert [share_rows_of(partitions, cores, most=100) for cores in (1, 10, 1000)] == [100, 26, 1]
