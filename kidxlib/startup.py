"""What a broker would do with a partition's folder when it starts: Kafka's `LogLoader`, told beforehand.

It holds for brokers of `HOLDS_FOR`. Nothing is changed. Of the logs those are read that the broker would read too.
What keeps a broker from starting before it comes to logs is found in `start_failures`; segments are told all the same,
as if that were mended.

Producer snapshots decide from where on a broker goes through batch headers to learn of producers, and so whether it
comes upon a header that is malformed. Not told: segments that it has to split (`offset-overflow`), where producers are
at odds with their states, and what it makes of a magic below 0, or of a batch of magic 2 that is smaller than a header:
it may read over these where here loading fails.
"""

from __future__ import annotations

import enum
import os
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final, NoReturn, Self

import numpy as np

from kidxlib import names, start_failures
from kidxlib.abstract_index import CorruptIndexError
from kidxlib.log_dir import CLEAN_SHUTDOWN_FILE, META_PROPERTIES
from kidxlib.log_segment import LogSegment
from kidxlib.names import TopicPartition
from kidxlib.objects import Location, files_in, location
from kidxlib.offset_index import OffsetIndex
from kidxlib.past_end import PastEnd, past_end
from kidxlib.producers import SnapshotError, read_snapshot
from kidxlib.records import MalformedRecordsError, batches
from kidxlib.recover import RecoveredSegment, RecoverOptions, ScanEnd, Status, recover
from kidxlib.start_failures import Thrown, offset_of
from kidxlib.storage import LogBytes, LogFile
from kidxlib.time_index import TimeIndex
from kidxlib.transaction_index import TransactionIndex, UnknownVersionError
from kidxlib.walk import Outcome, new_walks, step_to_offsets, step_to_timestamps, walk

#: The brokers for which forecasts were held to what they did themselves, by their minor versions. In 3.9 and 4.0 a
#: search for an offset ends at the first batch that does not end below it (`FileRecords.searchForOffsetWithSize`), in
#: 4.1 and later it goes by base offsets (`searchForOffsetFromPosition`). So where offsets go back from batch to batch,
#: which no broker writes, the log end offset may be another, and what is read for producers.
HOLDS_FOR: Final = ("3.9", "4.0", "4.1", "4.2", "4.3")

#: With these a scan ends in an `InvalidOffsetException`, after which a broker that recovers empties the segment.
_INVALID_OFFSET: Final = ("offset-not-increasing", "time-index-offset-decreasing")
_OVERFLOW: Final = "offset-overflow"

_INDEX_SUFFIXES: Final = (names.OFFSET_INDEX_SUFFIX, names.TIME_INDEX_SUFFIX, names.TRANSACTION_INDEX_SUFFIX)


class Action(enum.StrEnum):
    """What becomes of a segment."""

    LOAD = "load"  # as it is
    REBUILD = "rebuild"  # its log is read, and all of its indexes are made anew
    CUT = "truncate"  # likewise, and the log ends at its last valid batch
    EMPTY = "empty"  # its log is truncated to nothing
    DELETE = "delete"  # it stands after one that is truncated or emptied, or below the log start offset
    FAIL = "fail"  # loading fails, and takes the log dir out of use
    SPLIT = "split"  # into several; what follows is not told


class Removal(enum.StrEnum):
    """Why a file goes before segments are loaded."""

    DELETED = "marked as deleted"
    CLEANED = "left by the cleaner, unfinished"
    SWAP = "of a swap that was not complete"
    SWAPPED = "replaced by the files that are swapped in"
    ORPHAN = "an index without a log"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """What recovering a segment comes to.

    Attributes:
        log_bytes: of its log, when it was read.
        end: where and why the scan ended.
        next_offset, map_end_offset: as in `SegmentFacts`.
        batches, records: up to the end of the scan; no records where wrappers hide their count.
        past: what stands after it.
    """

    log_bytes: int
    end: ScanEnd
    next_offset: int
    map_end_offset: int
    batches: int
    records: int | None
    past: PastEnd

    @classmethod
    def of(cls, log: LogBytes, recovered: RecoveredSegment, base_offset: int) -> Self:
        """What came of a scan of `log`.

        Raises:
            OSError, LogChangedError: the log cannot be read.
        """
        facts, end = recovered.facts, recovered.end
        return cls(
            log_bytes=log.size,
            end=end,
            next_offset=facts.next_offset,
            map_end_offset=facts.map_end_offset,
            batches=facts.batches,
            records=facts.records,
            past=past_end(log, recovered, base_offset),
        )


