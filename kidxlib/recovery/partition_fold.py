"""Folds a partition's segments in their order: aborted transactions, producers (`Producers`), leader epochs.

Each segment's scan returns its producer events and leader epochs (`kidxlib.recovery.recover`); the fold applies them
and opens no log. The result is right if the fold starts from a known state: the start of the log, or a producer
snapshot that the broker left at a segment's base offset. After an offset gap, or a segment with problems, the state is
unknown until the next such snapshot. Transactions may be missing then, or seem to begin later than they did, as in a
broker that recovers the same files.

A broker that recovers a segment drops the snapshots after its base offset (`ProducerStateManager.truncateAndReload`),
and continues from the batches that it has read, also over gaps. It does not know lost batches, even if a snapshot did.

The state of a producer is the one in a `.snapshot`. Kafka keeps up to five batches of each producer in memory, but only
the last one is written. Producers never expire here. A broker that loads a snapshot drops producers without an open
transaction whose last batch is older than `producer.id.expiration.ms`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from kidxlib.errors import SnapshotError
from kidxlib.format import layouts
from kidxlib.format.checkpoint_files import EpochEntry, LeaderEpochs
from kidxlib.format.checksums import crc32c
from kidxlib.format.producer_snapshot import CRC_COVERS_FROM, read_snapshot
from kidxlib.recovery import producer_kernel
from kidxlib.recovery.outcome import ScanEnd, Status
from kidxlib.recovery.producer_kernel import ProducerFailure
from kidxlib.recovery.recover import RecoveredSegment, ScannedLogs
from kidxlib.recovery.scan.scan_state import LEADER_EPOCH, PRODUCER_EVENT, EndReason, EventKind


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
        return [first_offset for _, first_offset in self.open_transactions]

    @property
    def open_transactions(self) -> list[tuple[int, int]]:
        """The producers of the ongoing transactions, each with the transaction's first offset."""
        transactions: list[tuple[int, int]] = self._ongoing[["producer_id", "first_offset"]].tolist()
        return transactions

    @property
    def are_told_by_snapshot(self) -> bool:
        """Whether `from_snapshot` of `snapshot` has the same state. It has not if transactions of two producers began
        at the same offset: Kafka keeps only one of them in memory (`ProducerStateManager.ongoingTxns`).
        """
        open_ones = self._states[self._states["in_transaction"] == 1]
        told = open_ones[["producer_id", "current_transaction_first_offset"]].tolist()
        return sorted(told) == sorted(self.open_transactions)

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


#: Why a segment is quarantined whose leader epochs Kafka fails on.
NEGATIVE_EPOCH_OFFSET: Final = "negative-leader-epoch-offset"

#: For a segment that was not read, or that has no producers.
NO_EVENTS: Final = np.empty(0, PRODUCER_EVENT)
_NO_EPOCHS: Final = np.empty(0, LEADER_EPOCH)


