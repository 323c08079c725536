"""The table `segments`, with index files by entries, size and checksum, and the views that operations read of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final, Self, TypedDict

import numpy as np

from kidxlib.catalog.rows import SEGMENT_KEY, Formerly, Int32, Row, SegmentKey, Table, column, row, view_of
from kidxlib.format.checksums import crc32c
from kidxlib.format.segment_files import OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX
from kidxlib.recovery.options import RecoverOptions
from kidxlib.recovery.outcome import ScanEnd, Status
from kidxlib.storage.location import FileVersion
from kidxlib.text.times import NS_PER_MS


class LeaderEpochEntry(TypedDict):
    """A batch with a leader epoch above all earlier ones in the segment, and its position in bytes."""

    epoch: Int32
    start_offset: int
    position: int


class OffsetDigest(TypedDict):
    """The digest of the batches with a base offset among the `offsets` (a power of two) from `start_offset` on."""

    start_offset: int
    offsets: int
    digest: int


class SmallestTimestamp(TypedDict):
    """The smallest timestamp of all records from the batch at a position in bytes on."""

    position: int
    timestamp_ms: int


class HourRecords(TypedDict):
    """Records of batches by the hour of the batch's largest timestamp, and how many of the records surely lie in it."""

    hour_ms: int | None
    records: int
    certain_records: int


class IntervalSource(StrEnum):
    """Who chose the interval that a segment's indexes have."""

    SETTINGS = "settings"
    METADATA = "metadata"
    COMPACTION = "compaction"


