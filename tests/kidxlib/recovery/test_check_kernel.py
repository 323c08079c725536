"""Batches are found and checked wherever a search for them begins."""

from __future__ import annotations

from typing import Final

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kidxlib.recovery import check_kernel
from tests.support.logs.batches import FILLER, Batch, encode

BATCHES: Final = encode(0, [Batch(body=FILLER[:number]) for number in range(39, 200)])
LOG: Final = b"".join(BATCHES)
STARTS: Final = [sum(map(len, BATCHES[:number])) for number in range(len(BATCHES))]


@given(st.integers(0, len(LOG)))
def test_batches_are_found_and_checked(position: int) -> None:
    """Without this all would go well, too, with one thread doing all the work at the end."""
    data = np.frombuffer(LOG, np.uint8)
    starts = [start for start in STARTS if start >= position]
    found = starts[0] if starts else -1
    assert check_kernel.find_batch(data, position, len(data)) == found
    if starts:
        assert check_kernel.check_batches(data, found, found + 1) == (starts[1] if len(starts) > 1 else len(data))
        assert check_kernel.check_batches(data, found, len(data)) == len(data)
