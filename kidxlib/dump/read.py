"""Reads a segment's files item by item, as Kafka's `DumpLogSegments` (`kafka-dump-log`) does.

`dump_file` yields the items of one file in order, with findings among them. `kidxlib.dump.items` and
`kidxlib.commands.dump` make lines of them. Nothing is written, and only one record, an item of its batch, and an
index file are held in memory.

At malformed data, Kafka throws in the middle of a line. The part that it has printed by then is yielded as an
incomplete item, before the error is raised.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np

from kidxlib.dump.items import (
    AbortedEntry,
    CheckpointEntry,
    DumpedBatch,
    DumpedRecord,
    DumpItem,
    Empty,
    InvalidBytes,
    KRaftSnapshotStart,
    LogStart,
    NotCompared,
    OffsetEntry,
    OffsetGap,
    OffsetMismatch,
    OffsetNotFound,
    ProducerEntry,
    Sane,
    TimeEntry,
    TimestampMismatch,
    TimestampOutOfOrder,
)
from kidxlib.dump.release import DumpRelease
from kidxlib.dump.source import DumpOptions, DumpSource, FileKind, base_offset_in_name, beside_source, snapshot_id
from kidxlib.errors import DumpError, MalformedError, MalformedRecordsError
from kidxlib.format import layouts, segment_files
from kidxlib.format.checksums import extend_crc32
from kidxlib.format.kafka_release import KafkaRelease
from kidxlib.format.producer_snapshot import read_snapshot
from kidxlib.index.abstract_index import AbstractIndex
from kidxlib.index.offset import OffsetIndex, OffsetPosition
from kidxlib.index.time import TimeIndex, TimestampOffset
from kidxlib.index.transaction import TransactionIndex
from kidxlib.java import as_int, decremented_sequence, incremented_sequence
from kidxlib.records.batch_headers import BatchHeader, headers, is_crc_valid, spans
from kidxlib.records.control import read_control_record
from kidxlib.records.reader import messages, records
from kidxlib.storage.log_bytes import LogBytes
from kidxlib.storage.log_dir import read_epoch_entries
from kidxlib.storage.opened_log import LogFile, open_local_log

_Entry = TypeVar("_Entry", OffsetPosition, TimestampOffset)

#: The number of no entry: a lookup without an entry leads to byte 0.
_NO_ENTRY: Final = -1


def dump_file(source: DumpSource, options: DumpOptions, shown_as: DumpRelease) -> Iterator[DumpItem]:
    """The items of a file. `shown_as` says afterwards whether a release of Kafka had to be taken for granted."""
    path = source.path
    match source.kind:
        case FileKind.LOG | FileKind.KRAFT_SNAPSHOT:
            yield from _dump_log(path, options, shown_as)
        case FileKind.OFFSET_INDEX | FileKind.TIME_INDEX:
            yield from _dump_index(source, options)
        case FileKind.TRANSACTION_INDEX:
            yield from _dump_transaction_index(path, shown_as)
        case FileKind.SNAPSHOT:
            yield from _dump_snapshot(path)
        case FileKind.LEADER_EPOCHS:
            for entry in read_epoch_entries(path) or ():
                yield CheckpointEntry(entry.epoch, entry.start_offset)


def _dump_log(path: Path, options: DumpOptions, shown_as: DumpRelease) -> Iterator[DumpItem]:
    """The items of a log, or of a KRaft snapshot, which has the same layout."""
    if path.name.endswith(segment_files.KRAFT_SNAPSHOT_SUFFIX):
        snapshot = snapshot_id(path)
        end_offset, epoch = (None, None) if snapshot is None else (snapshot.end_offset, snapshot.epoch)
        yield KRaftSnapshotStart(end_offset, epoch)
    else:
        yield LogStart(base_offset_in_name(path))
    with _opened_log(path) as log:
        if options.max_bytes is not None:
            log.keep_valid(options.max_bytes)
        end = 0
        previous_offset: int | None = None
        for batch in headers(log):
            is_known = batch.magic >= 0 and batch.codec < _CODECS_ASSIGNED
            yield DumpedBatch(batch, is_crc_valid(log, batch) if is_known else None)
            _check_known(batch)
            if options.deep:
                for record in _records(log, batch, options, shown_as):
                    if previous_offset is not None and record.offset != previous_offset + 1:
                        yield OffsetGap(previous_offset, record.offset)
                    previous_offset = record.offset
                    yield record
            end = batch.next_position
        if options.max_bytes is None and end < log.size:
            yield InvalidBytes(end, log.size - end)


def _check_known(batch: BatchHeader) -> None:
    if batch.magic < 0:
        raise MalformedRecordsError(batch.position, f"magic {batch.magic}", "0 to 127")
    if batch.codec >= _CODECS_ASSIGNED:
        raise MalformedRecordsError(batch.position, f"codec {batch.codec}", f"0 to {_CODECS_ASSIGNED - 1}")


_CODECS_ASSIGNED: Final = layouts.CODEC_ZSTD + 1


def _records(log: LogBytes, batch: BatchHeader, options: DumpOptions, shown_as: DumpRelease) -> Iterator[DumpedRecord]:
    """The records of a batch. Kafka decodes a compressed batch before it prints the first record, so a malformed batch
    yields none. To hold no records either, such a batch is decompressed twice.
    """
    decoded: Callable[[LogBytes, BatchHeader], Iterator[Any]] = records if batch.is_v2 else messages
    if batch.codec != layouts.CODEC_NONE:
        for _ in decoded(log, batch):
            pass
    dumped = _records_v2 if batch.is_v2 else _legacy_records
    try:
        yield from dumped(log, batch, options, shown_as)
    except MalformedError as error:
        raise MalformedRecordsError(batch.position, error.found, error.expected) from error


def _records_v2(
    log: LogBytes, batch: BatchHeader, options: DumpOptions, shown_as: DumpRelease
) -> Iterator[DumpedRecord]:
    for record in records(log, batch):
        sequence = layouts.NO_SEQUENCE
        if batch.base_sequence >= 0:
            sequence = incremented_sequence(batch.base_sequence, as_int(record.offset - batch.offset_field))
        control, malformed = None, None
        if batch.is_control and options.metadata:
            try:
                control = shown_as.as_released(partial(read_control_record, record))
            except MalformedError as error:
                malformed = error
        contents = record if options.contents and not batch.is_control else None
        decoded = None
        if contents is not None and options.decode is not None:
            try:
                decoded = shown_as.decoded(record, options.decode)
            except MalformedError as error:
                if not options.metadata:
                    raise
                contents, malformed = None, error
        yield DumpedRecord(
            batch=batch,
            offset=record.offset,
            timestamp=record.timestamp,
            key_size=_size(record.key),
            value_size=_size(record.value),
            sequence=sequence,
            headers=record.headers,
            control=control,
            contents=contents,
            decoded=decoded,
        )
        if malformed is not None:
            raise malformed


def _legacy_records(
    log: LogBytes, batch: BatchHeader, options: DumpOptions, shown_as: DumpRelease
) -> Iterator[DumpedRecord]:
    for message in messages(log, batch):
        message.check_not_compressed()
        key_size, value_size = message.sizes() if options.metadata else (0, 0)
        contents, decoded, malformed = None, None, None
        if options.contents:
            try:
                contents = message.record()
                decoded = None if options.decode is None else shown_as.decoded(contents, options.decode)
            except MalformedError as error:
                if not options.metadata:
                    raise
                contents, malformed = None, error
        yield DumpedRecord(
            batch=batch,
            offset=message.offset,
            timestamp=message.timestamp,
            key_size=key_size,
            value_size=value_size,
            crc=message.crc if options.metadata else None,
            crc_valid=extend_crc32(0, message.covered_by_crc) == message.crc if options.metadata else None,
            contents=contents,
            decoded=decoded,
        )
        if malformed is not None:
            raise malformed


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _used_entries(index: AbstractIndex[_Entry]) -> Iterator[tuple[int, _Entry]]:
    """The entries with their numbers, up to the zeros of an active segment's index, whose file is preallocated."""
    for number in range(len(index)):
        entry = index.entry(number)
        if number and entry.offset == index.base_offset:
            return
        yield number, entry


