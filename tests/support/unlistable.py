"""A directory that can be opened and not listed, not even by root, as on a disk that fails."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def unlistable_directory() -> Iterator[Path]:
    """The network directory of an ended process in /proc: listing it is an invalid argument."""
    with subprocess.Popen(["true"]) as ended:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        yield Path(f"/proc/{ended.pid}/net")
