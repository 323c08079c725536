"""What is in a segment's files, piece by piece: what Kafka's `DumpLogSegments` (`kafka-dump-log`) looks at, as it does.

`dump_file` gives the pieces of one file in its order, and what does not fit together as a finding among them.
`kidxlib.show_dump` makes lines of them. Nothing is ever written, and no more is held than one record, a piece of its
batch, and an index file.

Where a file is malformed, Kafka throws in the middle of a line. What it has printed by then is given, as a piece that
is not complete, before the error is raised.
"""

from __future__ import annotations

import contextlib
import enum
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np

from kidxlib import formats, names
from kidxlib.abstract_index import AbstractIndex, as_int
from kidxlib.checksums import extend_crc32, extend_crc32c
from kidxlib.codecs import PIECE_BYTES, MalformedError
from kidxlib.control_records import read_control_record
from kidxlib.dump_pieces import (
    AbortedEntry,
    DumpedBatch,
    DumpedRecord,
    Empty,
    InvalidBytes,
    LeaderEpochEntry,
    LogStart,
    OffsetEntry,
    OffsetGap,
    OffsetMismatch,
    OffsetNotFound,
    Piece,
    ProducerEntry,
    Sane,
    TimeEntry,
    TimestampMismatch,
    TimestampOutOfOrder,
    decremented_sequence,
    incremented_sequence,
)
from kidxlib.errors import KidxError, UsageError
from kidxlib.log_dir import read_epoch_entries
from kidxlib.offset_index import OffsetIndex, OffsetPosition
from kidxlib.producers import read_snapshot
from kidxlib.records import Batch, MalformedRecordsError, headers, messages, records, spans
from kidxlib.storage import LogBytes, LogFile, open_log
from kidxlib.time_index import TimeIndex, TimestampOffset
from kidxlib.transaction_index import TransactionIndex

_Entry = TypeVar("_Entry", OffsetPosition, TimestampOffset)

MAX_MESSAGE_SIZE_DEFAULT: Final = 5 * 1024 * 1024


class FileKind(enum.Enum):
    """What a file is, by its name."""

    LOG = names.LOG_SUFFIX
    OFFSET_INDEX = names.OFFSET_INDEX_SUFFIX
    TIME_INDEX = names.TIME_INDEX_SUFFIX
    TRANSACTION_INDEX = names.TRANSACTION_INDEX_SUFFIX
    SNAPSHOT = names.SNAPSHOT_SUFFIX
    LEADER_EPOCHS = names.LEADER_EPOCH_CHECKPOINT


