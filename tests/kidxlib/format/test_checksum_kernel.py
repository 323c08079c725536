"""All give the same checksums of whatever they are given, and one that does not is not taken."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import zlib
from collections.abc import Callable

import google_crc32c
import numpy as np
import pytest

from kidxlib.errors import MissingLibraryError, UsageError
from kidxlib.format.checksum_kernel import (
    BLOCK_BYTES,
    CHOSEN,
    FORCED_BY,
    GOOGLE,
    ISAL,
    Checksums,
    checksum_candidates,
    choose_checksums,
)

_LENGTHS = 4_097
_ALIGNMENTS = 64

_KNOWN = (google_crc32c.value, zlib.crc32)


@pytest.mark.parametrize("name", sorted(checksum_candidates()))
def test_they_agree_on_all_lengths_alignments_and_large_sizes(name: str, rng: random.Random, exhaustive: bool) -> None:
    checksums = checksum_candidates()[name]
    data = np.frombuffer(rng.randbytes(8 << 20), np.uint8)
    address = data.ctypes.data
    asked = [(alignment, size) for size in range(1, _LENGTHS) for alignment in _alignments(size, exhaustive)]
    asked += [(rng.randrange(_ALIGNMENTS), rng.randrange(1, 8_000_000)) for _ in range(500 if exhaustive else 20)]
    for alignment, size in asked:
        start = BLOCK_BYTES + alignment
        expected = tuple(known(data[start : start + size].tobytes()) for known in _KNOWN)
        assert tuple(checksum(address + start, size) for checksum in checksums) == expected, (alignment, size)


def _alignments(size: int, exhaustive: bool) -> range:
    """All of small sizes; of larger ones each in turn."""
    if exhaustive or size < 2 * _ALIGNMENTS:
        return range(_ALIGNMENTS)
    return range(size % _ALIGNMENTS, _ALIGNMENTS, _ALIGNMENTS)


@pytest.mark.parametrize("of", Checksums._fields)
def test_a_wrong_one_is_refused(of: str) -> None:
    right = checksum_candidates()[ISAL]
    whole: Callable[[int, int], int] = getattr(right, of)
    wrong = right._replace(**{of: lambda address, size: whole(address, min(size, 1_000))})
    assert choose_checksums({GOOGLE: wrong, ISAL: right}) == ISAL
    with pytest.raises(MissingLibraryError, match=r"google: other checksums than the known ones of up to 65,536 bytes"):
        choose_checksums({GOOGLE: wrong, ISAL: right}, GOOGLE)


def test_a_name_that_nobody_knows_is_refused() -> None:
    with pytest.raises(UsageError, match=r"KIDX_CHECKSUMS: found 'zlib', expected one of .*isal, google"):
        choose_checksums(checksum_candidates(), "zlib")


@pytest.mark.parametrize("name", sorted(checksum_candidates()))
def test_loops_take_the_one_that_is_asked_for(name: str) -> None:
    """Also those that were compiled by a process that took the other."""
    code = (
        "import numpy as np; from kidxlib.format import checksum_kernel as kernel; "
        "from kidxlib.recovery.check_kernel import check_batches; "
        "print(kernel.CHOSEN, kernel._NUMBERS[kernel.CHOSEN] == kernel._CHOSEN.value)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, FORCED_BY: name}, capture_output=True, text=True, check=True
    )
    assert ran.stdout.split() == [name, "True"]


def test_the_choice_is_a_library_that_there_is() -> None:
    assert CHOSEN in checksum_candidates()