@row
class ScannedSegmentRow(SegmentKey):
    """What a build knows of a segment once its log was read and its indexes were published."""

    topic_id: str | None = column("topic id from partition.metadata; null where that file is absent")
    next_offset: int | None = column("last offset of the last valid batch + 1; the base offset where there is no batch")
    status: Status = column("ok, truncated, quarantined, changed, unreadable, gone or deleted")
    reason: str | None = column("why the scan ended before the end of the log; null where it did not")
    reason_position: int | None = column("byte of the log at which it ended; null where reason is null")
    reason_detail: str | None = column("what was found there, and what was expected")
    active: bool = column("highest base offset of its partition in this source: a broker may still write to it")
    log_bytes: int | None = column("size of the .log, in bytes")
    valid_bytes: int | None = column(
        "bytes of the .log up to the end of the last valid batch: if status is truncated, where recovery truncates it; "
        "what the next start keeps is findings.kept_bytes"
    )
    batches: int | None = column("record batches (magic 2) and messages, wrappers included (magic 0 and 1)")
    records: int | None = column("records in them; null where compressed magic 0 or 1 wrappers hide their count")
    max_timestamp_ms: int | None = column("largest batch timestamp, ms since the epoch, as Kafka keeps it; -1: none")
    offset_of_max_timestamp: int | None = column("last offset of the first batch with that timestamp; null: none")
    first_leader_epoch: Int32 | None = column("leader epoch of the first batch that carries one")
    last_leader_epoch: Int32 | None = column("leader epoch of the last batch that carries one")
    magics: Sequence[Int32] | None = column("message formats seen, ascending; -1: not one of 0 to 62")
    codecs: Sequence[str] | None = column("compression codecs seen")
    transactional_batches: int | None = column("batches with the transactional attribute, markers included")
    control_batches: int | None = column("batches with the control attribute")
    interval_bytes: Int32 = column("index.interval.bytes that the indexes were built with")
    max_index_bytes: Int32 = column("segment.index.bytes that the indexes were built with")
    interval_source: IntervalSource = column(
        "who chose the interval: settings (or an option, or Kafka's default), metadata (of the topic's cluster), or "
        "compaction"
    )
    crc_checked: bool = column("whether every batch's checksum was verified")
    offset_index_entries: int | None = column("entries in the .index; null where it was not published")
    offset_index_bytes: int | None = column("size of the .index")
    offset_index_crc32c: int | None = column("CRC-32C of the .index")
    time_index_entries: int | None = column("entries in the .timeindex; null where it was not published")
    time_index_bytes: int | None = column("size of the .timeindex")
    time_index_crc32c: int | None = column("CRC-32C of the .timeindex")
    map_end_offset: int | None = column(
        "last offset of the last batch of magic 2 + 1, by which a snapshot of the producers is named"
    )
    leader_epochs: Sequence[LeaderEpochEntry] | None = column(
        "batches with a leader epoch above all before them in the segment"
    )
    offsets_increase: bool | None = column(
        "each batch's last offset is above that of the batch before it; null where catalog version 3 or older wrote "
        "the row"
    )
    log_mtime_ns: int | None = column("modification time of the .log, ns since the epoch")
    log_inode: int | None = column("inode number of the .log; null of an object, which has none")
    log_path: str = column("the .log")
    index_directory: str = column("directory of the .index and .timeindex", Formerly("index_folder", before=7))
    read_requests: int | None = column(
        "requests that reading the .log took, less those that the store's client repeats; null of a file"
    )
    read_bytes: int | None = column("bytes of the .log that they gave; null of a file")
    log_crc32c: int | None = column(
        "CRC-32C of the whole .log, invalid bytes at its end included; null: not known, as checksums were not "
        "verified, a message is of magic 0 or 1, or more than 16 MiB at the end are invalid"
    )
    log_crc64nvme: int | None = column(
        "CRC-64/NVME of the whole .log, its 64 bits as a signed number; null: not known, only --fill-facts reads for it"
    )
    offset_digests: Sequence[OffsetDigest] | None = column(
        "sums, modulo 2^64, of a 64-bit hash of each batch's base offset, last offset and checksum, by aligned ranges "
        "of base offsets, at most 16; ranges without a batch are left out; null: not known"
    )
    smallest_timestamp_ms: int | None = column(
        "smallest timestamp of a record in the valid bytes, ms since the epoch; -1: one has none, or there is no "
        "record; null: not known, as batch headers do not say it"
    )
    smallest_timestamps: Sequence[SmallestTimestamp] | None = column(
        "smallest timestamp of the records from a position on, at each of up to 64 positions from which on it is "
        "larger; null: not known"
    )
    records_by_hour: Sequence[HourRecords] | None = column(
        "records of the batches whose largest timestamp lies in an hour (its start, ms since the epoch; -1: no "
        "timestamp; null: the hours beyond 256); all but certain_records lie in it or earlier; null: not known"
    )
    catalog_version: Int32 = column("version of the catalog's columns that this row was made with")


@row
class SegmentRow(ScannedSegmentRow):
    """One row per segment of each source: what its log holds, how its scan ended, and its index files."""

    producer_state: str | None = column(
        "where the state of producers at the base offset comes from: log-start, snapshot or unknown"
    )
    aborted_transactions: int | None = column("transactions aborted in the segment: entries for its .txnindex")
    transaction_index_bytes: int | None = column("size of the .txnindex; null where there is none")
    transaction_index_crc32c: int | None = column("CRC-32C of the .txnindex")
    transaction_index_kept: bool | None = column(
        "the .txnindex that was there before stays, as producer_state is unknown"
    )
    max_timestamp: datetime | None = column("max_timestamp_ms as a timestamp; null for -1 and outside years 1-9999")
    log_mtime: datetime | None = column("log_mtime_ns as a timestamp")
    build_id: str = column("the build that found this row's facts; later builds that found the same left it")
    deleted_at: datetime | None = column("when retention deleted it, as a plan said; else null")


SEGMENTS: Final = Table(
    name="segments",
    row=SegmentRow,
    key=SEGMENT_KEY,
    sort_by=("topic", "partition", "base_offset"),
    asked_by=("status", "max_timestamp_ms", "max_timestamp"),
)


