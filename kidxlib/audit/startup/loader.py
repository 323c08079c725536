"""Simulates what a starting broker would do with a partition's directory, as Kafka's `LogLoader` does it.

The simulation is valid for the brokers in `HOLDS_FOR`. It changes nothing, and reads only the logs that the broker
would read. The passes are those of Kafka: temporary, deleted and swap files (`removeTempFilesAndCollectSwapFiles`, and
the renaming of swap files), segments (`recoverSegment`), where the log starts and ends, and producers. Producer
snapshots decide where the broker starts to read headers, and so whether it meets a malformed one.

`obstacles` and `directories` find what keeps a broker from starting before it reads logs; segments are still reported,
as if that were mended. Not reported are: what becomes of a segment that the broker must split (`offset-overflow`),
producers that contradict their states, and how the broker treats a magic below 0 or a batch of magic 2 that is smaller
than a header. The broker may skip these, where loading fails here.

`forgotten_producers` says what a broker forgets where no snapshot is left (`UnifiedLog.rebuildProducerState`). A clean
stop leaves a snapshot at the end of each log that has a record. A broker that finds none at all takes that for an
upgrade from a release without producers: it reads no log, and notes that there are none. Where one is left, or the stop
was unclean, it reads the log from there on, and knows them all.
"""

from __future__ import annotations

import contextlib
import os
import shlex
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NoReturn, Self

import numpy as np

from kidxlib.audit.startup.obstacles import Thrown, obstacles_in_files, why_misnamed
from kidxlib.audit.startup.simulation import (
    ReadLog,
    Removal,
    SegmentRecovery,
    SimulatedSegment,
    StartupAction,
    StartupSimulation,
)
from kidxlib.errors import CorruptIndexError, MalformedRecordsError, SnapshotError, UnknownVersionError
from kidxlib.format import segment_files
from kidxlib.format.kafka_release import NodeRelease
from kidxlib.format.producer_snapshot import read_snapshot
from kidxlib.index.offset import OffsetIndex
from kidxlib.index.time import TimeIndex
from kidxlib.index.transaction import TransactionIndex
from kidxlib.log.segment import LogSegment
from kidxlib.records.batch_headers import batches
from kidxlib.records.header_search import SearchOutcome, new_walks, step_to_offsets, step_to_timestamps, walk
from kidxlib.recovery.options import RecoverOptions
from kidxlib.recovery.outcome import ScanEnd, Status
from kidxlib.recovery.partition_fold import PartitionFold, StateSource
from kidxlib.storage.location import Listed, Location, listed_in, size_of
from kidxlib.storage.log_bytes import LogBytes
from kidxlib.storage.log_dir import CLEAN_SHUTDOWN_FILE
from kidxlib.storage.opened_log import LogFile
from kidxlib.storage.small_files import small_file
from kidxlib.text.words import counted, shell_option

_UNKNOWN_RELEASE: Final = NodeRelease()
_SWAPPED_LOG_SUFFIX: Final = f"{segment_files.LOG_SUFFIX}{segment_files.SWAP_SUFFIX}"
#: In place of the path of an index that the broker has made, and that no disk has.
_MADE_BY_LOADER: Final = ""
#: With these a scan ends in an `InvalidOffsetException`, after which a broker that recovers empties the segment.
_INVALID_OFFSET_REASONS: Final = ("offset-not-increasing", "time-index-offset-decreasing")
_OVERFLOW_REASON: Final = "offset-overflow"
#: Before the reason why a broker reads a segment, in the detail of one that has an end of its own.
RECOVERED_AS: Final = "; it is recovered, as "


def simulate_startup(
    directory: Location,
    options: RecoverOptions,
    *,
    clean_shutdown: bool,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    kafka: NodeRelease = _UNKNOWN_RELEASE,
    recoveries: Mapping[int, SegmentRecovery] = MappingProxyType({}),
    read_log: ReadLog = SegmentRecovery.read,
) -> StartupSimulation:
    """What `LogLoader.load` does with a partition's directory, with the topic's options at the broker's start and the
    offsets of the log dir's checkpoint files, 0 where they say nothing. `kafka` is the broker's. Segments in
    `recoveries` were read with these options already; `read_log` reads the others.
    """
    files = listed_in(directory)
    state = _LoadState(
        options=options,
        clean_shutdown=clean_shutdown,
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
        kafka=kafka,
        read_before=recoveries,
        read_log=read_log,
        simulation=StartupSimulation(failures=[str(each) for each in obstacles_in_files(directory, files)]),
        files={name: file for name, file in files.items() if why_misnamed(name) is None},
    )
    with contextlib.suppress(_LoadStopped):
        _load_partition(state)
    for segment in state.simulation.segments:
        segment.lost_batches, segment.lost_records = _lost_batches_and_records(state, segment)
    return state.simulation


