"""Which batches belong to transactions that were aborted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from kidxlib.reading.aborted_kernel import mark_aborted


@dataclass(frozen=True, slots=True)
class AbortedRanges:
    """Transactions that were aborted.

    Attributes:
        packed: their producers, first offsets and the offsets of their markers, as int64s of this machine, sorted.
    """

    packed: bytes = b""

    @classmethod
    def of(cls, transactions: NDArray[np.int64]) -> Self:
        """
        Args:
            transactions: of shape (n, 3): producers, first offsets and offsets of markers.
        """
        return cls(transactions[np.lexsort(transactions.T[::-1])].tobytes())

    def __len__(self) -> int:
        return len(self._rows)

    def between(self, start_offset: int, end_offset: int) -> AbortedRanges:
        """Transactions that have offsets from one to below another."""
        rows = self._rows
        return AbortedRanges(rows[(rows[:, 2] >= start_offset) & (rows[:, 1] < end_offset)].tobytes())

    def holds(self, batches: NDArray[np.void]) -> NDArray[np.bool_]:
        """Which batches belong to one of them, as a consumer finds out (`CompletedFetch.isBatchAborted`).

        Args:
            batches: of dtype `BATCH`.
        """
        found = np.zeros(len(batches), np.bool_)
        if len(self):
            producers, first_offsets, last_offsets = (np.ascontiguousarray(column) for column in self._rows.T)
            mark_aborted(batches, producers, first_offsets, last_offsets, found)
        return found

    @property
    def _rows(self) -> NDArray[np.int64]:
        return np.frombuffer(self.packed, np.int64).reshape(-1, 3)