class DumpError(KidxError):
    """A file is malformed at a place, and nothing behind it was looked at; Kafka throws there, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpOptions:
    """
    Attributes:
        deep: look at the records in the batches, not only at the batches.
        contents: look at keys and values, too; `deep` goes with it.
        metadata: look at what records say besides key and value; control records say nothing else.
        max_bytes: of a log, only the batches that lie in so many bytes; None for all.
        verify_only: of an index, give only the findings.
        sanity_only: of an index, only do what a broker did before it used one (`sanityCheck`).
        max_message_size: no batch that an offset index names is larger, in bytes.
    """

    deep: bool = False
    contents: bool = False
    metadata: bool = True
    max_bytes: int | None = None
    verify_only: bool = False
    sanity_only: bool = False
    max_message_size: int = MAX_MESSAGE_SIZE_DEFAULT


# ---- which file ----


def kind_of(path: Path) -> FileKind:
    """What a file is, by its name.

    Raises:
        UsageError: nothing that can be dumped; or its name does not begin with an offset, or what its entries have to
            be compared with is not beside it.
    """
    if path.name == names.LEADER_EPOCH_CHECKPOINT:
        return FileKind.LEADER_EPOCHS
    kind = _KINDS.get(path.suffix)
    if kind is None:
        raise UsageError(
            f"{path}: not a file that can be dumped, expected {', '.join(_KINDS)} or {names.LEADER_EPOCH_CHECKPOINT}"
        )
    if kind is not FileKind.SNAPSHOT:
        _base_offset(path)
    for other in _COMPARED_WITH.get(kind, ()):
        if not _beside(path, other).is_file():
            raise UsageError(f"{path}: its entries are compared with {_beside(path, other).name}, which is not there")
    return kind


_KINDS: Final = {kind.value: kind for kind in FileKind if kind is not FileKind.LEADER_EPOCHS}
_COMPARED_WITH: Final = {
    FileKind.OFFSET_INDEX: (FileKind.LOG,),
    FileKind.TIME_INDEX: (FileKind.LOG, FileKind.OFFSET_INDEX),
}


def _base_offset(path: Path) -> int:
    """What Kafka takes for it: all up to the first dot."""
    text = path.name.partition(".")[0]
    offset = int(text) if text.removeprefix("-").isdecimal() and text.isascii() else None
    if offset is None or not -(2**63) <= offset < 2**63:
        raise UsageError(f"{path}: its name has to begin with an offset, as {names.segment_file(0, path.suffix)}")
    return offset


def _beside(path: Path, kind: FileKind) -> Path:
    return path.with_name(path.name.partition(".")[0] + kind.value)


def dump_file(path: Path, kind: FileKind, options: DumpOptions) -> Iterator[Piece]:
    """The pieces of a file.

    Raises:
        DumpError: the file is malformed; all before that place was given.
        KidxError: it is as a whole, or was changed meanwhile.
        OSError: it cannot be read.
    """
    match kind:
        case FileKind.LOG:
            yield from _dump_log(path, options)
        case FileKind.OFFSET_INDEX | FileKind.TIME_INDEX:
            yield from _dump_index(path, kind, options)
        case FileKind.TRANSACTION_INDEX:
            yield from _dump_transaction_index(path)
        case FileKind.SNAPSHOT:
            yield from _dump_snapshot(path)
        case FileKind.LEADER_EPOCHS:
            for entry in read_epoch_entries(path) or ():
                yield LeaderEpochEntry(entry.epoch, entry.start_offset)


# ---- logs ----


def _dump_log(path: Path, options: DumpOptions) -> Iterator[Piece]:
    yield LogStart(_base_offset(path))
    with _opened_log(path) as log:
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


@contextlib.contextmanager
def _opened_log(path: Path) -> Iterator[LogFile]:
    with contextlib.closing(LogFile(str(path))) as log:
        if log.size > formats.SEGMENT_BYTES_MAX:
            raise DumpError(f"{log.size} bytes, expected {formats.SEGMENT_BYTES_MAX} or less, all that Kafka opens")
        yield log


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


# ---- indexes ----


def _dump_index(path: Path, kind: FileKind, options: DumpOptions) -> Iterator[Piece]:
    index: OffsetIndex | TimeIndex
    content, base_offset = _content(path), _base_offset(path)
    if kind is FileKind.OFFSET_INDEX:
        index = OffsetIndex.from_bytes(content, base_offset, name=str(path))
        if not len(index):
            yield Empty()
            return
    else:
        index = TimeIndex.from_bytes(content, base_offset, name=str(path))
    if options.sanity_only:
        index.sanity_check()
        yield Sane()
        return
    with _opened_log(_beside(path, FileKind.LOG)) as log:
        try:
            for piece in _compared(index, path, log, options):
                if not options.verify_only or not isinstance(piece, OffsetEntry | TimeEntry):
                    yield piece
        except MalformedRecordsError as error:
            raise DumpError(f"its log is malformed where an entry leads: {error}") from error


def _compared(index: OffsetIndex | TimeIndex, path: Path, log: LogBytes, options: DumpOptions) -> Iterator[Piece]:
    if isinstance(index, OffsetIndex):
        return _offset_entries(index, log, options.max_message_size)
    offsets = OffsetIndex.from_bytes(_content(_beside(path, FileKind.OFFSET_INDEX)), index.base_offset)
    return _time_entries(index, offsets, log)


def _used(index: AbstractIndex[_Entry]) -> Iterator[_Entry]:
    """The entries up to room that was not used, as of an index that is written to: Kafka takes zeros for that."""
    for number in range(len(index)):
        entry = index.entry(number)
        if number and entry.offset == index.base_offset:
            return
        yield entry


def _offset_entries(index: OffsetIndex, log: LogBytes, max_message_size: int) -> Iterator[Piece]:
    for entry in _used(index):
        batch = _batch_at(log, entry.position, max_message_size)
        if batch.last_offset != entry.offset:
            yield OffsetMismatch(entry.offset, batch.last_offset)
        yield OffsetEntry(entry.offset, entry.position)


def _batch_at(log: LogBytes, position: int, max_bytes: int) -> Batch:
    batch = next(headers(log, position), None)
    if batch is None:
        raise DumpError(f"an entry names byte {position} of the log, expected a batch there; it has {log.size} bytes")
    if batch.size > max_bytes:
        raise DumpError(
            f"the batch at byte {position} of the log has {batch.size} bytes, expected {max_bytes} or less: "
            "give a larger --max-message-size"
        )
    return batch


def _time_entries(index: TimeIndex, offsets: OffsetIndex, log: LogBytes) -> Iterator[Piece]:
    readable = _Readable(log)
    previous_timestamp = formats.NO_TIMESTAMP
    for entry in _used(index):
        position = offsets.lookup(entry.offset).position
        if position > log.size:
            raise DumpError(f"the offset index names byte {position} of the log, expected {log.size} or less")
        readable.check(position)
        batch = next((batch for batch in headers(log, position) if batch.last_offset >= entry.offset), None)
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
    return max(itertools.chain((formats.NO_TIMESTAMP,), timestamps))


def _timestamps(log: LogBytes, batch: Batch) -> Iterator[int]:
    """Those of messages, whatever else stands in them."""
    for message in messages(log, batch):
        try:
            message.check_not_compressed()
        except MalformedError as error:
            raise MalformedRecordsError(batch.position, error.found, error.expected) from error
        yield message.timestamp


def _dump_transaction_index(path: Path) -> Iterator[Piece]:
    content = _content(path)
    TransactionIndex.from_bytes(content, _base_offset(path), name=str(path)).all()  # raises of a version that is newer
    size = formats.ABORTED_TRANSACTION.itemsize
    for entry in np.frombuffer(content, formats.ABORTED_TRANSACTION, len(content) // size).tolist():
        version, *fields = entry
        yield AbortedEntry(version >> 8, *fields)  # its higher byte is all that Kafka reads


def _dump_snapshot(path: Path) -> Iterator[Piece]:
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


def _content(path: PathLike[str]) -> bytes:
    """A small file as it is now: mapped, it would kill the process when a broker that uses it cuts it."""
    with open_log(str(path)) as (descriptor, _version), open(descriptor, "rb", closefd=False) as file:
        return file.read()