class LoaderSnapshots:
    """The producer snapshots of a partition: by offset, whether a broker can read the snapshot."""

    def __init__(self, is_good: Mapping[int, bool] | None = None) -> None:
        self._is_good = dict(is_good or {})

    @classmethod
    def of_files(cls, files: Mapping[str, Listed]) -> Self:
        return cls(
            {
                offset: _is_readable_snapshot(file)
                for name, file in files.items()
                if name.endswith(segment_files.SNAPSHOT_SUFFIX)
                and (offset := segment_files.offset_in_name(name)) is not None
            }
        )

    def __len__(self) -> int:
        return len(self._is_good)

    def take(self, offset: int) -> int:
        """A broker writes a snapshot at an offset. Returns the offset."""
        self._is_good[offset] = True
        return offset

    def remove(self, offset: int) -> None:
        self._is_good.pop(offset, None)

    def clear(self) -> None:
        self._is_good.clear()

    def keep_within(self, log_start_offset: int, end: int) -> None:
        """Snapshots go that are not above the log start offset, or are above the log end offset."""
        self._keep_only(lambda offset: log_start_offset < offset <= end)

    def load_last(self) -> int | None:
        """The offset of the last readable snapshot; None if none is readable. Snapshots after it are removed."""
        while self._is_good:
            last = max(self._is_good)
            if self._is_good[last]:
                return last
            del self._is_good[last]
        return None

    def remove_strays(self, base_offsets: Sequence[int]) -> None:
        """Snapshots go that are at no segment's base offset, except the last one if it is after all segments
        (`removeStraySnapshots`).
        """
        strays = [offset for offset in self._is_good if offset not in base_offsets]
        last = max(strays, default=None)
        self._keep_only(lambda offset: offset in base_offsets or (offset == last and offset >= max(base_offsets)))

    def _keep_only(self, is_kept: Callable[[int], bool]) -> None:
        self._is_good = {offset: good for offset, good in self._is_good.items() if is_kept(offset)}


def _is_readable_snapshot(file: Listed) -> bool:
    try:
        read_snapshot(small_file(file))
    except SnapshotError:
        return False
    return True


class _LoadStopped(Exception):  # noqa: N818  # ends a simulated load, and is none of ours
    """Loading of the partition has stopped."""


@dataclass(slots=True, kw_only=True)
class _LoadState:
    """One partition while it is loaded, and what a broker loads it with, as in `simulate_startup`.

    Attributes:
        read_before: what recovering a segment comes to, by base offset, for segments that were already read with these
            options.
        read_log: reads others.
        simulation: what it has come to so far.
        files: by the names that they have at this point.
        snapshots: the producer snapshots that exist at this point.
        recoveries: of the segments that the broker has recovered, by base offset.
    """

    options: RecoverOptions
    clean_shutdown: bool
    recovery_point: int
    log_start_offset: int
    kafka: NodeRelease
    read_before: Mapping[int, SegmentRecovery]
    read_log: ReadLog
    simulation: StartupSimulation
    files: dict[str, Listed]
    snapshots: LoaderSnapshots = field(default_factory=LoaderSnapshots)
    recoveries: dict[int, SegmentRecovery] = field(default_factory=dict)

    def log_of(self, base_offset: int) -> Listed:
        return self.files[segment_files.segment_file(base_offset, segment_files.LOG_SUFFIX)]

    def opened(self, base_offset: int, suffix: str = "", kept_bytes: int | None = None) -> LogSegment:
        """Open a segment as a broker opens it. Its files may have a suffix besides. `kept_bytes` are left of its log;
        None for all of them.
        """
        log = LogFile(str(self.files[segment_files.segment_file(base_offset, segment_files.LOG_SUFFIX) + suffix]))
        file = self.files.get(segment_files.segment_file(base_offset, segment_files.OFFSET_INDEX_SUFFIX) + suffix)
        # A swap file may have no index. A recovered segment's index is rebuilt, so any right index will do.
        is_read = file not in (None, _MADE_BY_LOADER) and base_offset not in self.recoveries
        index = OffsetIndex.open(str(file), base_offset) if is_read else OffsetIndex.from_bytes(b"", base_offset)
        if kept_bytes is not None:
            log.keep_valid(kept_bytes)
        return LogSegment(log, base_offset, index, TimeIndex.from_bytes(b"", base_offset))

    def remove(self, name: str, why: Removal) -> None:
        """The broker removes a file from the simulated directory."""
        del self.files[name]
        self.simulation.removed[name] = why

    def delete(self, segment: SimulatedSegment, why: str) -> None:
        segment.action, segment.kept_bytes, segment.detail = StartupAction.DELETE, 0, why
        self.snapshots.remove(segment.base_offset)


