"""Sequence numbers of idempotent producers, many at once."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

_INT_MAX: Final = 2**31 - 1


def incremented_sequences(first: NDArray[Any], increments: NDArray[np.int64]) -> NDArray[np.int32]:
    """`kidxlib.java.incremented_sequence` of each.

    Args:
        first: sequence numbers, of shape (n,).
        increments: that many are added, of shape (n,); as Java's 32 bits have them.
    """
    first, more = first.astype(np.int64), increments.astype(np.int32).astype(np.int64)
    goes_round = first > (_INT_MAX - more).astype(np.int32)
    return np.where(goes_round, more - (_INT_MAX - first) - 1, first + more).astype(np.int32)
