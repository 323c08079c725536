"""Checksums of bytes that follow one another are joined: by the processor's instructions, and by a loop."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import google_crc32c
from hypothesis import example, given
from hypothesis import strategies as st

from kidxlib.recovery.log_facts.crc32c_kernel import joined_crc32c


@given(st.binary(max_size=300), st.binary(max_size=70_000))
@example(b"123456789", b"")
@example(b"", b"123456789")
@example(b"a", bytes(1 << 16))
@example(b"a", bytes((1 << 24) + 257))
def test_joined(first: bytes, second: bytes) -> None:
    joined = joined_crc32c(google_crc32c.value(first), google_crc32c.value(second), len(second))
    assert joined == google_crc32c.value(first + second)


def test_without_the_instructions(tmp_path: Path) -> None:
    """Numba compiles for any processor of the kind if it is told to; the facts stay the same."""
    code = "\n".join(
        [
            "from kidxlib.recovery.log_facts import crc32c_kernel",
            "assert not crc32c_kernel.HAS_INSTRUCTIONS",
            "import numpy as np, google_crc32c",
            "from kidxlib.recovery.options import RecoverOptions",
            "from kidxlib.recovery.segment import recover",
            "from kidxlib.storage.log_bytes import WholeLog",
            "from tests.support.logs.batches import FILLER, Batch, encode",
            "log = b''.join(encode(0, [Batch(body=FILLER[:size]) for size in (0, 1, 39, 300, 5000)]))",
            "recovered = recover(WholeLog(np.frombuffer(log, np.uint8)), 0, RecoverOptions())",
            "assert recovered.facts.log_crc32c == google_crc32c.value(log)",
        ]
    )
    environment = {**os.environ, "NUMBA_CPU_NAME": "generic", "NUMBA_CACHE_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, cwd=Path(__file__).parents[4])
