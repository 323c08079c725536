"""Checksums of bytes that Python holds."""

from __future__ import annotations

import zlib

import google_crc32c

from kidxlib.format.checksums.libraries import CRC64_NVME


def crc32c(data: bytes) -> int:
    """The CRC-32C of some bytes."""
    return int(google_crc32c.value(data))


def extend_crc32c(crc: int, data: bytes) -> int:
    """The CRC-32C of what `crc` covers (0: nothing) followed by `data`."""
    return int(google_crc32c.extend(crc, data))


def extend_crc64nvme(crc: int, data: bytes) -> int:
    """The CRC-64/NVME of what `crc` covers (0: nothing) followed by `data`."""
    return int(CRC64_NVME(crc, data, len(data)))


def extend_crc32(crc: int, data: bytes) -> int:
    """The CRC-32 of what `crc` covers (0: nothing) followed by `data`."""
    return zlib.crc32(data, crc)