@dataclass(slots=True)
class SegmentForecast:
    """What becomes of one segment.

    Attributes:
        log_bytes: of its log as it stands.
        kept_bytes: of these, what is left.
        read_bytes: what the broker reads of it, which may be its log twice.
        lost_batches, lost_records: what is not left; None where that is not known for certain.
        detail: why.
    """

    base_offset: int
    action: Action
    log_bytes: int
    kept_bytes: int
    read_bytes: int = 0
    lost_batches: int | None = 0
    lost_records: int | None = 0
    detail: str | None = None

    @property
    def lost_bytes(self) -> int:
        return self.log_bytes - self.kept_bytes


@dataclass(slots=True)
class Forecast:
    """What becomes of a partition.

    Attributes:
        removed: names of files that go first, and why.
        renamed: names of files that lose their `.swap`.
        log_end_offset: None where loading fails at a segment, or a segment is split.
        failures: why a broker does not start with it, besides segments; these are told as if that were mended.
    """

    segments: list[SegmentForecast] = field(default_factory=list)
    removed: dict[str, Removal] = field(default_factory=dict)
    renamed: list[str] = field(default_factory=list)
    log_start_offset: int | None = None
    log_end_offset: int | None = None
    failures: list[str] = field(default_factory=list)

    @property
    def read_bytes(self) -> int:
        """What the broker reads of logs."""
        return sum(segment.read_bytes for segment in self.segments)

    @property
    def fails(self) -> bool:
        return bool(self.failures) or any(segment.action is Action.FAIL for segment in self.segments)


def forecast(
    folder: Location,
    options: RecoverOptions,
    *,
    clean_shutdown: bool,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    recoveries: Mapping[int, Recovery] = MappingProxyType({}),
) -> Forecast:
    """What `LogLoader.load` does with a partition's folder.

    Args:
        options: of the topic, as they are when the broker starts.
        recovery_point, log_start_offset: what the log dir's checkpoint files say; 0 where they say nothing.
        recoveries: of segments that were read already with these options, by base offset; they are not read again.

    Raises:
        OSError: the folder cannot be listed, or a file not read.
        LogChangedError: a log changes meanwhile.
    """
    return _Loader(folder, options, clean_shutdown, recovery_point, log_start_offset, recoveries).load()


@dataclass(frozen=True, slots=True)
class PartitionStop:
    """How the broker of a partition's log dir stopped.

    Attributes:
        failures: of the log dir as a whole.
    """

    clean_shutdown: bool
    recovery_point: int
    log_start_offset: int
    high_watermark: int
    failures: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LastStop:
    """How the broker of a log dir stopped, as `LogManager.loadLogs` finds out.

    Attributes:
        recovery_points, log_start_offsets, high_watermarks: by partition; 0 of those that are not in them.
        failures: why a broker does not start with this log dir.
        notes: what a person should be told about the files that say so.
    """

    clean_shutdown: bool
    recovery_points: Mapping[TopicPartition, int]
    log_start_offsets: Mapping[TopicPartition, int]
    high_watermarks: Mapping[TopicPartition, int]
    failures: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def of(self, partition: TopicPartition) -> PartitionStop:
        return PartitionStop(
            self.clean_shutdown,
            self.recovery_points.get(partition, 0),
            self.log_start_offsets.get(partition, 0),
            self.high_watermarks.get(partition, 0),
            self.failures,
        )


