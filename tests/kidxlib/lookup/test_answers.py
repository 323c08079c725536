"""Rows are grouped by key, and keep their order."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kidxlib.lookup.answers import rows_by_key


@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 99))))
def test_groups_are_those_of_a_dictionary(pairs: list[tuple[int, int]]) -> None:
    keys, rows = (np.array([pair[place] for pair in pairs], np.int64) for place in (0, 1))
    found = [(key, group.tolist()) for key, group in rows_by_key(keys, rows)]
    wanted = {key: [row for other, row in pairs if other == key] for key, _ in pairs}
    assert found == sorted(wanted.items())
