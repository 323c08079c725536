"""What computes the checksums of batches: the fastest on this processor, measured as the process starts.

Nothing is the fastest everywhere. Our own loop (`folding`) needs instructions that x86-64 has since 2019. It costs no
call, so for short batches it is the fastest wherever it runs. For long ones ISA-L is as fast with AVX-512, and without
it Google's may be. All are tried on 64 KiB, which takes a quarter of a millisecond, in each process anew: nothing is
kept that another processor could come upon. What computes wrong checksums is not taken.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from kidxlib.errors import MissingLibraryError, UsageError
from kidxlib.format.checksums.crc import CRC32, GOOGLE_CRC32C, ISAL_CRC32C
from kidxlib.format.checksums.folding import BLOCK_BYTES, VECTOR_WORDS, folded_crc32, folded_crc32c

#: The environment variable that names one to take.
FORCED_BY: Final = "KIDX_CHECKSUMS"
FOLDING: Final = "folding"
ISAL: Final = "isal"
GOOGLE: Final = "google"

_PATTERN: Final = bytes(range(256)) * 256
#: The CRC-32C and the CRC-32 of the first bytes of the pattern, so many: what all candidates and tables of 256 numbers
#: say of them.
_CHECKED: Final = {
    1: (0x527D5351, 0xD202EF8D),
    32: (0x46DD794E, 0x91267E8A),
    333: (0x14A44C37, 0xC94237FC),
    4_099: (0x7FC6F40F, 0xF869C143),
    len(_PATTERN): (0xA224AF3D, 0xB11DE6A1),
}
_ROUNDS: Final = 4
#: How many times as fast another one has to be than those before it.
_WORTH_A_CHANGE: Final = 1.1


class Checksums(NamedTuple):
    """Two functions, of an address and a number of bytes, at least one. A block before them may be read."""

    crc32c: Callable[[int, int], int]
    crc32: Callable[[int, int], int]


def candidates() -> Mapping[str, Checksums]:
    """What there is, by name. That which is taken where others are as fast comes first."""
    found = {FOLDING: Checksums(folded_crc32c, folded_crc32)} if VECTOR_WORDS else {}
    found[ISAL] = Checksums(lambda address, size: ~ISAL_CRC32C(address, size, 0xFFFFFFFF) & 0xFFFFFFFF, _isal_crc32)
    if (extend := GOOGLE_CRC32C) is not None:
        found[GOOGLE] = Checksums(lambda address, size: int(extend(0, address, size)), _isal_crc32)
    return found


def _isal_crc32(address: int, size: int) -> int:
    return int(CRC32(0, address, size))


def choose(functions: Mapping[str, Checksums], forced: str | None = os.environ.get(FORCED_BY)) -> str:
    """The name of the one to take.

    Args:
        functions: as `candidates` gives them.
        forced: a name that somebody asks for.
    """
    if forced and forced not in functions:
        raise UsageError(f"{FORCED_BY}: found {forced!r}, expected one of {', '.join(functions)}")
    pattern = ctypes.create_string_buffer(bytes(BLOCK_BYTES) + _PATTERN)
    address = ctypes.addressof(pattern) + BLOCK_BYTES
    asked = {forced: functions[forced]} if forced else functions
    right = {name: checksums for name, checksums in asked.items() if _is_right(checksums, address)}
    if not right:
        raise MissingLibraryError(
            f"{', '.join(asked)}: other checksums than the known ones of up to {len(_PATTERN):,} bytes; reinstall the "
            f"library, or name another one in {FORCED_BY}"
        )
    chosen, best = "", float("inf")
    for name, checksums in right.items():
        seconds = min(_seconds(checksums, address) for _ in range(_ROUNDS))
        if seconds * _WORTH_A_CHANGE < best:
            chosen, best = name, seconds
    return chosen


def _is_right(checksums: Checksums, address: int) -> bool:
    return all(
        (checksums.crc32c(address, size), checksums.crc32(address, size)) == known for size, known in _CHECKED.items()
    )


def _seconds(checksums: Checksums, address: int) -> float:
    start = time.perf_counter()
    checksums.crc32c(address, len(_PATTERN))
    return time.perf_counter() - start


CHOSEN: Final = choose(candidates())
