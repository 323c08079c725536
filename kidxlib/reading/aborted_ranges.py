"""The ranges of offsets of aborted transactions: what a reading leaves out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from kidxlib.reading.aborted_kernel import mark_aborted


@dataclass(frozen=True, slots=True)
class AbortedRanges:
    """Transactions that were aborted, each a range of a producer's offsets.

    Attributes:
        packed: the producer, the first offset and the marker's offset of each transaction, as int64s of this machine,
            sorted.
    """

    packed: bytes = b""

    @classmethod
    def from_transactions(cls, transactions: NDArray[np.int64]) -> Self:
        """The ranges of transactions of shape (n, 3): producer, first offset and the marker's offset of each."""
        return cls(transactions[np.lexsort(transactions.T[::-1])].tobytes())

    def __len__(self) -> int:
        return len(self._rows)

    def between(self, start_offset: int, end_offset: int) -> AbortedRanges:
        """The aborted transactions with offsets from `start_offset` to below `end_offset`."""
        rows = self._rows
        return AbortedRanges(rows[(rows[:, 2] >= start_offset) & (rows[:, 1] < end_offset)].tobytes())

    def are_aborted(self, batches: NDArray[np.void]) -> NDArray[np.bool_]:
        """Which batches (of dtype `BATCH`) a `SegmentRead` takes for those of an aborted transaction, as a consumer
        decides it (`CompletedFetch.isBatchAborted`).
        """
        is_aborted = np.zeros(len(batches), np.bool_)
        if len(self):
            producers, first_offsets, last_offsets = (np.ascontiguousarray(column) for column in self._rows.T)
            mark_aborted(batches, producers, first_offsets, last_offsets, is_aborted)
        return is_aborted

    @property
    def _rows(self) -> NDArray[np.int64]:
        return np.frombuffer(self.packed, np.int64).reshape(-1, 3)
