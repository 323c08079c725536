"""A segment's log and its indexes, asked as a broker asks them: Kafka's `LogSegment`, with what `ListOffsets` asks and
answers.

Indexes are trusted, as they are there: an index of another log gives whatever stands at the positions it names. What a
fetch gets is in `kidxlib.log.fetch`, whether a new segment is begun in `kidxlib.log.roll`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from typing import Final, Self

from kidxlib.format import layouts, segment_files
from kidxlib.index.offset import OffsetIndex
from kidxlib.index.time import TimeIndex, TimestampOffset
from kidxlib.index.transaction import TransactionIndex
from kidxlib.java import as_long
from kidxlib.records.batch_headers import Batch, batches
from kidxlib.records.reader import Record, base_offset, first_record_since, offset_of_max_timestamp
from kidxlib.storage.location import Location, as_location
from kidxlib.storage.log_bytes import LogBytes
from kidxlib.storage.opened_log import LogFile
from kidxlib.text.times import NS_PER_MS


@dataclass(frozen=True, slots=True)
class BatchPosition:
    """Where a batch lies (`FileRecords.LogOffsetPosition`).

    Attributes:
        base_offset: the offset of its first record.
        position: its first byte in the log.
        size: all its bytes.
    """

    base_offset: int
    position: int
    size: int


@dataclass(frozen=True, slots=True)
class LogOffset:
    """A place in a log (`LogOffsetMetadata`).

    Attributes:
        offset: base offset of the batch that starts there, or the log end offset.
        segment_base_offset: of the segment that holds it.
        position: in its log, in bytes.
    """

    offset: int
    segment_base_offset: int
    position: int


@dataclass(frozen=True, slots=True)
class TimestampAndOffset:
    """An offset that was asked for by time (`FileRecords.TimestampAndOffset`).

    Attributes:
        timestamp: the record's own, in ms since the epoch; −1 where no record was asked for.
        offset: the record's offset, or the one that was asked for.
        leader_epoch: of the record's batch, or of the offset; None where it has none.
    """

    timestamp: int
    offset: int
    leader_epoch: int | None


#: Timestamps that ask for something else (`ListOffsetsRequest`).
LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6


class LogSegment:
    """One segment: its log and its three indexes, none of which it changes.

    Attributes:
        base_offset: the one in its file names.
        log: the bytes of its log.
        offset_index: its `.index`.
        time_index: its `.timeindex`.
        transaction_index: its `.txnindex`.
        mtime_ms: when the log's file was modified, in ms since the epoch; None where nobody knows.
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
            mtime_ms: when the log's file was modified, in ms since the epoch; None: nobody will ask, see
                `largest_timestamp`.
            max_timestamp: what `max_timestamp_so_far` is known to be; None to look into the time index.
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
        cls, directory: str | PathLike[str], base_offset: int, index_directory: str | PathLike[str] | None = None
    ) -> Self:
        """A segment by its files. None of them is opened before it is needed; the log's status is asked for at once.

        Args:
            directory: where its log lies, here or in `s3://<bucket>/<prefix>`.
            index_directory: where its indexes lie; None for beside the log.

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
            TransactionIndex.open(index(segment_files.TRANSACTION_INDEX_SUFFIX), base_offset),
            mtime_ms=log.stat().st_mtime_ns // NS_PER_MS,
        )

    @property
    def size(self) -> int:
        """Bytes of its log."""
        return self.log.size

    @property
    def note(self) -> str | None:
        """What was wrong with an index; None where nothing was. Here indexes are trusted."""
        return None

    @property
    def truncation(self) -> str | None:
        """Why the segment ends before its file does; None if it does not, or if that is unknown, as here."""
        return None

    @property
    def torn(self) -> str | None:
        """Why batches are missing at the end of its log; None if none are, or if that is unknown, as here."""
        return None

    def release(self) -> None:
        """Close its files, which are opened again when something is asked: for who has many segments."""
        self.offset_index.release()
        self.time_index.release()
        if isinstance(self.log, LogFile):
            self.log.close()

    # ---- by offset ----

    def translate_offset(self, offset: int, starting_position: int = 0) -> BatchPosition | None:
        """The first batch whose last offset is not below `offset`, be that offset in it or not (`translateOffset`).

        Where offsets do not increase from batch to batch, it may be a later one, as in Kafka.

        Args:
            starting_position: of a batch that is known to be no later, in bytes; 0 for none.

        Returns:
            None where all batches end below the offset.

        Raises:
            MalformedRecordsError: a header on the way is malformed, or a wrapper that had to be decompressed.
        """
        position = max(self.offset_index.lookup(offset).position, starting_position)
        previous: Batch | None = None
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
        """The offset after its last batch (`readNextOffset`), which is where a log ends; the base offset of a segment
        without batches.

        Batches are read from the last entry of the offset index on. One that names no batch of the log, as after
        damage, gives the base offset too, as in Kafka.

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
        """The largest timestamp of its batches and the last offset of the first that has it; −1 at the base offset
        where none has one (`readMaxTimestampAndOffsetSoFar`).

        That is what the last entry of its time index says. The index is released again if it was not in use.
        """
        return self.time_index.peek_last_entry() if self._max_timestamp is None else self._max_timestamp

    @property
    def largest_timestamp(self) -> int:
        """`max_timestamp_so_far`; where there is none, when the log was modified (`largestTimestamp`), in ms since the
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

        Batches that say that all in them is older are not looked into.

        Args:
            timestamp: ms since the epoch.
            starting_offset: None for the base offset.

        Returns:
            None where there is none.

        Raises:
            MalformedRecordsError: a header on the way, or a record of a batch that may have the answer, is malformed.
        """
        since = self.base_offset if starting_offset is None else starting_offset
        found = self.find_record(timestamp, since)
        if found is None:
            return None
        batch, record = found
        epoch = batch.partition_leader_epoch
        return TimestampAndOffset(record.timestamp, record.offset, None if epoch == layouts.NO_LEADER_EPOCH else epoch)

    def find_record(self, timestamp: int, starting_offset: int) -> tuple[Batch, Record] | None:
        """The record that `find_offset_by_timestamp` is about, and its batch.

        Args:
            timestamp: ms since the epoch; no older record is found.
            starting_offset: no record below it is found.

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
        """The first record with the largest timestamp (of `UnifiedLog.fetchOffsetByTimestamp`, −3); None where no batch
        has the one that the time index names, and of magic 0.

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

    def _batches_at(self, offset: int) -> Iterator[Batch]:
        return batches(self.log, self.offset_index.lookup(offset).position)

    def _position_of(self, batch: Batch) -> BatchPosition:
        return BatchPosition(base_offset(self.log, batch), batch.position, batch.size)
