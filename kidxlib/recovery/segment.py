"""Scans one segment's log: its index bytes, the facts for the catalog, the checksum of the whole log, and why the scan
ended.

`recover` returns byte for byte what `LogSegment.recover` of Kafka writes into `.index` and `.timeindex`, without
truncating the log. If Kafka would fail, the scan ends as `quarantined` and its bytes must not be published. Producers
and leader epochs depend on earlier segments, so `recover` returns events for `kidxlib.recovery.partition_fold`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from kidxlib.format import layouts
from kidxlib.format.checksums import crc as checksums
from kidxlib.recovery.facts import HeaderFacts, SegmentFacts, facts_of
from kidxlib.recovery.options import RecoverOptions
from kidxlib.recovery.outcome import ScanEnd, scan_end
from kidxlib.recovery.scan import scan_kernel, scan_state
from kidxlib.recovery.scan.scan_state import EndReason
from kidxlib.storage.log_bytes import LogBytes

#: How many producer events and leader epochs a scan has room for at first.
_FIRST_ROOM: Final = 256
#: Bits of the magics without a CRC-32C: 0, 1 and all below 0, which are read as 1. Magics above 62, which have one,
#: share the bit of those below 0. No Kafka writes either, so a log with any gets no checksum.
_OTHER_MAGICS: Final = np.uint64(1 << 0 | 1 << 1 | 1 << 63)

#: The most bytes after the valid batches that are read, for the checksum only.
TAIL_BYTES_MAX: Final = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveredSegment:
    """A scanned segment. The index bytes of a quarantined one end at the failure and must not be published.

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


def log_crc32c(log: LogBytes, position: int, crc: int) -> int | None:
    """The CRC-32C of a log; None if the rest is long or cannot be read.

    Args:
        position: where the rest begins.
        crc: the CRC-32C of the bytes before it.

    Raises:
        LogChangedError: the log shrank while it was read in chunks.
    """
    if log.size - position > TAIL_BYTES_MAX:
        return None
    try:
        while position < log.size:
            start, window = log.window(position)
            crc = checksums.extend_crc32c(crc, window[position - start :].tobytes())
            position = start + len(window)
    except OSError:  # the scan did not need these bytes
        return None
    return crc


def recover(
    log: LogBytes, base_offset: int, options: RecoverOptions, checked_to: int = 0, checked_crc32c: int = 0
) -> RecoveredSegment:
    """Scan a segment's log as `LogSegment.recover` does, without changing it.

    Args:
        log: the bytes of the `.log`.
        base_offset: the segment's base offset, from its file name.
        options: the options of the indexes.
        checked_to: the checksums of all batches that start before this position are known to be right.
        checked_crc32c: the CRC-32C of all bytes before that position, if no batch there is of magic 0 or 1.

    Raises:
        LogChangedError: the log shrank while it was read in chunks.
    """
    states = scan_state.new_state(base_offset)
    state = states[0]
    if log.size > layouts.SEGMENT_BYTES_MAX:
        state["end"] = EndReason.SEGMENT_TOO_LARGE
        state["found"], state["expected"] = log.size, layouts.SEGMENT_BYTES_MAX
    output = _Output.with_room_for(log, options)
    header_facts = HeaderFacts.of_log(log.size, checked_crc32c)
    while state["end"] in (EndReason.NEEDS_BYTES, EndReason.NEEDS_ROOM):
        if state["end"] == EndReason.NEEDS_ROOM:
            output.make_room(state)
        position, chunk = _next_chunk(log, state)
        scan_kernel.scan(
            chunk,
            position,
            log.size,
            base_offset,
            options.interval_bytes,
            options.max_offset_entries,
            options.max_time_entries,
            checked_to if options.verify_crc else log.size,
            states,
            output.offset_entries,
            output.time_entries,
            output.producer_events,
            output.open_events,
            output.leader_epochs,
            header_facts.facts,
            header_facts.digests,
            header_facts.stretches,
            header_facts.hours,
        )
    crc32c = None
    if options.verify_crc and not state["magics"] & _OTHER_MAGICS:
        known_to = max(int(state["position"]), checked_to)
        crc32c = log_crc32c(log, known_to, int(header_facts.facts[0]["log_crc32c"]))
    return RecoveredSegment(
        end=scan_end(state),
        facts=facts_of(state, header_facts, crc32c),
        odd_position=int(state["odd_position"]) if state["odd_position"] >= 0 else None,
        offset_index=output.offset_entries[: state["offset_entries"]].astype(layouts.OFFSET_INDEX_ENTRY).tobytes(),
        time_index=output.time_entries[: state["time_entries"]].astype(layouts.TIME_INDEX_ENTRY).tobytes(),
        producer_events=output.producer_events[: state["producer_events"]].copy(),
        leader_epochs=output.leader_epochs[: state["leader_epochs"]].copy(),
    )


@dataclass(slots=True)
class _Output:
    """The arrays that a scan fills; the scan's state says how much of each is used."""

    offset_entries: NDArray[np.void]
    time_entries: NDArray[np.void]
    producer_events: NDArray[np.void]
    leader_epochs: NDArray[np.void]
    open_events: NDArray[np.int64]

    @classmethod
    def with_room_for(cls, log: LogBytes, options: RecoverOptions) -> Self:
        """Arrays with room for all entries of a log's indexes, and for a few events.

        An index has at most one entry for each interval of the file, and for each batch of the smallest size.
        """
        bytes_per_entry = max(options.interval_bytes + 1, layouts.LOG_OVERHEAD + layouts.ENTRY_SIZE_MIN)
        room = log.size // bytes_per_entry + 1
        return cls(
            offset_entries=np.empty(min(room, options.max_offset_entries), scan_state.OFFSET_ENTRY),
            time_entries=np.empty(min(room + 1, options.max_time_entries), scan_state.TIME_ENTRY),
            producer_events=np.empty(_FIRST_ROOM, scan_state.PRODUCER_EVENT),
            leader_epochs=np.empty(_FIRST_ROOM, scan_state.LEADER_EPOCH),
            open_events=np.zeros(scan_state.OPEN_EVENT_SLOTS, np.int64),
        )

    def make_room(self, state: np.void) -> None:
        """Enlarge the arrays of events that are full."""
        self.producer_events = _with_room(self.producer_events, int(state["producer_events"]))
        self.leader_epochs = _with_room(self.leader_epochs, int(state["leader_epochs"]))


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


def _with_room(items: NDArray[np.void], used: int) -> NDArray[np.void]:
    """The items; with twice the room if they are full."""
    return items if used < len(items) else np.concatenate([items, np.empty_like(items)])


def batch_checksum(log: LogBytes, batch_position: int, batch_bytes: int) -> int:
    """The checksum of a batch larger than a window, computed in bounded memory."""
    start, window = log.window(batch_position)
    magic = int(window[batch_position - start + layouts.field_position(layouts.BATCH_V2, "magic")].view(np.int8))
    if magic >= layouts.MAGIC_V2:
        extend, covered = checksums.extend_crc32c, layouts.field_position(layouts.BATCH_V2, "attributes")
    else:
        extend, covered = checksums.extend_crc32, layouts.field_position(layouts.MESSAGE_V1, "magic")
    crc, position, end = 0, batch_position + covered, batch_position + batch_bytes
    while position < end:
        start, window = log.window(position)
        piece = window[position - start : end - start]
        crc = extend(crc, piece.tobytes())
        position += len(piece)
    return crc
