"""What `ListOffsets` asks a log, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class TimestampAndOffset:
    """An offset that was asked for by time (`FileRecords.TimestampAndOffset`).

    Attributes:
        timestamp: the record's own, in ms since the epoch; −1 where no record was asked for.
        offset: the record's offset, or the one that was asked for.
        leader_epoch: of the record's batch, or of the offset; None where it has none.
    """

    timestamp: int
    offset: int
    leader_epoch: int | None


#: Timestamps that ask for something else (`ListOffsetsRequest`).
LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6
