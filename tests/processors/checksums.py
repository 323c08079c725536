"""Checksums of random bytes as compiled loops compute them, against Google's library and zlib."""

from __future__ import annotations

import random
import re
import sys
import zlib
from typing import Final

import google_crc32c
import numpy as np

from kidxlib.format.checksum_kernel import BLOCK_BYTES, VECTOR_WORDS, checksum
from kidxlib.format.layouts import MAGIC_AT, MAGIC_V2, V2_ATTRIBUTES_AT
from kidxlib.jit.compiler import njit

_ALIGNMENTS: Final = 64
#: Registers that processors have with AVX-512 alone.
_OF_AVX512: Final = re.compile(r"%zmm|%[xy]mm(1[6-9]|2\d|3[01])|%k[0-7]")


#: The lambda has no types for mypy, as all that is compiled.
_checksum: Final = njit(lambda address, at, batch_bytes, magic: checksum(address, at, batch_bytes, magic))


def compare() -> None:
    """What another process calls, with a seed: it compares, and prints how many checksums."""
    rng = random.Random(int(sys.argv[1]))
    data = np.frombuffer(rng.randbytes(1 << 20), np.uint8)
    compared = 0
    for magic, covered_at, known in ((MAGIC_V2, V2_ATTRIBUTES_AT, google_crc32c.value), (1, MAGIC_AT, zlib.crc32)):
        asked = [(BLOCK_BYTES + size % _ALIGNMENTS, size) for size in range(1, 4_100)]
        asked += [(rng.randrange(2 * BLOCK_BYTES), size) for size in range(1, 1_000)]  # some begin before a block ends
        asked += [(rng.randrange(2 * BLOCK_BYTES), rng.randrange(4_100, 1_000_000)) for _ in range(50)]
        for at, size in asked:
            covered = data[at + covered_at : at + covered_at + size].tobytes()
            found = _checksum(data.ctypes.data, at, covered_at + size, magic)
            assert found == known(covered), (magic, at, size)
        compared += len(asked)
    for instructions in _checksum.inspect_asm().values():
        assert VECTOR_WORDS == 8 or not _OF_AVX512.search(instructions), "instructions that are hidden"
    sys.stdout.write(f"{compared:,}\n")