def _offset_entries(index: OffsetIndex, log: LogBytes, max_message_size: int) -> Iterator[DumpItem]:
    """The entries of an `.index`, each after its findings."""
    for number, entry in _used_entries(index):
        batch = _batch_at(log, index, number, entry.position, max_message_size)
        if batch.last_offset != entry.offset:
            yield OffsetMismatch(entry.offset, batch.last_offset)
        yield OffsetEntry(entry.offset, entry.position)


def _batch_at(log: LogBytes, index: OffsetIndex, number: int, position: int, max_bytes: int) -> BatchHeader:
    leads = _where_it_leads(index, number, position)
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


def _where_it_leads(index: OffsetIndex, number: int, position: int) -> str:
    """The entry that leads to a byte of the log, in words."""
    if number == _NO_ENTRY:
        return f"before the first entry, which leads to byte {position} of the log"
    return (
        f"entry {number + 1} of {len(index)}, at byte {number * index.entry_bytes}, leads to byte {position} of the log"
    )


def _at_fault(log: LogBytes, position: int, leads: str, error: MalformedRecordsError) -> DumpError:
    """The error at the position that an entry names: the index is wrong if no batch starts there, else the log."""
    try:
        start = next((start for start, _size, _head in spans(log) if start >= position), log.size)
    except MalformedRecordsError as first:
        error, start = first, position
    if start != position:
        return DumpError(f"{leads}, where no batch starts")
    return DumpError(f"its log is malformed: {error}; {leads}")


