"""The entries of an `.index`, compared with the batches that they lead to; which of the two is at fault."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeVar

from kidxlib.dump.entries import OffsetEntry
from kidxlib.dump.findings import OffsetMismatch
from kidxlib.dump.items import DumpItem
from kidxlib.errors import DumpError, MalformedRecordsError
from kidxlib.index.base import AbstractIndex
from kidxlib.index.offset import OffsetIndex, OffsetPosition
from kidxlib.index.time import TimestampOffset
from kidxlib.records.batch_headers import Batch, headers, spans
from kidxlib.storage.log_bytes import LogBytes

_Entry = TypeVar("_Entry", OffsetPosition, TimestampOffset)

#: In place of the number of an entry: a lookup that finds none leads to byte 0.
_NO_ENTRY: Final = -1


def used_entries(index: AbstractIndex[_Entry]) -> Iterator[tuple[int, _Entry]]:
    """The entries, each after its number, up to room that was not used, as of an index that is written to: Kafka takes
    zeros for that.
    """
    for number in range(len(index)):
        entry = index.entry(number)
        if number and entry.offset == index.base_offset:
            return
        yield number, entry


def offset_entries(index: OffsetIndex, log: LogBytes, max_message_size: int) -> Iterator[DumpItem]:
    """The entries of an `.index`, each after what is wrong with it."""
    for number, entry in used_entries(index):
        batch = _batch_at(log, index, number, entry.position, max_message_size)
        if batch.last_offset != entry.offset:
            yield OffsetMismatch(entry.offset, batch.last_offset)
        yield OffsetEntry(entry.offset, entry.position)


def _batch_at(log: LogBytes, index: OffsetIndex, number: int, position: int, max_bytes: int) -> Batch:
    leads = where_it_leads(index, number, position)
    try:
        batch = next(headers(log, position), None) if position >= 0 else None
    except MalformedRecordsError as error:
        raise at_fault(log, position, leads, error) from error
    if batch is None:
        raise DumpError(f"{leads}, expected a batch there; the log has {log.size} bytes")
    if batch.size > max_bytes:
        raise DumpError(
            f"the batch at byte {position} of the log has {batch.size} bytes, expected {max_bytes} or less: "
            "give a larger --max-message-size"
        )
    return batch


def where_it_leads(index: OffsetIndex, number: int, position: int) -> str:
    """Which entry it is that leads to a byte of the log."""
    if number == _NO_ENTRY:
        return f"before the first entry, which leads to byte {position} of the log"
    return (
        f"entry {number + 1} of {len(index)}, at byte {number * index.entry_bytes}, leads to byte {position} of the log"
    )


def at_fault(log: LogBytes, position: int, leads: str, error: MalformedRecordsError) -> DumpError:
    """What is malformed where an entry leads: the index, if no batch starts there, else the log."""
    try:
        start = next((start for start, _size, _head in spans(log) if start >= position), log.size)
    except MalformedRecordsError as first:
        error, start = first, position
    if start != position:
        return DumpError(f"{leads}, where no batch starts")
    return DumpError(f"its log is malformed: {error}; {leads}")
