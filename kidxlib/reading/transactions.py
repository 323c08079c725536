"""Which transactions of partitions were aborted, and up to where all are decided.

No `.txnindex` is asked: nothing shows that one is of these logs as they are, and one that is missing does not mean that
nothing was aborted. Logs are scanned, their checksums too, as a broker's recovery does it; or a catalog has what such a
scan found in the log as it is. Where a log grows, what was scanned once is not scanned again. Transactions that began
before the first record that is there are known from where they go on.

All logs up to the last offset that is asked for count: in each a transaction may begin that never ends, and nothing
from there on is stable. Of those after it, as many count as it takes to see how the transactions end that were open.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kidxlib.errors import DamagedLogError
from kidxlib.format import layouts
from kidxlib.format.segment_files import OFFSET_MAX
from kidxlib.reading.aborted import AbortedRanges
from kidxlib.reading.known_logs import KnownEvents, KnownLog
from kidxlib.reading.places import PartitionLogs
from kidxlib.recovery.options import RecoverOptions
from kidxlib.recovery.outcome import Status
from kidxlib.recovery.past_end import is_unfinished, next_whole_batch
from kidxlib.recovery.producers import Producers
from kidxlib.recovery.scan.scan_state import EventKind
from kidxlib.recovery.segment import recover
from kidxlib.storage.log_bytes import LogBytes, LogTail
from kidxlib.storage.opened_log import opened_log

#: With so large an interval there is no index point, and nothing that is wrong with an index.
_WITHOUT_INDEXES: Final = RecoverOptions(interval_bytes=layouts.SEGMENT_BYTES_MAX)
_MARKERS: Final = (EventKind.COMMIT, EventKind.ABORT)
#: A catalog has fewer events than there are batches in transactions, and an event takes 200 bytes, about.
_BATCHES_AT_ONCE: Final = 500_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LogToScan:
    """A segment's log. It can be pickled.

    Attributes:
        size: so many bytes of it are scanned, but for those before `position`.
        is_last: no other segment follows.
        end_offset: what happens there and later does not count.
        goes_on: after damage.
        known: what a catalog knows of it; None where it has to be scanned.
        position: where a batch starts; what stands before it was scanned.
    """

    path: str
    base_offset: int
    size: int
    is_last: bool
    end_offset: int
    goes_on: bool
    known: KnownLog | None = None
    position: int = 0

    @property
    def log_bytes(self) -> int:
        """Bytes of it that a scan reads."""
        return self.size - self.position


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionToScan:
    """A partition whose transactions are asked for.

    Attributes:
        logs: in their order.
        end_offset: what happens there and later does not count: the high watermark, or no limit.
        last_offset: no record with a later offset is asked for.
    """

    logs: Sequence[LogToScan]
    end_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True)
class Transactions:
    """What is known of a partition's transactions, as far as it matters to the offsets that are asked for.

    Attributes:
        last_stable_offset: all that began below it are decided.
        aborted: those that were aborted.
    """

    last_stable_offset: int
    aborted: AbortedRanges


@dataclass(frozen=True, slots=True)
class ScannedPiece:
    """What producers did in a log, or in a part of one that is damaged.

    Attributes:
        events: of dtype `PRODUCER_EVENT`.
        damage: where and why it ends before the log does; None where it does not.
    """

    events: NDArray[np.void]
    damage: str | None = None


#: The pieces of a log, in order.
ScannedLog: TypeAlias = Sequence[ScannedPiece]
#: Scans logs, in whatever processes, and gives what it finds in their order.
ScanLogs: TypeAlias = Callable[[Sequence[LogToScan]], Generator[ScannedLog, None, None]]
_Asked: TypeAlias = tuple["_Partition", LogToScan]


def transactions_of(
    partitions: Sequence[PartitionToScan], scan: ScanLogs, known_events: KnownEvents | None
) -> list[Transactions]:
    """The transactions of each partition.

    Args:
        scan: is given all logs at once of which it is clear that they are needed.
        known_events: what a catalog has of logs that are known; None where there is no catalog.
    """
    folds = [_Partition(partition) for partition in partitions]
    asked = [(fold, log) for fold in folds for log in fold.logs_asked_for()]
    further = 1
    while asked:
        for piece in _at_once(asked):
            _add(piece, scan, known_events)
        asked = [(fold, log) for fold in folds for log in fold.logs_further(further)]
        further *= 2
    return [fold.transactions() for fold in folds]


def scan_in_threads(threads: int) -> ScanLogs:
    """Scans logs by threads of this process."""

    def scan(logs: Sequence[LogToScan]) -> Generator[ScannedLog, None, None]:
        pool = ThreadPoolExecutor(threads, thread_name_prefix="kidx-scan")
        try:
            yield from pool.map(scan_log, logs)
        finally:
            pool.shutdown(cancel_futures=True)

    return scan


def scan_log(log: LogToScan) -> ScannedLog:
    """What producers did in a log. Where it goes on after damage, of a transaction that is open where batches are lost
    nobody knows what became of it: it counts as aborted.
    """
    with opened_log(log.path) as opened:
        return list(_pieces(log, opened.log(log.size, use_mmap=False)))


def _add(asked: Sequence[_Asked], scan: ScanLogs, known_events: KnownEvents | None) -> None:
    """Add logs to folds, in their order: what a catalog has of them, or what a scan finds."""
    events: list[NDArray[np.void] | None] = [None] * len(asked)
    if known_events is not None:
        known = [(place, log.known) for place, (_, log) in enumerate(asked) if log.known is not None]
        for (place, _), found in zip(known, known_events.of([log for _, log in known]), strict=True):
            events[place] = found
    to_scan = [log for (_, log), found in zip(asked, events, strict=True) if found is None]
    with closing(scan(to_scan)) as scanned:
        for (fold, log), found in zip(asked, events, strict=True):
            for piece in next(scanned) if found is None else [ScannedPiece(found)]:
                fold.add(log, piece)


def _at_once(asked: Sequence[_Asked]) -> Iterator[Sequence[_Asked]]:
    """Logs whose events a catalog gives at a time, all of them in memory, with those between them."""
    piece: list[_Asked] = []
    batches = 0
    for fold, log in asked:
        piece.append((fold, log))
        batches += 0 if log.known is None else log.known.row.transactional_batches or 0
        if batches >= _BATCHES_AT_ONCE:
            yield piece
            piece, batches = [], 0
    if piece:
        yield piece


class _Partition:
    """The transactions of one partition, brought forward log by log."""

    def __init__(self, partition: PartitionToScan) -> None:
        self._end_offset, self._last_offset = partition.end_offset, partition.last_offset
        self._left = deque(partition.logs)
        self._fold = TransactionFold()

    def logs_asked_for(self) -> Iterator[LogToScan]:
        """The logs up to the last offset that is asked for."""
        while self._left and self._left[0].base_offset <= self._last_offset:
            yield self._left.popleft()

    def logs_further(self, count: int) -> Iterator[LogToScan]:
        """So many logs after these, if a transaction is open that is asked for."""
        if self._is_open:
            for _ in range(min(count, len(self._left))):
                yield self._left.popleft()

    def add(self, log: LogToScan, piece: ScannedPiece) -> None:
        if log.base_offset <= self._last_offset or self._is_open:  # else it was asked for together with others
            events = piece.events[piece.events["first_offset"] < self._end_offset]
            self._fold.add(log, ScannedPiece(events, piece.damage))

    def transactions(self) -> Transactions:
        return self._fold.transactions(self._end_offset)

    @property
    def _is_open(self) -> bool:
        """Whether a transaction is open that is asked for."""
        return min(self._fold.undecided, default=OFFSET_MAX) <= self._last_offset


class TransactionFold:
    """The transactions of one partition, brought forward by what producers did in its logs, in their order."""

    def __init__(self) -> None:
        self._producers = Producers()
        self._aborted: list[NDArray[np.int64]] = []
        self._in_doubt: set[int] = set()

    def add(self, log: LogToScan, piece: ScannedPiece) -> None:
        if piece.damage is not None and not log.goes_on:
            raise DamagedLogError(
                f"{log.path}: {piece.damage}; which transactions were aborted cannot be told. "
                "--skip-damage (in Python on_damage='skip') leaves out those that are open there"
            )
        events = piece.events.copy()
        for producer in sorted(self._in_doubt):
            markers = np.flatnonzero(np.isin(events["kind"], _MARKERS) & (events["producer_id"] == producer))
            if len(markers):
                events["kind"][markers[0]] = EventKind.ABORT
                self._in_doubt.remove(producer)
        applied = self._producers.apply(events)
        if applied.failure is not None:
            raise DamagedLogError(f"{log.path}: byte {applied.failure.position}: {applied.failure.detail}")
        columns = (applied.aborted[name] for name in ("producer_id", "first_offset", "last_offset"))
        self._aborted.append(np.stack([column.astype(np.int64) for column in columns], axis=1))
        if piece.damage is not None:
            self._in_doubt |= {producer for producer, _ in self._producers.open_transactions}

    def forget_before(self, offset: int) -> None:
        """Nothing before an offset will be asked for, so transactions that were aborted before it do not count."""
        aborted = np.concatenate([np.empty((0, 3), np.int64), *self._aborted])
        self._aborted = [aborted[aborted[:, 2] >= offset]]

    def transactions(self, end_offset: int) -> Transactions:
        """The transactions, if no record from an offset on is asked for."""
        ongoing = self._producers.open_transactions
        lost = [(producer, first, OFFSET_MAX) for producer, first in ongoing if producer in self._in_doubt]
        aborted = np.concatenate([*self._aborted, np.array(lost, np.int64).reshape(-1, 3)])
        return Transactions(min([end_offset, *self.undecided]), AbortedRanges.of(aborted))

    @property
    def undecided(self) -> list[int]:
        """First offsets of the open transactions, but for those that count as aborted."""
        return [first for producer, first in self._producers.open_transactions if producer not in self._in_doubt]


def _pieces(log: LogToScan, content: LogBytes) -> Iterator[ScannedPiece]:
    position, next_offset = log.position, log.base_offset
    while True:
        found = recover(LogTail(content, position), log.base_offset, _WITHOUT_INDEXES)
        end, at = found.end, position + found.end.position
        next_offset = max(next_offset, found.facts.next_offset) if found.facts.batches else next_offset
        is_whole = end.status is Status.OK or next_offset >= log.end_offset
        if is_whole or (log.is_last and is_unfinished(content, at, log.base_offset, next_offset)):
            yield ScannedPiece(found.producer_events)
            return
        yield ScannedPiece(found.producer_events, f"byte {at}: {end.reason}: {end.detail}")
        after = next_whole_batch(content, at + 1, next_offset, OFFSET_MAX) if log.goes_on else None
        if after is None:
            return
        position = after


class FollowedTransactions:
    """What `transactions_of` tells, of one partition that is asked about again and again."""

    def __init__(self, *, goes_on: bool) -> None:
        """
        Args:
            goes_on: after damage, see `LogToScan`.
        """
        self._goes_on = goes_on
        self._fold = TransactionFold()
        self._next_offset = -1

    def up_to(self, logs: PartitionLogs, end_offset: int, *, since: int) -> Transactions:
        """The transactions as they are if the log ends there.

        Args:
            end_offset: not beyond the last whole batch.
            since: nothing before this offset is asked for, now and later.
        """
        if end_offset < self._next_offset:  # the log was truncated, or its high watermark is an older one
            self._fold, self._next_offset = TransactionFold(), -1
        for part in logs.parts(self._next_offset, end_offset) if end_offset > self._next_offset else ():
            log = LogToScan(
                path=str(part.path),
                base_offset=part.base_offset,
                size=part.end,
                is_last=False,
                end_offset=end_offset,
                goes_on=self._goes_on,
                position=part.start,
            )
            for piece in scan_log(log):
                self._fold.add(log, piece)
        self._next_offset = end_offset
        self._fold.forget_before(since)
        return self._fold.transactions(end_offset)
