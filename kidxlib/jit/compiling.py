"""Whether loops are being compiled, for whoever shows what a command does. It knows no numba, which takes a while to
import.
"""

from __future__ import annotations

import ctypes

#: Of this process and its workers: a byte that they share, without a lock that a killed one could hold.
_flag = ctypes.c_bool(False)


def share(flag: ctypes.c_bool) -> None:
    """Tell by a flag that other processes set, too."""
    global _flag
    _flag = flag


def say(is_compiling: bool) -> None:
    """Set it. Where several threads or processes compile, the first that is done clears it."""
    _flag.value = is_compiling


def is_compiling() -> bool:
    """Whether it is set."""
    return bool(_flag.value)
