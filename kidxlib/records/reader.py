"""The records inside a batch of any magic, as iterating over it gives them in Kafka, and the first since a time
(`FileRecords.searchForTimestamp`).

All is lazy: nothing is read, decompressed or taken apart before it is asked for. No more than one record and one chunk
of its batch are held at a time; of raw snappy all is one chunk. So what stands before a malformed place is given, where
Kafka may throw at once. Checksums are not looked at, as on a broker's read path.
"""

from __future__ import annotations

from collections.abc import Iterator

from kidxlib.errors import MalformedError, MalformedRecordsError
from kidxlib.format import layouts as formats
from kidxlib.records.batch import Batch
from kidxlib.records.legacy_batch import legacy_messages
from kidxlib.records.legacy_record import Message
from kidxlib.records.record import Record
from kidxlib.records.v2_batch import records_v2
from kidxlib.storage.log_bytes import LogBytes


def records(log: LogBytes, batch: Batch) -> Iterator[Record]:
    """The records of a batch in the order of the log, which is that of their offsets.

    Args:
        log: what `batch` was found in.

    Raises:
        MalformedRecordsError: a codec that is none, compressed bytes that its codec does not write, records that do not
            fill the batch exactly, or end early, or have lengths that cannot be; of magic 0 and 1 also zstd, a wrapper
            in a wrapper or without content, and offsets of records that do not fit their wrapper's.
    """
    try:
        if batch.is_v2:
            yield from records_v2(log, batch)
        else:
            for message in legacy_messages(log, batch):
                message.check_not_compressed()
                yield message.record()
    except MalformedError as error:
        raise MalformedRecordsError(batch.position, error.found, error.expected) from error


def base_offset(log: LogBytes, batch: Batch) -> int:
    """The offset of the first record of a batch (`RecordBatch.baseOffset`); a wrapper is decompressed for it.

    Of a v2 batch it is what its header says, though compaction may have removed that record.

    Raises:
        MalformedRecordsError: as `records`.
    """
    if batch.is_v2 or batch.codec == formats.CODEC_NONE:
        return batch.offset_field
    return next(records(log, batch)).offset  # an empty wrapper is malformed


def first_record_since(log: LogBytes, batch: Batch, timestamp: int, offset: int) -> Record | None:
    """The first record with at least this timestamp (ms since the epoch) and at least this offset; None where none is.

    The loop within `FileRecords.searchForTimestamp`.

    Raises:
        MalformedRecordsError: as `records`; what follows the record is not looked at.
    """
    for record in records(log, batch):
        if record.timestamp >= timestamp and record.offset >= offset:
            return record
    return None


def offset_of_max_timestamp(log: LogBytes, batch: Batch) -> int | None:
    """The offset of the first record that has the timestamp which the batch says is its largest
    (`RecordBatch.offsetOfMaxTimestamp`); None where none has, and of magic 0.

    Raises:
        MalformedRecordsError: as `records`; what follows the record is not looked at.
    """
    if batch.magic == 0:
        return None
    return next((record.offset for record in records(log, batch) if record.timestamp == batch.max_timestamp), None)


def messages(log: LogBytes, batch: Batch) -> Iterator[Message]:
    """The messages of a batch of magic 0 or 1: itself, or those within a wrapper, whatever stands in them.

    Raises:
        MalformedRecordsError: as `records`, but for what a message itself has wrong.
    """
    try:
        yield from legacy_messages(log, batch)
    except MalformedError as error:
        raise MalformedRecordsError(batch.position, error.found, error.expected) from error
