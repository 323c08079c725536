"""Random log segments, sound and damaged, as strategies of hypothesis."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Final

from hypothesis import strategies as st

from kidxlib.format import layouts
from kidxlib.recovery.options import MAX_INDEX_BYTES_DEFAULT, RecoverOptions
from tests.support.logs.batches import FILLER, Batch, control, encode


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A log, and the offset and the options for its recovery."""

    log: bytes
    base_offset: int = 0
    options: RecoverOptions = field(default_factory=RecoverOptions)


_INT32_MAX: Final = 2**31 - 1
_LONG_MAX: Final = 2**63 - 1

_BASE_OFFSETS: Final = st.sampled_from([0, 0, 42, 2**31 + 5, 2**62, _LONG_MAX - 2**31])

_BODIES: Final = st.sampled_from([8, 9, 16, 17, 18, 35, 60, 61, 97, 200, 500, 4100]).map(lambda size: FILLER[-size:])


_SOUND_BATCHES: Final = st.builds(
    Batch,
    magic=st.sampled_from([2, 2, 2, 1, 1, 0, 3, -1]),
    offset_step=st.integers(-9, 20),
    last_offset_delta=st.integers(0, 20),
    timestamp=st.integers(-2, 30),
    leader_epoch=st.sampled_from([-1, 0, 1, 2, 7, -7, _INT32_MAX]),
    attributes=st.integers(-128, 127),
    records=st.sampled_from([0, 1, 5, _INT32_MAX, -1]),
    body=_BODIES,
)

#: Faults and oddities of one batch.
_BATCH_FAULTS: Final = st.one_of(
    st.fixed_dictionaries({"crc_error": st.sampled_from([1, 0x80000000, 0xFFFFFFFF])}),
    st.fixed_dictionaries({"offset_step": st.sampled_from([0, -1, -30, -(2**31), _INT32_MAX, 2**32, 2**63])}),
    st.fixed_dictionaries({"offset_step": st.sampled_from([-20, -60, -1]), "timestamp": st.just(2**41)}),
    st.fixed_dictionaries({"timestamp": st.sampled_from([2**42, _LONG_MAX, -_LONG_MAX - 1])}),
    st.fixed_dictionaries({"last_offset_delta": st.sampled_from([-1, -_INT32_MAX - 1, _INT32_MAX])}),
    st.fixed_dictionaries({"magic": st.sampled_from([62, 63, 127, -128])}),
    st.fixed_dictionaries({"size": st.sampled_from([0, 13, 14, 15, 48, 49, 1000, _INT32_MAX, -1, -_INT32_MAX - 1])}),
    st.fixed_dictionaries({"magic": st.sampled_from([1, 2, 3]), "bytes_kept": st.sampled_from([25, 26, 27, 60, 61])}),
    st.builds(
        control,
        st.sampled_from([None, b"", bytes(3), bytes(4), b"\0\0\0\2", b"\xff\0\0\1", b"\0\5\0\1", b"\0\0\xff\0"]),
        st.sampled_from([None, b"", bytes(1), bytes(2), bytes(5), bytes(6), b"\xff\0\0\0\0\0", bytes(9)]),
        trailing=st.sampled_from([b"", b"", b"", b"\0"]),
        codec=st.sampled_from([0, 0, 0, 1]),
        records=st.sampled_from([1, 1, 1, 0, 2, -1]),
    ),
    st.builds(lambda fault, body: {**fault, "body": body}, st.builds(control), st.binary(max_size=20)),
)


def _flip_bit(log: bytes, place: int) -> bytes:
    flipped = bytearray(log)
    if flipped:
        flipped[place // 8 % len(log)] ^= 1 << place % 8
    return bytes(flipped)


#: Faults of a file, at any place.
_FILE_FAULTS: Final = st.tuples(
    st.sampled_from(
        [
            _flip_bit,
            lambda log, place: log[: place % (len(log) + 1)],
            lambda log, place: log + bytes(place % 5000),
            lambda log, place: log + FILLER[: (1, 16, 17, 18, 19, 61, 300)[place % 7]],
        ]
    ),
    st.integers(0, 2**20).map(lambda place: place * 977),
)


@st.composite
def segments(draw: st.DrawFn) -> Segment:
    """Up to 60 batches of mixed formats, most of them sound, with options whose limits are near the batches' sizes."""
    base_offset = draw(_BASE_OFFSETS)
    batches = draw(st.one_of(st.lists(_SOUND_BATCHES, min_size=20, max_size=60), st.lists(_SOUND_BATCHES, max_size=8)))
    least_step, clock_step = draw(st.sampled_from([1, 1, -9])), draw(st.sampled_from([3, 100, 0, None]))
    batches = [
        replace(
            batch,
            offset_step=(step := max(batch.offset_step, least_step if number else 1)),
            last_offset_delta=min(batch.last_offset_delta, max(step - 1, 0)),
            timestamp=layouts.NO_TIMESTAMP if clock_step is None else batch.timestamp + number * clock_step,
        )
        for number, batch in enumerate(batches)
    ]
    for _ in range(draw(st.sampled_from([0, 0, 1, 1, 2, 3])) if batches else 0):
        place = draw(st.one_of(st.integers(0, len(batches) - 1), st.just(-1)))
        batches[place] = replace(batches[place], **draw(_BATCH_FAULTS))
    encoded = encode(base_offset, batches)
    log = b"".join(encoded)
    if draw(st.booleans()):
        damage, place = draw(_FILE_FAULTS)
        log = damage(log, place)

    ends = list(accumulate(map(len, encoded)))[:4] or [0]
    exactly_met = st.builds(lambda end, less: max(end - less, 0), st.sampled_from(ends), st.integers(0, 1))
    options = RecoverOptions(
        interval_bytes=draw(
            st.one_of(st.integers(100, 2000), st.sampled_from([4096, 0, 1, 26, _INT32_MAX]), exactly_met)
        ),
        max_index_bytes=draw(st.sampled_from([*[MAX_INDEX_BYTES_DEFAULT] * 6, 12, 20, 24, 100, 400])),
        verify_crc=draw(st.booleans()),
    )
    return Segment(log=log, base_offset=base_offset, options=options)
