"""What is in a segment's files, piece by piece: what Kafka's `DumpLogSegments` (`kafka-dump-log`) looks at, as it does.

`dump_file` gives the pieces of one file in its order, and what does not fit together as a finding among them.
`kidxlib.show_dump` makes lines of them. Nothing is ever written, and no more is held than one record, a piece of its
batch, and an index file.

Where a file is malformed, Kafka throws in the middle of a line. What it has printed by then is given, as a piece that
is not complete, before the error is raised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

from kidxlib import formats
from kidxlib.abstract_index import as_int
from kidxlib.checksums import extend_crc32, extend_crc32c
from kidxlib.codecs import PIECE_BYTES, MalformedError
from kidxlib.control_records import read_control_record
from kidxlib.dump_files import DumpOptions, DumpSource, FileKind, base_offset, content, opened_log
from kidxlib.dump_indexes import dump_index
from kidxlib.dump_pieces import (
    AbortedEntry,
    DumpedBatch,
    DumpedRecord,
    InvalidBytes,
    LeaderEpochEntry,
    LogStart,
    OffsetGap,
    Piece,
    ProducerEntry,
    decremented_sequence,
    incremented_sequence,
)
from kidxlib.log_dir import read_epoch_entries
from kidxlib.producers import read_snapshot
from kidxlib.records import Batch, MalformedRecordsError, headers, messages, records
from kidxlib.storage import LogBytes
from kidxlib.transaction_index import TransactionIndex


def dump_file(source: DumpSource, options: DumpOptions) -> Iterator[Piece]:
    """The pieces of a file.

    Raises:
        DumpError: the file is malformed; all before that place was given.
        KidxError: it is as a whole, or was changed meanwhile.
        OSError: it cannot be read.
    """
    path = source.path
    match source.kind:
        case FileKind.LOG:
            yield from _dump_log(path, options)
        case FileKind.OFFSET_INDEX | FileKind.TIME_INDEX:
            yield from dump_index(source, options)
        case FileKind.TRANSACTION_INDEX:
            yield from _dump_transaction_index(path)
        case FileKind.SNAPSHOT:
            yield from _dump_snapshot(path)
        case FileKind.LEADER_EPOCHS:
            for entry in read_epoch_entries(path) or ():
                yield LeaderEpochEntry(entry.epoch, entry.start_offset)


# ---- logs ----


def _dump_log(path: Path, options: DumpOptions) -> Iterator[Piece]:
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
    return DumpedBatch(batch, _crc_valid(log, batch) if known else None)


def _check_known(batch: Batch) -> None:
    if batch.magic < 0:
        raise MalformedRecordsError(batch.position, f"magic {batch.magic}", "0 to 127")
    if batch.codec >= _CODECS_ASSIGNED:
        raise MalformedRecordsError(batch.position, f"codec {batch.codec}", f"0 to {_CODECS_ASSIGNED - 1}")


_CODECS_ASSIGNED: Final = formats.CODEC_ZSTD + 1


def _crc_valid(log: LogBytes, batch: Batch) -> bool:
    """Whether its checksum fits what it covers (`RecordBatch.isValid`)."""
    if batch.is_v2:
        if batch.size < formats.BATCH_V2_BYTES_MIN:
            return False
        covered_from, extend = _V2_CRC_COVERS_FROM, extend_crc32c
    else:
        covered_from, extend = _LEGACY_CRC_COVERS_FROM, extend_crc32
    crc = 0
    for position in range(batch.position + covered_from, batch.next_position, _CRC_PIECE_BYTES):
        crc = extend(crc, log.read(position, min(_CRC_PIECE_BYTES, batch.next_position - position)))
    return crc == batch.crc


_CRC_PIECE_BYTES: Final = 16 * PIECE_BYTES
_V2_CRC_COVERS_FROM: Final = formats.field_position(formats.BATCH_V2, "attributes")
_LEGACY_CRC_COVERS_FROM: Final = formats.field_position(formats.MESSAGE_V1, "magic")


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
            sequence = incremented_sequence(batch.base_sequence, as_int(record.offset - batch.first_field))
        control, malformed = None, None
        if batch.is_control and options.metadata:
            try:
                control = read_control_record(record)
            except MalformedError as error:
                malformed = error
        yield DumpedRecord(
            batch=batch,
            offset=record.offset,
            timestamp=record.timestamp,
            key_size=_size(record.key),
            value_size=_size(record.value),
            sequence=sequence,
            headers=record.headers,
            control=control,
            contents=record if options.contents and not batch.is_control else None,
        )
        if malformed is not None:
            raise malformed


def _legacy_records(log: LogBytes, batch: Batch, options: DumpOptions) -> Iterator[DumpedRecord]:
    for message in messages(log, batch):
        message.check_not_compressed()
        key_size, value_size = message.sizes() if options.metadata else (0, 0)
        contents, malformed = None, None
        if options.contents:
            try:
                contents = message.record()
            except MalformedError as error:
                if not options.metadata:
                    raise
                malformed = error
        yield DumpedRecord(
            batch=batch,
            offset=message.offset,
            timestamp=message.timestamp,
            key_size=key_size,
            value_size=value_size,
            crc=message.crc if options.metadata else None,
            crc_valid=extend_crc32(0, message.covered_by_crc) == message.crc if options.metadata else None,
            contents=contents,
        )
        if malformed is not None:
            raise malformed


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


# ---- small files ----


def _dump_transaction_index(path: Path) -> Iterator[Piece]:
    entries = content(path)
    TransactionIndex.from_bytes(entries, base_offset(path), name=str(path)).all()  # raises of a version that is newer
    size = formats.ABORTED_TRANSACTION.itemsize
    for entry in np.frombuffer(entries, formats.ABORTED_TRANSACTION, len(entries) // size).tolist():
        version, *fields = entry
        yield AbortedEntry(version >> 8, *fields)  # its higher byte is all that Kafka reads


def _dump_snapshot(path: Path) -> Iterator[Piece]:
    for entry in read_snapshot(content(path)).tolist():
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