def _load_partition(state: _LoadState) -> None:
    _ensure_readable(state)
    _finish_swaps(state)
    state.snapshots = LoaderSnapshots.of_files(state.files)
    _remove_orphans(state)
    _load_segments(state)
    if not state.clean_shutdown:
        _recover_unflushed_segments(state)
    _find_log_start_and_end(state)


def _ensure_readable(state: _LoadState) -> None:
    """Loading fails at a file that the broker may not read."""
    local = (file for file in state.files.values() if isinstance(file, str))
    unreadable = min((file for file in local if not os.access(file, os.R_OK)), default=None)
    if unreadable is None:
        return
    if not any(failure.startswith(f"{unreadable}: ") for failure in state.simulation.failures):
        state.simulation.failures.append(
            f"{unreadable}: not readable by this user; if the broker's may not read it either, {Thrown.IO}"
        )
    raise _LoadStopped


def _finish_swaps(state: _LoadState) -> None:
    """Files go that were to be deleted or are unfinished, and swap files replace what they replace."""
    _remove_leftovers(state)
    swaps = [name for name in sorted(state.files) if name.endswith(segment_files.SWAP_SUFFIX)]
    logs = [name.removesuffix(segment_files.SWAP_SUFFIX) for name in swaps if name.endswith(_SWAPPED_LOG_SUFFIX)]
    _remove_replaced(state, logs)
    for name in swaps:
        state.files[name.removesuffix(segment_files.SWAP_SUFFIX)] = state.files.pop(name)
        state.simulation.renamed.append(name)
    for name in logs:  # to learn where they end it has made the offset indexes that were missing, full of zeros
        index = f"{name.removesuffix(segment_files.LOG_SUFFIX)}{segment_files.OFFSET_INDEX_SUFFIX}"
        state.files.setdefault(index, _MADE_BY_LOADER)


def _remove_leftovers(state: _LoadState) -> None:
    cleaned = [name for name in state.files if name.endswith(segment_files.CLEANED_SUFFIX)]
    first_cleaned = min((_file_offset(name) for name in cleaned), default=segment_files.OFFSET_MAX)
    for name in sorted(state.files):
        if name.endswith(segment_files.DELETED_SUFFIX):
            state.remove(name, Removal.DELETED)
        elif name.endswith(segment_files.CLEANED_SUFFIX):
            state.remove(name, Removal.CLEANED)
        elif name.endswith(segment_files.SWAP_SUFFIX) and _file_offset(name) >= first_cleaned:
            state.remove(name, Removal.SWAP)


def _remove_replaced(state: _LoadState, logs: Sequence[str]) -> None:
    """Files go if their offsets are among those of the logs that are swapped in."""
    base_offsets = [_file_offset(name) for name in logs]
    least = min(base_offsets, default=segment_files.OFFSET_MAX)
    end = max((_end_of_swapped_log(state, offset) for offset in base_offsets), default=-1)
    for name in sorted(state.files):
        offset = segment_files.offset_in_name(name)
        if not name.endswith(segment_files.SWAP_SUFFIX) and offset is not None and least <= offset < end:
            state.remove(name, Removal.SWAPPED)


