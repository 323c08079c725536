"""The wait for loops that setup.sh compiles."""

from __future__ import annotations

import fcntl
import threading
from pathlib import Path
from typing import Final

import pytest

from jobs.common.spark import loops
from kidxlib.jit import compiling

_DEADLINE_SECONDS: Final = 60.0


def test_a_job_waits_as_long_as_loops_are_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = tmp_path / "loops.lock"
    monkeypatch.setattr(loops, "_LOCK", lock)
    loops.wait_for_loops()  # there is none

    lock.touch()
    loops.wait_for_loops()  # nobody has it
    assert not compiling.is_compiling()

    waiting = threading.Thread(target=loops.wait_for_loops)
    with lock.open("rb") as of_setup:
        fcntl.flock(of_setup, fcntl.LOCK_EX)
        waiting.start()
        while waiting.is_alive() and not compiling.is_compiling():
            waiting.join(0.001)
        assert waiting.is_alive() and compiling.is_compiling()
    waiting.join(_DEADLINE_SECONDS)
    assert not waiting.is_alive() and not compiling.is_compiling()
