"""The state of the compiled scan between chunks of a log, why it returns, and its records for the fold over a
partition's segments: producer events and leader epochs.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kidxlib.format import layouts
from kidxlib.format.layouts import NO_LEADER_EPOCH


class EndReason(enum.IntEnum):
    """Why a scan stopped. `kidxlib.recovery.outcome` has the words for readers of the catalog."""

    # The caller has to act and call again.
    NEEDS_BYTES = 0
    NEEDS_ROOM = 1
    # Kafka truncates the log here, if anything is left of it.
    END_OF_FILE = 2
    TRAILING_BYTES = 3
    BATCH_OVERRUNS_FILE = 4
    SIZE_TOO_SMALL = 5
    BATCH_TOO_SMALL = 6
    CRC_MISMATCH = 7
    INVALID_CONTROL_RECORD = 8
    # Kafka fails.
    OFFSET_OVERFLOW = 9
    OFFSET_INDEX_FULL = 10
    TIME_INDEX_FULL = 11
    OFFSET_NOT_INCREASING = 12
    TIME_INDEX_OFFSET_DECREASING = 13
    UNKNOWN_CONTROL_TYPE = 14
    MALFORMED_CONTROL_RECORD = 15
    COMPRESSED_CONTROL_BATCH = 16  # kidx fails
    CONTROL_BATCH_TOO_LARGE = 17  # kidx fails
    SEGMENT_TOO_LARGE = 18  # found before the loop starts


#: The loop's state: Kafka's own variables first, then why it ended, then the facts.
SCAN_STATE: Final = np.dtype(
    [
        ("position", "i8"),  # `validBytes`: file position of the next batch
        ("last_index_position", "i8"),  # `lastIndexEntry`: file position of the batch indexed last
        ("max_timestamp", "i8"),  # `maxTimestampAndOffsetSoFar`
        ("offset_of_max_timestamp", "i8"),
        ("offset_entries", "i8"),
        ("last_indexed_offset", "i8"),
        ("time_entries", "i8"),
        ("last_time_entry_timestamp", "i8"),
        ("last_time_entry_offset", "i8"),
        # Why the loop returned, what it found there and what it expected; how many bytes it needs from `position` on.
        ("end", "i8"),
        ("found", "i8"),
        ("expected", "i8"),
        ("needed", "i8"),
        ("needs_whole_batch", "i8"),  # it needs these bytes, not only their checksum
        # The checksum of a batch larger than a chunk, which the caller computes piece by piece.
        ("checked_position", "i8"),
        ("checked_crc", "i8"),
        # Facts.
        ("next_offset", "i8"),
        ("batches", "i8"),
        ("records", "i8"),
        ("compressed_messages", "i8"),  # v0 and v1 wrappers, whose headers have no number of records
        ("first_leader_epoch", "i8"),
        ("last_leader_epoch", "i8"),
        ("transactional_batches", "i8"),
        ("control_batches", "i8"),
        ("magics", "u8"),  # bit n: magic n was seen; bit 63: any other
        ("codecs", "u8"),  # bit n: codec n was seen
        ("disordered", "i8"),  # batches whose last offset is not above that of the batch before
        ("odd_position", "i8"),  # the first batch that no broker writes, by offsets or magic; −1: none
        # Producers and leader epochs.
        ("map_end_offset", "i8"),  # `ProducerStateManager.lastMapOffset`
        ("producer_events", "i8"),
        ("leader_epochs", "i8"),
    ]
)

#: Index entries as the loop writes them: the file layouts in this machine's byte order.
OFFSET_ENTRY: Final = layouts.OFFSET_INDEX_ENTRY.newbyteorder("=")
TIME_ENTRY: Final = layouts.TIME_INDEX_ENTRY.newbyteorder("=")


def new_states(base_offsets: Sequence[int]) -> np.ndarray[Any, Any]:
    """The states of scans that have read nothing of segments with these base offsets: a `SCAN_STATE` record each."""
    states = np.repeat(_NEW_STATE, len(base_offsets))
    states["next_offset"] = states["map_end_offset"] = base_offsets
    return states


def _new_state() -> np.ndarray[Any, Any]:
    state = np.zeros(1, SCAN_STATE)
    state["max_timestamp"] = state["last_time_entry_timestamp"] = layouts.NO_TIMESTAMP
    state["offset_of_max_timestamp"] = -1
    state["checked_position"] = state["odd_position"] = -1
    state["first_leader_epoch"] = state["last_leader_epoch"] = layouts.NO_LEADER_EPOCH
    return state


_NEW_STATE: Final = _new_state()


class EventKind(enum.IntEnum):
    """The kind of a producer's event."""

    DATA = 0  # batches outside of transactions
    TRANSACTIONAL_DATA = 1
    COMMIT = 2
    ABORT = 3
    EMPTY_CONTROL = 4  # a marker after compaction


#: An event of a producer, for the fold over a partition's segments. Successive data batches of a producer are one event
#: if all or none are transactional and no marker of it is between them. Fields that the kind lacks are −1.
PRODUCER_EVENT: Final = np.dtype(
    [
        ("position", "i8"),  # file position of the (first) batch
        ("producer_id", "i8"),
        ("kind", "i4"),
        ("producer_epoch", "i4"),  # of the last batch, as are all below but `first_offset`
        ("first_offset", "i8"),  # base offset of the first batch
        ("last_offset", "i8"),
        ("offset_delta", "i4"),
        ("last_sequence", "i4"),
        ("timestamp", "i8"),  # of a marker's record
        ("coordinator_epoch", "i4"),
    ]
)

#: A batch whose leader epoch differs from that of the last batch with one in the segment.
LEADER_EPOCH: Final = np.dtype([("epoch", "i4"), ("start_offset", "i8"), ("position", "i8")])


def begun_epochs(changes: NDArray[np.void]) -> NDArray[np.void]:
    """Changes to an epoch above all before it: recovery acts only on these (`LogSegment.recover`).

    Args:
        changes: of dtype `LEADER_EPOCH`, in the order of the log.
    """
    return changes[are_begun(changes)]


def are_begun(changes: NDArray[np.void]) -> NDArray[np.bool_]:
    """Which of the changes of one log `begun_epochs` has."""
    epochs = changes["epoch"]
    before = np.concatenate([[NO_LEADER_EPOCH], np.maximum.accumulate(epochs)[:-1]]) if len(epochs) else epochs
    begun: NDArray[np.bool_] = epochs > before
    return begun


#: A slot for the lowest bits of a producer's id has the event that its next data batch may be collapsed into, as the
#: event's number plus one. Producers that share a slot evict each other, which only costs more events.
OPEN_EVENT_SLOTS: Final = 4096
