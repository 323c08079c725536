"""Recovery of a segment while a broker loads its partition (`LogLoader.recoverSegment`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kidxlib.audit.startup.load_state import LoadState, LoadStopped, fail
from kidxlib.audit.startup.producer_replay import replay
from kidxlib.audit.startup.recovery import Recovery
from kidxlib.audit.startup.simulation import SimulatedSegment, StartupAction
from kidxlib.format import segment_files
from kidxlib.recovery.outcome import ScanEnd, Status

#: With these a scan ends in an `InvalidOffsetException`, after which a broker that recovers empties the segment.
_INVALID_OFFSET: Final = ("offset-not-increasing", "time-index-offset-decreasing")
_OVERFLOW: Final = "offset-overflow"


def recover_segment(
    state: LoadState, segment: SimulatedSegment, why: str, loaded: Sequence[SimulatedSegment], *, loading: bool
) -> None:
    """Record what becomes of a recovered segment and of the producer snapshots.

    Args:
        why: the reason to recover it.
        loaded: the segments that the broker has loaded so far.
        loading: the broker is still loading segments, which fails if the segment's offsets fail.

    Raises:
        LoadStopped: loading fails at it, or it is to be split.
        OSError: its log cannot be read.
        LogChangedError: its log changes meanwhile.
    """
    _leave_out_appends(state, segment)
    last_snapshot = replay(state, state.arguments.log_start_offset, segment.base_offset, loaded)
    is_whole = segment.kept_bytes == segment.log_bytes
    recovery = (_read_already(state, segment) if is_whole else None) or _read(state, segment)
    # A second time there is nothing left to be truncated: the first time says why.
    if is_first := segment.base_offset not in state.recoveries:
        state.recoveries[segment.base_offset], segment.detail = recovery, why
    segment.read_bytes += segment.kept_bytes
    end = recovery.end
    if end.status is Status.QUARANTINED:
        _quarantined(segment, end, loading)
        return
    segment.action = StartupAction.TRUNCATE if end.position < segment.log_bytes else StartupAction.REBUILD
    segment.kept_bytes = end.position
    segment.next_offset = recovery.next_offset
    if is_first and end.reason is not None:
        segment.detail = f"{end.reason} at byte {end.position}: {end.detail}; it is recovered, as {why}"
        if loading and segment.action is StartupAction.TRUNCATE:
            segment.detail += "; the segments after it stay"
    if recovery.map_end_offset > last_snapshot:
        state.snapshots.take(recovery.map_end_offset)


def lost(state: LoadState, segment: SimulatedSegment) -> tuple[int | None, int | None]:
    """How many batches and records of a segment are dropped; None if that is not known for certain."""
    if not segment.lost_bytes:
        return 0, 0
    recovery = state.recoveries.get(segment.base_offset) or _read_already(state, segment)
    if recovery is None:
        return None, None
    past = recovery.past
    if segment.kept_bytes:
        return past.batches, past.records
    return _sum(past.batches, recovery.batches), _sum(past.records, recovery.records)


def _leave_out_appends(state: LoadState, segment: SimulatedSegment) -> None:
    """What was read of a log, where a running broker has appended to it since."""
    known = _of_the_very_log(state, segment)
    if known is None or known.end.reason is not None or segment is not state.found.segments[-1]:
        return
    if known.log_bytes < segment.log_bytes == segment.kept_bytes:
        segment.log_bytes = segment.kept_bytes = known.log_bytes


def _read(state: LoadState, segment: SimulatedSegment) -> Recovery:
    path = str(state.log_of(segment.base_offset))
    return state.read_log(path, segment.kept_bytes, segment.base_offset, state.arguments.options)


def _read_already(state: LoadState, segment: SimulatedSegment) -> Recovery | None:
    """What somebody has found who read the very log as it is; None where nobody has."""
    recovery = _of_the_very_log(state, segment)
    return None if recovery is None or recovery.log_bytes != segment.log_bytes else recovery


def _of_the_very_log(state: LoadState, segment: SimulatedSegment) -> Recovery | None:
    """What was found in the log, if it stands there under its name: a swap file may have come in its place."""
    is_swapped = state.log_of(segment.base_offset).name.endswith(segment_files.SWAP_SUFFIX)
    return None if is_swapped else state.read_before.get(segment.base_offset)


def _quarantined(segment: SimulatedSegment, end: ScanEnd, loading: bool) -> None:
    detail = f"{end.reason} at byte {end.position}: {end.detail}"
    if end.reason == _OVERFLOW:
        segment.action, segment.detail = StartupAction.SPLIT, detail
        raise LoadStopped
    if end.reason not in _INVALID_OFFSET or loading:
        fail(segment, detail)
    segment.action, segment.kept_bytes, segment.detail = StartupAction.EMPTY, 0, detail
    segment.next_offset = segment.base_offset


def _sum(first: int | None, second: int | None) -> int | None:
    return None if first is None or second is None else first + second
