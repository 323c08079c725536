"""What is read of one segment: the part of a plan that reading it needs, and the transactions that it leaves out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray

from kidxlib.reading.aborted_kernel import mark_aborted
from kidxlib.records.wanted_records import WantedRecords
from kidxlib.storage.location import FileVersion


@dataclass(frozen=True, slots=True)
class AbortedRanges:
    """Transactions that were aborted.

    Attributes:
        packed: the producer, the first offset and the marker's offset of each transaction, as int64s of this machine,
            sorted.
    """

    packed: bytes = b""

    @classmethod
    def from_transactions(cls, transactions: NDArray[np.int64]) -> Self:
        """`transactions` has shape (n, 3): producer, first offset and the marker's offset of each transaction."""
        return cls(transactions[np.lexsort(transactions.T[::-1])].tobytes())

    def __len__(self) -> int:
        return len(self._rows)

    def between(self, start_offset: int, end_offset: int) -> AbortedRanges:
        """The transactions with offsets from `start_offset` to below `end_offset`."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRead:
    """What to read of one segment, or of a part of a large one. It has all that reading needs, and can be pickled.

    Attributes:
        log_path: the segment's log, here or in an object store.
        version: the log's version when the plan was made; an active log may have grown since.
        position: the byte from which batches are read; a batch starts there.
        end_position: the byte before which reading ends: the end of the log, or the start of a batch that has nothing
            wanted or belongs to another read.
        last_offset_before: the last offset of the batch before `position`; below the base offset if there is none.
        end_offset: the first offset behind the read, in this segment or the next one; every offset that is read is
            below it. None at the end of a partition.
        wanted: the records that are asked for, within what consumers see.
        must_reach: the offset up to which the log must reach by a checkpoint; None if no checkpoint says it.
        aborted: transactions whose records are left out.
        records, next_offset: how many records are read, and the offset behind the log's last batch, by a catalog; None
            if no catalog tells.
        refused: why nothing of the log is read, which counts as damage; None if it is read.
        goes_on_at: the offset from which on consumers get another segment, though the log goes on; None where it is
            the last one, or `end_offset` says it.
    """

    topic: str
    partition: int
    base_offset: int
    log_path: str
    version: FileVersion
    position: int
    end_position: int
    last_offset_before: int
    end_offset: int | None
    wanted: WantedRecords
    must_reach: int | None = None
    aborted: AbortedRanges = field(default_factory=AbortedRanges)
    records: int | None = None
    next_offset: int | None = None
    refused: str | None = None
    goes_on_at: int | None = None

    @property
    def log_bytes(self) -> int:
        """The largest number of bytes of the log that are read."""
        return self.end_position - self.position
