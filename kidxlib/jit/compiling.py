"""Whether loops are being compiled, for whoever shows what a command does. It knows no numba, which takes a while to
import.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

#: Of this process and its workers: a byte that they share, without a lock that a killed one could hold.
_flag = ctypes.c_bool(False)
_tell: Callable[[], None] | None = None


def share(flag: ctypes.c_bool) -> None:
    """Tell by a flag that other processes set, too."""
    global _flag
    _flag = flag


def say(is_compiling: bool) -> None:
    """Set it. Where several threads or processes compile, the first that is done clears it."""
    _flag.value = is_compiling
    if is_compiling:
        tell_once()


def tell_with(tell: Callable[[], None]) -> None:
    """Let a function be called when something is compiled first: most loops are when they are imported, before a
    command has said what it does.
    """
    global _tell
    _tell = tell


def tell_once() -> None:
    """Call that function, where it was not called yet."""
    global _tell
    tell, _tell = _tell, None
    if tell is not None:
        tell()


def is_compiling() -> bool:
    """Whether it is set."""
    return bool(_flag.value)
