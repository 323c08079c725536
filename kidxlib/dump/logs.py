"""The items of a log: its batches, and the records in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from kidxlib.dump.files import opened_log
from kidxlib.dump.findings import OffsetGap
from kidxlib.dump.items import DumpedBatch, DumpedRecord, DumpItem, InvalidBytes, KRaftSnapshotStart, LogStart
from kidxlib.dump.source import DumpOptions, base_offset, snapshot_id
from kidxlib.errors import MalformedError, MalformedRecordsError
from kidxlib.format import layouts as formats
from kidxlib.format import segment_files
from kidxlib.format.checksums.crc import extend_crc32
from kidxlib.java import as_int, incremented_sequence
from kidxlib.records.batch_headers import Batch, headers, is_crc_valid
from kidxlib.records.control import read_control_record
from kidxlib.records.reader import messages, records
from kidxlib.storage.log_bytes import LogBytes


def dump_log(path: Path, options: DumpOptions) -> Iterator[DumpItem]:
    """The items of a log, or of a snapshot of KRaft's, which is laid out as one."""
    if path.name.endswith(segment_files.KRAFT_SNAPSHOT_SUFFIX):
        found = snapshot_id(path)
        yield KRaftSnapshotStart(None, None) if found is None else KRaftSnapshotStart(found.end_offset, found.epoch)
    else:
        yield LogStart(base_offset(path))
    with opened_log(path) as log:
        if options.max_bytes is not None:
            log.keep_valid(options.max_bytes)
        end = 0
        previous_offset: int | None = None
        for batch in headers(log):
            yield _dumped(log, batch)
            _check_known(batch)
            if options.deep:
                for record in _records(log, batch, options):
                    if previous_offset is not None and record.offset != previous_offset + 1:
                        yield OffsetGap(previous_offset, record.offset)
                    previous_offset = record.offset
                    yield record
            end = batch.next_position
        if options.max_bytes is None and end < log.size:
            yield InvalidBytes(end, log.size - end)


def _dumped(log: LogBytes, batch: Batch) -> DumpedBatch:
    known = batch.magic >= 0 and batch.codec < _CODECS_ASSIGNED
    return DumpedBatch(batch, is_crc_valid(log, batch) if known else None)


def _check_known(batch: Batch) -> None:
    if batch.magic < 0:
        raise MalformedRecordsError(batch.position, f"magic {batch.magic}", "0 to 127")
    if batch.codec >= _CODECS_ASSIGNED:
        raise MalformedRecordsError(batch.position, f"codec {batch.codec}", f"0 to {_CODECS_ASSIGNED - 1}")


_CODECS_ASSIGNED: Final = formats.CODEC_ZSTD + 1


def _records(log: LogBytes, batch: Batch, options: DumpOptions) -> Iterator[DumpedRecord]:
    """Kafka takes a compressed batch apart before it prints the first record, so nothing of a malformed one is given.
    To hold nothing either, such a batch is decompressed twice.
    """
    taken_apart: Callable[[LogBytes, Batch], Iterator[Any]] = records if batch.is_v2 else messages
    if batch.codec != formats.CODEC_NONE:
        for _ in taken_apart(log, batch):
            pass
    try:
        yield from _records_v2(log, batch, options) if batch.is_v2 else _legacy_records(log, batch, options)
    except MalformedError as error:
        raise MalformedRecordsError(batch.position, error.found, error.expected) from error


def _records_v2(log: LogBytes, batch: Batch, options: DumpOptions) -> Iterator[DumpedRecord]:
    for record in records(log, batch):
        sequence = formats.NO_SEQUENCE
        if batch.base_sequence >= 0:
            sequence = incremented_sequence(batch.base_sequence, as_int(record.offset - batch.offset_field))
        control, malformed = None, None
        if batch.is_control and options.metadata:
            try:
                control = read_control_record(record)
            except MalformedError as error:
                malformed = error
        contents = record if options.contents and not batch.is_control else None
        decoded = None
        if contents is not None and options.decode is not None:
            try:
                decoded = options.decode(record)
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


def _legacy_records(log: LogBytes, batch: Batch, options: DumpOptions) -> Iterator[DumpedRecord]:
    for message in messages(log, batch):
        message.check_not_compressed()
        key_size, value_size = message.sizes() if options.metadata else (0, 0)
        contents, decoded, malformed = None, None, None
        if options.contents:
            try:
                contents = message.record()
                decoded = None if options.decode is None else options.decode(contents)
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
