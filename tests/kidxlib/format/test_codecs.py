"""Compressed bytes, damaged in any way, are read or refused; and bytes are taken in other sizes than they came in."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kidxlib.errors import MalformedError
from kidxlib.format import codecs
from kidxlib.format.codecs import CHUNK_BYTES, CodecStream, chunks_of
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
    stream = codecs.decompressed_stream(codec, codecs.CodecStream(iter([kept[:7], b"", kept[7:]])), magic)
    try:
        read = b"".join(iter(lambda: stream.take(100), b""))
    except MalformedError as error:
        assert damage or cut
        assert str(error)
    else:
        assert damage or cut or read == content


@given(
    st.lists(st.binary(max_size=20), max_size=10),
    st.lists(st.tuples(st.sampled_from(["take", "skip", "read"]), st.integers(0, 30)), max_size=20),
)
def test_what_is_taken_is_what_comes_next(chunks: list[bytes], steps: list[tuple[str, int]]) -> None:
    whole, at, stream = b"".join(chunks), 0, CodecStream(iter(chunks))
    for how, size in steps:
        expected = whole[at : at + size]
        at += len(expected)
        if how == "skip":
            assert stream.skip(size) == len(expected)
        else:
            assert getattr(stream, how)(size) == expected
    assert stream.take(len(whole) + 1) == whole[at:]
    assert stream.take(1) == b""


def test_no_chunk_is_fetched_before_it_is_needed() -> None:
    fetched = []
    stream = CodecStream(fetched.append(number) or b"ab" for number in range(3))  # type: ignore[func-returns-value]
    assert fetched == []
    assert stream.take(2) == b"ab" and fetched == [0]
    assert stream.take(1) == b"a" and fetched == [0, 1]


def test_chunks_are_of_one_size() -> None:
    content = bytes(2 * CHUNK_BYTES + 1)
    assert [len(chunk) for chunk in chunks_of(CodecStream(iter([content])))] == [CHUNK_BYTES, CHUNK_BYTES, 1]
