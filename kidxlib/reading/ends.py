"""From where to where partitions are read, and what of them is not: by checkpoint files, the ends of logs, and what is
asked for.

Where a partition's directory holds its only replica, and no broker is at work on it, all in its log counts: with one
replica the high watermark follows each append (`Partition.maybeIncrementLeaderHW`), and what the checkpoint of some
seconds ago says is only late.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kidxlib.errors import CheckpointError, KidxError, LogChangedError, MalformedRecordsError
from kidxlib.format.batch_header import ATTRIBUTE_CONTROL
from kidxlib.format.checkpoint_files import HIGH_WATERMARK_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT
from kidxlib.format.layouts import MAGIC_V2
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.indexing.source import PartitionDirectory
from kidxlib.lookup.of_checkpoints import ReadOffsets, lost_first_offset
from kidxlib.reading.aborted import AbortedRanges
from kidxlib.reading.absent import BrokersMetadata
from kidxlib.reading.bounds import ListedLog, bounds_of, had_more, last_entry
from kidxlib.reading.gaps_met import begins_ms
from kidxlib.reading.left_out import LeftOut, Why
from kidxlib.reading.request import OffsetRange, ReadRequest
from kidxlib.reading.rows import rows_of
from kidxlib.reading.segment_read import SegmentRead
from kidxlib.records.arrow.schema import CONSUMED
from kidxlib.records.bulk.batch_table import BatchWalk
from kidxlib.records.bulk.batch_table_kernel import UNKNOWN_COUNT
from kidxlib.records.bulk.wanted import Wanted
from kidxlib.storage.location import Location
from kidxlib.storage.lock import is_locked
from kidxlib.storage.log_dir import read_topic_id
from kidxlib.storage.logs_aside import LogsAside
from kidxlib.storage.opened_log import opened_log
from kidxlib.storage.small_files import read_leader_epochs, read_offset_checkpoint

#: Says where the `.index` of a log is.
IndexOf: TypeAlias = Callable[[ListedLog], Location]

_OFFSET_MAX: Final = Wanted().last_offset

#: Of more bytes of logs records are not counted: headers lie too far apart for a plan to wait for them.
_COUNTED_BYTES: Final = 1024 * 1024 * 1024
#: Of more bytes it is not looked which records have the times that are asked for.
_DECODED_BYTES: Final = 256 * 1024 * 1024
_OFFSETS: Final = pa.schema([CONSUMED.field("offset")])


@dataclass(frozen=True, slots=True)
class _Checkpoints:
    """What the checkpoint files of a log dir say."""

    log_starts: Mapping[TopicPartition, int]
    high_watermarks: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionEnds:
    """From where to where a partition is read.

    Attributes:
        seen: what is wanted of what consumers see.
        high_watermark: as a checkpoint has it; None where none does.
        limit: that, if nothing from there on is read; else None.
        beyond: how many offsets beyond it are read, as this is the only replica.
        is_short: the log is known to end before the high watermark.
        left_out: what is not read, and what is asked for and not there.
    """

    seen: Wanted
    high_watermark: int | None
    limit: int | None = None
    beyond: int = 0
    is_short: bool = False
    left_out: Sequence[LeftOut] = ()


@dataclass(frozen=True, slots=True)
class Tail:
    """What stands from an offset on.

    Attributes:
        end_offset: behind the last batch.
        is_whole: the walk came to the end of the log, or to an append that was not finished. Else something is damaged,
            and there may be more.
        first_offset, last_offset: of the batches that may hold something wanted; None where none does.
        records: of these batches, without markers; None where they do not say it, or are too many to look at.
    """

    end_offset: int
    is_whole: bool
    first_offset: int | None = None
    last_offset: int | None = None
    records: int | None = 0


def tail_of(logs: Sequence[ListedLog], index_of: Callable[[ListedLog], Location], wanted: Wanted) -> Tail:
    """Look at the end of a partition.

    Args:
        logs: all of a partition in their order, one or more.
        index_of: where a log's `.index` is, which tells where to begin.
        wanted: from its first offset on it is looked; records without its times do not count.
    """
    first = max(bisect_right([log.base_offset for log in logs], wanted.first_offset) - 1, 0)
    is_counted = sum(log.size for log in logs[first:]) <= _COUNTED_BYTES or first == len(logs) - 1
    asked = replace(wanted, last_offset=Wanted().last_offset)
    found = Tail(wanted.first_offset, is_whole=True)
    for log in logs[first:] if is_counted else logs[-1:]:
        found = _with(found, log, index_of(log), asked)
    if not is_counted:
        return replace(found, first_offset=wanted.first_offset, records=None)
    if found.first_offset is not None and wanted.has_times:
        return _with_times(found, logs[first:], index_of, asked)
    return found


def _with_times(
    found: Tail, logs: Sequence[ListedLog], index_of: Callable[[ListedLog], Location], wanted: Wanted
) -> Tail:
    """With the records alone that have the times that are wanted: headers do not tell which they are."""
    if sum(log.size for log in logs) > _DECODED_BYTES:
        return replace(found, records=None)
    reads = [_read(log, index_of(log), wanted) for log in logs if log.size]
    rows = list(rows_of(reads, _OFFSETS, lambda _: None, goes_on=False, threads=1))
    offsets = np.concatenate([np.empty(0, np.int64), *(each.column(0).to_numpy() for each in rows)])
    if not len(offsets):
        return replace(found, first_offset=None, last_offset=None, records=0)
    return replace(found, first_offset=int(offsets[0]), last_offset=int(offsets[-1]), records=len(offsets))


def _read(log: ListedLog, index: Location, wanted: Wanted) -> SegmentRead:
    start = bounds_of(log, index, Wanted.between(wanted.first_offset), None)[0]
    assert start.offset is not None
    with opened_log(str(log.path)) as opened:
        version = opened.version
    return SegmentRead(
        topic="",
        partition=0,
        base_offset=log.base_offset,
        log_path=str(log.path),
        version=version,
        position=start.position,
        end_position=log.size,
        last_offset_before=start.offset - 1,
        end_offset=log.end_offset,
        wanted=wanted,
        must_reach=None,
        aborted=AbortedRanges(),
    )


def _with(before: Tail, log: ListedLog, index: Location, wanted: Wanted) -> Tail:
    start = bounds_of(log, index, Wanted.between(wanted.first_offset), None)[0] if log.size else log.whole[0]
    assert start.offset is not None
    first, last, records = before.first_offset, before.last_offset, before.records
    with opened_log(str(log.path)) as opened:
        content = opened.log(log.size, use_mmap=False)
        walk = BatchWalk(content, start.position, wanted, whole=False, last_offset=start.offset - 1)
        is_whole = before.is_whole
        try:
            for rows in _rows(walk):
                begins = np.where(rows["magic"] >= MAGIC_V2, rows["offset_field"], rows["last_offset"])
                first = max(int(begins[0]), wanted.first_offset) if first is None else first
                last = int(rows["last_offset"][-1])
                records = _counted(records, rows, begins, wanted)
        except MalformedRecordsError:
            is_whole = False
    return Tail(walk.last_offset + 1, is_whole, first, last, records)


def _rows(walk: BatchWalk) -> Iterator[NDArray[np.void]]:
    return (table.rows for table in walk.tables())


def _counted(so_far: int | None, rows: NDArray[np.void], begins: NDArray[np.int64], wanted: Wanted) -> int | None:
    """How many records batches have, with those before; None where not all say it, or only some of one are wanted."""
    is_data = (rows["magic"] < MAGIC_V2) | (rows["attributes"] & ATTRIBUTE_CONTROL == 0)
    counts = rows["records_count"][is_data]
    if so_far is None or (begins < wanted.first_offset).any() or (counts <= UNKNOWN_COUNT).any():
        return None
    return so_far + int(counts.sum(dtype=np.int64))


class OnlyReplicas:
    """Looks at log dirs, each once."""

    def __init__(self, brokers: BrokersMetadata) -> None:
        self._brokers = brokers
        self._is_stopped: dict[Location, bool] = {}

    def holds(self, directory: PartitionDirectory) -> bool:
        """Whether a directory is that of the only replica, its log dir stopped. Not where something is unknown."""
        try:
            return self._holds(directory)
        except (OSError, KidxError):
            return False

    def has_others(self, directory: PartitionDirectory) -> bool:
        """Whether other nodes have replicas of a partition, by the cluster's metadata. Not where nobody knows it."""
        with contextlib.suppress(OSError, KidxError):
            cluster_id = self._brokers.owner(directory.log_dir).cluster_id
            metadata = None if cluster_id is None else self._brokers.of_cluster(cluster_id)
            assigned = None if metadata is None else metadata.to_end.assignments.get(directory.topic_partition)
            return assigned is not None and len(assigned.replicas) > 1
        return False

    def _holds(self, directory: PartitionDirectory) -> bool:
        log_dir, partition = directory.log_dir, directory.topic_partition
        if log_dir not in self._is_stopped:  # of a bucket nobody can tell
            self._is_stopped[log_dir] = isinstance(log_dir, Path) and not is_locked(log_dir)
        of = self._brokers.owner(log_dir)
        if not self._is_stopped[log_dir] or of.node_id is None or of.cluster_id is None:
            return False
        metadata = self._brokers.of_cluster(of.cluster_id)
        if metadata is None or read_topic_id(directory.path) != metadata.topics.get(partition.topic, ""):
            return False
        # Replicas that came or went since the last snapshot count, committed or not.
        assigned = [each.assignments.get(partition) for each in (metadata, metadata.to_end)]
        return all(each is not None and each.replicas == (of.node_id,) for each in assigned)


