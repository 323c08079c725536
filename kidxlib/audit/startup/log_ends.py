"""Where a log starts and ends once a broker has loaded its segments, and which segments it deletes for that."""

from __future__ import annotations

from kidxlib.audit.startup.load_state import LoadState, fail
from kidxlib.audit.startup.producer_replay import replay
from kidxlib.audit.startup.simulation import SimulatedSegment, StartupAction
from kidxlib.errors import MalformedRecordsError


def find_ends(state: LoadState) -> None:
    """`LogLoader.deleteSegmentsIfLogStartGreaterThanLogEnd`, and the log start and end offsets.

    Raises:
        LoadStopped: a header on the way is malformed.
    """
    log_start_offset = state.arguments.log_start_offset
    left = [segment for segment in state.found.segments if segment.action is not StartupAction.DELETE]
    end = _next_offset(state, left[-1]) if left else log_start_offset
    if end < log_start_offset:
        for segment in left:
            state.delete(segment, f"the log ends at {end}, below the log start offset {log_start_offset}")
        left, end = [], log_start_offset
        state.snapshots.clear()
    first = left[0].base_offset if left else log_start_offset
    start = max(log_start_offset, first)
    state.snapshots.remove_strays([segment.base_offset for segment in left] or [first])
    if state.snapshots or not state.arguments.clean_shutdown:
        replay(state, start, end, left)
    else:
        state.found.forgets_producers = start < end
    state.found.log_start_offset, state.found.log_end_offset = start, end


def _next_offset(state: LoadState, segment: SimulatedSegment) -> int:
    if segment.action is StartupAction.EMPTY:
        return segment.base_offset
    if segment.base_offset in state.recoveries:
        return state.recoveries[segment.base_offset].next_offset
    try:
        return state.opened(segment.base_offset, kept_bytes=segment.kept_bytes).next_offset()
    except MalformedRecordsError as error:
        fail(segment, str(error))