def _end_of_swapped_log(state: _LoadState, base_offset: int) -> int:
    """The offset after the last one of a log that is swapped in (`LogSegment.readNextOffset`)."""
    try:
        return state.opened(base_offset, segment_files.SWAP_SUFFIX).next_offset()
    except MalformedRecordsError as error:
        path = state.files[segment_files.segment_file(base_offset, _SWAPPED_LOG_SUFFIX)]
        state.simulation.failures.append(f"{path}: {error}; {Thrown.OTHER}")
        raise _LoadStopped from error


def _remove_orphans(state: _LoadState) -> None:
    """Indexes without a log go (`LogLoader.loadSegmentFiles`)."""
    for name in sorted(state.files):
        if (
            name.endswith(segment_files.INDEX_SUFFIXES)
            and segment_files.segment_file(_file_offset(name), segment_files.LOG_SUFFIX) not in state.files
        ):
            state.remove(name, Removal.ORPHAN)


def _load_segments(state: _LoadState) -> None:
    """Segments are opened in order, and recovered where indexes cannot be right (`LogLoader.loadSegmentFiles`)."""
    for name in sorted(name for name in state.files if name.endswith(segment_files.LOG_SUFFIX)):
        base_offset = segment_files.parse_segment_log(name)
        if base_offset is None:
            continue
        size = size_of(state.log_of(base_offset))
        segment = SimulatedSegment(base_offset, StartupAction.LOAD, size, size)
        loaded = tuple(state.simulation.segments)
        state.simulation.segments.append(segment)
        why = _why_recovered(state, segment)
        if why is not None:
            _recover_segment(state, segment, why, loaded, loading=True)


def _why_recovered(state: _LoadState, segment: SimulatedSegment) -> str | None:
    """`LogSegment.sanityCheck`: why a broker recovers the segment when it loads it; None where it does not."""
    if segment_files.segment_file(segment.base_offset, segment_files.OFFSET_INDEX_SUFFIX) not in state.files:
        return "no .index is beside the log"
    path = state.files.get(segment_files.segment_file(segment.base_offset, segment_files.TRANSACTION_INDEX_SUFFIX))
    if path is None:
        return None
    kafka = state.kafka
    try:
        TransactionIndex.open(path, segment.base_offset, release=kafka.release).sanity_check()
    except CorruptIndexError as error:
        return str(error)
    except UnknownVersionError as error:
        _fail_load(segment, f"{error}; {kafka}, counts" if error.is_taken_by_older else str(error))
    return None


def _recover_unflushed_segments(state: _LoadState) -> None:
    """Segments are recovered from the one on that holds the recovery point, up to the first that is truncated
    (`LogLoader.recoverLog`).
    """
    segments = state.simulation.segments
    base_offsets = [segment.base_offset for segment in segments]
    first = max(bisect_right(base_offsets, state.recovery_point) - 1, 0)
    unflushed = iter(segments[first:])
    for segment in unflushed:
        before = segment.kept_bytes
        _recover_segment(state, segment, "it may not have been flushed", segments, loading=False)
        if segment.kept_bytes < before:
            for later in unflushed:
                state.delete(later, f"after segment {segment.base_offset}, which is truncated")


def _recover_segment(
    state: _LoadState, segment: SimulatedSegment, why: str, loaded: Sequence[SimulatedSegment], *, loading: bool
) -> None:
    """Record what becomes of a segment that the broker recovers for this reason, and of the producer snapshots.
    `loaded` are the segments before it. If the broker is still `loading` segments, an offset that fails fails the load.
    """
    _leave_out_appends(state, segment)
    last_snapshot = _rebuild_producer_state(state, state.log_start_offset, segment.base_offset, loaded)
    is_whole = segment.kept_bytes == segment.log_bytes
    recovery = _recovery_of_same_size(state, segment) if is_whole else None
    if recovery is None:
        path = str(state.log_of(segment.base_offset))
        recovery = state.read_log(path, segment.kept_bytes, segment.base_offset, state.options)
    # A second time there is nothing left to be truncated: the first time says why.
    if is_first := segment.base_offset not in state.recoveries:
        state.recoveries[segment.base_offset], segment.detail = recovery, why
    segment.read_bytes += segment.kept_bytes
    end = recovery.end
    if end.status is Status.QUARANTINED:
        _simulate_quarantined(segment, end, loading)
        return
    segment.action = StartupAction.TRUNCATE if end.position < segment.log_bytes else StartupAction.REBUILD
    segment.kept_bytes = end.position
    segment.next_offset = recovery.next_offset
    if is_first and end.reason is not None:
        segment.detail = f"{end.reason} at byte {end.position}: {end.detail}{RECOVERED_AS}{why}"
        if loading and segment.action is StartupAction.TRUNCATE:
            segment.detail += "; the segments after it stay"
    if recovery.map_end_offset > last_snapshot:
        state.snapshots.take(recovery.map_end_offset)


