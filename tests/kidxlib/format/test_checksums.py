"""Checksums that Python holds the bytes of are those that Kafka and object stores know."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kidxlib.format import checksums
from kidxlib.format.checksums import CRC32

#: The check value that catalogues of checksums give for these nine bytes (RFC 3720 has CRC-32C's).
CHECKED = b"123456789"


def crc32_of_loops(data: bytes) -> int:
    return int(CRC32(0, data, len(data)))


def test_check_values() -> None:
    assert (crc32_of_loops(CHECKED), checksums.crc32c(CHECKED)) == (0xCBF43926, 0xE3069283)
    assert (crc32_of_loops(b""), checksums.crc32c(b"")) == (0, 0)


@given(st.binary(max_size=5000), st.integers(0, 5000))
def test_in_pieces_as_whole(data: bytes, cut: int) -> None:
    """A batch larger than a chunk gets its checksum piece by piece, from other libraries' functions: the same value."""
    for whole, extend in ((crc32_of_loops, checksums.extend_crc32), (checksums.crc32c, checksums.extend_crc32c)):
        assert extend(extend(0, data[:cut]), data[cut:]) == whole(data)