def last_stop(log_dir: Location, clean_shutdown: bool | None = None, *, is_listed: bool = True) -> LastStop:
    """Read it from a log dir.

    Args:
        clean_shutdown: what to take for it; None asks the log dir.
        is_listed: the folder was given as a log dir, so what else lies in it counts; else a partition was that is in
            it, and it may be any folder.

    Raises:
        OSError: it cannot be listed.
    """
    read = [start_failures.read_offsets(log_dir, name) for name in names.LOG_DIR_CHECKPOINTS]
    points, starts, watermarks, _ = read
    failures = [each.failure for each in read if each.failure is not None]
    # An archive may hold other directories, and no broker is to start there.
    if is_listed and _is_of_broker(log_dir):
        failures += start_failures.in_log_dir(log_dir)
    if clean_shutdown is None:
        clean_shutdown = (log_dir / CLEAN_SHUTDOWN_FILE).exists()
    return LastStop(
        clean_shutdown,
        points.by_partition,
        starts.by_partition,
        watermarks.by_partition,
        tuple(failures),
        tuple(each.note for each in read if each.note is not None),
    )


def _is_of_broker(log_dir: Location) -> bool:
    """Whether a broker has left a file of its own there."""
    return any((log_dir / name).exists() for name in (META_PROPERTIES, CLEAN_SHUTDOWN_FILE, *names.LOG_DIR_CHECKPOINTS))


class _StoppedError(Exception):
    """Loading goes no further."""


