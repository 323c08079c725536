"""Where the two checksums of Kafka's log come from: for the compiled loop, C functions of Intel's ISA-L, which the
wheel `isal` brings along and which pick what the processor can do; for a few bytes in Python, google-crc32c and zlib.
From ISA-L comes also the CRC-64 that object stores have of their objects.
"""

from __future__ import annotations

import ctypes
import zlib
from typing import Final

import google_crc32c

from kidxlib.format.c_library import c_library

#: The extension module of `isal` that takes least time to load, and has all of ISA-L's checksums in it.
_ISAL: Final = c_library("isal", "igzip_lib", "crc32_iscsi")
#: `unsigned int crc32_iscsi(unsigned char *buffer, int len, unsigned int init_crc)`: CRC-32C, not inverted at its start
#: nor at its end, as protocols do it.
CRC32C: Final[ctypes._NamedFuncPointer] = _ISAL.crc32_iscsi
#: `uint32_t crc32_gzip_refl(uint32_t init_crc, const unsigned char *buf, uint64_t len)`: CRC-32, as zlib's.
CRC32: Final[ctypes._NamedFuncPointer] = _ISAL.crc32_gzip_refl
#: `uint64_t crc64_rocksoft_refl(uint64_t init_crc, const unsigned char *buf, uint64_t len)`: CRC-64/NVME.
_CRC64_NVME: Final[ctypes._NamedFuncPointer] = _ISAL.crc64_rocksoft_refl
_CRC64_NVME.argtypes = (ctypes.c_uint64, ctypes.c_char_p, ctypes.c_uint64)
_CRC64_NVME.restype = ctypes.c_uint64


def crc32c(data: bytes) -> int:
    """The CRC-32C of some bytes."""
    return int(google_crc32c.value(data))


def extend_crc32c(crc: int, data: bytes) -> int:
    """The CRC-32C of what `crc` covers (0: nothing) followed by `data`."""
    return int(google_crc32c.extend(crc, data))


def extend_crc64nvme(crc: int, data: bytes) -> int:
    """The CRC-64/NVME of what `crc` covers (0: nothing) followed by `data`."""
    return int(_CRC64_NVME(crc, data, len(data)))


def extend_crc32(crc: int, data: bytes) -> int:
    """The CRC-32 of what `crc` covers (0: nothing) followed by `data`."""
    return zlib.crc32(data, crc)
