"""How a loading broker learns of a partition's producers: which batch headers it reads, and where it fails.

Producer snapshots decide where the broker starts to read headers, and so whether it meets a malformed one. Two things
are not reported: producers that contradict their states, and how the broker treats a magic below 0 or a batch of
magic 2 that is smaller than a header. The broker may skip these, where loading fails here.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np

from kidxlib.audit.startup.load_state import LoadState, fail
from kidxlib.audit.startup.simulation import SimulatedSegment
from kidxlib.errors import MalformedRecordsError
from kidxlib.format import segment_files
from kidxlib.records.batch_headers import batches
from kidxlib.records.header_search import SearchOutcome, new_walks, step_to_offsets, step_to_timestamps, walk
from kidxlib.storage.log_bytes import LogBytes


def replay(state: LoadState, log_start_offset: int, end: int, segments: Sequence[SimulatedSegment]) -> int:
    """`UnifiedLog.rebuildProducerState` up to an offset: headers are read from the last good snapshot on.

    Returns:
        The offset of the last snapshot that there is then.

    Raises:
        LoadStopped: a header is malformed.
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
        _read_headers(state, segment, reached)
    return snapshots.take(end) if end > last_snapshot else last_snapshot


def _read_headers(state: LoadState, segment: SimulatedSegment, start: int) -> None:
    recovery = state.recoveries.get(segment.base_offset)
    if recovery is not None and recovery.records is not None:
        return  # recovery has read these headers, and there is no wrapper that had to be decompressed
    opened = state.opened(segment.base_offset, kept_bytes=segment.kept_bytes)
    try:
        if recovery is not None:
            # Of a wrapper Kafka decompresses what it needs to find where to start.
            walks = new_walks(np.array([start]), np.zeros(1, np.int64))
            walk(opened.log, walks, step_to_offsets)
            opened.translate_offset(start, max(int(walks["previous_position"][0]), 0))
        elif (found := opened.translate_offset(start)) is not None:
            _ensure_wellformed_headers(opened.log, found.position)
    except MalformedRecordsError as error:
        fail(segment, f"producers are to be learnt from its headers: {error}")


def _ensure_wellformed_headers(log: LogBytes, position: int) -> None:
    """Go from header to header to the end.

    Raises:
        MalformedRecordsError: one is not what Kafka writes.
    """
    walks = new_walks(np.array([segment_files.OFFSET_MAX]), np.array([position]))
    walk(log, walks, step_to_timestamps)  # no batch has so large a timestamp
    if walks[0]["outcome"] != SearchOutcome.NONE:
        for _ in batches(log, int(walks[0]["position"])):
            pass
