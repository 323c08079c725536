"""Reads segments in waves. Each is recorded in the catalog, and its partitions finished, before the next begins."""

from __future__ import annotations

import time
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa

from kidxlib.catalog.results import SCANNED
from kidxlib.engine.protocol import ensure_logs_visible, source_directories
from kidxlib.engine.work import Work, reads_little
from kidxlib.indexing.changes import Changes
from kidxlib.indexing.listed import numbers_in, partitions_of, sum_of_bytes
from kidxlib.indexing.plan import ListedPartition, Plan
from kidxlib.operations.build.build_request import BuildRequest
from kidxlib.operations.build.build_run import BuildRun, Scanned
from kidxlib.operations.build.finish import count_scanned, finish_partitions_of, record_scanned
from kidxlib.terminal import interrupts
from kidxlib.terminal.console import Done, begin_phase
from kidxlib.text.words import counted

#: Bytes a second and core that the first wave is sized for; later ones use what was measured.
_FIRST_WAVE_RATE: Final = 100_000_000
#: Segments of a wave at most: their tasks and whole rows are held, some 2 kB each.
_WAVE_SEGMENTS: Final = 200_000
#: The phase in which a build writes what it has read into its catalog.
RECORDING: Final = "recording in the catalog"


def scan_in_waves(run: BuildRun, changes: Changes) -> Scanned:
    """Read segments in waves. After each but the last, the partitions that it has read to the end are finished, and all
    is committed: so each row is written once. Partitions that are left after the last are the caller's.
    """
    scanned = Scanned(unfinished=dict(changes.to_finish))
    to_read, engine, limits = changes.to_read, run.backend.engine, run.request.limits
    if not to_read.num_rows:
        return scanned
    engine.start()
    before = engine.done()  # where workers have planned, they have listed segments

    def done() -> Done:
        return engine.done() - before

    position, segments, log_bytes = 0, to_read.num_rows, changes.bytes_to_read
    bytes_a_second: float = _FIRST_WAVE_RATE * engine.cores
    with interrupts.telling(partial(_said_if_interrupted, run.request, scanned, segments)):
        while position < segments:
            wave_bytes = min(limits.wave_bytes, int(bytes_a_second * limits.wave_seconds))
            rows = _next_wave(to_read, position, wave_bytes)
            position += rows.num_rows
            begin_phase(
                "reading", done=done, segments=segments, log_bytes=log_bytes, after=recording_phase(run.request)
            )
            bytes_a_second = _scan(run, rows, scanned)
            if position < segments:
                begin_phase("finishing partitions")
                finish_partitions_of(run, _read_to_the_end(run.plan, rows, to_read.slice(position, 1)), scanned)
                begin_phase(recording_phase(run.request))
                run.commit()
    scanned.read_seconds = done().seconds
    return scanned


def recording_phase(request: BuildRequest) -> str:
    """The name of the phase after reading."""
    return RECORDING if request.keeps_catalog else "collecting results"


def _said_if_interrupted(request: BuildRequest, scanned: Scanned, segments: int) -> str:
    """The words about an interrupted run, of so many segments to read."""
    of_all = f"{scanned.counts.segments:,} of {counted(segments, 'segment')}"
    if request.keeps_catalog:
        return f"{of_all} read and recorded in the catalog; run the same command again to go on"
    # In place an offset index may wait for the end of its partition, and is removed.
    read = f"{of_all} {'read' if request.in_place else 'indexed'}"
    return f"{read}; run the same command again, which reads all of them, as there is no catalog"


def _scan(run: BuildRun, rows: pa.Table, scanned: Scanned) -> float:
    """Read and record one wave, rows of `TO_READ`. Returns the bytes read a second."""
    from kidxlib.operations.build.scan_work import scan_shares  # compiled loops: not imported if nothing is read

    engine, request = run.backend.engine, run.request
    to_build = run.plan.to_build(rows, publish_truncated=request.publish_truncated)
    read_bytes = sum_of_bytes(rows)
    scanned.waves += 1
    start = time.monotonic()
    work = Work(
        f"{run.build_id}-{scanned.waves}",
        to_build.packed(engine.cores),
        scan_shares,
        SCANNED,
        source_directories({partition.source for partition in to_build.partitions}, request.sources),
        is_small=reads_little(read_bytes, rows.num_rows),
        maps=True,
    )
    with engine.stopping():
        staged = engine.run(work)
        seconds = time.monotonic() - start
        ensure_logs_visible(staged)
        begin_phase(recording_phase(request))
        scanned.rows_changed += record_scanned(run.backend.catalog, staged, run.build_id)
        count_scanned(staged, scanned.counts)
        staged.remove()
    scanned.seconds += seconds
    return max(1.0, read_bytes / seconds)


def _read_to_the_end(plan: Plan, rows: pa.Table, following: pa.Table) -> list[ListedPartition]:
    """The partitions whose last segment is in a wave. `following` is the first row after the wave."""
    numbers = set(partitions_of(rows).tolist()) - set(partitions_of(following).tolist())
    return [plan.partitions[number] for number in sorted(numbers)]


def _next_wave(to_read: pa.Table, position: int, log_bytes: int) -> pa.Table:
    """The segments from `position` on that stay within `log_bytes`, one at least; all or none of the last partition,
    where that can be.
    """
    rows = to_read.slice(position, _WAVE_SEGMENTS + 1)
    bytes_up_to = np.cumsum(numbers_in(rows["log_bytes"])[0])
    end = int(np.searchsorted(bytes_up_to, log_bytes, side="right"))
    end = max(1, min(end, _WAVE_SEGMENTS))
    if end < rows.num_rows:
        partitions = partitions_of(rows)
        end = int(np.searchsorted(partitions, partitions[end])) or end
    return rows.slice(0, end)
