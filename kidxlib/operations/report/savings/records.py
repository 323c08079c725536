"""Records as they were read, to be laid down again."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kidxlib.operations.report.savings.batch_kernel import RECORD_OVERHEAD_MAX, copy_bodies, measure_bodies


@dataclass(frozen=True, slots=True)
class Records:
    """Records of one producer, in the order in which it sent them.

    Attributes:
        bodies: from their keys on, as magic 2 has them, one after the other.
        ends: of shape (n + 1,): where each begins, and where the last one ends.
        timestamps: ms since the epoch, of shape (n,).
        begins: which of them may not follow another in its batch, as a transaction has ended between them.
        is_closed: a transaction has ended after the last one.
    """

    bodies: NDArray[np.uint8]
    ends: NDArray[np.int64]
    timestamps: NDArray[np.int64]
    begins: NDArray[np.bool_]
    is_closed: bool

    def room(self) -> NDArray[np.uint8]:
        """Memory for a batch with all of them."""
        return np.empty(len(self.bodies) + len(self.timestamps) * RECORD_OVERHEAD_MAX, np.uint8)


@dataclass(slots=True)
class RecordsToBe:
    """Records of one producer, while they are read."""

    _bodies: list[NDArray[np.uint8]] = field(default_factory=list)
    _sizes: list[NDArray[np.int64]] = field(default_factory=list)
    _timestamps: list[NDArray[np.int64]] = field(default_factory=list)
    _begins: list[NDArray[np.bool_]] = field(default_factory=list)
    _transaction_has_ended: bool = False

    def end_transaction(self) -> None:
        """The next record is in a batch with none of those before it."""
        self._transaction_has_ended = True

    def add(self, places: NDArray[np.void]) -> int:
        """Add records, and return how many bytes they take.

        Args:
            places: of `PLACE`.
        """
        ends = np.empty(len(places) + 1, np.int64)
        measure_bodies(places, ends)
        bodies = np.empty(int(ends[-1]), np.uint8)
        copy_bodies(places, ends, bodies)
        begins = np.zeros(len(places), np.bool_)
        begins[:1] = self._transaction_has_ended
        self._transaction_has_ended = False
        self._bodies.append(bodies)
        self._sizes.append(np.diff(ends))
        self._timestamps.append(places["timestamp"].copy())
        self._begins.append(begins)
        return len(bodies)

    def records(self) -> Records:
        """All that were added."""
        ends = np.concatenate([[0], np.cumsum(np.concatenate(self._sizes))])
        return Records(
            bodies=np.concatenate(self._bodies),
            ends=ends,
            timestamps=np.concatenate(self._timestamps),
            begins=np.concatenate(self._begins),
            is_closed=self._transaction_has_ended,
        )

    def __len__(self) -> int:
        return sum(map(len, self._timestamps))
