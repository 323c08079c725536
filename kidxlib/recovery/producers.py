"""A partition's producers, as in Kafka's `ProducerStateManager`, updated segment by segment.

The state of a producer is the one in a `.snapshot`. Kafka keeps up to five batches of each producer in memory, but only
the last one is written. Producers never expire here. A broker that loads a snapshot drops producers without an open
transaction whose last batch is older than `producer.id.expiration.ms`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from kidxlib.format import layouts
from kidxlib.format.checksums import crc32c
from kidxlib.format.producer_snapshot import CRC_COVERS_FROM, read_snapshot
from kidxlib.recovery import producer_kernel
from kidxlib.recovery.outcome import ScanEnd, Status
from kidxlib.recovery.producer_kernel import ProducerFailure
from kidxlib.recovery.scan.scan_state import EventKind


@dataclass(frozen=True, slots=True)
class AppliedEvents:
    """The result of the events of a segment.

    Attributes:
        aborted: the aborted transactions, of dtype `layouts.ABORTED_TRANSACTION`: the `.txnindex` as Kafka writes it.
        failure: where and why Kafka fails; None: it does not.
    """

    aborted: NDArray[np.void]
    failure: ScanEnd | None


#: For each failure its name in the catalog, and the detail, a template for the producer and the batch's offset.
_FAILURES: Final = {
    ProducerFailure.NOT_TRANSACTIONAL: (
        "non-transactional-in-transaction",
        "producer {producer_id} writes outside of its open transaction at offset {offset}; Kafka fails here",
    ),
    ProducerFailure.ABORT_NOT_INCREASING: (
        "abort-not-increasing",
        "producer {producer_id} aborts at offset {offset}, which is not above the abort before it; Kafka fails here",
    ),
    ProducerFailure.TRANSACTION_NOT_STARTED: (
        "transaction-not-started",
        "producer {producer_id} ends a transaction at offset {offset} that began at the same offset as another one, "
        "which has ended; Kafka fails here",
    ),
}

_NO_STATES: Final = np.empty(0, producer_kernel.PRODUCER_STATE)
_NO_TRANSACTIONS: Final = np.empty(0, producer_kernel.ONGOING_TRANSACTION)
_NOTHING: Final = AppliedEvents(np.empty(0, layouts.ABORTED_TRANSACTION), None)
_SNAPSHOT_FIELDS: Final = layouts.SNAPSHOT_ENTRY.names or ()


class Producers:
    """The producers of one partition up to an offset; none at first."""

    def __init__(self) -> None:
        self._states: NDArray[np.void] = _NO_STATES  # by producer id
        self._ongoing: NDArray[np.void] = _NO_TRANSACTIONS

    @classmethod
    def from_snapshot(cls, data: bytes) -> Self:
        """The producers in a `.snapshot`."""
        entries = read_snapshot(data)
        producers = cls()
        states = _new_states(entries["producer_id"])
        for field in _SNAPSHOT_FIELDS:
            states[field] = entries[field]
        states["in_transaction"] = entries["current_transaction_first_offset"] >= 0
        states["known"] = 1
        states = states[np.argsort(states["producer_id"], kind="stable")]
        producers._states = states
        in_transaction = states[states["in_transaction"] == 1]
        producers._ongoing = np.empty(len(in_transaction), producer_kernel.ONGOING_TRANSACTION)
        producers._ongoing["first_offset"] = in_transaction["current_transaction_first_offset"]
        producers._ongoing["producer_id"] = in_transaction["producer_id"]
        return producers

    @property
    def ongoing(self) -> list[int]:
        """The first offsets of the ongoing transactions."""
        first_offsets: list[int] = self._ongoing["first_offset"].tolist()
        return first_offsets

    @property
    def open_transactions(self) -> list[tuple[int, int]]:
        """The producers of the ongoing transactions, each with the transaction's first offset."""
        transactions: list[tuple[int, int]] = list(
            zip(self._ongoing["producer_id"].tolist(), self._ongoing["first_offset"].tolist(), strict=True)
        )
        return transactions

    @property
    def are_told_by_snapshot(self) -> bool:
        """Whether `from_snapshot` of `snapshot` has the same state. It has not if transactions of two producers began
        at the same offset: Kafka keeps only one of them in memory (`ProducerStateManager.ongoingTxns`).
        """
        open_ones = self._states[self._states["in_transaction"] == 1]
        told = open_ones["current_transaction_first_offset"], open_ones["producer_id"]
        kept = self._ongoing["first_offset"], self._ongoing["producer_id"]
        return sorted(zip(*map(np.ndarray.tolist, told), strict=True)) == sorted(
            zip(*map(np.ndarray.tolist, kept), strict=True)
        )

    def snapshot(self) -> bytes:
        """The bytes of a `.snapshot` (`ProducerStateManager.writeSnapshot`), entries by producer id.

        Kafka writes them in the order of a hash map. Readers accept any order.
        """
        return _snapshot_of(self._states) if len(self._states) else _EMPTY_SNAPSHOT

    def apply(self, events: NDArray[np.void]) -> AppliedEvents:
        """Update the producers with the events of one segment (`LogSegment.updateProducerState`).

        Args:
            events: of dtype `scan_state.PRODUCER_EVENT`, in the order of their positions.
        """
        if len(events) == 0:  # the usual case
            return _NOTHING
        ids = events["producer_id"]
        new = np.setdiff1d(ids, self._states["producer_id"])
        if len(new):
            states = np.concatenate([self._states, _new_states(new)])
            self._states = states[np.argsort(states["producer_id"], kind="stable")]
        kinds = events["kind"]
        may_open = np.count_nonzero(kinds == EventKind.TRANSACTIONAL_DATA)
        ongoing = np.concatenate([self._ongoing, np.empty(may_open, producer_kernel.ONGOING_TRANSACTION)])
        aborted = np.empty(np.count_nonzero(kinds == EventKind.ABORT), producer_kernel.ABORTED_TRANSACTION)
        aborted_count, ongoing_count, applied, failure = producer_kernel.apply_events(
            events,
            np.searchsorted(self._states["producer_id"], ids),
            self._states,
            ongoing,
            len(self._ongoing),
            aborted,
        )
        self._ongoing = ongoing[:ongoing_count]
        self._states = self._states[self._states["known"] == 1]
        return AppliedEvents(
            aborted[:aborted_count].astype(layouts.ABORTED_TRANSACTION),
            _scan_end(ProducerFailure(failure), events[applied]) if failure else None,
        )


