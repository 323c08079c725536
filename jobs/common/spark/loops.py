"""The library's loops of a new checkout, which setup.sh still compiles while Spark starts."""

from __future__ import annotations

import fcntl
import os
from typing import Final

from kidxlib.jit import compiling
from kidxlib.run.project import PROJECT

#: Locked by setup.sh for as long as it compiles. It stays, and there is none where there was nothing to wait for.
_LOCK: Final = PROJECT / ".jars/loops.lock"


def wait_for_loops() -> None:
    """Return once setup.sh does not compile loops, or no longer: until then each worker would compile them itself."""
    if not os.access(_LOCK, os.R_OK):
        return
    with _LOCK.open("rb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            compiling.say(True)
            try:
                fcntl.flock(lock, fcntl.LOCK_SH)
            finally:
                compiling.say(False)