def _leave_out_appends(state: _LoadState, segment: SimulatedSegment) -> None:
    """A running broker may have appended to a log since it was read: the simulation ends where the read ended."""
    known = _recovery_of_same_log(state, segment)
    if known is None or known.end.reason is not None or segment is not state.simulation.segments[-1]:
        return
    if known.log_bytes < segment.log_bytes == segment.kept_bytes:
        segment.log_bytes = segment.kept_bytes = known.log_bytes


def _recovery_of_same_size(state: _LoadState, segment: SimulatedSegment) -> SegmentRecovery | None:
    """What an earlier read of the very log found, as it is now; None without one."""
    recovery = _recovery_of_same_log(state, segment)
    return None if recovery is None or recovery.log_bytes != segment.log_bytes else recovery


def _recovery_of_same_log(state: _LoadState, segment: SimulatedSegment) -> SegmentRecovery | None:
    """What an earlier read found in the log that stands there under its name: a swap file may have taken its place."""
    is_swapped = str(state.log_of(segment.base_offset)).endswith(segment_files.SWAP_SUFFIX)
    return None if is_swapped else state.read_before.get(segment.base_offset)


def _simulate_quarantined(segment: SimulatedSegment, end: ScanEnd, loading: bool) -> None:
    detail = f"{end.reason} at byte {end.position}: {end.detail}"
    if end.reason == _OVERFLOW_REASON:
        segment.action, segment.detail = StartupAction.SPLIT, detail
        raise _LoadStopped
    if end.reason not in _INVALID_OFFSET_REASONS or loading:
        _fail_load(segment, detail)
    segment.action, segment.kept_bytes, segment.detail = StartupAction.EMPTY, 0, detail
    segment.next_offset = segment.base_offset


def _find_log_start_and_end(state: _LoadState) -> None:
    """`LogLoader.deleteSegmentsIfLogStartGreaterThanLogEnd`, and the log start and end offsets."""
    log_start_offset = state.log_start_offset
    left = state.simulation.left
    end = _next_offset_of_segment(state, left[-1]) if left else log_start_offset
    if end < log_start_offset:
        state.simulation.ends_below_start = end
        for segment in left:
            state.delete(segment, f"the log ends at {end}, below the log start offset {log_start_offset}")
        left, end = [], log_start_offset
        state.snapshots.clear()
    first = left[0].base_offset if left else log_start_offset
    start = max(log_start_offset, first)
    state.snapshots.remove_strays([segment.base_offset for segment in left] or [first])
    if state.snapshots or not state.clean_shutdown:
        _rebuild_producer_state(state, start, end, left)
    else:
        state.simulation.forgets_producers = start < end
    state.simulation.log_start_offset, state.simulation.log_end_offset = start, end


def _next_offset_of_segment(state: _LoadState, segment: SimulatedSegment) -> int:
    if segment.action is StartupAction.EMPTY:
        return segment.base_offset
    if segment.base_offset in state.recoveries:
        return state.recoveries[segment.base_offset].next_offset
    try:
        return state.opened(segment.base_offset, kept_bytes=segment.kept_bytes).next_offset()
    except MalformedRecordsError as error:
        _fail_load(segment, str(error))