class StateSource(enum.StrEnum):
    """Where the state of producers at a segment's base offset comes from."""

    LOG_START = "log-start"  # every batch from offset 0 on
    SNAPSHOT = "snapshot"  # a valid .snapshot at or below the base offset, and every batch since
    UNKNOWN = "unknown"  # only the segments at hand


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannedSegment:
    """A scanned segment, as the fold over its partition needs it.

    Attributes:
        problem_free: it was read to the end of its log and has no problems.
        next_offset, map_end_offset: as in `SegmentFacts`; None if the segment was not read.
        producer_events: of dtype `scan_state.PRODUCER_EVENT`.
        leader_epochs: of dtype `scan_state.LEADER_EPOCH`.
    """

    base_offset: int
    problem_free: bool
    next_offset: int | None
    map_end_offset: int | None
    producer_events: NDArray[np.void]
    leader_epochs: NDArray[np.void]

    @classmethod
    def of(cls, base_offset: int, recovered: RecoveredSegment | None) -> Self:
        """A segment from its scan; None: the log was not read to the end."""
        return cls(
            base_offset=base_offset,
            problem_free=recovered is not None and recovered.end.status is Status.OK,
            next_offset=recovered.facts.next_offset if recovered else None,
            map_end_offset=recovered.facts.map_end_offset if recovered else None,
            producer_events=recovered.producer_events if recovered else NO_EVENTS,
            leader_epochs=recovered.leader_epochs if recovered else _NO_EPOCHS,
        )

    @classmethod
    def of_scans(cls, base_offset: int, scans: ScannedLogs, number: int) -> Self:
        """A segment from its scan among others."""
        state = scans.states[number]
        return cls(
            base_offset=base_offset,
            problem_free=bool(state["end"] == EndReason.END_OF_FILE),
            next_offset=int(state["next_offset"]),
            map_end_offset=int(state["map_end_offset"]),
            producer_events=scans.of_log("producer_events", number),
            leader_epochs=scans.of_log("leader_epochs", number),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainSegments:
    """Segments by columns, in the order of their base offsets, at least one. They were read to the end of their logs,
    and have no problems, no producers and no leader epoch that begins below offset 0.

    Attributes:
        base_offsets, next_offsets, map_end_offsets: as in `ScannedSegment`, int64 of shape (n,).
        leader_epochs: those of all segments, of dtype `scan_state.LEADER_EPOCH`.
        epoch_bounds: where those of each segment begin, and where the last ones end; int64 of shape (n + 1,).
    """

    base_offsets: NDArray[np.int64]
    next_offsets: NDArray[np.int64]
    map_end_offsets: NDArray[np.int64]
    leader_epochs: NDArray[np.void]
    epoch_bounds: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.base_offsets)

    def segment(self, number: int) -> ScannedSegment:
        """The scanned segment with this number, from 0 on, as the fold takes it."""
        return ScannedSegment(
            base_offset=int(self.base_offsets[number]),
            problem_free=True,
            next_offset=int(self.next_offsets[number]),
            map_end_offset=int(self.map_end_offsets[number]),
            producer_events=NO_EVENTS,
            leader_epochs=self.leader_epochs[self.epoch_bounds[number] : self.epoch_bounds[number + 1]],
        )

    def part(self, start: int, end: int) -> PlainSegments:
        """The scanned segments from one number up to another, which is left out."""
        bounds = self.epoch_bounds[start : end + 1]
        return PlainSegments(
            base_offsets=self.base_offsets[start:end],
            next_offsets=self.next_offsets[start:end],
            map_end_offsets=self.map_end_offsets[start:end],
            leader_epochs=self.leader_epochs[bounds[0] : bounds[-1]],
            epoch_bounds=bounds - bounds[0],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldedSegment:
    """The result of folding a segment.

    Attributes:
        state_source: where the state at the base offset comes from.
        snapshot: a producer snapshot of that state.
        aborted: the transactions aborted in the segment, of dtype `layouts.ABORTED_TRANSACTION`.
        failure: where and why Kafka fails on the producers or leader epochs; None: it does not.
    """

    base_offset: int
    state_source: StateSource
    snapshot: bytes
    aborted: NDArray[np.void]
    failure: ScanEnd | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldState:
    """The state of a fold after some segments, from which another fold can continue.

    Attributes:
        base_offset: the last segment's.
        source: where the state after that segment comes from.
        expected_offset: where the next segment begins if no offset is missing; None: not known.
        map_end_offset, epochs_are_known: as in `PartitionFold`.
        snapshot: a producer snapshot of the state.
        leader_epochs: the epochs of the segments.
    """

    base_offset: int
    source: StateSource
    expected_offset: int | None
    map_end_offset: int
    epochs_are_known: bool
    snapshot: bytes
    leader_epochs: tuple[EpochEntry, ...]


class PartitionFold:
    """A fold over one partition's segments.

    Args:
        snapshot_at: returns the bytes of the `.snapshot` at an offset; None: there is none.
        start: the state after the segments before the added ones; None: there are none.
        recovered: base offsets of the segments that a broker recovers. From the first of them on it uses no snapshots.

    Attributes:
        leader_epochs: the epochs of the segments so far.
        epochs_are_known: no segment is missing from the start of the log, so these are all epochs.
        end_source: where the state after the last segment comes from.
        map_end_offset: names the snapshot after the last segment (`ProducerStateManager.mapEndOffset`).
    """

    def __init__(
        self,
        snapshot_at: Callable[[int], bytes | None],
        start: FoldState | None = None,
        recovered: Collection[int] = (),
    ) -> None:
        self._snapshot_at, self._recovered, self._goes_on = snapshot_at, recovered, False
        self._base_offset = None if start is None else start.base_offset
        self._producers = Producers() if start is None else Producers.from_snapshot(start.snapshot)
        self.end_source = StateSource.LOG_START if start is None else start.source
        self._expected_offset = 0 if start is None else start.expected_offset
        self.map_end_offset = 0 if start is None else start.map_end_offset
        self.leader_epochs = LeaderEpochs(() if start is None else start.leader_epochs)
        self.epochs_are_known = start is None or start.epochs_are_known

    @property
    def state(self) -> FoldState | None:
        """The state after the segments so far; None if there are none, or a snapshot cannot hold the state."""
        if self._base_offset is None or not self._producers.are_told_by_snapshot:
            return None
        return FoldState(
            base_offset=self._base_offset,
            source=self.end_source,
            expected_offset=self._expected_offset,
            map_end_offset=self.map_end_offset,
            epochs_are_known=self.epochs_are_known,
            snapshot=self._producers.snapshot(),
            leader_epochs=self.leader_epochs.entries,
        )

    @property
    def ongoing(self) -> list[int]:
        """The first offsets of the ongoing transactions after the last segment."""
        return self._producers.ongoing

    @property
    def end_snapshot(self) -> bytes:
        """A snapshot of the producers after the last segment."""
        return self._producers.snapshot()

    def add(self, segment: ScannedSegment) -> FoldedSegment:
        """Fold the segment with the next higher base offset."""
        self._begin_segment(segment.base_offset)
        source, snapshot = self.end_source, self._producers.snapshot()

        epoch_failure = self._assign_epochs(segment.leader_epochs)
        events = segment.producer_events
        if epoch_failure is not None:
            events = events[events["position"] < epoch_failure.position]
        applied = self._producers.apply(events)
        failure = applied.failure or epoch_failure

        self._goes_on = self._goes_on or segment.base_offset in self._recovered
        self._base_offset = segment.base_offset
        self._expected_offset = segment.next_offset
        self.map_end_offset = segment.base_offset if segment.map_end_offset is None else segment.map_end_offset
        if failure is not None or not segment.problem_free:
            self.epochs_are_known, self.end_source = False, StateSource.UNKNOWN
        return FoldedSegment(
            base_offset=segment.base_offset,
            state_source=source,
            snapshot=snapshot,
            aborted=applied.aborted,
            failure=failure,
        )

    def add_plain(self, segments: PlainSegments) -> list[StateSource]:
        """`add` of segments that follow each other. Returns where the state at each base offset comes from; the
        producers do not change, but where a snapshot is loaded.
        """
        sources = []
        for base_offset, next_offset in zip(
            segments.base_offsets.tolist(), segments.next_offsets.tolist(), strict=True
        ):
            self._begin_segment(base_offset)
            sources.append(self.end_source)
            self._goes_on = self._goes_on or base_offset in self._recovered
            self._expected_offset = next_offset
        epochs, last = segments.leader_epochs, self.leader_epochs.last
        highest = np.maximum.accumulate(epochs["epoch"])
        begun = np.concatenate([[True], highest[1:] > highest[:-1]])[: len(epochs)]
        if last is not None:
            begun &= highest > last.epoch
        self._assign_epochs(epochs[begun])
        self._base_offset = int(segments.base_offsets[-1])
        self.map_end_offset = int(segments.map_end_offsets[-1])
        return sources

    def _begin_segment(self, base_offset: int) -> None:
        """Find the state at the base offset of the next segment."""
        if base_offset != self._expected_offset:
            self.epochs_are_known = False
            if not self._goes_on:
                self.end_source = StateSource.UNKNOWN
        if self.end_source is StateSource.UNKNOWN:
            self._load_snapshot(base_offset)

    def _load_snapshot(self, offset: int) -> None:
        data = self._snapshot_at(offset)
        if data is None:
            return
        try:
            self._producers = Producers.from_snapshot(data)
        except SnapshotError:
            return  # Kafka deletes the snapshot and continues without it
        self.end_source = StateSource.SNAPSHOT

    def _assign_epochs(self, leader_epochs: NDArray[np.void]) -> ScanEnd | None:
        for epoch, start_offset, position in leader_epochs.tolist():
            if not self.leader_epochs.is_new_epoch(epoch):
                continue
            if start_offset < 0:
                return ScanEnd(
                    Status.QUARANTINED,
                    NEGATIVE_EPOCH_OFFSET,
                    position,
                    f"leader epoch {epoch} begins at offset {start_offset}, expected 0 or more; Kafka fails here",
                )
            self.leader_epochs.assign(epoch, start_offset)
        return None
