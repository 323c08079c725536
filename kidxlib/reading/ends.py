"""From where to where partitions are read, and what of them is not: by checkpoint files, the ends of logs, and what is
asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from kidxlib.build.source import PartitionDirectory
from kidxlib.errors import CheckpointError, LogChangedError
from kidxlib.format.checkpoint_files import HIGH_WATERMARK_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.reading.bounds import ListedLog
from kidxlib.reading.brokers_metadata import BrokersMetadata
from kidxlib.reading.left_out import LeftOut, Why
from kidxlib.reading.of_log_dir import lost_first_offset
from kidxlib.reading.only_replica import OnlyReplicas
from kidxlib.reading.request import OffsetRange, ReadRequest
from kidxlib.reading.tail import Tail, has_times, tail_of
from kidxlib.records.bulk.wanted import Wanted
from kidxlib.storage.checkpoints import read_leader_epochs, read_offset_checkpoint
from kidxlib.storage.location import Location

#: Says where the `.index` of a log is.
IndexOf: TypeAlias = Callable[[ListedLog], Location]

_OFFSET_MAX: Final = Wanted().last_offset


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
        self._only_replicas = OnlyReplicas(self.brokers)

    def of(
        self, directory: PartitionDirectory, logs: Sequence[ListedLog], wanted: Wanted, index_of: IndexOf
    ) -> PartitionEnds:
        """
        Args:
            logs: those of the partition in their order.
            wanted: what is asked for.
            index_of: where the `.index` of a log is.

        Raises:
            OSError, LogChangedError: a file cannot be read.
        """
        known = self._known(directory.log_dir)
        partition = directory.topic_partition
        high_watermark = known.high_watermarks.get(partition)
        log_start = _moved_start(directory.path, known.log_starts.get(partition, 0), logs)
        seen = replace(wanted, first_offset=max(wanted.first_offset, log_start))
        if not logs:
            nothing = LeftOut(partition=partition, why=Why.NO_LOG, first_offset=0, end_offset=None, edge=0)
            return PartitionEnds(seen=seen, high_watermark=high_watermark, left_out=[nothing])
        found = _Found(partition, self._request.offsets_of(directory), log_start, logs[0].base_offset)
        is_asked = found.first_base > seen.first_offset and wanted.first_ms == Wanted().first_ms
        lost_from = lost_first_offset(directory.path, partition, found.first_base) if is_asked else None
        left_out = [*found.before_first_segment(wanted, lost_from), *found.below_start(lost_from)]
        ends = PartitionEnds(seen=seen, high_watermark=high_watermark)
        if high_watermark is not None:
            ends, beyond = self._to_high_watermark(directory, logs, seen, high_watermark, index_of, found)
            left_out += beyond
        elif found.asked != (None, None):
            # Only where the log ends is asked: from the last entry of the last index on.
            left_out += found.beyond_end(_tail(logs, index_of, replace(seen, first_offset=_OFFSET_MAX)))
        in_log = [part for each in left_out if (part := self._in_log(each, logs)) is not None]
        return replace(ends, left_out=in_log)

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
            )
            return replace(ends, is_short=True), [*left_out, missing]
        end = min(tail.end_offset, seen.last_offset + 1 if seen.last_offset < _OFFSET_MAX else _OFFSET_MAX)
        if self._request.to_log_end or tail.first_offset is None or tail.first_offset >= end:
            return ends, left_out
        if self._request.to_log_end is None and self._only_replicas.holds(directory):
            return replace(ends, seen=seen, limit=None, beyond=end - tail.first_offset), left_out
        if tail.last_offset is not None and has_times(seen):
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
            return read_offset_checkpoint(path) or {}
        except CheckpointError as error:
            self.unreadable.append(f"{error}; without it {without}")
            return {}


def _tail(logs: Sequence[ListedLog], index_of: IndexOf, wanted: Wanted) -> Tail:
    """The end of a partition; one of which nothing is known where a log cannot be read: reading it says why."""
    try:
        return tail_of(logs, index_of, wanted)
    except (OSError, LogChangedError):
        return Tail(wanted.first_offset, is_whole=False)


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

    def before_first_segment(self, wanted: Wanted, lost_from: int | None) -> Iterator[LeftOut]:
        """Offsets that the log has by a checkpoint, or had by its leader epochs, and no segment here.

        Args:
            lost_from: see `lost_first_offset`.
        """
        if lost_from is not None:
            first, end = max(lost_from, wanted.first_offset), min(self.first_base, wanted.last_offset + 1)
            if first < end:
                yield self._left_out(Why.FIRST_LOGS_MISSING, first, end, self.first_base)
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
