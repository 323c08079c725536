"""Chooses the implementation of batch checksums: the fastest on this processor, measured when the process starts.

None is the fastest everywhere. kidx's own loop (`folding`) needs instructions that x86-64 has since 2019. It needs no
call, so it is the fastest for short batches wherever it runs. For long batches, ISA-L is as fast with AVX-512; without
AVX-512, Google's may be faster. All are measured on 64 KiB, which takes a quarter of a millisecond, in each process: a
kept choice might be used on another processor. An implementation with wrong checksums is not used.
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

#: The environment variable that names the implementation to use.
FORCED_BY: Final = "KIDX_CHECKSUMS"
FOLDING: Final = "folding"
ISAL: Final = "isal"
GOOGLE: Final = "google"

_PATTERN: Final = bytes(range(256)) * 256
#: By number of bytes: the CRC-32C and the CRC-32 of the first bytes of the pattern, as computed with tables of 256
#: numbers and by all candidates.
_CHECKED: Final = {
    1: (0x527D5351, 0xD202EF8D),
    32: (0x46DD794E, 0x91267E8A),
    333: (0x14A44C37, 0xC94237FC),
    4_099: (0x7FC6F40F, 0xF869C143),
    len(_PATTERN): (0xA224AF3D, 0xB11DE6A1),
}
_ROUNDS: Final = 4
#: How many times as fast as the earlier candidates a candidate must be.
_WORTH_A_CHANGE: Final = 1.1


class Checksums(NamedTuple):
    """Two functions of an address and a number of bytes, at least one. They may also read a block before the bytes."""

    crc32c: Callable[[int, int], int]
    crc32: Callable[[int, int], int]


def candidates() -> Mapping[str, Checksums]:
    """The implementations on this machine, by name; if several are as fast, the first is used."""
    functions = {FOLDING: Checksums(folded_crc32c, folded_crc32)} if VECTOR_WORDS else {}
    functions[ISAL] = Checksums(lambda address, size: ~ISAL_CRC32C(address, size, 0xFFFFFFFF) & 0xFFFFFFFF, _isal_crc32)
    if (extend := GOOGLE_CRC32C) is not None:
        functions[GOOGLE] = Checksums(lambda address, size: int(extend(0, address, size)), _isal_crc32)
    return functions


def _isal_crc32(address: int, size: int) -> int:
    return int(CRC32(0, address, size))


def choose(functions: Mapping[str, Checksums], forced: str | None = os.environ.get(FORCED_BY)) -> str:
    """The name of the implementation to use, from `candidates`; `forced` is the name that the user sets."""
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
