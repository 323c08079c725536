"""Runs the work of a comparison on an engine (`run_comparison`), whichever comparison it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kidxlib.engine.protocol import Engine
from kidxlib.engine.work import Staged, Work
from kidxlib.terminal import interrupts
from kidxlib.terminal.progress import Done, begin_phase


def run_comparison(
    work: Work[Any],
    engine: Engine,
    phase: str,
    *,
    done: Callable[[], Done],
    so_far: Callable[[], str],
    segments: int,
    log_bytes: int = 0,
) -> Staged:
    """The staged rows. `done` shows the progress; an interrupted run reports nothing, and says `so_far`."""
    if not work.is_small:
        engine.start()
    begin_phase(phase, done=done, segments=segments, log_bytes=log_bytes, after="counting")
    with (
        interrupts.telling(lambda: f"{so_far()} compared, and none reported; run the same command again"),
        engine.abandoning(),
    ):
        staged = engine.run(work)
        interrupts.raise_if_requested()
    begin_phase("counting")
    return staged
