"""A segment's log and its indexes, asked as a broker asks them: Kafka's `LogSegment`.

Indexes are trusted, as they are there: an index of another log gives whatever stands at the positions it names.
"""

from __future__ import annotations

from dataclasses import dataclass

from kidxlib import formats
from kidxlib.offset_index import OffsetIndex
from kidxlib.records import Batch, base_offset, batches, first_record_since
from kidxlib.storage import LogBytes
from kidxlib.time_index import TimeIndex


@dataclass(frozen=True, slots=True)
class BatchPosition:
    """Where a batch lies (`FileRecords.LogOffsetPosition`): its base offset, its first byte in the file, its bytes."""

    base_offset: int
    position: int
    size: int


@dataclass(frozen=True, slots=True)
class RecordFound:
    """A record that was looked for by time (`FileRecords.TimestampAndOffset`).

    Attributes:
        timestamp: its own, in ms since the epoch.
        leader_epoch: of its batch; None where that has none.
    """

    timestamp: int
    offset: int
    leader_epoch: int | None


class LogSegment:
    """One segment: its log, its offset index and its time index, none of which it changes.

    Attributes:
        base_offset: the one in its file names.
    """

    def __init__(self, log: LogBytes, base_offset: int, offset_index: OffsetIndex, time_index: TimeIndex) -> None:
        self.base_offset = base_offset
        self._log = log
        self._offset_index = offset_index
        self._time_index = time_index

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
        position = max(self._offset_index.lookup(offset).position, starting_position)
        previous: Batch | None = None
        for batch in batches(self._log, position):
            # Kafka asks each batch for its base offset. That of a wrapper has to be decompressed, so this is not done
            # where its last offset tells enough.
            if batch.records_count is None and batch.last_offset < offset:
                previous = batch
                continue
            first = base_offset(self._log, batch)
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

    def find_offset_by_timestamp(self, timestamp: int, starting_offset: int | None = None) -> RecordFound | None:
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
        known_older = self._time_index.lookup(timestamp)
        position = self._offset_index.lookup(max(known_older.offset, since)).position
        for batch in batches(self._log, position):
            if batch.max_timestamp >= timestamp:
                record = first_record_since(self._log, batch, timestamp, since)
                if record is not None:
                    epoch = batch.partition_leader_epoch
                    return RecordFound(
                        record.timestamp, record.offset, None if epoch == formats.NO_LEADER_EPOCH else epoch
                    )
        return None

    def _position_of(self, batch: Batch) -> BatchPosition:
        return BatchPosition(base_offset(self._log, batch), batch.position, batch.size)
