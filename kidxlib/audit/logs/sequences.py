"""Whether producers go on with the sequence numbers that they have come to, batch by batch, many batches at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kidxlib.format.layouts import NO_SEQUENCE
from kidxlib.records.arrow.arrays import incremented_sequences

_Rows: TypeAlias = NDArray[np.void]

_NO_PRODUCER: Final = -1
_LAST: Final = np.dtype([("producer_id", "i8"), ("epoch", "i2"), ("sequence", "i4")])


@dataclass(frozen=True, slots=True)
class SequenceGaps:
    """Batches that do not go on where their producer's batch before them in the segment ended, in the same epoch.

    Attributes:
        numbers: of their rows, of shape (n,), increasing.
        expected: the sequence number that each should begin with, of shape (n,).
    """

    numbers: NDArray[np.int64]
    expected: NDArray[np.int32]


class SequenceCheck:
    """The epoch and the last sequence number of each producer, as they were seen so far."""

    def __init__(self) -> None:
        self._last = np.empty(0, _LAST)  # by producer id

    def gaps(self, batches: _Rows) -> SequenceGaps:
        """The gaps in the next batches of the log.

        Args:
            batches: of dtype `BATCH`, in the order of the log.
        """
        numbers = np.flatnonzero((batches["producer_id"] != _NO_PRODUCER) & (batches["base_sequence"] != NO_SEQUENCE))
        numbers = numbers[np.argsort(batches["producer_id"][numbers], kind="stable")]
        rows = batches[numbers]
        ends = _ends_of(rows)
        is_first, is_last = _first_of_each(ends["producer_id"]), _first_of_each(ends["producer_id"][::-1])[::-1]
        before = np.roll(ends, 1)
        known = np.searchsorted(self._last["producer_id"], ends["producer_id"])
        is_known = np.zeros(len(rows), np.bool_)
        within = known < len(self._last)
        is_known[within] = self._last["producer_id"][known[within]] == ends["producer_id"][within]
        before[is_first & is_known] = self._last[known[is_first & is_known]]
        goes_on = (~is_first | is_known) & (before["epoch"] == ends["epoch"])
        expected = incremented_sequences(before["sequence"], np.ones(len(rows), np.int64))
        gaps = np.flatnonzero(goes_on & (rows["base_sequence"] != expected))
        gaps = gaps[np.argsort(numbers[gaps])]
        self._keep(ends[is_last])
        return SequenceGaps(numbers[gaps], expected[gaps])

    def _keep(self, ends: _Rows) -> None:
        """Let these take the place of what was known of their producers."""
        others = self._last[~np.isin(self._last["producer_id"], ends["producer_id"])]
        last = np.concatenate([others, ends])
        self._last = last[np.argsort(last["producer_id"])]


def _ends_of(rows: _Rows) -> _Rows:
    ends = np.empty(len(rows), _LAST)
    ends["producer_id"], ends["epoch"] = rows["producer_id"], rows["producer_epoch"]
    ends["sequence"] = incremented_sequences(rows["base_sequence"], rows["last_offset"] - rows["offset_field"])
    return ends


def _first_of_each(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Which values are not the one before them."""
    is_first = np.ones(len(values), np.bool_)
    is_first[1:] = values[1:] != values[:-1]
    return is_first
