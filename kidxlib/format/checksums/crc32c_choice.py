"""Which of two libraries computes the CRC-32C of batches: the one that is faster on this processor, measured as the
process starts.

No library is the faster one everywhere. ISA-L's code for AVX-512 takes 58 GB/s from the cache where Google's takes 28;
without AVX-512 it takes 7 to 12, and Google's 18 to 23. Both are tried on 64 KiB, which takes a tenth of a millisecond,
in each process anew: nothing is kept that another processor could come upon. A library that computes wrong checksums is
not taken.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Mapping
from typing import Final

from kidxlib.errors import MissingLibraryError, UsageError
from kidxlib.format.checksums.libraries import GOOGLE_CRC32C, ISAL_CRC32C

#: The environment variable that names the library to take.
FORCED_BY: Final = "KIDX_CRC32C"
ISAL: Final = "isal"
GOOGLE: Final = "google"

_PATTERN: Final = bytes(range(256)) * 256
#: The CRC-32C of the first bytes of the pattern, so many: what both libraries and a table of 256 numbers say of them.
_CHECKED: Final = {
    0: 0,
    1: 0x527D5351,
    32: 0x46DD794E,
    333: 0x14A44C37,
    4_099: 0x7FC6F40F,
    len(_PATTERN): 0xA224AF3D,
}
_ROUNDS: Final = 4
#: How many times as fast the other library has to be.
_WORTH_A_CHANGE: Final = 1.1

_Extend = Callable[[int, int, int], int]


def _by_isal(crc: int, address: int, size: int) -> int:
    return ~int(ISAL_CRC32C(address, size, ~crc & 0xFFFFFFFF)) & 0xFFFFFFFF


def candidates() -> Mapping[str, _Extend]:
    """The functions that there are, by the names of their libraries: each extends a CRC-32C by the bytes at an address.
    That which is taken where they are as fast comes first.
    """
    return {ISAL: _by_isal} if GOOGLE_CRC32C is None else {ISAL: _by_isal, GOOGLE: GOOGLE_CRC32C}


def choose(functions: Mapping[str, _Extend], forced: str | None = os.environ.get(FORCED_BY)) -> str:
    """The name of the library to take.

    Args:
        functions: as `candidates` gives them.
        forced: a name that somebody asks for.

    Raises:
        UsageError: nobody knows the name.
        MissingLibraryError: no library, or not the one that is asked for, computes right checksums here.
    """
    if forced and forced not in functions:
        raise UsageError(f"{FORCED_BY}: found {forced!r}, expected one of {', '.join(functions)}")
    pattern = ctypes.create_string_buffer(_PATTERN, len(_PATTERN))
    address = ctypes.addressof(pattern)
    asked = {forced: functions[forced]} if forced else functions
    right = {name: extend for name, extend in asked.items() if _is_right(extend, address)}
    if not right:
        raise MissingLibraryError(
            f"{', '.join(asked)}: other CRC-32C than the known one of {len(_PATTERN):,} bytes; reinstall the library, "
            f"or name another one in {FORCED_BY}"
        )
    chosen, best = "", float("inf")
    for name, extend in right.items():
        seconds = min(_seconds(extend, address) for _ in range(_ROUNDS))
        if seconds * _WORTH_A_CHANGE < best:
            chosen, best = name, seconds
    return chosen


def _is_right(extend: _Extend, address: int) -> bool:
    return all(extend(0, address, size) == crc for size, crc in _CHECKED.items())


def _seconds(extend: _Extend, address: int) -> float:
    start = time.perf_counter()
    extend(0, address, len(_PATTERN))
    return time.perf_counter() - start


CHOSEN: Final = choose(candidates())
