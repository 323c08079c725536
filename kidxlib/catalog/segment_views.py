"""Views of a segment's row, with the columns that each operation reads."""

from __future__ import annotations

from collections.abc import Sequence

from kidxlib.catalog.rows import Int32, Row, view_of
from kidxlib.catalog.segments import IntervalSource, LeaderEpochEntry, SegmentRow, SmallestTimestamp
from kidxlib.format.segment_files import OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX
from kidxlib.recovery.options import RecoverOptions
from kidxlib.recovery.outcome import Status
from kidxlib.storage.location import FileVersion
from kidxlib.text.times import NS_PER_MS


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
        """The options of the indexes, without another check of checksums."""
        return RecoverOptions(interval_bytes=self.interval_bytes, max_index_bytes=self.max_index_bytes)

    @property
    def largest_timestamp_ms(self) -> int:
        """The time from which the age counts (`LogSegment.largestTimestamp`), in ms since the epoch."""
        if self.max_timestamp_ms is not None and self.max_timestamp_ms >= 0:
            return self.max_timestamp_ms
        return 0 if self.log_mtime_ns is None else self.log_mtime_ns // NS_PER_MS

    def crc32c_of(self, suffix: str) -> int | None:
        """CRC-32C of an index file as it was published; None: it was not published."""
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
