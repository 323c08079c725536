"""Segments read in waves, each recorded in the catalog before the next begins."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from kidxlib.build.bins import pack
from kidxlib.build.listed import Longs, numbers_in, sum_of_bytes
from kidxlib.build.plan import Plan
from kidxlib.build.summary import Counts
from kidxlib.catalog.results import SCANNED
from kidxlib.engine.protocol import Engine
from kidxlib.engine.work import Work
from kidxlib.operations.backend import Backend
from kidxlib.operations.build.counts import count_scanned
from kidxlib.operations.build.record_rows import record_scanned
from kidxlib.operations.build.request import BuildLimits, BuildRequest
from kidxlib.operations.visible_logs import directories_of, ensure_logs_visible
from kidxlib.terminal import interrupts
from kidxlib.terminal.progress import begin_phase

#: Bytes a second and core that the first wave is sized for; later ones use what was measured.
_FIRST_WAVE_RATE: Final = 100_000_000

_RECORDING: Final = "recording in the catalog"


@dataclass(slots=True)
class Scanned:
    """What a build has read so far, wave by wave.

    Attributes:
        seconds: that waves took until their results were there.
        read_seconds: in which some executor was reading: less what it took to begin.
    """

    counts: Counts = field(default_factory=Counts)
    seconds: float = 0.0
    read_seconds: float = 0.0
    waves: int = 0
    rows_changed: int = 0


def scan_in_waves(request: BuildRequest, plan: Plan, to_read: pa.Table, backend: Backend, build_id: str) -> Scanned:
    """Read segments in waves, each recorded in the catalog before the next begins. Tasks are made for one wave at a
    time.

    Args:
        to_read: rows of `TO_READ`, of the plan's segments.
    """
    scanned = Scanned()
    segments = to_read.num_rows
    if not segments:
        return scanned
    from kidxlib.operations.build.scan_work import scan_segments  # compiled loops, for who has something to read

    limits, engine = request.limits, backend.engine
    engine.start()
    bytes_a_second: float = _FIRST_WAVE_RATE * engine.cores
    position = 0
    bytes_before = np.concatenate([[0], np.cumsum(numbers_in(to_read["log_bytes"])[0])])
    log_bytes = int(bytes_before[-1])

    def done() -> str:
        of_all = f"{scanned.counts.segments:,} of {segments:,} segments"
        if request.keeps_catalog:
            return f"{of_all} read and recorded in the catalog; run the same command again to go on"
        # In place an offset index may wait for the end of its partition, and goes again.
        read = f"{of_all} {'read' if request.in_place else 'indexed'}"
        return f"{read}; run the same command again, which reads all of them, as there is no catalog"

    with interrupts.telling(done):
        while position < segments:
            end = _end_of_wave(bytes_before, position, _wave_bytes(limits, bytes_a_second))
            rows = to_read.slice(position, end - position)
            wave = plan.build_tasks(rows, publish_truncated=request.publish_truncated)
            read_bytes = int(bytes_before[end] - bytes_before[position])
            position = end
            scanned.waves += 1
            start = time.monotonic()
            begin_phase("reading", done=engine.done, segments=segments, log_bytes=log_bytes, after=_RECORDING)
            work = Work(
                f"{build_id}-{scanned.waves}",
                pack(wave, engine.cores),
                scan_segments,
                SCANNED,
                directories_of(wave, request.sources),
                read_bytes,
            )
            with engine.stopping():
                found = engine.run(work)
                seconds = time.monotonic() - start
                ensure_logs_visible(found)
                begin_phase(_RECORDING)
                scanned.rows_changed += record_scanned(backend.catalog, found, build_id)
                count_scanned(found, scanned.counts)
                found.remove()
            scanned.seconds += seconds
            bytes_a_second = max(1.0, read_bytes / seconds)
    scanned.read_seconds = engine.done().seconds
    return scanned


def is_one_wave(request: BuildRequest, to_read: pa.Table, engine: Engine) -> bool:
    """Whether `scan_in_waves` reads all of it at once."""
    return sum_of_bytes(to_read) <= _wave_bytes(request.limits, _FIRST_WAVE_RATE * engine.cores)


def _wave_bytes(limits: BuildLimits, bytes_a_second: float) -> int:
    return min(limits.wave_bytes, int(bytes_a_second * limits.wave_seconds))


def _end_of_wave(bytes_before: Longs, position: int, log_bytes: int) -> int:
    """Where a wave ends: as many segments from `position` on as stay within `log_bytes`, and one at least.

    Args:
        bytes_before: of the logs before each segment, and of all of them.
    """
    end = int(np.searchsorted(bytes_before, bytes_before[position] + log_bytes, side="right")) - 1
    return max(end, position + 1)
