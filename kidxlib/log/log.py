"""A partition's log, and the answers that a broker gives from it. `Log` is Kafka's `UnifiedLog` with its `LocalLog`,
without tiering. `LeaderEpochCache` is `LeaderEpochFileCache`.

The log is read as its files are: unlike a broker that starts, this module truncates and rebuilds nothing. Where Kafka
answers with −1 or an empty `Optional`, the answer is None.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from os import PathLike
from typing import Final, Self

from kidxlib.errors import KidxError, NoSegmentsError, OffsetOutOfRangeError, UsageError
from kidxlib.format import segment_files
from kidxlib.format.checkpoint_files import EpochEntry, LeaderEpochs
from kidxlib.format.kafka_release import NEWEST
from kidxlib.index.transaction import WhichRelease
from kidxlib.log.overlaps import LogRange, Overlap, overlaps_of
from kidxlib.log.segment import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    BatchPosition,
    LogSegment,
    TimestampAndOffset,
)
from kidxlib.storage.location import as_location
from kidxlib.storage.log_dir import read_leader_epochs

_NOT_TIERED: Final = TimestampAndOffset(-1, -1, -1)

_EPOCH = attrgetter("epoch")
_START_OFFSET = attrgetter("start_offset")


def _unknown() -> None:
    return None


@dataclass(frozen=True, slots=True)
class MissingStart:
    """The logs that are missing before the first one: a partition's leader epochs begin before it.

    Attributes:
        first_offset: where the leader epochs begin, below the base offset of the first segment.
        is_lost: whether the logs are known to be lost. If not, they may be in a bucket.
    """

    first_offset: int
    is_lost: bool


@dataclass(frozen=True, slots=True)
class LogDirEvidence:
    """What a log dir's other files say about a log.

    Attributes:
        high_watermark: from the checkpoint; None if the checkpoint has none.
        why_no_high_watermark: returns what is wrong with that checkpoint, and whether it is malformed; None: nothing.
        missing_start: returns the logs that are missing before the first one; None: none, or not known.
        is_compacted: returns whether the cleaner may have removed offsets; None: not known.
        unloaded_logs_remedy: gets a range of offsets (end exclusive), and returns what to do about logs that begin in
            it and that no broker loads; None: there are none.
        is_log_dir: whether the log is in a log dir, where segments do not overlap; in a bucket they may.
    """

    high_watermark: int | None = None
    why_no_high_watermark: Callable[[], tuple[str, bool] | None] = _unknown
    missing_start: Callable[[], MissingStart | None] = _unknown
    is_compacted: Callable[[], bool | None] = _unknown
    unloaded_logs_remedy: Callable[[int, int], str | None] = lambda first_offset, end_offset: None
    is_log_dir: bool = False


@dataclass(frozen=True, slots=True)
class EpochEndOffset:
    """Where a leader epoch ends (`OffsetsForLeaderEpoch`).

    Attributes:
        epoch: the requested epoch, or the last known epoch before it.
        end_offset: the offset after the epoch's last record.
    """

    epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class LeaderEpochCache:
    """The leader epochs of a partition, each with the offset at which it begins. Immutable.

    Entries are assigned in their order, as Kafka assigns a checkpoint's (`assign`): an entry replaces each earlier one
    with the same or a later epoch, or the same or a later start offset. So epochs and offsets both increase.

    Attributes:
        entries: the entries that remain.

    Raises:
        UsageError: an epoch or an offset is below 0.
    """

    entries: tuple[EpochEntry, ...] = ()

    def __post_init__(self) -> None:
        for entry in self.entries:
            if entry.epoch < 0 or entry.start_offset < 0:
                raise UsageError(f"{entry}: expected an epoch and an offset of 0 or more")
        object.__setattr__(self, "entries", LeaderEpochs(self.entries).entries)

    @property
    def earliest_entry(self) -> EpochEntry | None:
        """The first entry (`earliestEntry`); None where there is none."""
        return self.entries[0] if self.entries else None

    @property
    def latest_entry(self) -> EpochEntry | None:
        """The last entry (`latestEntry`); None where there is none."""
        return self.entries[-1] if self.entries else None

    @property
    def latest_epoch(self) -> int | None:
        """The epoch of the last entry (`latestEpoch`); None where there is none."""
        return _epoch_of(self.latest_entry)

    def epoch_entry(self, epoch: int) -> EpochEntry | None:
        """The entry of exactly this epoch (`epochEntry`); None where there is none."""
        at = bisect_left(self.entries, epoch, key=_EPOCH)
        return self.entries[at] if at < len(self.entries) and self.entries[at].epoch == epoch else None

    def previous_entry(self, epoch: int) -> EpochEntry | None:
        """The last entry below an epoch, which itself may be unknown (`previousEntry`)."""
        at = bisect_left(self.entries, epoch, key=_EPOCH)
        return self.entries[at - 1] if at else None

    def previous_epoch(self, epoch: int | None = None) -> int | None:
        """The epoch of `previous_entry` (`previousEpoch`).

        Args:
            epoch: None for the latest.
        """
        epoch = self.latest_epoch if epoch is None else epoch
        return None if epoch is None else _epoch_of(self.previous_entry(epoch))

    def next_epoch(self, epoch: int) -> int | None:
        """The first known epoch above an epoch, which itself may be unknown (`nextEpoch`)."""
        at = bisect_right(self.entries, epoch, key=_EPOCH)
        return self.entries[at].epoch if at < len(self.entries) else None

    def epoch_for_offset(self, offset: int) -> int | None:
        """The epoch of an offset (`epochForOffset`), also of one without a record: past the log end offset it is the
        latest epoch. None for an offset before the first entry.
        """
        at = bisect_right(self.entries, offset, key=_START_OFFSET)
        return self.entries[at - 1].epoch if at else None

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEndOffset | None:
        """Where an epoch ends (`endOffsetFor`).

        The latest epoch ends with the log. An earlier epoch ends where the next known epoch begins; the answer names
        the last known epoch up to it. For an epoch before all known ones, the answer has that epoch and the first
        start offset.

        Returns:
            None for an epoch above all known ones, and for −1, which is no epoch.
        """
        if epoch == self.latest_epoch:
            return EpochEndOffset(epoch, log_end_offset)
        at = bisect_right(self.entries, epoch, key=_EPOCH)
        if epoch == -1 or at == len(self.entries):
            return None
        return EpochEndOffset(self.entries[at - 1].epoch if at else epoch, self.entries[at].start_offset)

    def entries_in_range(self, start_offset: int, end_offset: int) -> tuple[EpochEntry, ...]:
        """The epochs of a range of offsets (`epochEntriesInRange`). The first entry begins at `start_offset`, even if
        its epoch began earlier.

        Args:
            start_offset, end_offset: the end is exclusive; below 0: no limit.
        """
        entries = self.entries
        first = bisect_right(entries, start_offset, key=_START_OFFSET)
        if start_offset >= 0 and first:
            entries = (EpochEntry(entries[first - 1].epoch, start_offset), *entries[first:])
        return entries if end_offset < 0 else entries[: bisect_left(entries, end_offset, key=_START_OFFSET)]


def _epoch_of(entry: EpochEntry | None) -> int | None:
    return None if entry is None else entry.epoch


class Log:
    """One partition's segments in the order of their base offsets.

    Attributes:
        name: the log's name in messages.
        segments: all segments; the last one is active.
        log_start_offset: the first offset that can be read: at or above the first base offset.
        log_end_offset: the offset that the next record gets.
        of_log_dir: what the log dir's other files say about the log.
    """

    def __init__(
        self,
        segments: Iterable[LogSegment],
        *,
        name: str = "log",
        log_start_offset: int = 0,
        log_end_offset: int | None = None,
        leader_epochs: LeaderEpochs | None = None,
        of_log_dir: LogDirEvidence | None = None,
        next_offsets: Mapping[int, int] | None = None,
    ) -> None:
        """
        Args:
            log_start_offset: from the broker's checkpoint file; 0 if it has none.
            log_end_offset: None to read it from the last segment, as a broker does when it starts after a clean stop.
            leader_epochs: from the `leader-epoch-checkpoint`; None if there is none.
            next_offsets: where segments end, by base offset, as far as that is known.

        Raises:
            NoSegmentsError: `segments` is empty.
        """
        self.name = name
        self.segments = tuple(sorted(segments, key=lambda segment: segment.base_offset))
        if not self.segments:
            raise NoSegmentsError(f"{name}: no segment in it, expected <base offset>.log files")
        self._base_offsets = [segment.base_offset for segment in self.segments]
        self.log_start_offset = max(log_start_offset, self._base_offsets[0])
        self._log_end_offset = log_end_offset
        self._leader_epochs = leader_epochs
        self.of_log_dir = of_log_dir or LogDirEvidence()
        self._next_offsets = dict(next_offsets or {})
        self._overlaps: Mapping[int, Overlap] | None = None

    @classmethod
    def open(
        cls,
        directory: str | PathLike[str],
        index_directory: str | PathLike[str] | None = None,
        *,
        log_start_offset: int = 0,
        segment_type: type[LogSegment] = LogSegment,
        of_log_dir: LogDirEvidence | None = None,
        release: WhichRelease = NEWEST,
    ) -> Self:
        """Open the log in a partition's directory. The `leader-epoch-checkpoint` is read at once. Other files are
        opened when they are needed.

        Args:
            directory: the partition's directory, here or in `s3://<bucket>/<prefix>`.
            index_directory: where indexes are; None: beside the logs. If it has a `leader-epoch-checkpoint`, that one
                is read, and not the one beside the logs.
            log_start_offset: from the broker's checkpoint file; 0 if it has none.
            release: as of `TransactionIndex.open`.

        Raises:
            NoSegmentsError: the directory has no segments.
            CheckpointError: the `leader-epoch-checkpoint` is malformed.
            OSError: a directory cannot be listed, or a file cannot be looked at.
        """
        logs = as_location(directory)
        indexes = None if index_directory is None else as_location(index_directory)
        epochs = None if indexes is None else read_leader_epochs(indexes)
        base_offsets = [segment_files.parse_segment_log(path.name) for path in logs.iterdir()]
        return cls(
            [
                segment_type.open(logs, offset, indexes, release=release)
                for offset in base_offsets
                if offset is not None
            ],
            name=str(logs),
            log_start_offset=log_start_offset,
            leader_epochs=read_leader_epochs(logs) if epochs is None else epochs,
            of_log_dir=of_log_dir,
        )

    @property
    def log_end_offset(self) -> int:
        if self._log_end_offset is None:
            self._log_end_offset = self.segments[-1].next_offset()
        return self._log_end_offset

    @property
    def leader_epochs(self) -> LeaderEpochs:
        """The leader epochs from the log start offset to the log end offset. A broker drops others when it starts."""
        if self._leader_epochs is None:
            return LeaderEpochs()
        return self._leader_epochs.within(self.log_start_offset, self.log_end_offset)

    @property
    def leader_epoch_cache(self) -> LeaderEpochCache:
        """`leader_epochs` as a cache, which knows the epoch of an offset and the end of an epoch."""
        return LeaderEpochCache(self.leader_epochs.entries)

    def end_offset_for_epoch(self, leader_epoch: int) -> EpochEndOffset | None:
        """Where a leader epoch ends in this log (`endOffsetForEpoch`), as `LeaderEpochCache.end_offset_for` says."""
        return self.leader_epoch_cache.end_offset_for(leader_epoch, self.log_end_offset)

    def overlap_at(self, number: int) -> Overlap | None:
        """Why a segment may belong to another partition; None if it overlaps no neighbour. Overlaps in a bucket are
        not looked for.

        Args:
            number: the segment's position in `segments`.
        """
        if not self.of_log_dir.is_log_dir:
            return None
        last = len(self.segments) - 1
        if self._overlaps is None:
            borders = range(max(number - 1, 0), min(number + 1, last))
            if all(self._next_offset(border) <= self._base_offsets[border + 1] for border in borders):
                return None
            ranges = [LogRange(base, max(self._next_offset(at), base)) for at, base in enumerate(self._base_offsets)]
            self._overlaps = overlaps_of(ranges)
        return self._overlaps.get(self._base_offsets[number])

    def _next_offset(self, number: int) -> int:
        """Where a segment ends; its base offset if its log cannot be read. A later read reports that error."""
        segment = self.segments[number]
        if segment.base_offset not in self._next_offsets:
            try:
                self._next_offsets[segment.base_offset] = segment.next_offset()
            except (OSError, KidxError):
                self._next_offsets[segment.base_offset] = segment.base_offset
            finally:
                segment.release()
        return self._next_offsets[segment.base_offset]

    # ---- by offset ----

    def floor_segment(self, offset: int) -> LogSegment | None:
        """The last segment whose base offset is at or below an offset; None if all are above it."""
        at = bisect_right(self._base_offsets, offset) - 1
        return self.segments[at] if at >= 0 else None

    def higher_segments(self, base_offset: int) -> tuple[LogSegment, ...]:
        """The segments whose base offset is above the given one."""
        return self.segments[bisect_right(self._base_offsets, base_offset) :]

    def check_range(self, offset: int) -> None:
        """
        Raises:
            OffsetOutOfRangeError: the offset is below the log start offset or above the log end offset.
        """
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRangeError(
                f"{self.name}: offset {offset}, expected {self.log_start_offset}, the log start offset, to "
                f"{self.log_end_offset}, the log end offset"
            )

    def segments_from(self, offset: int) -> tuple[LogSegment, ...]:
        """The floor segment of an offset and all later segments; all segments if the offset has no floor segment."""
        return self.segments[max(bisect_right(self._base_offsets, offset) - 1, 0) :]

    def segments_between(self, start_offset: int, end_offset: int) -> tuple[LogSegment, ...]:
        """The segments in which the offsets from `start_offset` to below `end_offset` may lie (`logSegments`): from the
        floor segment of `start_offset`, or else the first segment, to the last one that begins before `end_offset`.

        Raises:
            UsageError: the range ends before it begins.
        """
        if end_offset < start_offset:
            raise UsageError(f"{self.name}: offsets {start_offset} to {end_offset}, expected an end that is not below")
        if start_offset == end_offset:
            return ()
        first = max(bisect_right(self._base_offsets, start_offset) - 1, 0)
        return self.segments[first : bisect_left(self._base_offsets, end_offset)]

    def non_active_segments_from(self, start_offset: int) -> tuple[LogSegment, ...]:
        """The segments, without the active one, in which `start_offset` or later offsets may lie
        (`nonActiveLogSegmentsFrom`).
        """
        active = self._base_offsets[-1]
        return () if start_offset > active else self.segments_between(start_offset, active)

    def translate_offset(self, offset: int) -> tuple[LogSegment, BatchPosition] | None:
        """The first batch that a consumer at an offset gets, and its segment. That is the floor segment, or a later one
        if the floor segment ends below the offset, as after compaction.

        Returns:
            None if all batches end below the offset.

        Raises:
            OffsetOutOfRangeError: the offset is below the log start offset or above the log end offset.
            MalformedRecordsError: as `LogSegment.translate_offset`.
        """
        self.check_range(offset)
        for segment in self.segments_from(offset):
            batch = segment.translate_offset(offset)
            if batch is not None:
                return segment, batch
        return None

    # ---- by time ----

    def fetch_offset_by_timestamp(self, timestamp: int) -> TimestampAndOffset | None:
        """What `ListOffsets` answers (`UnifiedLog.fetchOffsetByTimestamp`): the first record, in the order of offsets,
        with at least this timestamp.

        Only one segment is searched: the first whose largest timestamp is not below `timestamp`. For a segment without
        timestamps, that is its file's modification time. If such a segment is the one searched, there is no answer.

        Args:
            timestamp: ms since the epoch; or −1 for the log end offset, −2 and −4 for the log start offset, −3 for the
                record with the largest timestamp. −5 and −6 are answered with −1, as the log is not tiered.

        Returns:
            None if there is no such record.

        Raises:
            MalformedRecordsError: as `LogSegment.find_offset_by_timestamp`.
        """
        if timestamp in (EARLIEST, EARLIEST_LOCAL):
            first = self.leader_epochs.first
            epoch = first.epoch if first is not None and first.start_offset <= self.log_start_offset else None
            return TimestampAndOffset(-1, self.log_start_offset, epoch)
        if timestamp == LATEST:
            last = self.leader_epochs.last
            return TimestampAndOffset(-1, self.log_end_offset, None if last is None else last.epoch)
        if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
            return _NOT_TIERED
        if timestamp == MAX_TIMESTAMP:
            return self.latest_timestamp_segment.find_max_timestamp()
        segment = self.segment_of_timestamp(timestamp)
        return None if segment is None else segment.find_offset_by_timestamp(timestamp, self.log_start_offset)

    def segment_of_timestamp(self, timestamp: int) -> LogSegment | None:
        """The segment that is searched for a timestamp; None if all are older."""
        return next((segment for segment in self.segments if segment.largest_timestamp >= timestamp), None)

    @property
    def latest_timestamp_segment(self) -> LogSegment:
        """The segment with the largest timestamp in its time index; the first of several."""
        return max(self.segments, key=lambda segment: segment.max_timestamp_so_far.timestamp)