def _snapshot_of(states: NDArray[np.void]) -> bytes:
    entries = np.empty(len(states), layouts.SNAPSHOT_ENTRY)
    for field in _SNAPSHOT_FIELDS:
        entries[field] = states[field]
    header = np.zeros(1, layouts.SNAPSHOT_HEADER)
    header["version"], header["entries"] = layouts.SNAPSHOT_VERSION, len(entries)
    covered = header.tobytes()[CRC_COVERS_FROM:] + entries.tobytes()
    header["crc"] = crc32c(covered)
    return header.tobytes()[:CRC_COVERS_FROM] + covered


#: Most partitions have no producers, and are asked for a snapshot at each segment.
_EMPTY_SNAPSHOT: Final = _snapshot_of(_NO_STATES)


def _new_states(producer_ids: NDArray[np.int64]) -> NDArray[np.void]:
    """The states of producers without any batches (`ProducerStateEntry.empty`)."""
    states = np.zeros(len(producer_ids), producer_kernel.PRODUCER_STATE)
    for field in _SNAPSHOT_FIELDS:
        states[field] = -1
    states["producer_id"] = producer_ids
    states["offset_delta"] = 0
    return states


def _scan_end(failure: ProducerFailure, event: np.void) -> ScanEnd:
    reason, detail = _FAILURES[failure]
    detail = detail.format(producer_id=int(event["producer_id"]), offset=int(event["first_offset"]))
    return ScanEnd(Status.QUARANTINED, reason, int(event["position"]), detail)
