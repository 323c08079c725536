"""A partition to decide on: its segments as columns, and where it starts and ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Longs: TypeAlias = NDArray[np.int64]
Flags: TypeAlias = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Segments:
    """A partition's segments by base offset, a column each.

    Attributes:
        sizes: bytes of the logs, as a broker has them.
        max_timestamps: the largest timestamps, in ms since the epoch; below 0 if there is none.
        mtimes_ms: modification times of the logs, in ms since the epoch.
        fully_read: the facts are those of the whole segment. If they are not, it stays, and all segments after it.
    """

    base_offsets: Longs
    sizes: Longs
    max_timestamps: Longs
    mtimes_ms: Longs
    fully_read: Flags

    def __len__(self) -> int:
        return len(self.base_offsets)

    def part(self, start: int, end: int) -> Segments:
        """The segments from one position to before another, as views of the same arrays."""
        here = slice(start, end)
        return Segments(
            base_offsets=self.base_offsets[here],
            sizes=self.sizes[here],
            max_timestamps=self.max_timestamps[here],
            mtimes_ms=self.mtimes_ms[here],
            fully_read=self.fully_read[here],
        )


@dataclass(frozen=True, slots=True)
class Bounds:
    """Where a partition starts and ends, as a running broker has it."""

    log_start_offset: int
    high_watermark: int
    log_end_offset: int

    @classmethod
    def at_start(
        cls, first_base_offset: int, log_end_offset: int, *, log_start_offset: int | None, high_watermark: int | None
    ) -> Bounds:
        """The bounds that a starting broker takes from its checkpoints (`LogLoader.load`,
        `UnifiedLog.updateHighWatermark`).

        Args:
            log_start_offset, high_watermark: None if they are unknown, and so no limits.
        """
        start = max(first_base_offset, log_start_offset or 0)
        known = log_end_offset if high_watermark is None else high_watermark
        return cls(start, min(max(known, start), log_end_offset), log_end_offset)

    def deleted_up_to(self, offset: int) -> Bounds:
        """The bounds after a request to delete the records below `offset`, which the high watermark limits."""
        start = max(self.log_start_offset, min(offset, self.high_watermark))
        return Bounds(start, self.high_watermark, self.log_end_offset)
