"""The scratch directory of a run, which holds rows on segments until they are recorded, and its heartbeat: a file that
the run renews until it ends.

A sweep of killed runs' folders goes by the heartbeat and not by a folder's age: a run of days keeps its folder, and a
killed run's folder goes an hour later.
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

from kidxlib.errors import KidxError

#: The file's name. Only its modification time means something.
HEARTBEAT: Final = "heartbeat"
PERIOD: Final = timedelta(minutes=1)
#: No machine, disk or process stalls for so long and then goes on: a run without a heartbeat for this time was killed.
DEAD_AFTER: Final = timedelta(hours=1)

_PREFIX: Final = "kidx-"


@contextlib.contextmanager
def scratch_directory() -> Iterator[Path]:
    """A new directory in `TMPDIR`, or /tmp, which is removed at the end. Killed runs' directories are removed first."""
    place = temporary_place()
    sweep_folders(place, prefix=_PREFIX)
    with contextlib.ExitStack() as stack:
        with writing_in(place):
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=_PREFIX, dir=place)))
            stack.enter_context(beating_in(directory))
        yield directory


def temporary_place() -> Path:
    """`TMPDIR`, or /tmp. Unlike Python's, never the current directory, which may be a broker's log dir."""
    return Path(os.environ.get("TMPDIR") or "/tmp")


@contextlib.contextmanager
def writing_in(place: Path) -> Iterator[None]:
    """Turn an error of a full or unwritable directory into one line."""
    try:
        yield
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else str(error)
        raise KidxError(
            f"{place}: rows wait there until they are recorded, and cannot be written: {why}; "
            "make room there, or set TMPDIR to another directory where it is a temporary one"
        ) from error


@contextlib.contextmanager
def beating(beat: Callable[[], None]) -> Iterator[None]:
    """Keep the heartbeat of a scratch directory: call `beat` at once in this thread, and then every minute in a thread
    of its own until the context is left. A later failure does not end the run: the next beat comes a minute later.
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


def beating_in(folder: Path) -> contextlib.AbstractContextManager[None]:
    """Renew the heartbeat in an existing folder, which its owner removes."""
    return beating((folder / HEARTBEAT).touch)


def sweep_folders(place: Path, *, prefix: str = "", unmarked_before_ns: int = 0) -> None:
    """Remove the folders of killed runs in a directory, which may be missing: their names begin with `prefix`, and
    their heartbeat is `DEAD_AFTER` old by the disk's clock. A folder without a heartbeat, from an older release or a
    run that was killed at once, goes if it was last changed before `unmarked_before_ns` (ns since the epoch).
    """
    for folder in _folders(place, prefix):
        with contextlib.suppress(OSError):  # the run has ended meanwhile, or nothing may be written here
            try:
                last_beat = (folder / HEARTBEAT).stat().st_mtime_ns
            except FileNotFoundError:
                is_dead = folder.stat().st_mtime_ns < unmarked_before_ns
            else:
                is_dead = last_beat < _now_ns(place) - DEAD_AFTER // timedelta(microseconds=1) * 1000
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
    """The time in ns since the epoch, by the clock of the files there, which may be another machine's."""
    with tempfile.TemporaryFile(dir=place) as file:
        return os.fstat(file.fileno()).st_mtime_ns
