"""Both checksums by folding, for compiled loops and for Python. Where the processor cannot, nobody calls them."""

from __future__ import annotations

from typing import Final

from numba import types

from kidxlib.format.checksums.folding import CRC32_POLYNOMIAL, CRC32C_POLYNOMIAL, VECTOR_WORDS, folding
from kidxlib.jit.compiler import njit


@njit
def _no_folding(_address, _size):
    return 0


#: Of an address and a number of bytes, as `folding` says.
fold_crc32c: Final = folding(CRC32C_POLYNOMIAL) if VECTOR_WORDS else _no_folding
fold_crc32: Final = folding(CRC32_POLYNOMIAL) if VECTOR_WORDS else _no_folding


@njit(types.uint32(types.int64, types.int64), cache=True, nogil=True)
def folded_crc32c(address, size):
    """For Python to call: a CRC-32C."""
    return fold_crc32c(address, size)


@njit(types.uint32(types.int64, types.int64), cache=True, nogil=True)
def folded_crc32(address, size):
    """For Python to call: a CRC-32."""
    return fold_crc32(address, size)
