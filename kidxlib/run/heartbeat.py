"""The scratch directory of a run, which holds what was found in segments until it is recorded, and the heartbeat in it:
a file that the run renews until it ends.

Who sweeps what killed runs left goes by the heartbeat, and not by the age of a folder: a run that takes days keeps its
own, and one that was killed loses it an hour later.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Final

from kidxlib.storage.scratch import temporary_place, writing_in

#: The name of the file. When it was last changed is all that it says.
HEARTBEAT: Final = "heartbeat"
PERIOD: Final = timedelta(minutes=1)
#: No machine, disk or process is held up for so long and goes on then: who has had no heartbeat since was killed.
DEAD_AFTER: Final = timedelta(hours=1)

_DEAD_AFTER_NS: Final = DEAD_AFTER // timedelta(microseconds=1) * 1000

_PREFIX: Final = "kidx-"


@contextlib.contextmanager
def beating(beat: Callable[[], None]) -> Iterator[None]:
    """Renew a heartbeat: at once, and every minute until the context is left.

    Args:
        beat: renews it, in a thread of its own but for the first time. What goes wrong then is made up for a minute
            later; where it goes on, the run does not end of that.
    """
    beat()
    ended = threading.Event()

    def go_on() -> None:
        while not ended.wait(PERIOD.total_seconds()):
            with contextlib.suppress(OSError):
                beat()

    thread = threading.Thread(target=go_on, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextlib.contextmanager
def beating_in(folder: Path) -> Iterator[None]:
    """Renew the heartbeat in a folder, which is there and goes when its owner removes it."""
    with beating((folder / HEARTBEAT).touch):
        yield


def sweep_folders(place: Path, *, prefix: str = "", unmarked_before_ns: int = 0) -> None:
    """Remove the folders of runs that were killed: those whose heartbeat is `DEAD_AFTER` old, by their disk's clock.

    Args:
        place: where the folders are; it may be missing.
        prefix: how their names begin.
        unmarked_before_ns: one that has no heartbeat goes where it was last changed before then, in nanoseconds since
            the epoch: an older release has left it, or a run that was killed at once.
    """
    for folder in _folders(place, prefix):
        with contextlib.suppress(OSError):  # its run has ended meanwhile; or nothing may be written here
            try:
                last_beat = (folder / HEARTBEAT).stat().st_mtime_ns
            except FileNotFoundError:
                is_dead = folder.stat().st_mtime_ns < unmarked_before_ns
            else:
                is_dead = last_beat < _now_ns(place) - _DEAD_AFTER_NS
            if is_dead:
                shutil.rmtree(folder, ignore_errors=True)


def _folders(place: Path, prefix: str) -> list[Path]:
    try:
        with os.scandir(place) as entries:
            names = [entry for entry in entries if entry.name.startswith(prefix)]
            return [Path(entry.path) for entry in names if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def _now_ns(place: Path) -> int:
    """The time in nanoseconds since the epoch, by the clock that files there get: of another machine, perhaps."""
    with tempfile.TemporaryFile(dir=place) as file:
        return os.fstat(file.fileno()).st_mtime_ns


@contextlib.contextmanager
def scratch_directory() -> Iterator[Path]:
    """A new directory in `TMPDIR`, or /tmp, that goes at the end. Those that killed runs left there go first."""
    place = temporary_place()
    sweep_folders(place, prefix=_PREFIX)
    with contextlib.ExitStack() as stack:
        with writing_in(place):
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=_PREFIX, dir=place)))
            stack.enter_context(beating_in(directory))
        yield directory
