"""Batches are found and checked wherever a search for them begins. Checksums of bytes that follow one another are
joined: by the processor's instructions, and by a loop.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import google_crc32c
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kidxlib.recovery import check_kernel
from kidxlib.recovery.check_kernel import joined_crc32c
from tests.support.logs.batches import FILLER, Batch, encode

BATCHES: Final = encode(0, [Batch(body=FILLER[:number]) for number in range(39, 200)])
LOG: Final = b"".join(BATCHES)
STARTS: Final = [sum(map(len, BATCHES[:number])) for number in range(len(BATCHES))]


@given(st.integers(0, len(LOG)))
def test_batches_are_found_and_checked(position: int) -> None:
    """Without this all would go well, too, with one thread doing all the work at the end."""
    data = np.frombuffer(LOG, np.uint8)
    starts = [start for start in STARTS if start >= position]
    found = starts[0] if starts else -1
    assert check_kernel.find_batch(data, position, len(data)) == found
    if starts:
        assert check_kernel.check_batches(data, found, found + 1) == (starts[1] if len(starts) > 1 else len(data))
        assert check_kernel.check_batches(data, found, len(data)) == len(data)


@given(st.binary(max_size=300), st.binary(max_size=70_000))
@example(b"123456789", b"")
@example(b"", b"123456789")
@example(b"a", bytes(1 << 16))
@example(b"a", bytes((1 << 24) + 257))
def test_joined(first: bytes, second: bytes) -> None:
    joined = joined_crc32c(google_crc32c.value(first), google_crc32c.value(second), len(second))
    assert joined == google_crc32c.value(first + second)


#: A log's checksum, batch after batch as a scan computes it: its sizes reach each row of the powers that logs reach.
OF_BATCHES: Final = """
import google_crc32c
import numba
import numpy as np
from kidxlib.recovery import check_kernel
from tests.support.logs.batches import FILLER, Batch, encode

assert not check_kernel.HAS_INSTRUCTIONS
first, second = FILLER[:1000], FILLER * 20
joined = check_kernel.joined_crc32c(google_crc32c.value(first), google_crc32c.value(second), len(second))
assert joined == google_crc32c.value(first + second)

@numba.njit
def add(crc, log, address, at, size, stored):
    return check_kernel.with_batch(crc, log, address, at, size, stored)

batches = [batch for size in (0, 1, 39, 300, 5000) for batch in encode(0, [Batch(body=FILLER[:size])])]
log = np.frombuffer(b"".join(batches), np.uint8)
crc, at = np.uint32(0), 0
for batch in batches:
    crc = add(crc, log, log.ctypes.data, at, len(batch), np.uint32(int.from_bytes(batch[17:21])))
    at += len(batch)
assert crc == google_crc32c.value(log.tobytes()), (crc, google_crc32c.value(log.tobytes()))
"""
#: The scan itself.
OF_SCAN: Final = """
from kidxlib.recovery.options import RecoverOptions
from kidxlib.recovery.recover import recover
from kidxlib.storage.log_bytes import WholeLog

assert recover(WholeLog(log), 0, RecoverOptions()).facts.log_crc32c == google_crc32c.value(log.tobytes())
"""


@pytest.mark.parametrize(
    "code",
    [
        OF_BATCHES,
        pytest.param(
            OF_BATCHES + OF_SCAN,
            marks=pytest.mark.exhaustive("compiles the scan; what in it is another then is compiled in any case"),
        ),
    ],
    ids=["batches", "scan"],
)
def test_without_the_instructions(code: str, tmp_path: Path) -> None:
    """Numba compiles for any processor of the kind if it is told to; checksums stay the same."""
    environment = {**os.environ, "NUMBA_CPU_NAME": "generic", "NUMBA_CACHE_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, cwd=Path(__file__).parents[4])
