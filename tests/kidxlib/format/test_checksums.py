"""The two checksums that the compiled loop calls are the two that Kafka writes."""

from __future__ import annotations

from ctypes import c_size_t

from hypothesis import given
from hypothesis import strategies as st

from kidxlib.format import checksums

#: The check value that catalogues of checksums give for these nine bytes (RFC 3720 has CRC-32C's).
CHECKED = b"123456789"
CRC32_OF_CHECKED = 0xCBF43926
CRC32C_OF_CHECKED = 0xE3069283


def crc32c(data: bytes) -> int:
    return ~int(checksums.CRC32C(data, len(data), 0xFFFFFFFF)) & 0xFFFFFFFF


def crc32(data: bytes) -> int:
    return int(checksums.CRC32(0, data, c_size_t(len(data)))) & 0xFFFFFFFF


def test_check_values() -> None:
    assert (crc32(CHECKED), crc32c(CHECKED)) == (CRC32_OF_CHECKED, CRC32C_OF_CHECKED)
    assert (crc32(b""), crc32c(b"")) == (0, 0)


@given(st.binary(max_size=5000), st.integers(0, 5000))
def test_in_pieces_as_whole(data: bytes, cut: int) -> None:
    """A batch larger than a chunk gets its checksum piece by piece, from other libraries' functions: the same value."""
    for whole, extend in ((crc32, checksums.extend_crc32), (crc32c, checksums.extend_crc32c)):
        assert extend(extend(0, data[:cut]), data[cut:]) == whole(data)
