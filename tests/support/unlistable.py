"""A directory that can be opened and not listed, by root either, as it may be on a disk that fails."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def unlistable_directory() -> Iterator[Path]:
    """What the kernel shows of the network of a process that has ended: to list it is an invalid argument."""
    with subprocess.Popen(["true"]) as ended:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        yield Path(f"/proc/{ended.pid}/net")
