"""Scans logs: their index bytes, the facts for the catalog, the checksum of each whole log, and why each scan ended.
Many logs are scanned in one pass (`scan_logs`): what is found of them are columns, a row a log or an entry, from the
compiled loop to the catalog's table (`ScannedLogs`). `recover` scans one segment's log.

Both return byte for byte what `LogSegment.recover` of Kafka writes into `.index` and `.timeindex`, without truncating
the log. If Kafka would fail, the scan ends as `quarantined` and its bytes must not be published. Producers and leader
epochs depend on earlier segments, so scans return events for `kidxlib.recovery.partition_fold`.

Of a large segment, several threads check the checksums of sections, then one scan reads the headers
(`recover_in_sections`). This helps if batches are large. If they are small, the headers alone take as long as all the
bytes: each header says where the next one is, so the scan must wait for memory. A section need not start with a batch.
It counts only if it starts where the section before it ended; the scan checks all other sections itself. So the result
is that of `recover`, wherever sections begin.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from kidxlib.format import layouts
from kidxlib.recovery import check_kernel
from kidxlib.recovery.check_kernel import joined_crc32c
from kidxlib.recovery.facts import (
    FactCells,
    SegmentFacts,
    codecs_of,
    empty_facts,
    magics_of,
    offset_digests,
    records_by_hour,
    smallest_timestamp,
    smallest_timestamps,
)
from kidxlib.recovery.log_checksums import NOT_KNOWN, batch_checksum, log_crc32c
from kidxlib.recovery.options import RecoverOptions
from kidxlib.recovery.outcome import ScanEnd, Status, scan_end
from kidxlib.recovery.scan import header_facts_kernel as kernel
from kidxlib.recovery.scan import scan_kernel, scan_state
from kidxlib.recovery.scan.scan_kernel import BOUNDS, LOG
from kidxlib.recovery.scan.scan_state import SCAN_STATE, EndReason
from kidxlib.storage.log_bytes import LogBytes, WholeLog

#: How many producer events and leader epochs there is room for at first.
_FIRST_ROOM: Final = 256
#: Bits of the magics without a CRC-32C: 0, 1 and all below 0, which are read as 1. Magics above 62, which have one,
#: share the bit of those below 0. No Kafka writes either, so a log with any gets no checksum.
_OTHER_MAGICS: Final = np.uint64(1 << 0 | 1 << 1 | 1 << 63)

_STATE_FIELDS: Final = tuple(SCAN_STATE.names or ())

#: Starting a thread does not pay for less.
_SECTION_BYTES_MIN: Final = 64 * 1024 * 1024

#: With smaller batches on average, a second pass over their headers costs more than several threads save.
_BATCH_BYTES_MIN: Final = 8 * 1024

#: How many batches the average is taken from.
_SAMPLE: Final = 64

#: How many bytes are searched for a batch; Kafka's batches have at most 1 MiB by default.
_PROBE_BYTES: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ScannedLogs:
    """What was found of logs, by columns: row `i` of these is of log `i`, and the rows of log `i` in the arrays that
    logs share are those from `bounds[i]` to `bounds[i + 1]`.

    Attributes:
        states: of dtype `scan_state.SCAN_STATE`, of shape (n,): where and why each scan ended, and its counts.
        header_facts: of dtype `header_facts_kernel.HEADER_FACTS`, of shape (n,).
        log_crc32c: CRC-32C of each whole log, or `NOT_KNOWN`; of shape (n,).
        bounds: of dtype `scan_kernel.BOUNDS`, of shape (n + 1,).
        offset_index, time_index: the entries of the index files, as the files have them.
        producer_events, leader_epochs: of dtypes `scan_state.PRODUCER_EVENT` and `LEADER_EPOCH`.
        digests, timestamps, hours: of dtypes `OFFSET_DIGEST`, `SMALLEST_TIMESTAMP` and `HOUR_RECORDS` of
            `header_facts_kernel`.
    """

    states: NDArray[np.void]
    header_facts: NDArray[np.void]
    log_crc32c: NDArray[np.int64]
    bounds: NDArray[np.void]
    offset_index: NDArray[np.void]
    time_index: NDArray[np.void]
    producer_events: NDArray[np.void]
    leader_epochs: NDArray[np.void]
    digests: NDArray[np.void]
    timestamps: NDArray[np.void]
    hours: NDArray[np.void]

    def __len__(self) -> int:
        return len(self.states)

    def of_log(self, name: str, number: int) -> NDArray[np.void]:
        """The rows of one log in an array that logs share."""
        rows: NDArray[np.void] = getattr(self, name)
        bounds = self.bounds[name]
        return rows[bounds[number] : bounds[number + 1]]

    def contents(self, name: str) -> list[bytes]:
        """The bytes of each log's `offset_index` or `time_index`."""
        rows: NDArray[np.void] = getattr(self, name)
        ends = (self.bounds[name] * rows.itemsize).tolist()
        content = rows.tobytes()
        return [content[start:end] for start, end in itertools.pairwise(ends)]

    def ends(self) -> list[ScanEnd]:
        """How each scan ended."""
        at_end = EndReason.END_OF_FILE
        positions, reasons = self.states["position"].tolist(), self.states["end"].tolist()
        return [
            ScanEnd(Status.OK, None, position, None) if reason == at_end else scan_end(self.states[number])
            for number, (position, reason) in enumerate(zip(positions, reasons, strict=True))
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveredSegment:
    """A segment as the scan of its log found it, with the bytes of its index files. The index bytes of a quarantined
    one end at the failure and must not be published.

    Attributes:
        end: where and why the scan ended, with the segment's status.
        facts: from the batch headers of the valid prefix.
        odd_position: where the first batch of the valid prefix starts that no broker writes: its offsets are not above
            those before it, or its magic is not 0, 1 or 2. Kafka's recovery accepts it. None: there is none.
        offset_index: the bytes of the `.index`.
        time_index: the bytes of the `.timeindex`.
        producer_events: of shape (n,), in the order of the log, with the fields `position`,
            `producer_id`, `kind`, `producer_epoch`, `first_offset`, `last_offset`, `offset_delta`, `last_sequence`,
            `timestamp` and `coordinator_epoch` (`scan_state.PRODUCER_EVENT`).
        leader_epochs: where the leader epoch changes from batch to batch, of shape (n,), with the fields `epoch`,
            `start_offset` and `position` (`scan_state.LEADER_EPOCH`).
    """

    end: ScanEnd
    facts: SegmentFacts
    odd_position: int | None
    offset_index: bytes
    time_index: bytes
    producer_events: NDArray[np.void]
    leader_epochs: NDArray[np.void]


def scan_logs(
    logs: Sequence[LogBytes],
    base_offsets: Sequence[int],
    options: Sequence[RecoverOptions],
    checked_to: int = 0,
    checked_crc32c: int = 0,
) -> ScannedLogs:
    """Scan logs as `LogSegment.recover` does, without changing them.

    Args:
        logs: the bytes of each `.log`.
        base_offsets: the segments' base offsets, from their file names.
        options: the options of each segment's indexes.
        checked_to: of one log alone: the checksums of all batches that start before this position are known to be
            right.
        checked_crc32c: the CRC-32C of all bytes before that position, if no batch there is of magic 0 or 1.

    Raises:
        LogChangedError: a log shrank while it was read in chunks.
    """
    scan = _Scan.of(logs, base_offsets, options, checked_to, checked_crc32c)
    number = 0
    while (number := scan.go_on(number)) < len(logs):
        state = scan.states[number]
        if state["end"] == EndReason.NEEDS_ROOM:
            scan.make_room()
        position, chunk = _next_chunk(logs[number], state)
        scan.give(number, position, chunk)
    return scan.scanned(_log_checksums(scan, logs, options, checked_to))


def recover(
    log: LogBytes, base_offset: int, options: RecoverOptions, checked_to: int = 0, checked_crc32c: int = 0
) -> RecoveredSegment:
    """Scan a segment's log as `LogSegment.recover` does, without changing it. The arguments are those of `scan_logs`.

    Raises:
        LogChangedError: the log shrank while it was read in chunks.
    """
    return recovered_of(scan_logs([log], [base_offset], [options], checked_to, checked_crc32c), 0)


def recover_in_sections(
    log: LogBytes,
    base_offset: int,
    options: RecoverOptions,
    threads: int,
    offset_index: bytes | None = None,
    section_bytes_min: int = _SECTION_BYTES_MIN,
    batch_bytes_min: int = _BATCH_BYTES_MIN,
) -> RecoveredSegment:
    """Do what `recover` does, with several threads if that is faster: if the log and its batches are large, the whole
    log is in memory, and checksums are to be verified.

    Args:
        threads: the most threads.
        offset_index: an `.index` of this log, whose entries say where batches start. It may be damaged, or another
            log's. If it is missing or wrong, sections begin at batches of magic 2 that a search finds.
    """
    sections_max = min(threads, log.size // section_bytes_min)
    if sections_max < 2 or not options.verify_crc:
        return recover(log, base_offset, options)
    _, data = log.window(0)
    if len(data) < log.size or _average_batch_bytes(data) < batch_bytes_min:
        return recover(log, base_offset, options)
    targets = [log.size * number // sections_max for number in range(1, sections_max)]
    starts = [0, *_section_starts(data, targets, offset_index)]
    with ThreadPoolExecutor(len(starts)) as pool:
        sections = list(pool.map(check_kernel.check_section, itertools.repeat(data), starts, [*starts[1:], log.size]))
    checked_to, crc = 0, 0
    for start, (end, section_crc) in zip(starts, sections, strict=True):
        if start != checked_to:
            break
        checked_to, crc = end, joined_crc32c(crc, section_crc, end - start)
    recovered = recover(log, base_offset, options, checked_to, crc)
    if recovered.facts.valid_bytes < checked_to:  # the checksum is of more than the valid bytes
        return recover(log, base_offset, options)
    return recovered


@dataclass(slots=True)
class _Scan:
    """The arrays that the compiled loop works with, as `scan_kernel.scan_logs_in_turn` names them."""

    logs: NDArray[np.void]
    states: NDArray[np.void]
    header_facts: NDArray[np.void]
    bounds: NDArray[np.void]
    offset_entries: NDArray[np.void]
    time_entries: NDArray[np.void]
    producer_events: NDArray[np.void]
    leader_epochs: NDArray[np.void]
    digests: NDArray[np.void]
    timestamps: NDArray[np.void]
    hours: NDArray[np.void]
    open_events: NDArray[np.int64]
    cells: FactCells
    windows: list[NDArray[np.uint8] | None]  # the bytes at hand, which the loop has by their addresses

    @classmethod
    def of(
        cls,
        logs: Sequence[LogBytes],
        base_offsets: Sequence[int],
        options: Sequence[RecoverOptions],
        checked_to: int,
        checked_crc32c: int,
    ) -> Self:
        """Logs of which nothing was read, with room for all entries of their indexes and for a few events.

        An index has at most one entry for each interval of the file, and for each batch of the smallest size.
        """
        rows: list[tuple[int, ...]] = []
        windows: list[NDArray[np.uint8] | None] = []
        offset_room = time_room = 0
        too_large = []
        of_option: RecoverOptions | None = None  # most logs have the options of the log before
        interval_bytes = max_offset_entries = max_time_entries = 0
        for number, (log, base_offset, option) in enumerate(zip(logs, base_offsets, options, strict=True)):
            size = log.size
            if option is not of_option:
                of_option, interval_bytes = option, option.interval_bytes
                max_offset_entries, max_time_entries = option.max_offset_entries, option.max_time_entries
            room = size // max(interval_bytes + 1, layouts.BATCH_BYTES_MIN) + 1
            offset_room += min(room, max_offset_entries)
            time_room += min(room + 1, max_time_entries)
            trusted_to = checked_to if option.verify_crc else size
            limits = base_offset, size, interval_bytes, max_offset_entries, max_time_entries, trusted_to
            if size > layouts.SEGMENT_BYTES_MAX:
                too_large.append(number)
                windows.append(None)
                rows.append((*limits, 0, 0, 0))
            else:
                position, window = log.window(0)
                windows.append(window)
                address = log.address if isinstance(log, WholeLog) else window.ctypes.data
                rows.append((*limits, address, len(window), position))
        count = len(logs)
        states = scan_state.new_states(base_offsets)
        for number in too_large:
            states[number]["end"] = EndReason.SEGMENT_TOO_LARGE
            states[number]["found"], states[number]["expected"] = logs[number].size, layouts.SEGMENT_BYTES_MAX
        return cls(
            logs=np.array(rows, LOG),
            states=states,
            header_facts=empty_facts([log.size for log in logs], checked_crc32c),
            bounds=np.zeros(count + 1, BOUNDS),
            offset_entries=np.empty(offset_room, scan_state.OFFSET_ENTRY),
            time_entries=np.empty(time_room, scan_state.TIME_ENTRY),
            producer_events=np.empty(_FIRST_ROOM, scan_state.PRODUCER_EVENT),
            leader_epochs=np.empty(count + _FIRST_ROOM, scan_state.LEADER_EPOCH),
            digests=np.empty(count * kernel.DIGESTS, kernel.OFFSET_DIGEST),
            timestamps=np.empty(count * kernel.STRETCHES, kernel.SMALLEST_TIMESTAMP),
            hours=np.empty(count * (kernel.HOUR_ROWS + 1), kernel.HOUR_RECORDS),
            open_events=np.zeros(scan_state.OPEN_EVENT_SLOTS, np.int64),
            cells=FactCells.empty(),
            windows=windows,
        )

    def give(self, number: int, position: int, window: NDArray[np.uint8]) -> None:
        """Give the loop the bytes of a log from a position on."""
        self.windows[number] = window
        self.logs[number : number + 1].view(np.int64)[-3:] = window.ctypes.data, len(window), position

    def go_on(self, first: int) -> int:
        """The number of the log whose scan needs something; the number of logs once all are scanned."""
        return int(
            scan_kernel.scan_logs_in_turn(
                first,
                self.logs,
                self.states,
                self.header_facts,
                self.bounds,
                self.offset_entries,
                self.time_entries,
                self.producer_events,
                self.leader_epochs,
                self.digests,
                self.timestamps,
                self.hours,
                self.open_events,
                self.cells.digests,
                self.cells.stretches,
                self.cells.hours,
            )
        )

    def make_room(self) -> None:
        """Give the events and epochs that logs share twice the room."""
        self.producer_events = _with_twice_the_room(self.producer_events)
        self.leader_epochs = _with_twice_the_room(self.leader_epochs)

    def scanned(self, log_crc32c: NDArray[np.int64]) -> ScannedLogs:
        end = self.bounds[-1]
        return ScannedLogs(
            states=self.states,
            header_facts=self.header_facts,
            log_crc32c=log_crc32c,
            bounds=self.bounds,
            offset_index=self.offset_entries[: end["offset_index"]].astype(layouts.OFFSET_INDEX_ENTRY),
            time_index=self.time_entries[: end["time_index"]].astype(layouts.TIME_INDEX_ENTRY),
            producer_events=self.producer_events[: end["producer_events"]].copy(),
            leader_epochs=self.leader_epochs[: end["leader_epochs"]].copy(),
            digests=self.digests[: end["digests"]].copy(),
            timestamps=self.timestamps[: end["timestamps"]].copy(),
            hours=self.hours[: end["hours"]].copy(),
        )


def _with_twice_the_room(items: NDArray[np.void]) -> NDArray[np.void]:
    return np.concatenate([items, np.empty_like(items)])


def _next_chunk(log: LogBytes, state: np.void) -> tuple[int, NDArray[np.uint8]]:
    """The next bytes for the scan, and where they start. For a batch larger than a window, the scan needs either all
    its bytes or its checksum, which is put into the state.
    """
    next_position, needed = int(state["position"]), int(state["needed"])
    position, chunk = log.window(next_position)
    if needed <= position + len(chunk) - next_position:
        return position, chunk
    if state["needs_whole_batch"]:
        return next_position, np.frombuffer(log.read(next_position, needed), np.uint8)
    state["checked_position"] = next_position
    state["checked_crc"] = batch_checksum(log, next_position, needed)
    return log.window(next_position)


def _log_checksums(
    scan: _Scan, logs: Sequence[LogBytes], options: Sequence[RecoverOptions], checked_to: int
) -> NDArray[np.int64]:
    """The CRC-32C of each whole log, or `NOT_KNOWN`."""
    crcs = scan.header_facts["log_crc32c"].astype(np.int64)
    has_other = ((scan.states["magics"] & _OTHER_MAGICS) != 0).tolist()
    for number, (position, log, option) in enumerate(zip(scan.states["position"].tolist(), logs, options, strict=True)):
        known_to = max(position, checked_to)
        if not option.verify_crc or has_other[number]:
            crcs[number] = NOT_KNOWN
        elif known_to != log.size:
            crcs[number] = log_crc32c(log, known_to, int(crcs[number]))
    return crcs


def recovered_of(scanned: ScannedLogs, number: int) -> RecoveredSegment:
    """One log of `ScannedLogs`, as the `RecoveredSegment` that `recover` returns."""
    state = scanned.states[number]
    return RecoveredSegment(
        end=scan_end(state),
        facts=_facts(scanned, number),
        odd_position=int(state["odd_position"]) if state["odd_position"] >= 0 else None,
        offset_index=scanned.of_log("offset_index", number).tobytes(),
        time_index=scanned.of_log("time_index", number).tobytes(),
        producer_events=scanned.of_log("producer_events", number),
        leader_epochs=scanned.of_log("leader_epochs", number),
    )


def _facts(scanned: ScannedLogs, number: int) -> SegmentFacts:
    state = dict(zip(_STATE_FIELDS, scanned.states[number].item(), strict=True))

    def known(field: str) -> int | None:
        return state[field] if state[field] >= 0 else None

    log_crc32c = int(scanned.log_crc32c[number])
    is_certain = not scanned.header_facts["uncertain_batches"][number]
    smallest = smallest_timestamps(scanned.of_log("timestamps", number)) if is_certain else None
    hours = None if state["compressed_messages"] else records_by_hour(scanned.of_log("hours", number))
    return SegmentFacts(
        next_offset=state["next_offset"],
        valid_bytes=state["position"],
        batches=state["batches"],
        records=None if state["compressed_messages"] else state["records"],
        max_timestamp_ms=state["max_timestamp"],
        offset_of_max_timestamp=known("offset_of_max_timestamp"),
        first_leader_epoch=known("first_leader_epoch"),
        last_leader_epoch=known("last_leader_epoch"),
        magics=magics_of(state["magics"]),
        codecs=codecs_of(state["codecs"]),
        transactional_batches=state["transactional_batches"],
        control_batches=state["control_batches"],
        offset_entries=state["offset_entries"],
        time_entries=state["time_entries"],
        map_end_offset=state["map_end_offset"],
        offsets_increase=not state["disordered"],
        log_crc32c=None if log_crc32c == NOT_KNOWN else log_crc32c,
        log_crc64nvme=None,
        offset_digests=offset_digests(scanned.of_log("digests", number)),
        smallest_timestamp_ms=None if smallest is None else smallest_timestamp(smallest),
        smallest_timestamps=smallest,
        records_by_hour=hours,
    )


def _average_batch_bytes(data: NDArray[np.uint8]) -> float:
    position, batches = 0, 0
    while batches < _SAMPLE and (end := check_kernel.check_batches(data, position, position + 1)) > position:
        position, batches = end, batches + 1
    return position / max(batches, 1)


def _section_starts(data: NDArray[np.uint8], targets: list[int], offset_index: bytes | None) -> Iterator[int]:
    """Where the first batch seems to start at or after each target. Targets without a batch are left out."""
    indexed = _indexed_positions(offset_index or b"")
    for target, stop in zip(targets, [*targets[1:], len(data)], strict=True):
        number = int(np.searchsorted(indexed, target))
        start = int(indexed[number]) if number < len(indexed) else stop
        if start < stop and check_kernel.check_batches(data, start, start + 1) > start:  # the entry may be wrong
            yield start
        elif (batch_start := check_kernel.find_batch(data, target, min(stop, target + _PROBE_BYTES))) >= 0:
            yield batch_start


def _indexed_positions(offset_index: bytes) -> NDArray[np.int64]:
    """The positions in an `.index` in increasing order, each once; bytes after the last whole entry are ignored."""
    whole = len(offset_index) // layouts.OFFSET_INDEX_ENTRY.itemsize * layouts.OFFSET_INDEX_ENTRY.itemsize
    positions = np.frombuffer(offset_index[:whole], layouts.OFFSET_INDEX_ENTRY)["position"].astype(np.int64)
    return np.unique(positions[positions >= 0])


def epoch_increases(changes: NDArray[np.void]) -> NDArray[np.void]:
    """The changes to a leader epoch above all before it, the only ones on which recovery acts (`LogSegment.recover`).

    Args:
        changes: of dtype `LEADER_EPOCH`, in the order of the log.
    """
    return changes[are_epoch_increases(changes)]


def are_epoch_increases(changes: NDArray[np.void]) -> NDArray[np.bool_]:
    """For each change of the leader epoch in one log, whether `epoch_increases` returns it."""
    epochs = changes["epoch"]
    highest = np.concatenate([[layouts.NO_LEADER_EPOCH], np.maximum.accumulate(epochs)[:-1]]) if len(epochs) else epochs
    increases: NDArray[np.bool_] = epochs > highest
    return increases
