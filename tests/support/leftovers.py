"""What killed runs leave, made to look old."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path


def age(path: Path, by: timedelta) -> None:
    """Make a file or a folder look as if it was last changed some time ago."""
    then = time.time() - by.total_seconds()
    os.utime(path, (then, then))
