"""One segment's log → its index bytes, the facts that the catalog keeps, and why the scan ended.

`recover` gives byte for byte what `LogSegment.recover` of Kafka 4.3.1 writes into `.index` and `.timeindex`, without
cutting the log. Where Kafka would fail, the scan ends as `quarantined` and its bytes are not to be published. What
recovery does besides depends on earlier segments, so its causes come out as events for `kidxlib.fold`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kidxlib import checksums, formats, kernels
from kidxlib.errors import UsageError
from kidxlib.kernels import EndReason
from kidxlib.storage import LogBytes

INTERVAL_BYTES_DEFAULT: Final = 4096
MAX_INDEX_BYTES_DEFAULT: Final = 10 * 1024 * 1024

#: Producer events and leader epochs for which a scan has room at first.
_FIRST_ROOM: Final = 256


class Status(enum.StrEnum):
    """How a segment stands."""

    OK = "ok"
    TRUNCATED = "truncated"  # a valid prefix; Kafka would cut the rest
    QUARANTINED = "quarantined"  # Kafka itself fails on it; nothing is published
    CHANGED = "changed"  # another process wrote to it while it was read
    UNREADABLE = "unreadable"
    GONE = "gone"  # listed, and deleted before it was read
    DELETED = "deleted"  # by retention, as a plan said


#: Of what is known of these segments, all is known of the whole log, or of all that a broker's recovery leaves of it.
USABLE: Final = (Status.OK, Status.TRUNCATED)

#: Segments that are in their source no longer.
ABSENT: Final = (Status.GONE, Status.DELETED)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoverOptions:
    """What the bytes of the indexes depend on besides the log.

    Attributes:
        interval_bytes: Kafka's `index.interval.bytes`, at least 0.
        max_index_bytes: Kafka's `segment.index.bytes`, at least 12 (one time index entry).
        verify_crc: False trusts every checksum and reads headers only.
    """

    interval_bytes: int = INTERVAL_BYTES_DEFAULT
    max_index_bytes: int = MAX_INDEX_BYTES_DEFAULT
    verify_crc: bool = True

    def __post_init__(self) -> None:
        if self.interval_bytes < 0 or self.max_index_bytes < formats.TIME_INDEX_ENTRY.itemsize:
            raise UsageError(
                f"interval_bytes {self.interval_bytes} and max_index_bytes {self.max_index_bytes}: expected at least "
                f"0 and {formats.TIME_INDEX_ENTRY.itemsize}"
            )


@dataclass(frozen=True, slots=True)
class ScanEnd:
    """Where a scan ended and why.

    Attributes:
        status: what that makes of the segment.
        reason: a short word for it, the same for all segments that end this way; None at the end of a good file.
        position: byte of the log at which the first batch starts that is not in the indexes.
        detail: what was found there and what was expected; None at the end of a good file.
    """

    status: Status
    reason: str | None
    position: int
    detail: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentFacts:
    """What the batch headers of a segment's valid prefix say.

    Attributes:
        next_offset: the last batch's last offset + 1; the base offset where there is no batch.
        valid_bytes: length of the valid prefix.
        batches: batches of v2, and messages (wrappers included) of v0 and v1.
        records: records in them; None where compressed v0 or v1 wrappers hide their count.
        max_timestamp_ms: the largest batch timestamp, −1 where there is none; of a quarantined segment perhaps that
            of the batch at which it failed, as in Kafka.
        offset_of_max_timestamp: last offset of the first batch that has it; None where there is none.
        first_leader_epoch, last_leader_epoch: of the batches that carry one; None where none does.
        magics: formats seen, ascending; −1 stands for any other than 0 to 62.
        codecs: names of the codecs seen.
        transactional_batches, control_batches: how many batches have that attribute.
        offset_entries, time_entries: entries of the two indexes.
        map_end_offset: the last v2 batch's last offset + 1, the base offset where there is none; a snapshot of the
            producers at the segment's end is named by it (`ProducerStateManager.mapEndOffset`).
        offsets_increase: each batch's last offset is above that of the batch before it. Kafka looks only from one
            indexed batch to the next.
    """

    next_offset: int
    valid_bytes: int
    batches: int
    records: int | None
    max_timestamp_ms: int
    offset_of_max_timestamp: int | None
    first_leader_epoch: int | None
    last_leader_epoch: int | None
    magics: tuple[int, ...]
    codecs: tuple[str, ...]
    transactional_batches: int
    control_batches: int
    offset_entries: int
    time_entries: int
    map_end_offset: int
    offsets_increase: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveredSegment:
    """A scanned segment. The index bytes of a quarantined one reach to the failure and are not to be published.

    Attributes:
        odd_position: where the first batch of the valid prefix starts that no broker writes there: its offsets are not
            above those before it, or its magic is none of 0, 1 and 2. Kafka's recovery takes it. None: there is none.
        producer_events: what producers did, of dtype `kernels.PRODUCER_EVENT`.
        leader_epochs: where leader epochs began, of dtype `kernels.LEADER_EPOCH`.
    """

    end: ScanEnd
    facts: SegmentFacts
    odd_position: int | None
    offset_index: bytes
    time_index: bytes
    producer_events: NDArray[np.void]
    leader_epochs: NDArray[np.void]


#: What each end means: the status, a word, and the detail, filled with what was found and expected.
_ENDS: Final = {
    EndReason.END_OF_FILE: (Status.OK, None, None),
    EndReason.TRAILING_BYTES: (
        Status.TRUNCATED,
        "trailing-bytes",
        "{found} bytes are left, too few for a batch; a batch header starts with at least 18",
    ),
    EndReason.BATCH_OVERRUNS_FILE: (
        Status.TRUNCATED,
        "batch-overruns-file",
        "the batch header says {expected} bytes, {found} are left in the file",
    ),
    EndReason.SIZE_TOO_SMALL: (
        Status.TRUNCATED,
        "size-too-small",
        "the size field is {found}, expected at least {expected} (a preallocated tail holds zeros)",
    ),
    EndReason.BATCH_TOO_SMALL: (
        Status.TRUNCATED,
        "batch-too-small",
        "a v2 batch of {found} bytes, expected at least {expected}",
    ),
    EndReason.CRC_MISMATCH: (
        Status.TRUNCATED,
        "crc-mismatch",
        "the batch's checksum is {found:#010x}, its header says {expected:#010x}",
    ),
    EndReason.INVALID_CONTROL_RECORD: (
        Status.TRUNCATED,
        "invalid-control-record",
        "the control batch before this byte does not hold a control record of version 0 or above; Kafka keeps that "
        "batch and cuts behind it",
    ),
    EndReason.OFFSET_OVERFLOW: (
        Status.QUARANTINED,
        "offset-overflow",
        "last offset {found} is not within 0 to 2147483647 of base offset {expected}; Kafka would split the segment",
    ),
    EndReason.OFFSET_INDEX_FULL: (
        Status.QUARANTINED,
        "offset-index-full",
        "the offset index has room for {expected} entries; Kafka fails at the next one: raise --max-index-bytes",
    ),
    EndReason.TIME_INDEX_FULL: (
        Status.QUARANTINED,
        "time-index-full",
        "the time index has room for {expected} entries, the last kept free; Kafka fails here: raise --max-index-bytes",
    ),
    EndReason.OFFSET_NOT_INCREASING: (
        Status.QUARANTINED,
        "offset-not-increasing",
        "last offset {found} at an index point, expected more than {expected}, which was indexed before; Kafka empties "
        "such a segment when it recovers",
    ),
    EndReason.TIME_INDEX_OFFSET_DECREASING: (
        Status.QUARANTINED,
        "time-index-offset-decreasing",
        "the largest timestamp is at offset {found}, below {expected}, the last in the time index; Kafka empties "
        "such a segment when it recovers",
    ),
    EndReason.UNKNOWN_CONTROL_TYPE: (
        Status.QUARANTINED,
        "unknown-control-type",
        "a control record of a producer has type {found}, expected 0 (abort) or 1 (commit); Kafka fails here",
    ),
    EndReason.MALFORMED_CONTROL_RECORD: (
        Status.QUARANTINED,
        "malformed-control-record",
        "a control record of a producer has no key, or its value is too short for a marker; Kafka fails here",
    ),
    EndReason.COMPRESSED_CONTROL_BATCH: (
        Status.QUARANTINED,
        "compressed-control-batch",
        "a control batch of a producer is compressed, which Kafka never writes; it is not looked into here",
    ),
    EndReason.CONTROL_BATCH_TOO_LARGE: (
        Status.QUARANTINED,
        "control-batch-too-large",
        "a control batch of a producer has more than {expected} bytes, Kafka's have 78; it is not looked into here",
    ),
    EndReason.SEGMENT_TOO_LARGE: (
        Status.QUARANTINED,
        "segment-too-large",
        "the file has {found} bytes, Kafka opens at most {expected}",
    ),
}


def recover(log: LogBytes, base_offset: int, options: RecoverOptions, checked_to: int = 0) -> RecoveredSegment:
    """Scan a segment's log as `LogSegment.recover` does, without changing it.

    Args:
        log: the bytes of the `.log`.
        base_offset: the segment's base offset, from its file name.
        options: what else the indexes depend on.
        checked_to: the checksums of all batches that start before this position are known to be right.

    Raises:
        LogChangedError: the log shrank while it was read in chunks.
    """
    max_offset_entries = options.max_index_bytes // formats.OFFSET_INDEX_ENTRY.itemsize
    max_time_entries = options.max_index_bytes // formats.TIME_INDEX_ENTRY.itemsize
    # No index holds more entries than there are intervals in the file, nor than the smallest entries that fit in it.
    bytes_per_entry = max(options.interval_bytes + 1, formats.LOG_OVERHEAD + formats.ENTRY_SIZE_MIN)
    room = log.size // bytes_per_entry + 1
    offset_entries = np.empty(min(room, max_offset_entries), kernels.OFFSET_ENTRY)
    time_entries = np.empty(min(room + 1, max_time_entries), kernels.TIME_ENTRY)

    producer_events = np.empty(_FIRST_ROOM, kernels.PRODUCER_EVENT)
    leader_epochs = np.empty(_FIRST_ROOM, kernels.LEADER_EPOCH)
    open_events = np.zeros(kernels.OPEN_EVENT_SLOTS, np.int64)

    states = kernels.new_state(base_offset)
    state = states[0]
    if log.size > formats.SEGMENT_BYTES_MAX:
        state["end"], state["found"], state["expected"] = (
            EndReason.SEGMENT_TOO_LARGE,
            log.size,
            formats.SEGMENT_BYTES_MAX,
        )
    while state["end"] in (EndReason.NEEDS_BYTES, EndReason.NEEDS_ROOM):
        if state["end"] == EndReason.NEEDS_ROOM:
            producer_events = _with_room(producer_events, int(state["producer_events"]))
            leader_epochs = _with_room(leader_epochs, int(state["leader_epochs"]))
        position, chunk = log.window(int(state["position"]))
        if state["needed"] > position + len(chunk) - state["position"]:
            if state["needs_whole_batch"]:
                position = int(state["position"])
                chunk = np.frombuffer(log.read(position, int(state["needed"])), np.uint8)
            else:
                state["checked_position"] = state["position"]
                state["checked_crc"] = batch_checksum(log, int(state["position"]), int(state["needed"]))
                position, chunk = log.window(int(state["position"]))
        kernels.scan(
            chunk,
            position,
            log.size,
            base_offset,
            options.interval_bytes,
            max_offset_entries,
            max_time_entries,
            checked_to if options.verify_crc else log.size,
            states,
            offset_entries,
            time_entries,
            producer_events,
            open_events,
            leader_epochs,
        )

    return RecoveredSegment(
        end=_scan_end(state),
        facts=_facts(state),
        odd_position=int(state["odd_position"]) if state["odd_position"] >= 0 else None,
        offset_index=offset_entries[: state["offset_entries"]].astype(formats.OFFSET_INDEX_ENTRY).tobytes(),
        time_index=time_entries[: state["time_entries"]].astype(formats.TIME_INDEX_ENTRY).tobytes(),
        producer_events=producer_events[: state["producer_events"]].copy(),
        leader_epochs=leader_epochs[: state["leader_epochs"]].copy(),
    )


def _with_room(items: NDArray[np.void], used: int) -> NDArray[np.void]:
    """The items, with room for twice as many where all room is used."""
    return items if used < len(items) else np.concatenate([items, np.empty_like(items)])


def batch_checksum(log: LogBytes, batch_position: int, batch_bytes: int) -> int:
    """The checksum of one batch that is larger than a window, in bounded memory."""
    start, window = log.window(batch_position)
    magic = int(window[batch_position - start + formats.field_position(formats.BATCH_V2, "magic")].view(np.int8))
    if magic >= formats.MAGIC_V2:
        extend, covered = checksums.extend_crc32c, formats.field_position(formats.BATCH_V2, "attributes")
    else:
        extend, covered = checksums.extend_crc32, formats.field_position(formats.MESSAGE_V1, "magic")
    crc, position, end = 0, batch_position + covered, batch_position + batch_bytes
    while position < end:
        start, window = log.window(position)
        piece = window[position - start : end - start]
        crc = extend(crc, piece.tobytes())
        position += len(piece)
    return crc


def _scan_end(state: np.void) -> ScanEnd:
    status, reason, detail = _ENDS[EndReason(int(state["end"]))]
    if detail is not None:
        detail = detail.format(found=int(state["found"]), expected=int(state["expected"]))
    return ScanEnd(status, reason, int(state["position"]), detail)


def _facts(state: np.void) -> SegmentFacts:
    def known(field: str) -> int | None:
        value = int(state[field])
        return value if value >= 0 else None

    magics = int(state["magics"])
    return SegmentFacts(
        next_offset=int(state["next_offset"]),
        valid_bytes=int(state["position"]),
        batches=int(state["batches"]),
        records=None if state["compressed_messages"] else int(state["records"]),
        max_timestamp_ms=int(state["max_timestamp"]),
        offset_of_max_timestamp=known("offset_of_max_timestamp"),
        first_leader_epoch=known("first_leader_epoch"),
        last_leader_epoch=known("last_leader_epoch"),
        magics=((-1,) if magics >> 63 else ()) + tuple(_bits(magics & (2**63 - 1))),
        codecs=tuple(formats.CODECS[codec] for codec in _bits(int(state["codecs"]))),
        transactional_batches=int(state["transactional_batches"]),
        control_batches=int(state["control_batches"]),
        offset_entries=int(state["offset_entries"]),
        time_entries=int(state["time_entries"]),
        map_end_offset=int(state["map_end_offset"]),
        offsets_increase=not state["disordered"],
    )


def _bits(mask: int) -> list[int]:
    return [bit for bit in range(mask.bit_length()) if mask >> bit & 1]