class ReadingEnds:
    """Finds them, and remembers the checkpoints of log dirs.

    Attributes:
        brokers: what log dirs know of their brokers.
        unreadable: checkpoint files that are malformed, and what is done without them.
    """

    def __init__(self, request: ReadRequest) -> None:
        self._request = request
        self.brokers = BrokersMetadata(request.log_dirs)
        self.unreadable: list[str] = []
        self._checkpoints: dict[Location, _Checkpoints] = {}
        self._offsets_in: ReadOffsets = cache(read_offset_checkpoint)
        self._only_replicas = OnlyReplicas(self.brokers)
        self._aside = LogsAside(self.brokers.log_dirs)

    def of(
        self, directory: PartitionDirectory, logs: Sequence[ListedLog], wanted: Wanted, index_of: IndexOf
    ) -> PartitionEnds:
        """
        Args:
            logs: those of the partition in their order.
            wanted: what is asked for.
            index_of: where the `.index` of a log is.
        """
        known = self._known(directory.log_dir)
        partition = directory.topic_partition
        high_watermark = known.high_watermarks.get(partition)
        log_start = _moved_start(directory.path, known.log_starts.get(partition, 0), logs)
        seen = replace(wanted, first_offset=max(wanted.first_offset, log_start))
        if not logs:
            nothing = LeftOut(
                partition=partition,
                why=Why.NO_LOG,
                first_offset=0,
                end_offset=None,
                edge=0,
                remedy=self._aside.remedy_of_empty(directory.path),
            )
            return PartitionEnds(seen=seen, high_watermark=high_watermark, left_out=[nothing])
        found = _Found(partition, self._request.offsets_of(directory), log_start, logs[0].base_offset)
        lost_from = None
        if found.first_base > seen.first_offset and _may_begin_before(logs[0], wanted.first_ms):
            lost_from = lost_first_offset(directory.path, partition, found.first_base, self._offsets_in)
        left_out = list(found.before_first_segment(wanted, lost_from, directory.path, self._aside))
        left_out += found.below_start(lost_from)
        if not left_out and log_start > found.first_base:
            is_last = log_start > logs[-1].base_offset
            tail = _tail(logs, index_of, replace(wanted, first_offset=_OFFSET_MAX)) if is_last else None
            left_out += found.hidden(wanted, tail)
        ends = PartitionEnds(seen=seen, high_watermark=high_watermark)
        left_out += self._behind_end(directory, logs, seen, high_watermark or 0, index_of)
        if high_watermark is not None:
            ends, beyond = self._to_high_watermark(directory, logs, seen, high_watermark, index_of, found)
            left_out += beyond
        elif found.may_be_beyond(logs[-1]):
            # Only where the log ends is asked: from the last entry of the last index on.
            left_out += found.beyond_end(_tail(logs, index_of, replace(seen, first_offset=_OFFSET_MAX)))
        in_log = [part for each in left_out if (part := self._in_log(each, logs)) is not None]
        return replace(ends, left_out=in_log)

    def _behind_end(
        self, directory: PartitionDirectory, logs: Sequence[ListedLog], seen: Wanted, known_end: int, index_of: IndexOf
    ) -> Iterator[LeftOut]:
        """Offsets that the last log had by its index beside it, and has not any more: a power cut leaves it so, and a
        kill does not. Where there are other replicas, they have them, or a leader had this one truncate them, which
        leaves old entries in the index of a broker that is killed.

        Args:
            known_end: what is missing below it is told by the high watermark.
        """
        index = index_of(logs[-1])
        if self._request.index_dir is not None or not isinstance(index, Path):
            return
        entry = last_entry(logs[-1], index)
        if entry is None or entry.offset < known_end:
            return
        tail = _tail(logs, index_of, replace(seen, first_offset=_OFFSET_MAX))
        first, end = max(tail.end_offset, known_end, seen.first_offset), min(entry.offset, seen.last_offset) + 1
        if not tail.is_whole or first >= end or not had_more(logs[-1], index):
            return
        yield LeftOut(
            partition=directory.topic_partition,
            why=Why.ENDS_BEFORE_INDEX,
            first_offset=first,
            end_offset=end,
            edge=tail.end_offset,
            remedy=self._aside.remedy(directory.path, first, end),
            is_problem=self._request.to_log_end is not False and not self._only_replicas.has_others(directory),
        )

    def _to_high_watermark(
        self,
        directory: PartitionDirectory,
        logs: Sequence[ListedLog],
        seen: Wanted,
        high_watermark: int,
        index_of: IndexOf,
        found: _Found,
    ) -> tuple[PartitionEnds, list[LeftOut]]:
        tail = _tail(logs, index_of, replace(seen, first_offset=max(high_watermark, seen.first_offset)))
        limited = replace(seen, last_offset=min(seen.last_offset, high_watermark - 1))
        ends = PartitionEnds(seen=limited, high_watermark=high_watermark, limit=high_watermark)
        if self._request.to_log_end:
            ends = PartitionEnds(seen=seen, high_watermark=high_watermark)
        left_out = list(found.beyond_end(tail))
        if tail.is_whole and tail.end_offset < high_watermark:
            missing = LeftOut(
                partition=found.partition,
                why=Why.ENDS_BELOW_HIGH_WATERMARK,
                first_offset=tail.end_offset,
                end_offset=high_watermark,
                edge=high_watermark,
                remedy=self._aside.remedy(directory.path, tail.end_offset, high_watermark),
            )
            return replace(ends, is_short=True), [*left_out, missing]
        end = min(tail.end_offset, seen.last_offset + 1 if seen.last_offset < _OFFSET_MAX else _OFFSET_MAX)
        if self._request.to_log_end or tail.first_offset is None or tail.first_offset >= end:
            return ends, left_out
        if self._request.to_log_end is None and self._only_replicas.holds(directory):
            return replace(ends, seen=seen, limit=None, beyond=end - tail.first_offset), left_out
        if tail.last_offset is not None and seen.has_times:
            end = min(end, tail.last_offset + 1)
        beyond = LeftOut(
            partition=found.partition,
            why=Why.BEYOND_HIGH_WATERMARK,
            first_offset=tail.first_offset,
            end_offset=end,
            edge=high_watermark,
            records=tail.records if seen.last_offset >= tail.end_offset - 1 else None,
            is_problem=self._request.to_log_end is None or seen.first_offset >= high_watermark,
        )
        return ends, [*left_out, beyond]

    def _in_log(self, left_out: LeftOut, logs: Sequence[ListedLog]) -> LeftOut | None:
        """The part of it that is of the only log that is asked for, where one is."""
        log = next((log for log in logs if log.path.name == self._request.log_name), None)
        if log is None or log.end_offset is None:
            return left_out if log is None or left_out.first_offset >= log.base_offset else None
        first = max(left_out.first_offset, log.base_offset)
        end = min(log.end_offset if left_out.end_offset is None else left_out.end_offset, log.end_offset)
        return replace(left_out, first_offset=first, end_offset=end, records=None) if first < end else None

    def _known(self, log_dir: Location) -> _Checkpoints:
        if log_dir not in self._checkpoints:
            self._checkpoints[log_dir] = _Checkpoints(
                self._offsets(log_dir / LOG_START_OFFSET_CHECKPOINT, "logs are read from their first segments on"),
                self._offsets(log_dir / HIGH_WATERMARK_CHECKPOINT, "logs are read to their ends"),
            )
        return self._checkpoints[log_dir]

    def _offsets(self, path: Location, without: str) -> Mapping[TopicPartition, int]:
        try:
            return self._offsets_in(path) or {}
        except CheckpointError as error:
            self.unreadable.append(f"{error}; without it {without}")
            return {}


