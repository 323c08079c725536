"""The items of an `.index` or a `.timeindex`, compared with the log as `DumpLogSegments` compares them."""

from __future__ import annotations

from collections.abc import Iterator

from kidxlib.dump.entries import Empty, NotCompared, OffsetEntry, Sane, TimeEntry
from kidxlib.dump.files import content, opened_log
from kidxlib.dump.items import DumpItem
from kidxlib.dump.offset_index import offset_entries, used_entries
from kidxlib.dump.source import DumpOptions, DumpSource, FileKind, base_offset, beside
from kidxlib.dump.time_index import time_entries
from kidxlib.index.offset import OffsetIndex
from kidxlib.index.time import TimeIndex
from kidxlib.storage.log_bytes import LogBytes


def dump_index(source: DumpSource, options: DumpOptions) -> Iterator[DumpItem]:
    """The items of an offset or time index. Where its log is not there, they are not compared, which an item says.

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
        for item in _compared(index, source, log, options):
            if not options.verify_only or not isinstance(item, OffsetEntry | TimeEntry):
                yield item


def _as_they_stand(index: OffsetIndex | TimeIndex) -> Iterator[DumpItem]:
    if isinstance(index, OffsetIndex):
        return (OffsetEntry(entry.offset, entry.position) for _, entry in used_entries(index))
    return (TimeEntry(entry.timestamp, entry.offset) for _, entry in used_entries(index))


def _compared(
    index: OffsetIndex | TimeIndex, source: DumpSource, log: LogBytes, options: DumpOptions
) -> Iterator[DumpItem]:
    if isinstance(index, OffsetIndex):
        return offset_entries(index, log, options.max_message_size)
    path = beside(source.path, FileKind.OFFSET_INDEX)
    return time_entries(index, OffsetIndex.from_bytes(content(path), index.base_offset, name=str(path)), log)
