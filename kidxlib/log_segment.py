"""A segment's log and its indexes, asked as a broker asks them: Kafka's `LogSegment`.

Indexes are trusted, as they are there: an index of another log gives whatever stands at the positions it names.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Self

from kidxlib import formats, names
from kidxlib.abstract_index import as_long
from kidxlib.errors import KidxError
from kidxlib.objects import Location
from kidxlib.offset_index import OffsetIndex, OffsetPosition
from kidxlib.records import Batch, Record, base_offset, batches, first_record_since, offset_of_max_timestamp
from kidxlib.storage import LogBytes, LogFile
from kidxlib.time_index import TimeIndex, TimestampOffset
from kidxlib.times import NS_PER_MS
from kidxlib.transaction_index import AbortedInRange, TransactionIndex


class InvalidFetchError(KidxError):
    """A fetch asks for a number of bytes that cannot be."""


@dataclass(frozen=True, slots=True)
class BatchPosition:
    """Where a batch lies (`FileRecords.LogOffsetPosition`): its base offset, its first byte in the file, its bytes."""

    base_offset: int
    position: int
    size: int


@dataclass(frozen=True, slots=True)
class TimestampAndOffset:
    """An offset that was asked for by time (`FileRecords.TimestampAndOffset`).

    Attributes:
        timestamp: the record's own, in ms since the epoch; −1 where no record was asked for.
        leader_epoch: of the record's batch, or of the offset; None where it has none.
    """

    timestamp: int
    offset: int
    leader_epoch: int | None


@dataclass(frozen=True, slots=True)
class FetchedBytes:
    """What a fetch gets of a segment's log (`FetchDataInfo`).

    Attributes:
        batch: the one that it starts with, which may also hold offsets below those that were asked for.
        size: bytes from `batch.position` on; the last batch in them may be cut.
        first_batch_incomplete: the fetch allows fewer bytes than `batch` has, and asks for no whole one.
    """

    batch: BatchPosition
    size: int
    first_batch_incomplete: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RollParams:
    """What is to be appended, and how large and old a segment may become (`RollParams`).

    Attributes:
        max_segment_ms: `segment.ms`; of a compacted topic `max.compaction.lag.ms` where that is less.
        max_segment_bytes: `segment.bytes`.
        max_timestamp: largest in what is to be appended, in ms since the epoch.
        max_offset: last in it.
        size: its bytes.
        now: the time, in ms since the epoch.
    """

    max_segment_ms: int
    max_segment_bytes: int
    max_timestamp: int
    max_offset: int
    size: int
    now: int


class LogSegment:
    """One segment: its log and its three indexes, none of which it changes.

    Attributes:
        base_offset: the one in its file names.
        log: the bytes of its log.
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
        created_ms: int | None = None,
        roll_jitter_ms: int = 0,
    ) -> None:
        """
        Args:
            transaction_index: None for an empty one.
            mtime_ms: when the log's file was modified, in ms since the epoch; None: nobody will ask, see
                `largest_timestamp`.
            max_timestamp: what `max_timestamp_so_far` is known to be; None to look into the time index.
            created_ms: when the segment was created, as `should_roll` needs it; a broker takes the time at which it
                opened the file. None for `mtime_ms`.
            roll_jitter_ms: how much earlier than others this segment is rolled.
        """
        self.base_offset = base_offset
        self.log = log
        self.offset_index = offset_index
        self.time_index = time_index
        self.transaction_index = transaction_index or TransactionIndex.from_bytes(b"", base_offset)
        self._mtime_ms = mtime_ms
        self._max_timestamp = max_timestamp
        self._created_ms = mtime_ms if created_ms is None else created_ms
        self._roll_jitter_ms = roll_jitter_ms

    @classmethod
    def open(cls, folder: Location, base_offset: int, index_folder: Location | None = None) -> Self:
        """A segment by its files. None of them is opened before it is needed; the log's status is asked for at once.

        Args:
            index_folder: where its indexes lie; None for beside the log.

        Raises:
            OSError: there is no log.
        """

        def index(suffix: str) -> Location:
            return (index_folder or folder) / names.segment_file(base_offset, suffix)

        log = folder / names.segment_file(base_offset, names.LOG_SUFFIX)
        return cls(
            LogFile(str(log)),
            base_offset,
            OffsetIndex.open(index(names.OFFSET_INDEX_SUFFIX), base_offset),
            TimeIndex.open(index(names.TIME_INDEX_SUFFIX), base_offset),
            TransactionIndex.open(index(names.TRANSACTION_INDEX_SUFFIX), base_offset),
            mtime_ms=log.stat().st_mtime_ns // NS_PER_MS,
        )

    @property
    def size(self) -> int:
        """Bytes of its log."""
        return self.log.size

    def let_go(self) -> None:
        """Close its files, which are opened again when something is asked: for who has many segments."""
        self.offset_index.let_go()
        self.time_index.let_go()
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

    def read(
        self, start_offset: int, max_bytes: int, max_position: int | None = None, *, min_one_message: bool = False
    ) -> FetchedBytes | None:
        """Which bytes a fetch from an offset gets (`read`).

        Args:
            max_bytes: no more than these.
            max_position: none of the file from there on; None for all of it.
            min_one_message: whether the first batch is given whole, were it larger than `max_bytes`.

        Returns:
            None where all batches end below the offset.

        Raises:
            InvalidFetchError: `max_bytes` is negative, or `max_position` lies before the first batch.
            MalformedRecordsError: as `translate_offset`.
        """
        if max_bytes < 0:
            raise InvalidFetchError(f"a fetch of {max_bytes} bytes, expected 0 or more")
        batch = self.translate_offset(start_offset)
        if batch is None:
            return None
        wanted = max(max_bytes, batch.size) if min_one_message else max_bytes
        if wanted == 0:
            return FetchedBytes(batch, 0, False)
        end = self.size if max_position is None else max_position
        if end < batch.position:
            raise InvalidFetchError(f"a fetch up to byte {end}, expected {batch.position}, where it starts, or more")
        size = min(end - batch.position, wanted, self.size - batch.position)
        return FetchedBytes(batch, size, wanted < batch.size)

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

    def fetch_upper_bound(self, start: OffsetPosition, fetch_bytes: int) -> int | None:
        """An offset that a fetch of so many bytes does not reach; None where the index has none
        (`fetchUpperBoundOffset`).
        """
        bound = self.offset_index.fetch_upper_bound(start, fetch_bytes)
        return None if bound is None else bound.offset

    def collect_aborted(self, fetch_offset: int, upper_bound: int) -> AbortedInRange:
        """What `TransactionIndex.collect_aborted` says of its transactions."""
        return self.transaction_index.collect_aborted(fetch_offset, upper_bound)

    # ---- by time ----

    @cached_property
    def max_timestamp_so_far(self) -> TimestampOffset:
        """The largest timestamp of its batches and the last offset of the first that has it; −1 at the base offset
        where none has one (`readMaxTimestampAndOffsetSoFar`).

        That is what the last entry of its time index says. The index is let go of if it was not in use.
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
        assert self._mtime_ms is not None
        return self._mtime_ms

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
        return TimestampAndOffset(record.timestamp, record.offset, None if epoch == formats.NO_LEADER_EPOCH else epoch)

    def find_record(self, timestamp: int, starting_offset: int) -> tuple[Batch, Record] | None:
        """The record that `find_offset_by_timestamp` is about, and its batch."""
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

    # ---- rolling ----

    @cached_property
    def first_batch_timestamp(self) -> int | None:
        """The largest timestamp of its first batch, in ms since the epoch; None without a batch, or without that."""
        first = next(batches(self.log), None)
        return None if first is None or first.max_timestamp < 0 else first.max_timestamp

    def time_waited_for_roll(self, now: int, max_timestamp: int) -> int:
        """How long ago its first batch was written, in ms (`timeWaitedForRoll`): by the timestamps of records, or
        where they have none since the segment was created.
        """
        if self.first_batch_timestamp is not None:
            return as_long(max_timestamp - self.first_batch_timestamp)
        assert self._created_ms is not None
        return as_long(now - self._created_ms)

    def should_roll(self, params: RollParams) -> bool:
        """Whether a broker begins a new segment rather than append to this one (`shouldRoll`).

        It does if the segment would become too large or has become too old, if one of its indexes is full, or if the
        offset is too far from its base offset. An index that was cut to its entries is full; a broker makes room in
        the active segment's when it starts (`AbstractIndex.resize`).
        """
        waited_ms = self.time_waited_for_roll(params.now, params.max_timestamp)
        return (
            self.size > params.max_segment_bytes - params.size
            or (self.size > 0 and waited_ms > params.max_segment_ms - self._roll_jitter_ms)
            or self.offset_index.is_full
            or self.time_index.is_full
            or not self.offset_index.can_append_offset(params.max_offset)
        )

    def _batches_at(self, offset: int) -> Iterator[Batch]:
        return batches(self.log, self.offset_index.lookup(offset).position)

    def _position_of(self, batch: Batch) -> BatchPosition:
        return BatchPosition(base_offset(self.log, batch), batch.position, batch.size)
