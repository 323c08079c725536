"""What the compiled scan hands over: its state between chunks of a log, the reason why it stopped, and producer events
and leader epochs for the fold over a partition's segments.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from kidxlib.format import layouts


class EndReason(enum.IntEnum):
    """Why a scan stopped, as a number in its state. `kidxlib.recovery.outcome` has the texts for the catalog."""

    # The caller has to act and call again.
    NEEDS_BYTES = 0
    NEEDS_ROOM = 1
    # Kafka truncates the log here, if any bytes follow.
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
    SEGMENT_TOO_LARGE = 18  # found before the scan starts


#: The scan's state: first the variables of Kafka's recovery, then why the scan stopped, then facts about the log.
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
        ("end", "i8"),  # why the scan stopped: an `EndReason`
        ("found", "i8"),  # the value that it found there
        ("expected", "i8"),  # the value or bound that it expected
        ("needed", "i8"),  # how many bytes it needs from `position` on
        ("needs_whole_batch", "i8"),  # whether it needs these bytes, not only their checksum
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
        ("odd_position", "i8"),  # of the first batch with offsets or a magic that no broker writes; −1: none
        # Producers and leader epochs.
        ("map_end_offset", "i8"),  # `ProducerStateManager.lastMapOffset`
        ("producer_events", "i8"),
        ("leader_epochs", "i8"),
    ]
)

#: Index entries as the scan writes them: the file layouts in this machine's byte order.
OFFSET_ENTRY: Final = layouts.OFFSET_INDEX_ENTRY.newbyteorder("=")
TIME_ENTRY: Final = layouts.TIME_INDEX_ENTRY.newbyteorder("=")


_NEW_STATE: Final = np.zeros(1, SCAN_STATE)
_NEW_STATE["max_timestamp"] = _NEW_STATE["last_time_entry_timestamp"] = layouts.NO_TIMESTAMP
_NEW_STATE["offset_of_max_timestamp"] = -1
_NEW_STATE["checked_position"] = _NEW_STATE["odd_position"] = -1
_NEW_STATE["first_leader_epoch"] = _NEW_STATE["last_leader_epoch"] = layouts.NO_LEADER_EPOCH


def new_states(base_offsets: Sequence[int]) -> np.ndarray[Any, Any]:
    """The states with which scans of segments with these base offsets begin: a `SCAN_STATE` record each."""
    states = np.repeat(_NEW_STATE, len(base_offsets))
    states["next_offset"] = states["map_end_offset"] = base_offsets
    return states


class EventKind(enum.IntEnum):
    """The kind of a producer's event."""

    DATA = 0  # batches outside of transactions
    TRANSACTIONAL_DATA = 1
    COMMIT = 2
    ABORT = 3
    EMPTY_CONTROL = 4  # a control batch from which compaction removed the marker


#: A producer's event, for the fold over a partition's segments. Consecutive data batches of a producer are one event if
#: all or none are transactional, and no marker of the producer is between them. Fields that a kind lacks are −1.
PRODUCER_EVENT: Final = np.dtype(
    [
        ("position", "i8"),  # file position of the (first) batch
        ("producer_id", "i8"),
        ("kind", "i4"),
        ("producer_epoch", "i4"),  # of the last batch, as all fields below except `first_offset`
        ("first_offset", "i8"),  # base offset of the first batch
        ("last_offset", "i8"),
        ("offset_delta", "i4"),
        ("last_sequence", "i4"),
        ("timestamp", "i8"),  # of a marker's record
        ("coordinator_epoch", "i4"),
    ]
)

#: A change of the leader epoch in a segment: a batch whose epoch differs from the last epoch before it.
LEADER_EPOCH: Final = np.dtype([("epoch", "i4"), ("start_offset", "i8"), ("position", "i8")])


#: The number of slots for open events. A producer's slot is the lowest bits of its id. A slot holds the number, plus
#: one, of the event that the next data batch may extend. Producers that share a slot only cause more events.
OPEN_EVENT_SLOTS: Final = 4096
