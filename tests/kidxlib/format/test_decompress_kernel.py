"""The compiled loop decompresses as `kidxlib.format.codecs` does, or leaves it to that."""

from __future__ import annotations

import random
from typing import Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kidxlib.errors import MalformedError
from kidxlib.format import codecs
from kidxlib.format.codecs import CodecStream
from kidxlib.format.decompress_kernel import NO_ROOM, REFUSED, Decompressors, decompress
from tests.support.logs import encoded
from tests.support.logs.guarded import whole

#: Ways to compress that Kafka's clients have: none of these is left to anyone.
_CLIENTS_WAYS: Final = ("gzip", "snappy", "xerial", "xerial in small blocks", "lz4", "zstd", "zstd in two frames")
_OTHERS: Final = 0xA5


@pytest.fixture(scope="module")
def decompressors() -> Decompressors:
    return Decompressors()


def _decompressed(compressed: bytes, codec: int, magic: int, room: int, by: Decompressors) -> bytes | int:
    """The content, or why there is none. A byte read after `compressed` ends the process."""
    memory = np.full(7 + room + 64, _OTHERS, np.uint8)
    target, scratch = memory[: 7 + room], np.empty(2, np.int64)
    source = whole(compressed).window(0)[1]
    size = decompress(codec, magic, source, 0, len(source), target, 7, by.zstd, by.gzip, scratch)
    assert set(memory[:7].tolist()) == set(memory[7 + room :].tolist()) == {_OTHERS}
    return int(size) if size < 0 else target[7 : 7 + size].tobytes()


def _by_codecs(compressed: bytes, codec: int, magic: int) -> bytes | None:
    try:
        return codecs.decompressed_stream(codec, CodecStream(iter([compressed])), magic).take(2**30)
    except MalformedError:
        return None


@given(
    content=st.one_of(
        st.binary(max_size=200).map(lambda data: data * 9),
        st.lists(st.sampled_from([b"a", b"bc", b"def" * 30, b"0123456789abcdefg"]), max_size=300).map(b"".join),
    ),
    way=st.sampled_from(_CLIENTS_WAYS),
    magic=st.sampled_from([0, 1, 2]),
    more_room=st.sampled_from([0, 1, 15, 16, 100, 70_000]),
)
def test_what_clients_write_is_decompressed(
    content: bytes, way: str, magic: int, more_room: int, decompressors: Decompressors
) -> None:
    codec, compress = encoded.WAYS[way]
    compressed = compress(content)
    assert _decompressed(compressed, codec, magic, len(content) + more_room, decompressors) == content
    if content:
        assert _decompressed(compressed, codec, magic, len(content) - 1, decompressors) == NO_ROOM


@given(
    content=st.binary(max_size=200).map(lambda data: data * 9),
    damage=st.lists(st.integers(0, 2**20), max_size=3),
    way=st.sampled_from(sorted(encoded.WAYS)),
    magic=st.sampled_from([0, 1, 2]),
    cut=st.integers(0, 30),
    room=st.sampled_from([0, 100, 2_000, 70_000]),
)
def test_damaged_bytes_are_left_to_others_or_read_alike(
    content: bytes, damage: list[int], way: str, magic: int, cut: int, room: int, decompressors: Decompressors
) -> None:
    codec, compress = encoded.WAYS[way]
    compressed = bytearray(compress(content))
    for place in damage if compressed else []:
        compressed[place // 8 % len(compressed)] ^= 1 << place % 8
    kept = bytes(compressed[: len(compressed) - cut] if cut < 10 else compressed)
    found = _decompressed(kept, codec, magic, room, decompressors)
    assert found in (NO_ROOM, REFUSED) or found == _by_codecs(kept, codec, magic)


@pytest.mark.parametrize("way", _CLIENTS_WAYS)
def test_large_batches(way: str, rng: random.Random, decompressors: Decompressors) -> None:
    """Of many blocks, with copies from near and far, over each other, and from before."""
    codec, compress = encoded.WAYS[way]
    words = [rng.randbytes(rng.randint(1, 40)) for _ in range(500)]
    content = b"".join(rng.choice(words) * rng.choice([1, 1, 1, 50]) for _ in range(1_500))
    assert len(content) > 70_000
    for start in (0, 1):
        assert _decompressed(compress(content[start:]), codec, 2, len(content), decompressors) == content[start:]
