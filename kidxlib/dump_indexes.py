"""The pieces of an `.index` or a `.timeindex`, compared with the log as `DumpLogSegments` compares them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Final, TypeVar

from kidxlib import formats
from kidxlib.abstract_index import AbstractIndex
from kidxlib.codecs import MalformedError
from kidxlib.dump_files import DumpError, DumpOptions, DumpSource, FileKind, base_offset, beside, content, opened_log
from kidxlib.dump_pieces import (
    Empty,
    NotCompared,
    OffsetEntry,
    OffsetMismatch,
    OffsetNotFound,
    Piece,
    Sane,
    TimeEntry,
    TimestampMismatch,
    TimestampOutOfOrder,
)
from kidxlib.offset_index import OffsetIndex, OffsetPosition
from kidxlib.records import Batch, MalformedRecordsError, headers, messages, records, spans
from kidxlib.storage import LogBytes
from kidxlib.time_index import TimeIndex, TimestampOffset

_Entry = TypeVar("_Entry", OffsetPosition, TimestampOffset)

#: In place of the number of an entry: a lookup that finds none leads to byte 0.
_NO_ENTRY: Final = -1


def dump_index(source: DumpSource, options: DumpOptions) -> Iterator[Piece]:
    """The pieces of an offset or time index. Where its log is not there, they are not compared, which a piece says.

    Raises:
        DumpError: an entry leads nowhere, or to where the log is malformed; all before it was given.
        KidxError: the index is malformed as a whole, or a log was changed meanwhile.
        OSError: a file cannot be read.
    """
    path = source.path
    index: OffsetIndex | TimeIndex
    if source.kind is FileKind.OFFSET_INDEX:
        index = OffsetIndex.from_bytes(content(path), base_offset(path), name=str(path))
        if not len(index):
            yield Empty()
            return
    else:
        index = TimeIndex.from_bytes(content(path), base_offset(path), name=str(path))
    if options.sanity_only:
        index.sanity_check()
        yield Sane()
        return
    if source.log is None:
        yield NotCompared(str(source.missing))
        yield from _as_they_stand(index)
        return
    with opened_log(source.log) as log:
        for piece in _compared(index, source, log, options):
            if not options.verify_only or not isinstance(piece, OffsetEntry | TimeEntry):
                yield piece


def _as_they_stand(index: OffsetIndex | TimeIndex) -> Iterator[Piece]:
    if isinstance(index, OffsetIndex):
        return (OffsetEntry(entry.offset, entry.position) for _, entry in _used(index))
    return (TimeEntry(entry.timestamp, entry.offset) for _, entry in _used(index))


def _compared(
    index: OffsetIndex | TimeIndex, source: DumpSource, log: LogBytes, options: DumpOptions
) -> Iterator[Piece]:
    if isinstance(index, OffsetIndex):
        return _offset_entries(index, log, options.max_message_size)
    path = beside(source.path, FileKind.OFFSET_INDEX)
    return _time_entries(index, OffsetIndex.from_bytes(content(path), index.base_offset, name=str(path)), log)


def _used(index: AbstractIndex[_Entry]) -> Iterator[tuple[int, _Entry]]:
    """The entries, each after its number, up to room that was not used, as of an index that is written to: Kafka takes
    zeros for that.
    """
    for number in range(len(index)):
        entry = index.entry(number)
        if number and entry.offset == index.base_offset:
            return
        yield number, entry


# ---- offset indexes ----


def _offset_entries(index: OffsetIndex, log: LogBytes, max_message_size: int) -> Iterator[Piece]:
    for number, entry in _used(index):
        batch = _batch_at(log, index, number, entry.position, max_message_size)
        if batch.last_offset != entry.offset:
            yield OffsetMismatch(entry.offset, batch.last_offset)
        yield OffsetEntry(entry.offset, entry.position)


def _batch_at(log: LogBytes, index: OffsetIndex, number: int, position: int, max_bytes: int) -> Batch:
    leads = _leads(index, number, position)
    try:
        batch = next(headers(log, position), None) if position >= 0 else None
    except MalformedRecordsError as error:
        raise _at_fault(log, position, leads, error) from error
    if batch is None:
        raise DumpError(f"{leads}, expected a batch there; the log has {log.size} bytes")
    if batch.size > max_bytes:
        raise DumpError(
            f"the batch at byte {position} of the log has {batch.size} bytes, expected {max_bytes} or less: "
            "give a larger --max-message-size"
        )
    return batch


def _leads(index: OffsetIndex, number: int, position: int) -> str:
    """Which entry it is that leads to a byte of the log."""
    if number == _NO_ENTRY:
        return f"before the first entry, which leads to byte {position} of the log"
    return (
        f"entry {number + 1} of {len(index)}, at byte {number * index.entry_bytes}, leads to byte {position} of the log"
    )


def _at_fault(log: LogBytes, position: int, leads: str, error: MalformedRecordsError) -> DumpError:
    """What is malformed where an entry leads: the index, if no batch starts there, else the log."""
    try:
        start = next((start for start, _size, _head in spans(log) if start >= position), log.size)
    except MalformedRecordsError as first:
        error, start = first, position
    if start != position:
        return DumpError(f"{leads}, where no batch starts")
    return DumpError(f"its log is malformed: {error}; {leads}")


# ---- time indexes ----


def _time_entries(index: TimeIndex, offsets: OffsetIndex, log: LogBytes) -> Iterator[Piece]:
    readable = _Readable(log)
    previous_timestamp = formats.NO_TIMESTAMP
    for _number, entry in _used(index):
        position = offsets.lookup(entry.offset).position
        try:
            if not 0 <= position <= log.size:
                raise DumpError(f"{_looked_up(offsets, entry.offset)}, expected 0 to {log.size}")
            readable.check(position)
            batch = next((batch for batch in headers(log, position) if batch.last_offset >= entry.offset), None)
        except MalformedRecordsError as error:
            raise _at_fault(log, position, _looked_up(offsets, entry.offset), error) from error
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
    return f"{offsets.name}: {_leads(offsets, slot, offsets.lookup(offset).position)}"


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
    """Those of messages, whatever else stands in them."""
    for message in messages(log, batch):
        try:
            message.check_not_compressed()
        except MalformedError as error:
            raise MalformedRecordsError(batch.position, error.found, error.expected) from error
        yield message.timestamp
