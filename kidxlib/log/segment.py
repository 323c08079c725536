"""A segment's log and indexes, and the answers that a broker gives from them: Kafka's `LogSegment`, with the questions
of `ListOffsets`.

Indexes are trusted, as Kafka trusts them: an index of another log leads to whatever is at its positions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from typing import Final, Self

from kidxlib.format import layouts, segment_files
from kidxlib.format.kafka_release import NEWEST
from kidxlib.index.offset import OffsetIndex
from kidxlib.index.time import TimeIndex, TimestampOffset
from kidxlib.index.transaction import TransactionIndex, WhichRelease
from kidxlib.java import as_long
from kidxlib.records.batch_headers import BatchHeader, batches
from kidxlib.records.reader import Record, base_offset, first_record_since, offset_of_max_timestamp
from kidxlib.storage.location import Location, as_location
from kidxlib.storage.log_bytes import LogBytes
from kidxlib.storage.opened_log import LogFile
from kidxlib.text.times import NS_PER_MS


@dataclass(frozen=True, slots=True)
class BatchPosition:
    """Where a batch lies (`FileRecords.LogOffsetPosition`).

    Attributes:
        base_offset: the batch's base offset.
        position: its first byte in the log.
        size: in bytes, with its header.
    """

    base_offset: int
    position: int
    size: int


@dataclass(frozen=True, slots=True)
class TimestampAndOffset:
    """The answer to a search by time (`FileRecords.TimestampAndOffset`).

    Attributes:
        timestamp: the record's, in ms since the epoch; −1 if the answer is not a record, as for the log end offset.
        offset: the record's offset, or the log's.
        leader_epoch: the epoch of the record's batch, or of the offset; None if it has none.
    """

    timestamp: int
    offset: int
    leader_epoch: int | None


#: Timestamps with a special meaning (`ListOffsetsRequest`).
LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6


class LogSegment:
    """One segment: its log and its three indexes, read-only.

    Attributes:
        base_offset: the base offset in the file names.
        log: the bytes of the log.
        offset_index: the `.index`.
        time_index: the `.timeindex`.
        transaction_index: the `.txnindex`.
        mtime_ms: when the log's file was modified, in ms since the epoch; None: not known.
    """

    def __init__(
        self,
        log: LogBytes,
        base_offset: int,
        offset_index: OffsetIndex,
        time_index: TimeIndex,
        transaction_index: TransactionIndex | None = None,
        *,
        mtime_ms: int | None = None,
        max_timestamp: TimestampOffset | None = None,
    ) -> None:
        """
        Args:
            transaction_index: None for an empty one.
            mtime_ms: when the log's file was modified, in ms since the epoch; None only if `largest_timestamp` is not
                used.
            max_timestamp: `max_timestamp_so_far`, if it is known; None: read it from the time index.
        """
        self.base_offset = base_offset
        self.log = log
        self.offset_index = offset_index
        self.time_index = time_index
        self.transaction_index = transaction_index or TransactionIndex.from_bytes(b"", base_offset)
        self.mtime_ms = mtime_ms
        self._max_timestamp = max_timestamp

    @classmethod
    def open(
        cls,
        directory: str | PathLike[str],
        base_offset: int,
        index_directory: str | PathLike[str] | None = None,
        *,
        release: WhichRelease = NEWEST,
    ) -> Self:
        """A segment with the files in a directory. Files are opened when they are needed; the log's status is read at
        once.

        Args:
            directory: where the log is, here or in `s3://<bucket>/<prefix>`.
            index_directory: where the indexes are; None: beside the log.
            release: as of `TransactionIndex.open`.

        Raises:
            OSError: there is no log.
        """
        logs = as_location(directory)
        indexes = logs if index_directory is None else as_location(index_directory)

        def index(suffix: str) -> Location:
            return indexes / segment_files.segment_file(base_offset, suffix)

        log = logs / segment_files.segment_file(base_offset, segment_files.LOG_SUFFIX)
        return cls(
            LogFile(str(log)),
            base_offset,
            OffsetIndex.open(index(segment_files.OFFSET_INDEX_SUFFIX), base_offset),
            TimeIndex.open(index(segment_files.TIME_INDEX_SUFFIX), base_offset),
            TransactionIndex.open(index(segment_files.TRANSACTION_INDEX_SUFFIX), base_offset, release=release),
            mtime_ms=log.stat().st_mtime_ns // NS_PER_MS,
        )

    @property
    def size(self) -> int:
        """Bytes of its log."""
        return self.log.size

    @property
    def note(self) -> str | None:
        """What was wrong with an index; None: nothing. This class trusts indexes."""
        return None

    @property
    def truncation(self) -> str | None:
        """Why the segment ends before its file does; None if it does not, or if nobody looked, as here."""
        return None

    @property
    def torn(self) -> str | None:
        """Why batches are missing at the end of the log; None if none are, or if nobody looked, as here."""
        return None

    def release(self) -> None:
        """Close the files, so that many segments do not hold too many. They are opened again when they are needed."""
        self.offset_index.release()
        self.time_index.release()
        if isinstance(self.log, LogFile):
            self.log.close()

    # ---- by offset ----

    def translate_offset(self, offset: int, starting_position: int = 0) -> BatchPosition | None:
        """The first batch whose last offset is `offset` or above (`translateOffset`). It may lack that offset.

        If offsets do not increase from batch to batch, it may be a later batch, as in Kafka.

        Args:
            starting_position: where a batch begins, in bytes, that is known not to be after the answer; 0: not known.

        Returns:
            None if all batches end below the offset.

        Raises:
            MalformedRecordsError: a header on the way is malformed, or a wrapper that had to be decompressed.
        """
        position = max(self.offset_index.lookup(offset).position, starting_position)
        previous: BatchHeader | None = None
        for batch in batches(self.log, position):
            # Kafka asks each batch for its base offset. That of a wrapper has to be decompressed, so this is not done
            # where its last offset tells enough.
            if batch.records_count is None and batch.last_offset < offset:
                previous = batch
                continue
            first = base_offset(self.log, batch)
            if first == offset:
                return BatchPosition(first, batch.position, batch.size)
            if first > offset:
                if previous is not None and previous.last_offset >= offset:
                    return self._position_of(previous)
                return BatchPosition(first, batch.position, batch.size)
            previous = batch
        if previous is not None and previous.last_offset >= offset:
            return self._position_of(previous)
        return None

    def next_offset(self) -> int:
        """The offset after the last batch (`readNextOffset`); the base offset if there are no batches.

        Batches are read from the last entry of the offset index on. If that entry names no batch of the log, as after
        damage, the answer is the base offset too, as in Kafka.

        Raises:
            MalformedRecordsError: as `translate_offset`.
        """
        start = self.translate_offset(self.offset_index.last_offset)
        if start is None:
            return self.base_offset
        last_offset = self.base_offset - 1
        for batch in batches(self.log, start.position):
            last_offset = batch.last_offset
        return as_long(last_offset + 1)

    # ---- by time ----

    @cached_property
    def max_timestamp_so_far(self) -> TimestampOffset:
        """The last entry of the time index (`readMaxTimestampAndOffsetSoFar`): the largest timestamp of all batches and
        the last offset of the first batch with it; −1 at the base offset if there is no entry.

        The index is released again if it was not in use.
        """
        return self.time_index.peek_last_entry() if self._max_timestamp is None else self._max_timestamp

    @property
    def largest_timestamp(self) -> int:
        """`max_timestamp_so_far`, or, if there is none, when the log was modified (`largestTimestamp`), in ms since the
        epoch.
        """
        so_far = self.max_timestamp_so_far.timestamp
        if so_far >= 0:
            return so_far
        assert self.mtime_ms is not None
        return self.mtime_ms

    def find_offset_by_timestamp(self, timestamp: int, starting_offset: int | None = None) -> TimestampAndOffset | None:
        """The first record, in the order of offsets, with at least this timestamp and at least this offset
        (`findOffsetByTimestamp`).

        Batches whose largest timestamp is older are not read.

        Args:
            timestamp: ms since the epoch.
            starting_offset: None for the base offset.

        Returns:
            None where there is none.

        Raises:
            MalformedRecordsError: a header on the way, or a record of a batch that may have the answer, is malformed.
        """
        since = self.base_offset if starting_offset is None else starting_offset
        batch_and_record = self.find_record(timestamp, since)
        if batch_and_record is None:
            return None
        batch, record = batch_and_record
        epoch = batch.partition_leader_epoch
        return TimestampAndOffset(record.timestamp, record.offset, None if epoch == layouts.NO_LEADER_EPOCH else epoch)

    def find_record(self, timestamp: int, starting_offset: int) -> tuple[BatchHeader, Record] | None:
        """The record of `find_offset_by_timestamp`, and its batch.

        Args:
            timestamp: the least timestamp, in ms since the epoch.
            starting_offset: the least offset.

        Returns:
            None where there is none.

        Raises:
            MalformedRecordsError: as `find_offset_by_timestamp`.
        """
        known_older = self.time_index.lookup(timestamp)
        for batch in self._batches_at(max(known_older.offset, starting_offset)):
            if batch.max_timestamp >= timestamp:
                record = first_record_since(self.log, batch, timestamp, starting_offset)
                if record is not None:
                    return batch, record
        return None

    def find_max_timestamp(self) -> TimestampAndOffset | None:
        """The first record with the largest timestamp (`UnifiedLog.fetchOffsetByTimestamp`, −3); None if no batch has
        the largest timestamp of the time index, and for magic 0.

        Raises:
            MalformedRecordsError: as `find_offset_by_timestamp`.
        """
        largest = self.max_timestamp_so_far
        for batch in self._batches_at(largest.offset):
            if batch.max_timestamp == largest.timestamp:
                offset = offset_of_max_timestamp(self.log, batch)
                if offset is None:
                    return None
                epoch = batch.partition_leader_epoch
                return TimestampAndOffset(batch.max_timestamp, offset, epoch if epoch >= 0 else None)
        return None

    def _batches_at(self, offset: int) -> Iterator[BatchHeader]:
        return batches(self.log, self.offset_index.lookup(offset).position)

    def _position_of(self, batch: BatchHeader) -> BatchPosition:
        return BatchPosition(base_offset(self.log, batch), batch.position, batch.size)
