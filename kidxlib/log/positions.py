"""Places in logs, as Kafka's classes name them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BatchPosition:
    """Where a batch lies (`FileRecords.LogOffsetPosition`).

    Attributes:
        base_offset: the offset of its first record.
        position: its first byte in the log.
        size: all its bytes.
    """

    base_offset: int
    position: int
    size: int


@dataclass(frozen=True, slots=True)
class LogOffset:
    """A place in a log (`LogOffsetMetadata`).

    Attributes:
        offset: base offset of the batch that starts there, or the log end offset.
        segment_base_offset: of the segment that holds it.
        position: in its log, in bytes.
    """

    offset: int
    segment_base_offset: int
    position: int
