"""Finds which transactions of partitions were aborted, and the last stable offset.

`.txnindex` files are not used: nothing shows that one belongs to the present log, and a missing one does not mean that
nothing was aborted. Instead, logs are scanned with their checksums, as a broker's recovery does; or a catalog has the
result of such a scan of the same log. If a log grows, only the new part is scanned. A transaction that began before the
first record of the log counts from its first record in the log.

All logs up to the last wanted offset are scanned: a transaction that never ends may begin in any of them, and nothing
from its start on is stable. Later logs are scanned only until the transactions that are open at that offset have ended.
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
from kidxlib.format.segment_files import OFFSET_MAX
from kidxlib.reading.aborted_ranges import AbortedRanges
from kidxlib.reading.cataloged_logs import CatalogedEvents, CatalogedLog
from kidxlib.reading.positions import JoinedLogs
from kidxlib.recovery.options import WITHOUT_INDEXES
from kidxlib.recovery.outcome import Status
from kidxlib.recovery.partition_fold import Producers
from kidxlib.recovery.past_end import is_unfinished_append, next_whole_batch
from kidxlib.recovery.recover import recover
from kidxlib.recovery.scan.scan_state import EventKind
from kidxlib.storage.log_bytes import Access, LogBytes, LogTail
from kidxlib.storage.opened_log import opened_log

_MARKERS: Final = (EventKind.COMMIT, EventKind.ABORT)
#: The events of about so many transactional batches are read from a catalog at a time. There are fewer events than
#: batches, and an event takes about 200 bytes.
_BATCHES_AT_ONCE: Final = 500_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LogToScan:
    """A segment's log to scan for producer events. It can be pickled.

    Attributes:
        size: the byte at which the scan ends.
        is_last: whether no segment follows.
        first_offset: events before this offset do not count: another segment has them, too.
        end_offset: events at this offset and later do not count.
        goes_on: whether the scan goes on after damage.
        known: the catalog's facts of the log; None if it must be scanned, as where `first_offset` is within the log: a
            catalog does not say where the data of a transaction ends.
        position: the start of the batch at which the scan begins; bytes before it were scanned already.
    """

    path: str
    base_offset: int
    size: int
    is_last: bool
    end_offset: int
    goes_on: bool
    known: CatalogedLog | None = None
    position: int = 0
    first_offset: int = 0

    @property
    def log_bytes(self) -> int:
        """How many bytes of the log are scanned for transactions."""
        return self.size - self.position

    def events_that_count(self, events: NDArray[np.void]) -> NDArray[np.void]:
        """The events from `first_offset` to below `end_offset`. An event that crosses one of them counts as a whole: if
        its transaction began earlier, the segment before has it too, unless it is gone; later data is not committed.
        """
        last_offsets = np.maximum(events["first_offset"], events["last_offset"])
        that_count: NDArray[np.void] = events[
            (events["first_offset"] < self.end_offset) & (last_offsets >= self.first_offset)
        ]
        return that_count


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionToScan:
    """A partition whose transactions are wanted, with its logs in order.

    Attributes:
        end_offset: events at this offset and later do not count: the high watermark, or no limit.
        last_offset: the last wanted offset.
    """

    logs: Sequence[LogToScan]
    end_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True)
class Transactions:
    """A partition's transactions that matter to the wanted offsets.

    Attributes:
        last_stable_offset: all transactions that began below this offset have ended.
    """

    last_stable_offset: int
    aborted: AbortedRanges


@dataclass(frozen=True, slots=True)
class _ScannedPiece:
    """The producer events in a log, or in the part of a damaged log between two damages.

    Attributes:
        events: of dtype `PRODUCER_EVENT`.
        damage: where and why the piece ends before the log does; None if it reaches the log's end.
    """

    events: NDArray[np.void]
    damage: str | None = None


#: The pieces of a log, in order.
ScannedLog: TypeAlias = Sequence[_ScannedPiece]
#: Scans logs, perhaps in other processes, and gives the results in the order of the logs.
ScanLogs: TypeAlias = Callable[[Sequence[LogToScan]], Generator[ScannedLog, None, None]]
_Request: TypeAlias = tuple["_PartitionTransactions", LogToScan]


def transactions_of(
    partitions: Sequence[PartitionToScan], scan: ScanLogs, known_events: CatalogedEvents | None
) -> list[Transactions]:
    """The transactions of each partition. `scan` gets all logs at once that are sure to be needed. `known_events` has
    the events of logs that a catalog knows; None if there is no catalog.
    """
    folds = [_PartitionTransactions(partition) for partition in partitions]
    requests = [(fold, log) for fold in folds for log in fold.needed_logs()]
    count = 1
    while requests:
        for group in _groups(requests):
            _add_events(group, scan, known_events)
        requests = [(fold, log) for fold in folds for log in fold.next_logs(count)]
        count *= 2
    return [fold.transactions() for fold in folds]


def scan_in_threads(threads: int) -> ScanLogs:
    """A function that scans logs with threads of this process."""

    def scan(logs: Sequence[LogToScan]) -> Generator[ScannedLog, None, None]:
        pool = ThreadPoolExecutor(threads, thread_name_prefix="kidx-scan")
        try:
            yield from pool.map(scan_for_transactions, logs)
        finally:
            pool.shutdown(cancel_futures=True)

    return scan


def scan_for_transactions(log: LogToScan) -> ScannedLog:
    """The producer events in a log, by piece. If the scan goes on after damage, a transaction that is open there counts
    as aborted: its end may be lost.
    """
    with opened_log(log.path) as opened:
        return list(_pieces(log, opened.log(log.size, use_mmap=False, access=Access.SEQUENTIAL)))


def _add_events(requests: Sequence[_Request], scan: ScanLogs, known_events: CatalogedEvents | None) -> None:
    """Add the events of logs to folds in the order of the logs; a catalog has them, or a scan finds them."""
    cataloged: list[NDArray[np.void] | None] = [None] * len(requests)
    if known_events is not None:
        known = [(number, log.known) for number, (_, log) in enumerate(requests) if log.known is not None]
        for (number, _), events in zip(known, known_events.of_logs([log for _, log in known]), strict=True):
            cataloged[number] = events
    to_scan = [log for (_, log), events in zip(requests, cataloged, strict=True) if events is None]
    with closing(scan(to_scan)) as scanned:
        for (fold, log), events in zip(requests, cataloged, strict=True):
            for piece in next(scanned) if events is None else [_ScannedPiece(events)]:
                fold.add_piece(log, piece)


def _groups(requests: Sequence[_Request]) -> Iterator[Sequence[_Request]]:
    """Groups of consecutive logs. The events of a group are read from a catalog at once, and fit into memory."""
    group: list[_Request] = []
    batches = 0
    for fold, log in requests:
        group.append((fold, log))
        batches += 0 if log.known is None else log.known.row.transactional_batches or 0
        if batches >= _BATCHES_AT_ONCE:
            yield group
            group, batches = [], 0
    if group:
        yield group


class _PartitionTransactions:
    """The transactions of one partition, updated log by log."""

    def __init__(self, partition: PartitionToScan) -> None:
        self._end_offset, self._last_offset = partition.end_offset, partition.last_offset
        self._logs_left = deque(partition.logs)
        self._fold = _TransactionFold()

    def needed_logs(self) -> Iterator[LogToScan]:
        """The logs up to the last wanted offset."""
        while self._logs_left and self._logs_left[0].base_offset <= self._last_offset:
            yield self._logs_left.popleft()

    def next_logs(self, count: int) -> Iterator[LogToScan]:
        """The next `count` logs, if a wanted transaction is still open."""
        if self._has_open:
            for _ in range(min(count, len(self._logs_left))):
                yield self._logs_left.popleft()

    def add_piece(self, log: LogToScan, piece: _ScannedPiece) -> None:
        if log.base_offset <= self._last_offset or self._has_open:  # else the log turned out not to be needed
            self._fold.add_piece(log, _ScannedPiece(log.events_that_count(piece.events), piece.damage))

    def transactions(self) -> Transactions:
        return self._fold.transactions(self._end_offset)

    @property
    def _has_open(self) -> bool:
        return min(self._fold.undecided, default=OFFSET_MAX) <= self._last_offset


class _TransactionFold:
    """The transactions of one partition, updated by the producer events of its logs in order."""

    def __init__(self) -> None:
        self._producers = Producers()
        self._aborted: list[NDArray[np.int64]] = []
        self._in_doubt: set[int] = set()  # producers whose transaction was open at damage

    def add_piece(self, log: LogToScan, piece: _ScannedPiece) -> None:
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
        """Drop aborted transactions that ended before an offset: no earlier offset will be wanted."""
        aborted = np.concatenate([np.empty((0, 3), np.int64), *self._aborted])
        self._aborted = [aborted[aborted[:, 2] >= offset]]

    def transactions(self, end_offset: int) -> Transactions:
        """The transactions that matter to records below an offset."""
        still_open = self._producers.open_transactions
        in_doubt = [(producer, first, OFFSET_MAX) for producer, first in still_open if producer in self._in_doubt]
        aborted = np.concatenate([*self._aborted, np.array(in_doubt, np.int64).reshape(-1, 3)])
        return Transactions(min([end_offset, *self.undecided]), AbortedRanges.from_transactions(aborted))

    @property
    def undecided(self) -> list[int]:
        """The first offsets of open transactions, without those that count as aborted."""
        return [first for producer, first in self._producers.open_transactions if producer not in self._in_doubt]


def _pieces(log: LogToScan, content: LogBytes) -> Iterator[_ScannedPiece]:
    position, next_offset = log.position, log.base_offset
    while True:
        scanned = recover(LogTail(content, position), log.base_offset, WITHOUT_INDEXES)
        end, end_position = scanned.end, position + scanned.end.position
        next_offset = max(next_offset, scanned.facts.next_offset) if scanned.facts.batches else next_offset
        is_whole = end.status is Status.OK or next_offset >= log.end_offset
        if is_whole or (log.is_last and is_unfinished_append(content, end_position, log.base_offset, next_offset)):
            yield _ScannedPiece(scanned.producer_events)
            return
        yield _ScannedPiece(scanned.producer_events, f"byte {end_position}: {end.reason}: {end.detail}")
        if not log.goes_on:
            return
        next_position = next_whole_batch(content, end_position + 1, next_offset, OFFSET_MAX)
        if next_position is None:
            return
        position = next_position


class FollowedTransactions:
    """The transactions of one partition, for a stream, which asks for them repeatedly as the log grows."""

    def __init__(self, *, goes_on: bool) -> None:
        self._goes_on = goes_on
        self._fold = _TransactionFold()
        self._next_offset = -1

    def up_to(self, logs: JoinedLogs, end_offset: int, *, since: int) -> Transactions:
        """The transactions, as if the log ended at `end_offset`, which is not beyond the last whole batch. No offset
        before `since` may be wanted, now or later.
        """
        if end_offset < self._next_offset:  # the log was truncated, or the high watermark went back
            self._fold, self._next_offset = _TransactionFold(), -1
        for log, start, end in logs.parts(self._next_offset, end_offset) if end_offset > self._next_offset else ():
            to_scan = LogToScan(
                path=str(log.path),
                base_offset=log.base_offset,
                size=end,
                is_last=False,
                end_offset=end_offset,
                goes_on=self._goes_on,
                position=start,
            )
            for piece in scan_for_transactions(to_scan):
                self._fold.add_piece(to_scan, piece)
        self._next_offset = end_offset
        self._fold.forget_before(since)
        return self._fold.transactions(end_offset)
