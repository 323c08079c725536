"""The checksum of a batch as compiled loops compute it, and what the batch's header says that it is.

Checksums come from ISA-L, called through its C symbols: as fast as memory gives the bytes, where a Python call per
batch would cost more than the checksum.
"""

from __future__ import annotations

import ctypes

import numpy as np
from llvmlite import binding
from numba import types

from kidxlib.format.batch_header import MAGIC_AT, MAGIC_V2, V1_CRC_AT, V2_ATTRIBUTES_AT, V2_CRC_AT
from kidxlib.format.checksums import CRC32, CRC32C
from kidxlib.format.varint import int32
from kidxlib.jit.compiler import njit

# A compiled function loaded from numba's cache calls these symbols by name, so they must be known before any is loaded.
binding.add_symbol("kidx_crc32c", ctypes.cast(CRC32C, ctypes.c_void_p).value)
binding.add_symbol("kidx_crc32", ctypes.cast(CRC32, ctypes.c_void_p).value)
_iscsi_crc32c = types.ExternalFunction("kidx_crc32c", types.uint32(types.uintp, types.int32, types.uint32))
_gzip_crc32 = types.ExternalFunction("kidx_crc32", types.uint32(types.uint32, types.uintp, types.uint64))


@njit(inline="always")
def stored_checksum(data, at, magic):
    """What the header of a batch says; zero-extended, as the computed one."""
    return np.int64(np.uint32(int32(data, at + (V2_CRC_AT if magic >= MAGIC_V2 else V1_CRC_AT))))


@njit(inline="always")
def checksum(address, batch_bytes, magic):
    """The checksum of a whole batch at an address: CRC-32C from magic 2 on, CRC-32 before."""
    if magic >= MAGIC_V2:
        return np.int64(extended_crc32c(np.uint32(0), address + V2_ATTRIBUTES_AT, batch_bytes - V2_ATTRIBUTES_AT))
    return np.int64(_gzip_crc32(np.uint32(0), np.uintp(address + MAGIC_AT), np.uint64(batch_bytes - MAGIC_AT)))


@njit(inline="always")
def extended_crc32c(crc, address, size):
    """The CRC-32C of what `crc` covers (0: nothing) followed by the bytes at an address, at most 2 GiB less one."""
    return np.uint32(~_iscsi_crc32c(np.uintp(address), np.int32(size), np.uint32(~crc)))
