"""Tells whether loops are being compiled, for the display of progress. It does not import numba, which is slow."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

#: A byte that this process and its workers share, without a lock that a killed process could hold.
_flag = ctypes.c_bool(False)
_tell: Callable[[], None] | None = None


def share(flag: ctypes.c_bool) -> None:
    """Use a flag that other processes set, too."""
    global _flag
    _flag = flag


def say(is_compiling: bool) -> None:
    """Set or clear the flag. If several threads or processes compile, the first that ends clears it."""
    _flag.value = is_compiling
    if is_compiling:
        tell_once()


def tell_with(tell: Callable[[], None]) -> None:
    """Set a function to call at the first compilation. Most loops are compiled at import, before a command has shown
    what it does.
    """
    global _tell
    _tell = tell


def tell_once() -> None:
    """Call the function of `tell_with`, unless it was called already."""
    global _tell
    tell, _tell = _tell, None
    if tell is not None:
        tell()


def is_compiling() -> bool:
    return bool(_flag.value)
