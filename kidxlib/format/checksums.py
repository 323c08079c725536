"""The C functions that compute checksums, and checksums of bytes in Python.

The functions come from wheels: Intel's ISA-L, which uses the processor's instructions, and Google's CRC-32C, which is
faster on processors without AVX-512.
"""

from __future__ import annotations

import ctypes
import zlib
from typing import Final

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from kidxlib.errors import MissingLibraryError
from kidxlib.jit.machine import c_library

#: The extension module of `isal` that loads fastest, and has all of ISA-L's checksums.
_ISAL: Final = c_library("isal", "igzip_lib", "crc32_iscsi")
#: `unsigned int crc32_iscsi(unsigned char *buffer, int len, unsigned int init_crc)`: CRC-32C, without the inversion at
#: start and end that protocols use.
ISAL_CRC32C: Final[ctypes._NamedFuncPointer] = _ISAL.crc32_iscsi
ISAL_CRC32C.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32)
ISAL_CRC32C.restype = ctypes.c_uint32
#: `uint32_t crc32_gzip_refl(uint32_t init_crc, const unsigned char *buf, uint64_t len)`: CRC-32, as zlib's.
CRC32: Final[ctypes._NamedFuncPointer] = _ISAL.crc32_gzip_refl
CRC32.argtypes = (ctypes.c_uint32, ctypes.c_void_p, ctypes.c_uint64)
CRC32.restype = ctypes.c_uint32
#: `uint64_t crc64_rocksoft_refl(uint64_t init_crc, const unsigned char *buf, uint64_t len)`: CRC-64/NVME.
_CRC64_NVME: Final[ctypes._NamedFuncPointer] = _ISAL.crc64_rocksoft_refl
_CRC64_NVME.argtypes = (ctypes.c_uint64, ctypes.c_char_p, ctypes.c_uint64)
_CRC64_NVME.restype = ctypes.c_uint64


def crc32c(data: bytes) -> int:
    return int(google_crc32c.value(data))


def extend_crc32c(crc: int, data: bytes) -> int:
    """The CRC-32C of the bytes of `crc` (0: none) and `data` after them."""
    return int(google_crc32c.extend(crc, data))


def extend_crc32c_in_memory(crc: int, data: NDArray[np.uint8]) -> int:
    """`extend_crc32c` of less than 2 GiB in an array: no copy is made, and other threads work meanwhile."""
    return int(ISAL_CRC32C(data.ctypes.data, len(data), crc ^ 0xFFFFFFFF) ^ 0xFFFFFFFF)


def extend_crc64nvme(crc: int, data: bytes) -> int:
    """The CRC-64/NVME of the bytes of `crc` (0: none) and `data` after them."""
    return int(_CRC64_NVME(crc, data, len(data)))


def extend_crc32(crc: int, data: bytes) -> int:
    """The CRC-32 of the bytes of `crc` (0: none) and `data` after them."""
    return zlib.crc32(data, crc)


def _google_crc32c() -> ctypes._NamedFuncPointer | None:
    try:
        function = c_library("google-crc32c", "_crc32c", "crc32c_extend").crc32c_extend
    except MissingLibraryError:  # a wheel without C code
        return None
    function.argtypes = (ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t)
    function.restype = ctypes.c_uint32
    return function


#: `uint32_t crc32c_extend(uint32_t crc, const uint8_t *data, size_t count)`; None if it is missing.
GOOGLE_CRC32C: Final[ctypes._NamedFuncPointer | None] = _google_crc32c()
