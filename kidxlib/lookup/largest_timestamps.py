"""The largest timestamps of a log's segments, read only as far as they are needed."""

from __future__ import annotations

from typing import Final

import numpy as np

from kidxlib.errors import describe_error
from kidxlib.log.log import Log
from kidxlib.lookup.remarks import FILE_ERRORS
from kidxlib.lookup.row_groups import Longs

_LEAST: Final = -(2**63)


class LargestTimestamps:
    """The largest timestamps of the first segments of a log.

    Attributes:
        known: for each segment the largest timestamp in it and those before it, in ms since the epoch.
        unknown: the segments whose largest timestamp cannot be read, and why.
    """

    def __init__(self, log: Log) -> None:
        self.known: list[int] = []
        self.unknown: list[tuple[int, str]] = []
        self._log = log

    def first_segments(self, timestamps: Longs) -> Longs:
        """For each timestamp the number of the first segment that has it or a later one; the number of segments in the
        log if none has.
        """
        if len(timestamps):
            self._load(int(timestamps.max()))
        return np.searchsorted(self.known, timestamps, "left")

    def _load(self, timestamp: int) -> None:
        """Ask the segments for theirs, up to the first that has this timestamp or a later one."""
        for number in range(len(self.known), len(self._log.segments)):
            largest = self.known[-1] if self.known else _LEAST
            if largest >= timestamp > _LEAST:
                return
            segment = self._log.segments[number]
            try:
                largest = max(largest, segment.largest_timestamp)
            except FILE_ERRORS as error:
                self.unknown.append((number, describe_error(error)))
            else:
                if segment.truncation is not None:
                    self.unknown.append((number, segment.truncation))
            self.known.append(largest)