def _rebuild_producer_state(
    state: _LoadState, log_start_offset: int, end: int, segments: Sequence[SimulatedSegment]
) -> int:
    """`UnifiedLog.rebuildProducerState` up to an offset: headers are read from the last good snapshot on. Returns the
    offset of the last snapshot that there is then.
    """
    snapshots = state.snapshots
    snapshots.keep_within(log_start_offset, end)
    if end == 0:
        return 0
    loaded = snapshots.load_last()
    last_snapshot = reached = log_start_offset if loaded is None else loaded
    base_offsets = [segment.base_offset for segment in segments]
    floor = max(bisect_right(base_offsets, reached) - 1, 0)
    for segment in segments[floor:] if end > reached else ():
        if segment.base_offset >= end:
            break
        reached = max(segment.base_offset, reached, log_start_offset)
        if segment.base_offset in base_offsets[-2:] and reached > last_snapshot:
            last_snapshot = snapshots.take(reached)
        _learn_producers_from_headers(state, segment, reached)
    return snapshots.take(end) if end > last_snapshot else last_snapshot


def _learn_producers_from_headers(state: _LoadState, segment: SimulatedSegment, start: int) -> None:
    recovery = state.recoveries.get(segment.base_offset)
    if recovery is not None and recovery.records is not None:
        return  # recovery has read these headers, and there is no wrapper that had to be decompressed
    opened = state.opened(segment.base_offset, kept_bytes=segment.kept_bytes)
    try:
        if recovery is not None:
            # Kafka decompresses as much of a wrapper as it needs to find where to start.
            walks = new_walks(np.array([start]), np.zeros(1, np.int64))
            walk(opened.log, walks, step_to_offsets)
            opened.translate_offset(start, max(int(walks["previous_position"][0]), 0))
        elif (found := opened.translate_offset(start)) is not None:
            _ensure_wellformed_headers(opened.log, found.position)
    except MalformedRecordsError as error:
        _fail_load(segment, f"producers are to be learnt from its headers: {error}")


def _ensure_wellformed_headers(log: LogBytes, position: int) -> None:
    walks = new_walks(np.array([segment_files.OFFSET_MAX]), np.array([position]))
    walk(log, walks, step_to_timestamps)  # no batch has so large a timestamp
    if walks[0]["outcome"] != SearchOutcome.NONE:
        for _ in batches(log, int(walks[0]["position"])):
            pass


def _lost_batches_and_records(state: _LoadState, segment: SimulatedSegment) -> tuple[int | None, int | None]:
    """How many batches and records of a segment are dropped; None if that is not known for certain."""
    if not segment.lost_bytes:
        return 0, 0
    recovery = state.recoveries.get(segment.base_offset) or _recovery_of_same_size(state, segment)
    if recovery is None:
        return None, None
    past = recovery.past
    if segment.kept_bytes:
        return past.batches, past.records
    batches = None if past.batches is None else past.batches + recovery.batches
    records = None if past.records is None or recovery.records is None else past.records + recovery.records
    return batches, records


def _fail_load(segment: SimulatedSegment, why: str) -> NoReturn:
    segment.action, segment.detail = StartupAction.FAIL, why
    raise _LoadStopped


def _file_offset(name: str) -> int:
    """The offset in the name of a file that is known to have one."""
    offset = segment_files.offset_in_name(name)
    assert offset is not None, name
    return offset


def forgotten_producers(fold: PartitionFold, directory: Location) -> str | None:
    """What a broker forgets that finds no producer snapshot after a clean stop, and what to do; None where the log has
    no producers.
    """
    count, open_ones = len(read_snapshot(fold.end_snapshot)), fold.ongoing
    if not count:
        return None
    served = ""
    if open_ones:
        served = (
            f", and records of {counted(len(open_ones), 'open transaction')} (from offset {min(open_ones)} on) are "
            "served as if committed"
        )
    return (
        f"no producer snapshot after a clean stop; a broker that starts forgets {counted(count, 'producer')} of this "
        f"log: a batch that one sends again is there twice{served}; {_remedy_of_missing_snapshot(fold, directory)}"
    )


def _remedy_of_missing_snapshot(fold: PartitionFold, directory: Location) -> str:
    if fold.end_source is StateSource.UNKNOWN:  # a build writes no snapshot then
        return (
            f"remove {CLEAN_SHUTDOWN_FILE} in all log dirs of the broker, which then learns of them from the log, as "
            "after a crash: the log begins above offset 0 or has gaps, so kidx build does not make a snapshot"
        )
    topic = directory.name.rpartition("-")[0]
    log_dir, topics = shlex.quote(str(directory.parent)), shell_option("--topics", topic.replace(".", r"\."))
    return f"make it from the log: kidx build {log_dir} --in-place --snapshots {topics}"