def _time_entries(index: TimeIndex, offsets: OffsetIndex, log: LogBytes) -> Iterator[DumpItem]:
    """The entries of a `.timeindex`, each after its findings."""
    readable = _Readable(log)
    previous_timestamp = layouts.NO_TIMESTAMP
    for _number, entry in _used_entries(index):
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
    return f"{offsets.name}: {_where_it_leads(offsets, slot, offsets.lookup(offset).position)}"


class _Readable:
    """Checks that a log can be walked from a position to its end, as Kafka does for each entry of a time index. One
    walk serves all positions on its way, if they are checked in order.
    """

    def __init__(self, log: LogBytes) -> None:
        self._log = log
        self._walk: Iterator[tuple[int, int, bytes]] = iter(())  # a walk that is known to reach the end
        self._reached: int | None = None  # the walk's position; None: the end

    def check(self, position: int) -> None:
        while self._reached is not None and self._reached < position:
            self._step()
        if self._reached != position:
            for _ in spans(self._log, position):
                pass
            self._walk = spans(self._log, position)
            self._step()

    def _step(self) -> None:
        self._reached = next((position for position, _size, _head in self._walk), None)


def _max_timestamp(log: LogBytes, batch: BatchHeader) -> int:
    """The largest timestamp of a batch's records, at least −1."""
    timestamps = (record.timestamp for record in records(log, batch)) if batch.is_v2 else _timestamps(log, batch)
    try:
        return max(itertools.chain((layouts.NO_TIMESTAMP,), timestamps))
    except MalformedRecordsError as error:
        raise DumpError(f"its log is malformed where an entry leads: {error}") from error


def _timestamps(log: LogBytes, batch: BatchHeader) -> Iterator[int]:
    """The timestamps of messages, without decoding the rest."""
    for message in messages(log, batch):
        try:
            message.check_not_compressed()
        except MalformedError as error:
            raise MalformedRecordsError(batch.position, error.found, error.expected) from error
        yield message.timestamp


