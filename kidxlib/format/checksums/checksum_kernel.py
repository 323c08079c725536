"""The checksum of a batch as compiled loops compute it, and the one in its header.

Checksums are computed in the loop itself (`folding`) or come from C functions, called through their symbols, where a
Python call per batch would cost more than the checksum.
"""

from __future__ import annotations

import ctypes
from typing import Final

import numpy as np
from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from kidxlib.format.batch_header import MAGIC_AT, MAGIC_V2, V1_CRC_AT, V2_ATTRIBUTES_AT, V2_CRC_AT
from kidxlib.format.checksums import choice
from kidxlib.format.checksums.crc import CRC32, GOOGLE_CRC32C, ISAL_CRC32C
from kidxlib.format.checksums.folding import BLOCK_BYTES, fold_crc32, fold_crc32c
from kidxlib.format.varint import int32
from kidxlib.jit.compiler import njit

_NUMBERS: Final = {choice.ISAL: 0, choice.GOOGLE: 1, choice.FOLDING: 2}
_GOOGLE: Final = _NUMBERS[choice.GOOGLE]
_FOLDING: Final = _NUMBERS[choice.FOLDING]
_CHOSEN: Final = ctypes.c_uint8(_NUMBERS[choice.CHOSEN])

# A compiled function loaded from numba's cache knows these symbols by name, so they must be there before any is loaded.
# The choice is such a symbol, too, and no constant, which would stay in what is compiled.
binding.add_symbol("kidx_isal_crc32c", ctypes.cast(ISAL_CRC32C, ctypes.c_void_p).value)
binding.add_symbol("kidx_google_crc32c", ctypes.cast(GOOGLE_CRC32C or ISAL_CRC32C, ctypes.c_void_p).value)
binding.add_symbol("kidx_chosen_checksum", ctypes.addressof(_CHOSEN))
binding.add_symbol("kidx_crc32", ctypes.cast(CRC32, ctypes.c_void_p).value)
_isal_crc32c = types.ExternalFunction("kidx_isal_crc32c", types.uint32(types.uintp, types.int32, types.uint32))
_google_crc32c = types.ExternalFunction("kidx_google_crc32c", types.uint32(types.uint32, types.uintp, types.uintp))
_gzip_crc32 = types.ExternalFunction("kidx_crc32", types.uint32(types.uint32, types.uintp, types.uint64))


@intrinsic
def _chosen(_context):
    """The number of the implementation that this process uses."""

    def generate(_context, builder, _signature, _arguments):
        kind, name = ir.IntType(8), "kidx_chosen_checksum"
        known = builder.module.globals.get(name)
        return builder.load(cgutils.add_global_variable(builder.module, kind, name) if known is None else known)  # type: ignore[no-untyped-call]

    return types.uint8(), generate


@njit(forceinline=True)
def stored_checksum(data, at, magic):
    """The checksum in a batch's header; zero-extended, as the computed one."""
    return np.int64(np.uint32(int32(data, at + (V2_CRC_AT if magic >= MAGIC_V2 else V1_CRC_AT))))


@njit(forceinline=True)
def checksum(address, at, batch_bytes, magic):
    """The checksum of a whole batch: CRC-32C from magic 2 on, CRC-32 before.

    Args:
        address: of the first byte that may be read.
        at: how many bytes after it the batch starts.
    """
    covered_at = V2_ATTRIBUTES_AT if magic >= MAGIC_V2 else MAGIC_AT
    start, size = address + at + covered_at, batch_bytes - covered_at
    if _chosen() == _FOLDING and at + covered_at >= BLOCK_BYTES:  # type: ignore[call-arg]
        return np.int64(fold_crc32c(start, size) if magic >= MAGIC_V2 else fold_crc32(start, size))
    if magic >= MAGIC_V2:
        return np.int64(extended_crc32c(np.uint32(0), start, size))
    return np.int64(_gzip_crc32(np.uint32(0), np.uintp(start), np.uint64(size)))


@njit(forceinline=True)
def extended_crc32c(crc, address, size):
    """The CRC-32C of what `crc` covers (0: nothing) followed by the bytes at an address, at most 2 GiB less one: by a
    library, as these are few bytes, or come in pieces.
    """
    if _chosen() == _GOOGLE:  # type: ignore[call-arg]
        return np.uint32(_google_crc32c(np.uint32(crc), np.uintp(address), np.uintp(size)))
    return np.uint32(~_isal_crc32c(np.uintp(address), np.int32(size), np.uint32(~crc)))
