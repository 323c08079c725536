"""What a scan records for the fold over a partition's segments: what producers did, and leader epochs."""

from __future__ import annotations

import enum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kidxlib.format.layouts import NO_LEADER_EPOCH


class EventKind(enum.IntEnum):
    """What a producer did."""

    DATA = 0  # batches outside of transactions
    TRANSACTIONAL_DATA = 1
    COMMIT = 2
    ABORT = 3
    EMPTY_CONTROL = 4  # what compaction leaves of a marker


#: What a producer did, for the fold over a partition's segments. Data batches of a producer that follow each other with
#: no marker of its own in between, and are all transactional or all not, are one event; fields that no data batch or no
#: marker has are −1.
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
        ("timestamp", "i8"),  # a marker's: of its record
        ("coordinator_epoch", "i4"),
    ]
)

#: A batch with another leader epoch than the one before it in the segment that carries one.
LEADER_EPOCH: Final = np.dtype([("epoch", "i4"), ("start_offset", "i8"), ("position", "i8")])


def begun_epochs(changes: NDArray[np.void]) -> NDArray[np.void]:
    """Changes to an epoch above all before it: with these alone recovery does something (`LogSegment.recover`).

    Args:
        changes: of dtype `LEADER_EPOCH`, in the order of the log.
    """
    epochs = changes["epoch"]
    before = np.concatenate([[NO_LEADER_EPOCH], np.maximum.accumulate(epochs)[:-1]]) if len(epochs) else epochs
    return changes[epochs > before]


#: Which event a producer's next data batch may be collapsed into, by the lowest bits of its id: a number of an event
#: plus one. Two producers that share a slot push each other out, which costs an event and no more.
OPEN_EVENT_SLOTS: Final = 4096
