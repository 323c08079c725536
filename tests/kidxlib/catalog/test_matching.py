"""Rows matched by their keys and compared, against Python's own comparison of the same values; runs of equal rows,
against `itertools.groupby`.
"""

from __future__ import annotations

import itertools
import random
from typing import Any, Final

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kidxlib.catalog.matching import differing, positions_in, runs

_ENTRY: Final = pa.struct([("epoch", pa.int32()), ("name", pa.string())])
#: A type of column, and what its values may be.
KINDS: Final[dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]]] = {
    "number": (pa.int32(), st.integers(0, 1)),
    "text": (pa.string(), st.sampled_from(["", "a"])),
    "flag": (pa.bool_(), st.booleans()),
    "float": (pa.float64(), st.sampled_from([0.0, 1.0, float("nan")])),
    "time": (pa.timestamp("us", "UTC"), st.integers(0, 1)),
    "list of structs": (
        pa.list_(pa.field("element", _ENTRY)),
        st.lists(
            st.none()
            | st.fixed_dictionaries({"epoch": st.none() | st.integers(0, 1), "name": st.sampled_from([None, "a"])}),
            max_size=2,
        ),
    ),
    "map": (
        pa.map_(pa.string(), pa.int64()),
        st.dictionaries(st.sampled_from("ab"), st.none() | st.integers(0, 1)).map(lambda found: list(found.items())),
    ),
    "struct": (
        pa.struct([("a", pa.int64()), ("l", pa.list_(pa.int8()))]),
        st.fixed_dictionaries({"a": st.integers(0, 1), "l": st.none() | st.lists(st.integers(0, 1), max_size=2)}),
    ),
}
KEY: Final = ("topic", "partition", "base_offset")
KEYS: Final = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 1), st.integers(-1, 1)), max_size=8)


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_rows_differ_as_their_values_do(kind: str, data: st.DataObject) -> None:
    """Nulls are equal, and so are NaNs, at any depth. Half of the columns are a part of a longer one."""
    arrow_type, values = KINDS[kind]
    pairs = data.draw(st.lists(st.tuples(st.none() | values, st.none() | values), max_size=6))
    some, others = (pa.table({kind: pa.array([pair[side] for pair in pairs], arrow_type)}) for side in (0, 1))
    start = data.draw(st.integers(0, 2))
    some, others = some.slice(start), others.slice(start)
    expected = [
        repr(one) != repr(other) for one, other in zip(*(t[kind].to_pylist() for t in (some, others)), strict=True)
    ]
    assert differing(some, others, [kind]).tolist() == expected


@given(rows=KEYS, others=KEYS)
def test_a_row_is_found_by_its_whole_key(rows: list[tuple[str, int, int]], others: list[tuple[str, int, int]]) -> None:
    types: dict[str, pa.DataType] = {"topic": pa.string(), "partition": pa.int32(), "base_offset": pa.int64()}
    schema = pa.schema(types)

    def table(keys: list[tuple[str, int, int]]) -> pa.Table:
        return pa.Table.from_pylist([dict(zip(KEY, key, strict=True)) for key in keys], schema)

    expected = [others.index(key) if key in others else -1 for key in rows]
    assert positions_in(table(rows), table(others), KEY).tolist() == expected


def test_runs_are_those_of_groupby(rng: random.Random) -> None:
    """Of texts, numbers and dictionaries, with nulls among them, also in a part of an array."""
    for count in (0, 1, 2, 500):
        texts = [rng.choice(["a", "b", None]) for _ in range(count)]
        numbers = [rng.choice([1, None]) for _ in range(count)]
        columns: list[pa.Array[Any]] = [pa.array(texts, pa.string()), pa.array(numbers, pa.int32())]
        ends = itertools.accumulate(
            len(list(of_run)) for _, of_run in itertools.groupby(zip(texts, numbers, strict=True))
        )
        expected = list(itertools.pairwise([0, *ends]))
        assert list(runs(columns)) == expected
        assert list(runs([columns[0].dictionary_encode(), columns[1]])) == expected
        part = [column.slice(count // 2) for column in columns]
        assert list(runs(part)) == list(runs([pa.concat_arrays([column]) for column in part]))