def _dump_index(source: DumpSource, options: DumpOptions) -> Iterator[DumpItem]:
    """The items of an offset or time index. If its log is missing, an item says that entries were not compared."""
    path = source.path
    index: OffsetIndex | TimeIndex
    if source.kind is FileKind.OFFSET_INDEX:
        index = OffsetIndex.from_bytes(_content(path), base_offset_in_name(path), name=str(path))
        if not len(index):
            yield Empty()
            return
    else:
        index = TimeIndex.from_bytes(_content(path), base_offset_in_name(path), name=str(path))
    if options.sanity_only:
        index.sanity_check()
        yield Sane()
        return
    if source.log is None:
        yield NotCompared(str(source.missing))
        yield from _as_they_stand(index)
        return
    with _opened_log(source.log) as log:
        for item in _compared(index, source, log, options):
            if not options.verify_only or not isinstance(item, OffsetEntry | TimeEntry):
                yield item


def _as_they_stand(index: OffsetIndex | TimeIndex) -> Iterator[DumpItem]:
    if isinstance(index, OffsetIndex):
        return (OffsetEntry(entry.offset, entry.position) for _, entry in _used_entries(index))
    return (TimeEntry(entry.timestamp, entry.offset) for _, entry in _used_entries(index))


def _compared(
    index: OffsetIndex | TimeIndex, source: DumpSource, log: LogBytes, options: DumpOptions
) -> Iterator[DumpItem]:
    if isinstance(index, OffsetIndex):
        return _offset_entries(index, log, options.max_message_size)
    path = beside_source(source.path, FileKind.OFFSET_INDEX)
    return _time_entries(index, OffsetIndex.from_bytes(_content(path), index.base_offset, name=str(path)), log)


def _dump_transaction_index(path: Path, shown_as: DumpRelease) -> Iterator[DumpItem]:
    entries = _content(path)

    def ensure_readable(release: KafkaRelease) -> None:
        TransactionIndex.from_bytes(entries, base_offset_in_name(path), name=str(path), release=release).all()

    shown_as.as_released(ensure_readable)
    size = layouts.ABORTED_TRANSACTION.itemsize
    for entry in np.frombuffer(entries, layouts.ABORTED_TRANSACTION, len(entries) // size).tolist():
        version, *fields = entry
        yield AbortedEntry(version >> 8, *fields)  # its higher byte is all that a Kafka reads which takes others than 0


def _dump_snapshot(path: Path) -> Iterator[DumpItem]:
    for entry in read_snapshot(_content(path)).tolist():
        producer_id, epoch, last_sequence, last_offset, delta, timestamp, coordinator_epoch, transaction = entry
        has_batch = last_offset >= 0
        yield ProducerEntry(
            producer_id=producer_id,
            producer_epoch=epoch,
            coordinator_epoch=coordinator_epoch,
            current_transaction_first_offset=transaction if transaction >= 0 else None,
            last_timestamp_ms=timestamp,
            first_sequence=decremented_sequence(last_sequence, delta) if has_batch else None,
            last_sequence=last_sequence if has_batch else None,
            last_offset=last_offset if has_batch else None,
            offset_delta=delta if has_batch else None,
        )


@contextlib.contextmanager
def _opened_log(path: Path) -> Iterator[LogFile]:
    with contextlib.closing(LogFile(str(path))) as log:
        if log.size > layouts.SEGMENT_BYTES_MAX:
            raise DumpError(f"{log.size} bytes, expected {layouts.SEGMENT_BYTES_MAX} or less, all that Kafka opens")
        yield log


def _content(path: PathLike[str]) -> bytes:
    """The present content of a small file. Not mapped: a broker that truncates a mapped file would kill this
    process.
    """
    with open_local_log(str(path)) as (descriptor, _version), open(descriptor, "rb", closefd=False) as file:
        return file.read()
