"""Simulates what a starting broker would do with a partition's directory, as Kafka's `LogLoader` does it.

The simulation is valid for the brokers in `HOLDS_FOR`. It changes nothing, and reads only the logs that the broker
would read. `partition_files` and `log_dir_entries` find what keeps a broker from starting before it reads logs;
segments are still reported, as if that were mended. Two things are not reported: what becomes of a segment that the
broker must split (`offset-overflow`), and what `producer_replay` leaves out.
"""

from __future__ import annotations

import contextlib
import os
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from kidxlib.audit.startup.load_state import LoadArguments, LoadState, LoadStopped, fail, file_offset
from kidxlib.audit.startup.log_ends import find_ends
from kidxlib.audit.startup.producer_snapshots import ProducerSnapshots
from kidxlib.audit.startup.recovery import ReadLog, Recovery, read_in_chunks
from kidxlib.audit.startup.segment_recovery import lost, recover_segment
from kidxlib.audit.startup.simulation import Removal, SimulatedSegment, StartupAction, StartupSimulation
from kidxlib.audit.startup.swaps import finish_swaps
from kidxlib.audit.startup.text_files import Thrown
from kidxlib.errors import CorruptIndexError, UnknownVersionError
from kidxlib.format import segment_files
from kidxlib.index.transaction import TransactionIndex
from kidxlib.recovery.options import RecoverOptions
from kidxlib.storage.location import Location


def simulate_startup(
    directory: Location,
    options: RecoverOptions,
    *,
    clean_shutdown: bool,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    recoveries: Mapping[int, Recovery] = MappingProxyType({}),
    read_log: ReadLog = read_in_chunks,
) -> StartupSimulation:
    """What `LogLoader.load` does with a partition's directory.

    Args:
        options: of the topic, as they are when the broker starts.
        recovery_point, log_start_offset: what the log dir's checkpoint files say; 0 where they say nothing.
        recoveries: of segments that were read already with these options, by base offset; they are not read again.
        read_log: reads the others.

    Raises:
        OSError: the directory cannot be listed, or a file not read.
        LogChangedError: a log changes meanwhile.
    """
    arguments = LoadArguments(
        options=options,
        clean_shutdown=clean_shutdown,
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
    )
    state = LoadState.of_directory(directory, arguments, recoveries, read_log)
    with contextlib.suppress(LoadStopped):
        _load(state)
    for segment in state.found.segments:
        segment.lost_batches, segment.lost_records = lost(state, segment)
    return state.found


def _load(state: LoadState) -> None:
    _ensure_readable(state)
    finish_swaps(state)
    state.snapshots = ProducerSnapshots.of_files(state.files)
    _remove_orphans(state)
    _load_segments(state)
    if not state.arguments.clean_shutdown:
        _recover_unflushed(state)
    find_ends(state)


def _ensure_readable(state: LoadState) -> None:
    """Let loading fail on a file that the broker may not read.

    Raises:
        LoadStopped: there is one.
    """
    for _, path in sorted(state.files.items()):
        if isinstance(path, Path) and not os.access(path, os.R_OK):
            if not any(failure.startswith(f"{path}: ") for failure in state.found.failures):
                state.found.failures.append(
                    f"{path}: not readable by this user; if the broker's may not read it either, {Thrown.IO}"
                )
            raise LoadStopped


def _remove_orphans(state: LoadState) -> None:
    """Remove indexes without a log, as `loadSegmentFiles` does."""
    for name in sorted(state.files):
        if (
            name.endswith(segment_files.INDEX_SUFFIXES)
            and segment_files.segment_file(file_offset(name), segment_files.LOG_SUFFIX) not in state.files
        ):
            state.remove(name, Removal.ORPHAN)


def _load_segments(state: LoadState) -> None:
    """Open segments in order, and recover them where their indexes cannot be right, as `loadSegmentFiles` does."""
    for base_offset in _base_offsets(state):
        size = state.log_of(base_offset).stat().st_size
        segment = SimulatedSegment(base_offset, StartupAction.LOAD, size, size)
        loaded = tuple(state.found.segments)
        state.found.segments.append(segment)
        why = _why_rebuilt(state, segment)
        if why is not None:
            recover_segment(state, segment, why, loaded, loading=True)


def _base_offsets(state: LoadState) -> Iterator[int]:
    found = (segment_files.parse_segment_log(name) for name in sorted(state.files))
    yield from (base_offset for base_offset in found if base_offset is not None)


def _why_rebuilt(state: LoadState, segment: SimulatedSegment) -> str | None:
    """`LogSegment.sanityCheck`: why a broker recovers the segment when it loads it; None where it does not."""
    if segment_files.segment_file(segment.base_offset, segment_files.OFFSET_INDEX_SUFFIX) not in state.files:
        return "its .index is missing"
    path = state.files.get(segment_files.segment_file(segment.base_offset, segment_files.TRANSACTION_INDEX_SUFFIX))
    if path is None:
        return None
    try:
        TransactionIndex.open(path, segment.base_offset).sanity_check()
    except CorruptIndexError as error:
        return str(error)
    except UnknownVersionError as error:
        fail(segment, str(error))
    return None


def _recover_unflushed(state: LoadState) -> None:
    """`recoverLog`: segments from the one on that holds the recovery point, up to the first that is truncated."""
    segments = state.found.segments
    base_offsets = [segment.base_offset for segment in segments]
    first = max(bisect_right(base_offsets, state.arguments.recovery_point) - 1, 0)
    unflushed = iter(segments[first:])
    for segment in unflushed:
        before = segment.kept_bytes
        recover_segment(state, segment, "it may not have been flushed", segments, loading=False)
        if segment.kept_bytes < before:
            for later in unflushed:
                state.delete(later, f"after segment {segment.base_offset}, which is truncated")
