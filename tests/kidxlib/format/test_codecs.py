"""Compressed bytes, damaged in any way, are read or refused."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kidxlib.errors import MalformedError
from kidxlib.format import byte_stream, codecs
from tests.support.logs import encoded


@given(
    content=st.binary(max_size=200).map(lambda data: data * 9),
    damage=st.lists(st.integers(0, 2**20), max_size=3),
    way=st.sampled_from(sorted(encoded.WAYS)),
    magic=st.sampled_from([0, 1, 2]),
    cut=st.integers(0, 30),
)
def test_damaged_bytes_never_do_more_than_raise(
    content: bytes, damage: list[int], way: str, magic: int, cut: int
) -> None:
    codec, compress = encoded.WAYS[way]
    compressed = bytearray(compress(content))
    for place in damage if compressed else []:
        compressed[place // 8 % len(compressed)] ^= 1 << place % 8
    kept = bytes(compressed[: len(compressed) - cut] if cut < 10 else compressed)
    stream = codecs.decompress(codec, byte_stream.ByteStream(iter([kept[:7], b"", kept[7:]])), magic)
    try:
        read = b"".join(iter(lambda: stream.take(100), b""))
    except MalformedError as error:
        assert damage or cut
        assert str(error)
    else:
        assert damage or cut or read == content
