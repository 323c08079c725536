"""The batches of a log as rows of tables, window by window."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kidxlib.format import layouts
from kidxlib.format.layouts import NO_TIMESTAMP, batch_size
from kidxlib.records import batch_headers
from kidxlib.records.batch_headers import BatchHeader, parse_batch
from kidxlib.records.batch_table_kernel import (
    BATCH,
    ENDED,
    MALFORMED,
    NO_ROOM,
    PAST,
    TABLE_WALK,
    fill_batch_table,
    fill_batch_table_of_file,
)
from kidxlib.records.wanted_records import WantedRecords
from kidxlib.storage.log_bytes import ChunkedLog, LogBytes, WholeLog

#: The most batches of a table; in magic 0 and 1 each record may be a batch.
_ROWS_MAX: Final = 32 * 1024
#: Bytes that are read at once if only headers are wanted, and many of them are close together.
_HEADERS_BYTES: Final = 512 * 1024


@dataclass(frozen=True, slots=True)
class BatchTable:
    """Some batches of a log, and the bytes with them.

    Attributes:
        window: bytes of the log from `window_position` on, valid until the next table.
        rows: of dtype `BATCH`, in the order of the log.
    """

    window_position: int
    window: NDArray[np.uint8]
    rows: NDArray[np.void]

    def only(self, number: int) -> BatchTable:
        return replace(self, rows=self.rows[number : number + 1])

    def first(self, count: int) -> BatchTable:
        return replace(self, rows=self.rows[:count])

    def after(self, number: int) -> BatchTable:
        """The batches behind one."""
        return replace(self, rows=self.rows[number + 1 :])

    def copy(self) -> BatchTable:
        """A copy that stays valid, with only the batches' part of the window."""
        if not len(self.rows):
            return replace(self, window=self.window[:0].copy(), rows=self.rows.copy())
        start = int(self.rows["position"][0])
        end = int(self.rows["position"][-1] + self.rows["size"][-1])
        window = self.window[start - self.window_position : end - self.window_position].copy()
        window.setflags(write=False)
        return BatchTable(start, window, self.rows.copy())

    def log_of(self, number: int) -> tuple[LogBytes, BatchHeader]:
        """A batch by its number, as a log of its own."""
        size = int(self.rows["size"][number])
        at = int(self.rows["position"][number]) - self.window_position
        content = self.window[at : at + size]
        return WholeLog(content), parse_batch(0, size, content[: layouts.BATCH_V2_BYTES_MIN].tobytes())

    def filtered(self, kept: NDArray[np.bool_]) -> BatchTable:
        return self if kept.all() else replace(self, rows=self.rows[kept])


class BatchWalk:
    """A walk over the batches of a log, as in `batch_headers.batches`.

    Attributes:
        is_past: the walk has ended because all later batches begin above the wanted offsets; else no whole batch
            follows.
    """

    def __init__(
        self,
        log: LogBytes,
        position: int,
        wanted: WantedRecords,
        *,
        whole: bool = True,
        checks: bool = False,
        last_offset: int = -1,
    ) -> None:
        """The walk begins at the start of a batch, behind the one with `last_offset`. With `whole`, windows have whole
        batches; else only headers are read, and windows are of no use. With `checks`, checksums are computed, which
        needs whole batches.
        """
        self._log, self._wanted, self._whole, self._checks = log, wanted, whole, checks
        self._walks = np.zeros(1, TABLE_WALK)
        self._walks["position"], self._walks["last_offset"] = position, last_offset
        self._walks["max_timestamp"] = NO_TIMESTAMP
        self.is_past = False

    @property
    def position(self) -> int:
        """Where the next batch starts; at the end, the byte after the last one."""
        return int(self._walks["position"][0])

    @property
    def last_offset(self) -> int:
        """The last offset of the batch before `position`."""
        return int(self._walks["last_offset"][0])

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp of the batch before `position`, in ms since the epoch, wanted or not; −1 if it has
        none, and before the first batch.
        """
        return int(self._walks["max_timestamp"][0])

    def tables(self) -> Iterator[BatchTable]:
        """The batches, a table for each window of the log, without batches that have nothing wanted by their headers,
        up to the first batch that begins above the wanted offsets.
        """
        wanted, walks = self._wanted, self._walks
        limits = wanted.first_offset, wanted.last_offset, wanted.first_ms, wanted.last_ms
        window_position, window = 0, np.empty(0, np.uint8)
        window.setflags(write=False)
        rows = np.empty(_ROWS_MAX, BATCH)
        of_file = self._log if isinstance(self._log, ChunkedLog) and not self._whole else None
        room = np.empty(0 if of_file is None else _HEADERS_BYTES, np.uint8)
        while True:
            if of_file is not None:
                fill_batch_table_of_file(of_file.descriptor, room, of_file.size, *limits, walks, rows)
            else:
                fill_batch_table(
                    window, window_position, self._log.size, self._whole, self._checks, *limits, walks, rows
                )
            if count := int(walks["rows"][0]):
                yield BatchTable(window_position, window, rows[:count])
                walks["rows"] = 0
            why = int(walks["why"][0])
            self.is_past = why == PAST
            if why in (PAST, ENDED):
                return
            if why == MALFORMED:
                list(batch_headers.batches(self._log, self.position))  # raises the error
                return
            if why != NO_ROOM and self._whole:
                window_position, window = _window_of_batch(self._log, self.position)
            elif why != NO_ROOM:
                window_position, window = self._log.window(self.position)


def _window_of_batch(log: LogBytes, position: int) -> tuple[int, NDArray[np.uint8]]:
    """A window with the whole batch at a position."""
    start, window = log.window(position)
    at = position - start
    size = batch_size(window[at : at + layouts.LOG_OVERHEAD].tobytes())
    if len(window) - at >= min(size, log.size - position) or size < layouts.LOG_OVERHEAD:
        return start, window
    return position, np.frombuffer(log.read(position, size), np.uint8)
