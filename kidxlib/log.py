"""A partition's segments, asked as a broker asks them: Kafka's `UnifiedLog` over its `LocalLog`, without tiering.

It is the log as it stands in its files: what a broker would cut or rebuild when it starts is not.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Self

from kidxlib import names
from kidxlib.epochs import LeaderEpochs
from kidxlib.errors import KidxError
from kidxlib.log_dir import read_leader_epochs
from kidxlib.log_segment import BatchPosition, FetchedBytes, LogSegment, TimestampAndOffset
from kidxlib.objects import Location
from kidxlib.offset_index import OffsetPosition
from kidxlib.transaction_index import AbortedTransaction

#: Timestamps that ask for something else (`ListOffsetsRequest`).
LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6

_NOT_TIERED: Final = TimestampAndOffset(-1, -1, -1)


class NoSegmentsError(KidxError):
    """A log has no segments."""


class OffsetOutOfRangeError(KidxError):
    """An offset was asked for that the log does not have any more, or not yet (`OffsetOutOfRangeException`)."""


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
class Fetched:
    """What a fetch gets (`FetchDataInfo`).

    Attributes:
        start: where its bytes lie.
        size: how many they are; the last batch in them may be cut.
        first_batch_incomplete: as in `FetchedBytes`.
        aborted: the aborted transactions in them, and perhaps a few behind; None where nobody asked.
    """

    start: LogOffset
    size: int
    first_batch_incomplete: bool
    aborted: tuple[AbortedTransaction, ...] | None


class Log:
    """One partition's segments in the order of their base offsets.

    Attributes:
        name: what it is called in messages.
        segments: all of them; the last is the active one.
        log_start_offset: nothing below is given; the first base offset, or above it.
        log_end_offset: the offset that the next record gets.
    """

    def __init__(
        self,
        segments: Iterable[LogSegment],
        *,
        name: str = "log",
        log_start_offset: int = 0,
        log_end_offset: int | None = None,
        leader_epochs: LeaderEpochs | None = None,
    ) -> None:
        """
        Args:
            log_start_offset: what the broker's checkpoint file says; 0 where it says nothing.
            log_end_offset: None to read it from the last segment, as a broker does when it starts after a clean stop.
            leader_epochs: what the `leader-epoch-checkpoint` says; None for none.

        Raises:
            NoSegmentsError: there are none.
        """
        self.name = name
        self.segments = tuple(sorted(segments, key=lambda segment: segment.base_offset))
        if not self.segments:
            raise NoSegmentsError(f"{name}: no segment in it, expected <base offset>.log files")
        self._base_offsets = [segment.base_offset for segment in self.segments]
        self.log_start_offset = max(log_start_offset, self._base_offsets[0])
        self._log_end_offset = log_end_offset
        self._leader_epochs = leader_epochs

    @classmethod
    def open(
        cls,
        folder: Location,
        index_folder: Location | None = None,
        *,
        log_start_offset: int = 0,
        segment_type: type[LogSegment] = LogSegment,
    ) -> Self:
        """The log in a partition's folder. Its files are opened when they are needed.

        Args:
            index_folder: where indexes lie, and perhaps the `leader-epoch-checkpoint`, which is else looked for beside
                the logs; None for all beside the logs.
            log_start_offset: what the broker's checkpoint file says; 0 where it says nothing.

        Raises:
            NoSegmentsError: there are none.
            CheckpointError: the `leader-epoch-checkpoint` is malformed.
            OSError: a folder cannot be listed, or a file cannot be looked at.
        """
        epochs = None if index_folder is None else read_leader_epochs(index_folder)
        found = [names.parse_segment_log(path.name) for path in folder.iterdir()]
        return cls(
            [segment_type.open(folder, offset, index_folder) for offset in found if offset is not None],
            name=str(folder),
            log_start_offset=log_start_offset,
            leader_epochs=read_leader_epochs(folder) if epochs is None else epochs,
        )

    @property
    def log_end_offset(self) -> int:
        if self._log_end_offset is None:
            self._log_end_offset = self.segments[-1].next_offset()
        return self._log_end_offset

    @property
    def leader_epochs(self) -> LeaderEpochs:
        """Those of its offsets: a broker drops what lies outside when it starts."""
        if self._leader_epochs is None:
            return LeaderEpochs()
        return self._leader_epochs.within(self.log_start_offset, self.log_end_offset)

    # ---- by offset ----

    def floor_segment(self, offset: int) -> LogSegment | None:
        """The last segment whose base offset is not above an offset; None where all are."""
        at = bisect_right(self._base_offsets, offset) - 1
        return self.segments[at] if at >= 0 else None

    def higher_segments(self, base_offset: int) -> tuple[LogSegment, ...]:
        """The segments whose base offsets are above this one."""
        return self.segments[bisect_right(self._base_offsets, base_offset) :]

    def translate_offset(self, offset: int) -> tuple[LogSegment, BatchPosition] | None:
        """The first batch that a consumer at an offset gets, and its segment: of the floor segment, or where that ends
        below the offset, as after compaction, of one behind it.

        Returns:
            None where no batch reaches so far.

        Raises:
            OffsetOutOfRangeError: the offset is below the log start offset or above the log end offset.
            MalformedRecordsError: as `LogSegment.translate_offset`.
        """
        self._check_range(offset)
        for segment in self._from_floor(offset):
            batch = segment.translate_offset(offset)
            if batch is not None:
                return segment, batch
        return None

    def read(
        self,
        start_offset: int,
        max_bytes: int,
        *,
        min_one_message: bool = False,
        max_offset: int | None = None,
        with_aborted: bool = False,
    ) -> Fetched:
        """Which bytes a fetch from an offset gets (`UnifiedLog.read`, `LocalLog.read`); they are of one segment.

        Args:
            max_bytes: no more than these.
            min_one_message: whether the first batch is given whole, were it larger than `max_bytes`.
            max_offset: nothing from here on: the high watermark, or for a consumer that reads what is committed the
                last stable offset. None for the log end offset.
            with_aborted: whether to look for the transactions that such a consumer has to skip.

        Raises:
            OffsetOutOfRangeError: `start_offset` is below the log start offset or above the log end offset.
            InvalidFetchError: `max_bytes` is negative.
            MalformedRecordsError: as `LogSegment.translate_offset`.
        """
        self._check_range(start_offset)
        limit = self._end if max_offset is None else self._place(max_offset)
        nothing = () if with_aborted else None
        if start_offset >= limit.offset:
            start = limit if start_offset == limit.offset else self._place(start_offset)
            return Fetched(start, 0, False, nothing)
        for segment in self._from_floor(start_offset):
            fetched = self._read(segment, start_offset, max_bytes, min_one_message, limit)
            if fetched is not None:
                start = LogOffset(fetched.batch.base_offset, segment.base_offset, fetched.batch.position)
                aborted = self._aborted_in(start_offset, segment, fetched) if with_aborted else None
                return Fetched(start, fetched.size, fetched.first_batch_incomplete, aborted)
        return Fetched(self._end, 0, False, None)  # Kafka forgets about aborted ones here

    def collect_aborted(self, start_offset: int, upper_bound: int) -> tuple[AbortedTransaction, ...]:
        """The aborted transactions that have offsets from `start_offset` to below `upper_bound`, and perhaps a few that
        begin below the log start offset or are long decided (`collectAbortedTransactions`).

        Raises:
            UnknownVersionError: an index on the way has an entry that Kafka refuses.
        """
        segment = self.floor_segment(start_offset)
        return () if segment is None else self._collect_aborted(self.log_start_offset, upper_bound, segment)

    # ---- by time ----

    def fetch_offset_by_timestamp(self, timestamp: int) -> TimestampAndOffset | None:
        """What `ListOffsets` answers (`UnifiedLog.fetchOffsetByTimestamp`): the first record, in the order of offsets,
        with at least this timestamp.

        The first segment is searched whose largest timestamp is not below it, and no other. A segment without
        timestamps counts as being as old as its file: it may be the one, and nothing is found.

        Args:
            timestamp: ms since the epoch; or −1 for the log end offset, −2 and −4 for the log start offset, −3 for the
                record with the largest timestamp, −5 and −6 for −1, as the log is not tiered.

        Returns:
            None where there is none.

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
            return self.youngest_segment.find_max_timestamp()
        segment = self.segment_of_timestamp(timestamp)
        return None if segment is None else segment.find_offset_by_timestamp(timestamp, self.log_start_offset)

    def segment_of_timestamp(self, timestamp: int) -> LogSegment | None:
        """The segment in which a timestamp is looked for; None where all are older."""
        return next((segment for segment in self.segments if segment.largest_timestamp >= timestamp), None)

    @property
    def youngest_segment(self) -> LogSegment:
        """The first of those with the largest timestamp in their time indexes."""
        return max(self.segments, key=lambda segment: segment.max_timestamp_so_far.timestamp)

    # ---- parts ----

    @property
    def _end(self) -> LogOffset:
        active = self.segments[-1]
        return LogOffset(self.log_end_offset, active.base_offset, active.size)

    def _check_range(self, offset: int) -> None:
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRangeError(
                f"{self.name}: offset {offset}, expected {self.log_start_offset}, the log start offset, to "
                f"{self.log_end_offset}, the log end offset"
            )

    def _from_floor(self, offset: int) -> tuple[LogSegment, ...]:
        return self.segments[max(bisect_right(self._base_offsets, offset) - 1, 0) :]

    def _place(self, offset: int) -> LogOffset:
        """Where a fetch from an offset starts (`convertToOffsetMetadataOrThrow`)."""
        return self.read(offset, 1).start

    def _read(
        self, segment: LogSegment, start_offset: int, max_bytes: int, min_one_message: bool, limit: LogOffset
    ) -> FetchedBytes | None:
        if segment.base_offset == limit.segment_base_offset:
            return segment.read(start_offset, max_bytes, limit.position, min_one_message=min_one_message)
        fetched = segment.read(start_offset, max_bytes, min_one_message=min_one_message)
        if fetched is not None and segment.base_offset > limit.segment_base_offset:
            return FetchedBytes(fetched.batch, 0, False)
        return fetched

    def _aborted_in(
        self, start_offset: int, segment: LogSegment, fetched: FetchedBytes
    ) -> tuple[AbortedTransaction, ...]:
        """`LocalLog.addAbortedTransactions`."""
        start = OffsetPosition(fetched.batch.base_offset, fetched.batch.position)
        upper_bound = segment.fetch_upper_bound(start, fetched.size)
        if upper_bound is None:
            higher = self.higher_segments(segment.base_offset)
            upper_bound = higher[0].base_offset if higher else self.log_end_offset
        return self._collect_aborted(start_offset, upper_bound, segment)

    def _collect_aborted(
        self, start_offset: int, upper_bound: int, starting_segment: LogSegment
    ) -> tuple[AbortedTransaction, ...]:
        aborted: list[AbortedTransaction] = []
        for segment in (starting_segment, *self.higher_segments(starting_segment.base_offset)):
            found = segment.collect_aborted(start_offset, upper_bound)
            aborted += found.transactions
            if found.complete:
                break
        return tuple(aborted)
