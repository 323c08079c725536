"""Each library gives the same CRC-32C of whatever it is given, and one that does not is not taken."""

from __future__ import annotations

import os
import random
import subprocess
import sys

import google_crc32c
import numpy as np
import pytest

from kidxlib.errors import MissingLibraryError, UsageError
from kidxlib.format.checksums import crc32c_choice
from kidxlib.format.checksums.crc32c_choice import FORCED_BY, GOOGLE, ISAL, candidates, choose

_LENGTHS = 4_097
_ALIGNMENTS = 64


@pytest.mark.parametrize("name", [ISAL, GOOGLE])
def test_they_agree_on_all_lengths_alignments_and_large_sizes(name: str, rng: random.Random, exhaustive: bool) -> None:
    extend = candidates()[name]
    data = np.frombuffer(rng.randbytes(8 << 20), np.uint8)
    address = data.ctypes.data
    asked = [(alignment, size) for size in range(_LENGTHS) for alignment in _alignments(size, exhaustive)]
    asked += [(rng.randrange(_ALIGNMENTS), rng.randrange(8_000_000)) for _ in range(500 if exhaustive else 20)]
    for alignment, size in asked:
        before = rng.getrandbits(32)
        expected = google_crc32c.extend(before, data[alignment : alignment + size].tobytes())
        assert extend(before, address + alignment, size) == expected, (alignment, size)


def _alignments(size: int, exhaustive: bool) -> range:
    """All of small sizes; of larger ones each in turn."""
    if exhaustive or size < 2 * _ALIGNMENTS:
        return range(_ALIGNMENTS)
    return range(size % _ALIGNMENTS, _ALIGNMENTS, _ALIGNMENTS)


def _wrong_for_long(_crc: int, address: int, size: int) -> int:
    return candidates()[ISAL](0, address, min(size, 1_000))


def test_a_wrong_one_is_refused() -> None:
    right = candidates()[ISAL]
    assert choose({GOOGLE: _wrong_for_long, ISAL: right}) == ISAL
    with pytest.raises(MissingLibraryError, match=r"google: other CRC-32C than the known one of 65,536 bytes"):
        choose({GOOGLE: _wrong_for_long, ISAL: right}, GOOGLE)


def test_a_name_that_nobody_knows_is_refused() -> None:
    with pytest.raises(UsageError, match=r"KIDX_CRC32C: found 'zlib', expected one of isal, google"):
        choose(candidates(), "zlib")


@pytest.mark.parametrize("name", [ISAL, GOOGLE])
def test_loops_take_the_one_that_is_asked_for(name: str) -> None:
    """Also those that were compiled by a process that took the other."""
    code = (
        "import numpy as np; from kidxlib.format.checksums import checksum_kernel as kernel, crc32c_choice; "
        "from kidxlib.recovery.check_kernel import check_batches; "
        "print(crc32c_choice.CHOSEN, bool(kernel._TAKES_GOOGLES.value))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, FORCED_BY: name}, capture_output=True, text=True, check=True
    )
    assert ran.stdout.split() == [name, str(name == GOOGLE)]


def test_the_choice_is_a_library_that_there_is() -> None:
    assert crc32c_choice.CHOSEN in candidates()
