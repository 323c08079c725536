"""This user's own directory for compiled code among the temporary ones, where nobody else may write."""

from __future__ import annotations

import atexit
import functools
import logging
import os
import shutil
import stat
import tempfile
from pathlib import Path
from typing import Final

#: The directory for compiled code in a Python environment.
DIRECTORY: Final = "kidx-compiled"
_log: Final = logging.getLogger(__name__)


@functools.cache
def own_directory() -> Path | None:
    """This user's directory among the temporary ones: numba runs what it finds there, so nobody else may write to it.

    Where somebody else has made one of that name, it is one that is new, for this process and those that it starts.
    None where none can be made, or where somebody else could put another one in its place.
    """
    # Not where else Python would look: in the current directory, which may be a broker's log dir.
    place = Path(os.environ.get("TMPDIR") or "/tmp")
    own = place / f"{DIRECTORY}-{os.geteuid()}"
    try:
        if not _keeps_ours(place):
            _log.warning(
                "%s: not sticky (chmod +t), and others can write there, or it is another user's; "
                "compiled code is not kept",
                place,
            )
            return None
        own.mkdir(mode=0o700)
    except FileExistsError:
        if not _is_private(own):
            _log.warning("%s: somebody else can write there, so compiled code is kept for this run only", own)
            return _new_directory(place)
    except OSError:
        return None
    return own


def _keeps_ours(place: Path) -> bool:
    """Whether nobody but us and root can rename what is ours in a directory."""
    status = place.stat()
    return status.st_uid in (0, os.geteuid()) and bool(status.st_mode & stat.S_ISVTX or not status.st_mode & 0o022)


def _is_private(directory: Path) -> bool:
    status = directory.lstat()  # a symlink is none
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o077


def _new_directory(place: Path) -> Path | None:
    try:
        directory = tempfile.mkdtemp(prefix=f"{DIRECTORY}-", dir=place)
    except OSError:
        return None
    os.environ["NUMBA_CACHE_DIR"] = directory  # numba's first choice in the processes to come
    atexit.register(_remove, directory, os.getpid())
    return Path(directory)


def _remove(directory: str, made_by: int) -> None:
    if os.getpid() == made_by:
        shutil.rmtree(directory, ignore_errors=True)
