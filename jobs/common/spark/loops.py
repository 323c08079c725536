"""The library's loops of a new checkout, which setup.sh still compiles while Spark starts."""

from __future__ import annotations

import fcntl
import os
from typing import Final

from jobs.common.submit.project import PROJECT
from kidxlib.jit import compiling

#: Locked by setup.sh for as long as it compiles. It stays, and there is none where there was nothing to wait for.
_LOCK: Final = f"{PROJECT}/.jars/loops.lock"


def wait_for_loops() -> None:
    """Return once setup.sh does not compile loops, or no longer: until then each worker would compile them itself."""
    if not os.access(_LOCK, os.R_OK):
        return
    with open(_LOCK, "rb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            compiling.say(True)
            try:
                fcntl.flock(lock, fcntl.LOCK_SH)
            finally:
                compiling.say(False)
