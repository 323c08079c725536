"""Tells whether loops are being compiled, for the display of progress. It does not import numba, which is slow."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

#: A byte that this process and its workers share, without a lock that a killed process could hold.
_flag = ctypes.c_bool(False)
_tell: Callable[[], None] | None = None


def share_flag(flag: ctypes.c_bool) -> None:
    """Use a flag of compiling that processes share, in place of this process's own."""
    global _flag
    _flag = flag


def set_compiling(is_compiling: bool) -> None:
    """Set or clear the flag. If several threads or processes compile, the first that ends clears it."""
    _flag.value = is_compiling
    if is_compiling:
        tell_of_first_compilation()


def at_first_compilation(tell: Callable[[], None]) -> None:
    """Have a function called at the first compilation. Most loops are compiled at import, before a command has shown
    what it does.
    """
    global _tell
    _tell = tell


def tell_of_first_compilation() -> None:
    """Call the function of `at_first_compilation`, unless it was called already."""
    global _tell
    tell, _tell = _tell, None
    if tell is not None:
        tell()


def is_compiling() -> bool:
    return bool(_flag.value)
