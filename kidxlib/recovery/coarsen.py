"""A segment's indexes at another interval: exactly what recovery with that interval writes.

Recovery makes an entry for the first batch that starts more than the interval after the batch indexed last. So each
entry depends on the one before it, and a sparser index is no selection from a denser one: its entries mostly are
between the denser one's. But the denser index says where to look. Its last entry within the interval names the start of
a batch, and only a few headers after it have to be read to find the batch to index. The timestamps of the other headers
are in the denser time index: up to each entry of the denser offset index, the largest timestamp is that of the last
time index entry whose offset is not above. That is so if

- recovery of this very log wrote both files, by their checksums in the catalog,
- the interval becomes larger, and
- offsets increase from batch to batch: with offsets that repeat or go back, which Kafka's recovery does not notice
  between two entries, an offset does not tell when an entry was made.

Otherwise all batch headers are read. Checksums of batches are never looked at: the build did that.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from kidxlib.format import layouts
from kidxlib.recovery import coarsen_kernel
from kidxlib.recovery.options import RecoverOptions
from kidxlib.recovery.recover import RecoveredSegment, recover
from kidxlib.recovery.scan import scan_state
from kidxlib.storage.log_bytes import LogBytes


@dataclass(frozen=True, slots=True)
class Indexes:
    """The bytes of a segment's `.index` and `.timeindex`."""

    offset_index: bytes
    time_index: bytes

    @property
    def size(self) -> int:
        """Bytes of both."""
        return len(self.offset_index) + len(self.time_index)


@dataclass(frozen=True, slots=True)
class ScanCost:
    """The bytes of log that a lookup walks, from the offset index entry to the batch: the mean over batches weighted by
    their bytes, and the maximum.
    """

    mean: int
    most: int


def indexes_from_headers(log: LogBytes, base_offset: int, options: RecoverOptions) -> RecoveredSegment:
    """Make the indexes from batch headers alone.

    Args:
        log: the segment's, up to the end of its last valid batch.
    """
    return recover(log, base_offset, replace(options, verify_crc=False))


def coarsen_indexes(log: LogBytes, base_offset: int, options: RecoverOptions, denser: Indexes) -> Indexes | None:
    """Make the same indexes through denser ones, for a log whose offsets increase from batch to batch.

    Args:
        log: as in `indexes_from_headers`; its whole content must be in one window.
        denser: the indexes that recovery of this log writes with a smaller interval.

    Returns:
        None if the denser ones do not suffice: the log is not in one window, an index would be full, or they are not
        this log's.
    """
    start, data = log.window(0)
    if start or len(data) != log.size:
        return None
    dense_offsets = np.frombuffer(denser.offset_index, layouts.OFFSET_INDEX_ENTRY).astype(scan_state.OFFSET_ENTRY)
    dense_times = np.frombuffer(denser.time_index, layouts.TIME_INDEX_ENTRY).astype(scan_state.TIME_ENTRY)
    room = log.size // (options.interval_bytes + 1) + 1
    offset_entries = np.empty(min(room, options.max_offset_entries), scan_state.OFFSET_ENTRY)
    time_entries = np.empty(min(room + 1, options.max_time_entries), scan_state.TIME_ENTRY)
    offsets, times = coarsen_kernel.coarsen(
        data, base_offset, options.interval_bytes, dense_offsets, dense_times, offset_entries, time_entries
    )
    if offsets < 0:
        return None
    return Indexes(
        offset_entries[:offsets].astype(layouts.OFFSET_INDEX_ENTRY).tobytes(),
        time_entries[:times].astype(layouts.TIME_INDEX_ENTRY).tobytes(),
    )


def scan_cost(offset_index: bytes, valid_bytes: int) -> ScanCost:
    """The scan cost of lookups through an `.index`.

    Args:
        valid_bytes: length of the log.
    """
    positions = np.frombuffer(offset_index, layouts.OFFSET_INDEX_ENTRY)["position"].astype(np.int64)
    gaps = np.diff(np.concatenate([[0], positions, [valid_bytes]]))
    mean = int((gaps * gaps).sum()) // (2 * valid_bytes) if valid_bytes else 0
    return ScanCost(mean, int(gaps.max()))
