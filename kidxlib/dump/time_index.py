"""The entries of a `.timeindex`, compared with the batches that they lead to by way of the `.index`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from kidxlib.dump.entries import TimeEntry
from kidxlib.dump.findings import OffsetNotFound, TimestampMismatch, TimestampOutOfOrder
from kidxlib.dump.items import DumpItem
from kidxlib.dump.offset_index import at_fault, used_entries, where_it_leads
from kidxlib.errors import DumpError, MalformedError, MalformedRecordsError
from kidxlib.format import layouts as formats
from kidxlib.index.offset import OffsetIndex
from kidxlib.index.time import TimeIndex
from kidxlib.records.batch_headers import Batch, headers, spans
from kidxlib.records.reader import messages, records
from kidxlib.storage.log_bytes import LogBytes


def time_entries(index: TimeIndex, offsets: OffsetIndex, log: LogBytes) -> Iterator[DumpItem]:
    """The entries of a `.timeindex`, each after what is wrong with it."""
    readable = _Readable(log)
    previous_timestamp = formats.NO_TIMESTAMP
    for _number, entry in used_entries(index):
        position = offsets.lookup(entry.offset).position
        try:
            if not 0 <= position <= log.size:
                raise DumpError(f"{_looked_up(offsets, entry.offset)}, expected 0 to {log.size}")
            readable.check(position)
            batch = next((batch for batch in headers(log, position) if batch.last_offset >= entry.offset), None)
        except MalformedRecordsError as error:
            raise at_fault(log, position, _looked_up(offsets, entry.offset), error) from error
        if batch is None or batch.last_offset != entry.offset:
            yield OffsetNotFound(entry.offset, None if batch is None else batch.last_offset)
        else:
            log_timestamp = _max_timestamp(log, batch)
            if log_timestamp != entry.timestamp:
                yield TimestampMismatch(entry.timestamp, log_timestamp)
            if previous_timestamp >= entry.timestamp:
                yield TimestampOutOfOrder(entry.timestamp, previous_timestamp)
        yield TimeEntry(entry.timestamp, entry.offset)
        previous_timestamp = entry.timestamp


def _looked_up(offsets: OffsetIndex, offset: int) -> str:
    slot = offsets.trace(offset).slot
    return f"{offsets.name}: {where_it_leads(offsets, slot, offsets.lookup(offset).position)}"


class _Readable:
    """Whether a log can be walked from a place to its end, as Kafka does for each entry of a time index. Here one walk
    is enough for all places that it comes by, if they are asked for in order.
    """

    def __init__(self, log: LogBytes) -> None:
        self._log = log
        self._walk: Iterator[tuple[int, int, bytes]] = iter(())  # one that is known to reach the end
        self._reached: int | None = None  # by it; None at the end

    def check(self, position: int) -> None:
        """
        Raises:
            MalformedRecordsError: it cannot.
        """
        while self._reached is not None and self._reached < position:
            self._step()
        if self._reached != position:
            for _ in spans(self._log, position):
                pass
            self._walk = spans(self._log, position)
            self._step()

    def _step(self) -> None:
        self._reached = next((position for position, _size, _head in self._walk), None)


def _max_timestamp(log: LogBytes, batch: Batch) -> int:
    """The largest of its records; −1 where none is above that."""
    timestamps = (record.timestamp for record in records(log, batch)) if batch.is_v2 else _timestamps(log, batch)
    try:
        return max(itertools.chain((formats.NO_TIMESTAMP,), timestamps))
    except MalformedRecordsError as error:
        raise DumpError(f"its log is malformed where an entry leads: {error}") from error


def _timestamps(log: LogBytes, batch: Batch) -> Iterator[int]:
    """The timestamps of messages, whatever else stands in them."""
    for message in messages(log, batch):
        try:
            message.check_not_compressed()
        except MalformedError as error:
            raise MalformedRecordsError(batch.position, error.found, error.expected) from error
        yield message.timestamp