@view_of(SegmentRow)
class LogVersion(Row):
    """The columns of a segment's row that identify the state of its log."""

    log_bytes: int | None
    log_mtime_ns: int | None
    log_inode: int | None

    @classmethod
    def of_file(cls, version: FileVersion) -> Self:
        """The columns of a segment's row for a log that was looked at."""
        return cls(log_bytes=version.size, log_mtime_ns=version.mtime_ns, log_inode=version.inode)


@view_of(SegmentRow)
class EndFacts(Row):
    """The columns of a segment's row on how the scan of its log ended, or why Kafka fails on it."""

    status: Status
    reason: str | None
    reason_position: int | None
    reason_detail: str | None

    @classmethod
    def of_end(cls, end: ScanEnd) -> Self:
        """The columns of a segment's row for the end of a scan."""
        position = None if end.reason is None else end.position
        return cls(status=end.status, reason=end.reason, reason_position=position, reason_detail=end.detail)


@dataclass(frozen=True, slots=True)
class IndexFile:
    """What a segment's row has of an index file; its size is in bytes."""

    entries: int
    size: int
    crc32c: int

    @classmethod
    def of(cls, content: bytes, entry: np.dtype[np.void]) -> Self:
        """What a segment's row has of an index file with this content."""
        return cls(len(content) // entry.itemsize, len(content), crc32c(content))


@view_of(SegmentRow)
class IndexFacts(Row):
    """The columns of a segment's indexes, which compaction changes."""

    interval_bytes: Int32
    offset_index_entries: int | None
    offset_index_bytes: int | None
    offset_index_crc32c: int | None
    time_index_entries: int | None
    time_index_bytes: int | None
    time_index_crc32c: int | None

    @classmethod
    def of_files(cls, interval_bytes: int, offset_index: IndexFile | None, time_index: IndexFile | None) -> Self:
        """The columns of published indexes, or of indexes to be published; None: an index is not."""
        return cls(
            interval_bytes=interval_bytes,
            offset_index_entries=None if offset_index is None else offset_index.entries,
            offset_index_bytes=None if offset_index is None else offset_index.size,
            offset_index_crc32c=None if offset_index is None else offset_index.crc32c,
            time_index_entries=None if time_index is None else time_index.entries,
            time_index_bytes=None if time_index is None else time_index.size,
            time_index_crc32c=None if time_index is None else time_index.crc32c,
        )


@view_of(SegmentRow)
class FillableFacts(Row):
    """The facts that a scan does not always find, and that `--fill-facts` fills; only `--fill-facts` fills the last."""

    log_crc32c: int | None
    smallest_timestamp_ms: int | None
    log_crc64nvme: int | None


@view_of(SegmentRow)
class FinishedFacts(Row):
    """The columns that finishing a partition adds; null until then."""

    producer_state: str | None
    aborted_transactions: int | None
    transaction_index_bytes: int | None
    transaction_index_crc32c: int | None
    transaction_index_kept: bool | None


@view_of(SegmentRow)
class ReadCost(Row):
    """The cost of a scan, not its result."""

    read_requests: int | None
    read_bytes: int | None


#: The columns that are null for a segment that was just read.
LATER_NAMES: Final = (*FinishedFacts.names(), "deleted_at")


@view_of(SegmentRow)
class _IndexedSegment(Row):
    """A segment whose log may have changed since its indexes were written."""

    base_offset: int
    status: Status
    active: bool
    log_bytes: int | None
    log_mtime_ns: int | None
    log_inode: int | None
    interval_bytes: Int32
    max_index_bytes: Int32
    crc_checked: bool
    producer_state: str | None
    log_path: str
    index_directory: str

    @property
    def version(self) -> FileVersion | None:
        """The version of the log that was read; None: the log could not be looked at."""
        if self.log_bytes is None or self.log_mtime_ns is None:
            return None
        return FileVersion(self.log_bytes, self.log_mtime_ns, self.log_inode)

    @property
    def is_finished(self) -> bool:
        """Whether the partition was finished after the segment was read."""
        return self.producer_state is not None


@view_of(SegmentRow)
class KnownSegment(_IndexedSegment):
    """The columns that a listing is compared with."""

    topic_id: str | None
    interval_source: IntervalSource
    offset_index_bytes: int | None
    time_index_bytes: int | None
    transaction_index_bytes: int | None
    log_crc32c: int | None
    smallest_timestamp_ms: int | None
    log_crc64nvme: int | None
    catalog_version: Int32


@view_of(SegmentRow)
class SegmentToFinish(Row):
    """The columns that a partition is finished from, besides producer events."""

    status: Status
    next_offset: int | None
    map_end_offset: int | None
    leader_epochs: Sequence[LeaderEpochEntry] | None
    offset_index_bytes: int | None


@view_of(SegmentRow)
class SegmentToCompact(_IndexedSegment):
    """The columns for compaction."""

    valid_bytes: int | None
    max_timestamp_ms: int | None
    offsets_increase: bool | None
    offset_index_crc32c: int | None
    time_index_crc32c: int | None
    transaction_index_crc32c: int | None

    @property
    def options(self) -> RecoverOptions:
        """The options of the segment's indexes by its row, without another check of checksums."""
        return RecoverOptions(interval_bytes=self.interval_bytes, max_index_bytes=self.max_index_bytes)

    @property
    def largest_timestamp_ms(self) -> int:
        """The time from which the segment's age counts, by its row (`LogSegment.largestTimestamp`), in ms since the
        epoch.
        """
        if self.max_timestamp_ms is not None and self.max_timestamp_ms >= 0:
            return self.max_timestamp_ms
        return 0 if self.log_mtime_ns is None else self.log_mtime_ns // NS_PER_MS

    def crc32c_of(self, suffix: str) -> int | None:
        """CRC-32C of one of the segment's index files by its row; None: it was not published."""
        return {
            OFFSET_INDEX_SUFFIX: self.offset_index_crc32c,
            TIME_INDEX_SUFFIX: self.time_index_crc32c,
            TRANSACTION_INDEX_SUFFIX: self.transaction_index_crc32c,
        }.get(suffix)


@view_of(SegmentRow)
class SegmentToSearch(Row):
    """The columns for a lookup."""

    base_offset: int
    status: Status
    reason: str | None
    reason_position: int | None
    next_offset: int | None
    log_path: str
    log_bytes: int | None
    valid_bytes: int | None
    log_mtime_ns: int | None
    max_timestamp_ms: int | None
    offset_of_max_timestamp: int | None
    index_directory: str
    offset_index_bytes: int | None
    time_index_bytes: int | None
    leader_epochs: Sequence[LeaderEpochEntry] | None


@view_of(SegmentRow)
class SegmentToRead(_IndexedSegment):
    """The columns by which reading skips segments or parts of them, and does without a scan."""

    source: str
    topic: str
    partition: Int32
    next_offset: int | None
    records: int | None
    transactional_batches: int | None
    control_batches: int | None
    magics: Sequence[Int32] | None
    offsets_increase: bool | None
    max_timestamp_ms: int | None
    smallest_timestamp_ms: int | None
    smallest_timestamps: Sequence[SmallestTimestamp] | None
    time_index_crc32c: int | None


@view_of(SegmentRow)
class SegmentToPlan(Row):
    """The columns that retention decides by, besides the partition's offsets."""

    base_offset: int
    topic_id: str | None
    records: int | None
    next_offset: int | None
    status: Status
    log_bytes: int | None
    valid_bytes: int | None
    max_timestamp_ms: int | None
    log_mtime_ns: int | None
    log_inode: int | None
    log_path: str
    index_directory: str


@view_of(SegmentRow)
class SegmentToCompare(Row):
    """The columns that a copy of a log is compared with."""

    topic: str
    partition: Int32
    base_offset: int
    log_bytes: int | None
    log_crc32c: int | None
    log_crc64nvme: int | None