def _tail(logs: Sequence[ListedLog], index_of: IndexOf, wanted: Wanted) -> Tail:
    """The end of a partition; one of which nothing is known where a log cannot be read: reading it says why."""
    try:
        return tail_of(logs, index_of, wanted)
    except (OSError, LogChangedError):
        return Tail(wanted.first_offset, is_whole=False)


def _may_begin_before(log: ListedLog, first_ms: int) -> bool:
    """Whether records from a time on may be missing before a log: not where its own first ones are older."""
    if first_ms == Wanted().first_ms:
        return True
    begins = begins_ms(log.path)
    return begins < 0 or begins >= first_ms


def _moved_start(directory: Location, log_start: int, logs: Sequence[ListedLog]) -> int:
    """The log start of a partition, also where a broker has deleted logs since its checkpoint: it cuts leader epochs at
    once, and writes the checkpoint once a minute.
    """
    first_base = logs[0].base_offset if logs else 0
    if not 0 < log_start < first_base:
        return log_start
    try:
        epochs = read_leader_epochs(directory)
    except (CheckpointError, OSError):
        return log_start
    is_cut = epochs is not None and epochs.first is not None and epochs.first.start_offset >= first_base
    return first_base if is_cut else log_start


@dataclass(frozen=True, slots=True)
class _Found:
    """A partition.

    Attributes:
        asked: the offsets that are asked for; None for no limit.
        log_start: as a checkpoint has it; 0 where none does.
        first_base: the base offset of its first segment.
    """

    partition: TopicPartition
    asked: OffsetRange
    log_start: int
    first_base: int

    def before_first_segment(
        self, wanted: Wanted, lost_from: int | None, directory: Location, aside: LogsAside
    ) -> Iterator[LeftOut]:
        """Offsets that the log has by a checkpoint, or had by its leader epochs, and no segment here.

        Args:
            lost_from: see `lost_first_offset`.
            directory: of the partition.
        """
        if lost_from is not None:
            first, end = max(lost_from, wanted.first_offset), min(self.first_base, wanted.last_offset + 1)
            if first < end:
                lost = self._left_out(Why.FIRST_LOGS_MISSING, first, end, self.first_base)
                yield replace(lost, remedy=aside.remedy(directory, first, end))
            return
        first, end = max(self.log_start, wanted.first_offset), min(self.first_base, wanted.last_offset + 1)
        if self.log_start > 0 and first < end:
            yield self._left_out(Why.BEFORE_FIRST_SEGMENT, first, end, self.first_base)

    def below_start(self, lost_from: int | None) -> Iterator[LeftOut]:
        """Offsets that are asked for and gone.

        Args:
            lost_from: as above.
        """
        start, end = self.asked
        log_start = self.log_start or self.first_base
        log_start = log_start if lost_from is None else lost_from
        if start is not None and start < log_start and (end is None or start < end):
            below = log_start if end is None else min(end, log_start)
            yield self._left_out(Why.BELOW_LOG_START, start, below, log_start)

    def hidden(self, wanted: Wanted, tail: Tail | None) -> Iterator[LeftOut]:
        """Offsets that the logs may have, below the log start. `DeleteRecords` leaves them; a log start above the log
        end is wrong, or the end is lost.

        Args:
            tail: the end of the last log; None where the log start is below that.
        """
        is_above = tail is not None and tail.is_whole and self.log_start > tail.end_offset
        end = min(tail.end_offset if is_above and tail is not None else self.log_start, wanted.last_offset + 1)
        first = max(self.first_base, wanted.first_offset)
        if first < end and (is_above or not wanted.has_times):
            why = Why.LOG_START_ABOVE_END if is_above else Why.HIDDEN_BELOW_LOG_START
            yield replace(self._left_out(why, first, end, self.log_start), is_problem=is_above)

    def may_be_beyond(self, last: ListedLog) -> bool:
        """Whether offsets may be asked for that no record has yet, without a look at the last log."""
        start, end = self.asked
        is_beyond = start is not None and (start > last.base_offset or last.size == 0)
        return is_beyond if end is None else end > last.base_offset

    def beyond_end(self, tail: Tail) -> Iterator[LeftOut]:
        """Offsets that are asked for and that no record has yet."""
        start, end = self.asked
        first = max(start or 0, tail.end_offset)
        is_asked = first < end if end is not None else start is not None and start >= tail.end_offset
        if tail.is_whole and is_asked:
            left = self._left_out(Why.BEYOND_LOG_END, first, end, tail.end_offset)
            yield replace(left, is_problem=start is not None and start > tail.end_offset)

    def _left_out(self, why: Why, first: int, end: int | None, edge: int) -> LeftOut:
        return LeftOut(partition=self.partition, why=why, first_offset=first, end_offset=end, edge=edge)