class _Loader:
    def __init__(
        self,
        folder: Location,
        options: RecoverOptions,
        clean_shutdown: bool,
        recovery_point: int,
        log_start_offset: int,
        recoveries: Mapping[int, Recovery],
    ) -> None:
        self._options = options
        self._clean_shutdown = clean_shutdown
        self._recovery_point = recovery_point
        self._log_start_offset = log_start_offset
        files = files_in(folder)
        self._found = Forecast(failures=list(start_failures.in_files(folder, files)))
        #: Files by the names that they have by then.
        self._files = {name: path for name, path in files.items() if not start_failures.is_misnamed(name)}
        self._read_before = recoveries
        self._recoveries: dict[int, Recovery] = {}  # of the segments that the broker recovers
        self._snapshots: dict[int, bool] = {}  # offsets of producer snapshots, and whether they can be read

    def load(self) -> Forecast:
        found = self._found
        try:
            self._refuse_unreadable()
            self._finish_swaps()
            self._list_snapshots()
            self._load_segments()
            if not self._clean_shutdown:
                self._recover_unflushed()
            self._find_ends()
        except _StoppedError:
            pass
        for segment in found.segments:
            segment.lost_batches, segment.lost_records = self._lost(segment)
        return found

    def _lost(self, segment: SegmentForecast) -> tuple[int | None, int | None]:
        """Batches and records of a segment that are not left."""
        if not segment.lost_bytes:
            return 0, 0
        recovery = self._recoveries.get(segment.base_offset) or self._read_already(segment)
        if recovery is None:
            return None, None
        past = recovery.past
        if segment.kept_bytes:
            return past.batches, past.records
        return _sum(past.batches, recovery.batches), _sum(past.records, recovery.records)

    # ---- files that are no segments yet, or any more ----

    def _refuse_unreadable(self) -> None:
        """`removeTempFilesAndCollectSwapFiles`, which fails on a file that it may not read."""
        for _, path in sorted(self._files.items()):
            if isinstance(path, Path) and not os.access(path, os.R_OK):
                self._found.failures.append(f"{path}: it may not be read; {Thrown.IO}")
                raise _StoppedError

    def _finish_swaps(self) -> None:
        """`removeTempFilesAndCollectSwapFiles`, and the passes up to the renaming of swap files."""
        cleaned = [name for name in self._files if name.endswith(names.CLEANED_SUFFIX)]
        first_cleaned = min((_offset(name) for name in cleaned), default=names.OFFSET_MAX)
        for name in sorted(self._files):
            if name.endswith(names.DELETED_SUFFIX):
                self._remove(name, Removal.DELETED)
            elif name.endswith(names.CLEANED_SUFFIX):
                self._remove(name, Removal.CLEANED)
            elif name.endswith(names.SWAP_SUFFIX) and _offset(name) >= first_cleaned:
                self._remove(name, Removal.SWAP)
        swaps = [name for name in sorted(self._files) if name.endswith(names.SWAP_SUFFIX)]
        logs = [
            name.removesuffix(names.SWAP_SUFFIX)
            for name in swaps
            if name.endswith(f"{names.LOG_SUFFIX}{names.SWAP_SUFFIX}")
        ]
        least = min((_offset(name) for name in logs), default=names.OFFSET_MAX)
        behind = max((self._segment(_offset(name), names.SWAP_SUFFIX).next_offset() for name in logs), default=-1)
        for name in sorted(self._files):
            offset = offset_of(name)
            if not name.endswith(names.SWAP_SUFFIX) and offset is not None and least <= offset < behind:
                self._remove(name, Removal.SWAPPED)
        for name in swaps:
            self._files[name.removesuffix(names.SWAP_SUFFIX)] = self._files.pop(name)
            self._found.renamed.append(name)
        for name in logs:  # to learn where they end it has made the offset indexes that were missing, full of zeros
            index = f"{name.removesuffix(names.LOG_SUFFIX)}{names.OFFSET_INDEX_SUFFIX}"
            self._files.setdefault(index, Path(f"{index}.swap"))

    def _remove(self, name: str, why: Removal) -> None:
        del self._files[name]
        self._found.removed[name] = why

    # ---- producers ----

    def _list_snapshots(self) -> None:
        for name, path in self._files.items():
            offset = offset_of(name)
            if name.endswith(names.SNAPSHOT_SUFFIX) and offset is not None:
                self._snapshots[offset] = _is_snapshot(path)

    def _replay(self, log_start_offset: int, end: int, segments: Sequence[SegmentForecast]) -> int:
        """`UnifiedLog.rebuildProducerState` up to an offset: headers are read from the last good snapshot on.

        Returns:
            The offset of the last snapshot that there is then.
        """
        self._keep_snapshots(lambda offset: log_start_offset < offset <= end)
        if end == 0:
            return 0
        while self._snapshots and not self._snapshots[max(self._snapshots)]:
            del self._snapshots[max(self._snapshots)]
        last_snapshot = reached = max(self._snapshots, default=log_start_offset)
        base_offsets = [segment.base_offset for segment in segments]
        floor = max(bisect_right(base_offsets, reached) - 1, 0)
        for segment in segments[floor:] if end > reached else ():
            if segment.base_offset >= end:
                break
            reached = max(segment.base_offset, reached, log_start_offset)
            if segment.base_offset in base_offsets[-2:] and reached > last_snapshot:
                last_snapshot = self._take_snapshot(reached)
            self._read_headers(segment, reached)
        return self._take_snapshot(end) if end > last_snapshot else last_snapshot

    def _read_headers(self, segment: SegmentForecast, start: int) -> None:
        recovery = self._recoveries.get(segment.base_offset)
        if recovery is not None and recovery.records is not None:
            return  # recovery has read these headers, and there is no wrapper that had to be decompressed
        opened = self._segment(segment.base_offset, kept_bytes=segment.kept_bytes)
        try:
            if recovery is not None:
                # Of a wrapper Kafka decompresses what it needs to find where to start.
                walks = new_walks(np.array([start]), np.zeros(1, np.int64))
                walk(opened.log, walks, step_to_offsets)
                opened.translate_offset(start, max(int(walks["previous_position"][0]), 0))
            elif (found := opened.translate_offset(start)) is not None:
                _refuse_malformed_headers(opened.log, found.position)
        except MalformedRecordsError as error:
            self._fail(segment, f"producers are to be learnt from its headers: {error}")

    def _take_snapshot(self, offset: int) -> int:
        self._snapshots[offset] = True
        return offset

    def _keep_snapshots(self, keep: Callable[[int], bool]) -> None:
        self._snapshots = {offset: good for offset, good in self._snapshots.items() if keep(offset)}

    def _remove_strays(self, base_offsets: Sequence[int]) -> None:
        """`ProducerStateManager.removeStraySnapshots`: but for the last, if it is behind all segments."""
        strays = [offset for offset in self._snapshots if offset not in base_offsets]
        last = max(strays, default=None)
        self._keep_snapshots(lambda offset: offset in base_offsets or (offset == last and offset >= max(base_offsets)))

    # ---- segments ----

    def _load_segments(self) -> None:
        """`loadSegmentFiles`."""
        for name in sorted(self._files):
            if (
                name.endswith(_INDEX_SUFFIXES)
                and names.segment_file(_offset(name), names.LOG_SUFFIX) not in self._files
            ):
                self._remove(name, Removal.ORPHAN)
        for base_offset in self._base_offsets():
            size = self._files[names.segment_file(base_offset, names.LOG_SUFFIX)].stat().st_size
            segment = SegmentForecast(base_offset, Action.LOAD, size, size)
            loaded = tuple(self._found.segments)
            self._found.segments.append(segment)
            why = self._why_rebuilt(segment)
            if why is not None:
                self._recover(segment, why, loaded, loading=True)

    def _why_rebuilt(self, segment: SegmentForecast) -> str | None:
        """`LogSegment.sanityCheck`: why a broker recovers the segment when it loads it; None where it does not."""
        if names.segment_file(segment.base_offset, names.OFFSET_INDEX_SUFFIX) not in self._files:
            return "its .index is missing"
        path = self._files.get(names.segment_file(segment.base_offset, names.TRANSACTION_INDEX_SUFFIX))
        if path is None:
            return None
        try:
            TransactionIndex.open(path, segment.base_offset).sanity_check()
        except CorruptIndexError as error:
            return str(error)
        except UnknownVersionError as error:
            self._fail(segment, str(error))
        return None

    def _recover_unflushed(self) -> None:
        """`recoverLog`: segments from the one on that holds the recovery point, up to the first that is truncated."""
        base_offsets = [segment.base_offset for segment in self._found.segments]
        first = max(bisect_right(base_offsets, self._recovery_point) - 1, 0)
        unflushed = iter(self._found.segments[first:])
        for segment in unflushed:
            before = segment.kept_bytes
            self._recover(segment, "it may not have been flushed", self._found.segments, loading=False)
            if segment.kept_bytes < before:
                for behind in unflushed:
                    self._delete(behind, f"after segment {segment.base_offset}, which is truncated")

    def _recover(self, segment: SegmentForecast, why: str, loaded: Sequence[SegmentForecast], *, loading: bool) -> None:
        """`recoverSegment`: while segments are loaded, which fails where its offsets do, or after that."""
        last_snapshot = self._replay(self._log_start_offset, segment.base_offset, loaded)
        is_whole = segment.kept_bytes == segment.log_bytes
        recovery = (self._read_already(segment) if is_whole else None) or self._read(segment)
        # A second time there is nothing left to be truncated.
        first = self._recoveries.setdefault(segment.base_offset, recovery)
        segment.read_bytes += segment.kept_bytes
        segment.detail = why
        end = recovery.end
        if end.status is Status.QUARANTINED:
            self._quarantined(segment, end, loading)
            return
        segment.action = Action.CUT if end.position < segment.log_bytes else Action.REBUILD
        segment.kept_bytes = end.position
        if (reason := first.end.reason) is not None:
            segment.detail = f"{reason} at byte {first.end.position}: {first.end.detail}; it is recovered, as {why}"
        if recovery.map_end_offset > last_snapshot:
            self._take_snapshot(recovery.map_end_offset)

    def _read(self, segment: SegmentForecast) -> Recovery:
        log = LogFile(str(self._path_of(segment)))
        log.keep_valid(segment.kept_bytes)
        try:
            return Recovery.of(log, recover(log, segment.base_offset, self._options), segment.base_offset)
        finally:
            log.close()

    def _read_already(self, segment: SegmentForecast) -> Recovery | None:
        """What somebody has found who read the very log; None where nobody has, or something else stands there."""
        recovery = self._read_before.get(segment.base_offset)
        if recovery is None or recovery.log_bytes != segment.log_bytes:
            return None
        return None if self._path_of(segment).name.endswith(names.SWAP_SUFFIX) else recovery

    def _path_of(self, segment: SegmentForecast) -> Location:
        return self._files[names.segment_file(segment.base_offset, names.LOG_SUFFIX)]

    def _quarantined(self, segment: SegmentForecast, end: ScanEnd, loading: bool) -> None:
        detail = f"{end.reason} at byte {end.position}: {end.detail}"
        if end.reason == _OVERFLOW:
            segment.action, segment.detail = Action.SPLIT, detail
            raise _StoppedError
        if end.reason not in _INVALID_OFFSET or loading:
            self._fail(segment, detail)
        segment.action, segment.kept_bytes, segment.detail = Action.EMPTY, 0, detail

    def _fail(self, segment: SegmentForecast, why: str) -> NoReturn:
        segment.action, segment.detail = Action.FAIL, why
        raise _StoppedError

    # ---- what is left ----

    def _find_ends(self) -> None:
        """`deleteSegmentsIfLogStartGreaterThanLogEnd`, and where the log starts and ends."""
        left = [segment for segment in self._found.segments if segment.action is not Action.DELETE]
        end = self._next_offset(left[-1]) if left else self._log_start_offset
        if end < self._log_start_offset:
            for segment in left:
                self._delete(segment, f"the log ends at {end}, below the log start offset {self._log_start_offset}")
            left, end = [], self._log_start_offset
            self._snapshots = {}
        first = left[0].base_offset if left else self._log_start_offset
        start = max(self._log_start_offset, first)
        self._remove_strays([segment.base_offset for segment in left] or [first])
        if self._snapshots or not self._clean_shutdown:
            self._replay(start, end, left)
        self._found.log_start_offset, self._found.log_end_offset = start, end

    def _delete(self, segment: SegmentForecast, why: str) -> None:
        segment.action, segment.kept_bytes, segment.detail = Action.DELETE, 0, why
        self._snapshots.pop(segment.base_offset, None)

    def _next_offset(self, segment: SegmentForecast) -> int:
        if segment.action is Action.EMPTY:
            return segment.base_offset
        if segment.base_offset in self._recoveries:
            return self._recoveries[segment.base_offset].next_offset
        try:
            return self._segment(segment.base_offset, kept_bytes=segment.kept_bytes).next_offset()
        except MalformedRecordsError as error:
            self._fail(segment, str(error))

    def _segment(self, base_offset: int, suffix: str = "", kept_bytes: int | None = None) -> LogSegment:
        def path(kind: str) -> str:
            name = names.segment_file(base_offset, kind) + suffix
            return str(self._files.get(name, name))

        log, offset_path = LogFile(path(names.LOG_SUFFIX)), path(names.OFFSET_INDEX_SUFFIX)
        index = OffsetIndex.open(offset_path, base_offset)
        if not location(offset_path).exists() or base_offset in self._recoveries:
            # Of a swap file there may be none. Of a recovered segment it is made anew, and any that is right will do.
            index = OffsetIndex.from_bytes(b"", base_offset)
        if kept_bytes is not None:
            log.keep_valid(kept_bytes)
        return LogSegment(log, base_offset, index, TimeIndex.from_bytes(b"", base_offset))

    def _base_offsets(self) -> Iterator[int]:
        found = (names.parse_segment_log(name) for name in sorted(self._files))
        yield from (base_offset for base_offset in found if base_offset is not None)


def _sum(first: int | None, second: int | None) -> int | None:
    return None if first is None or second is None else first + second


def _refuse_malformed_headers(log: LogBytes, position: int) -> None:
    """Go from header to header to the end.

    Raises:
        MalformedRecordsError: one is not what Kafka writes.
    """
    walks = new_walks(np.array([names.OFFSET_MAX]), np.array([position]))
    walk(log, walks, step_to_timestamps)  # no batch has so large a timestamp
    if walks[0]["outcome"] != Outcome.NONE:
        for _ in batches(log, int(walks[0]["position"])):
            pass


def _is_snapshot(path: Location) -> bool:
    try:
        read_snapshot(path.read_bytes())
    except SnapshotError:
        return False
    return True


def _offset(name: str) -> int:
    """Of a file whose name was found to have one."""
    offset = offset_of(name)
    assert offset is not None, name
    return offset
