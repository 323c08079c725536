"""Batches are those that the tests' own writer makes, which Kafka reads elsewhere."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kidxlib.records.batch_writer import moved_to, write_batch
from kidxlib.records.reader import Record
from tests.support.logs import encoded

_SIZES = st.integers(0, 200) | st.sampled_from([8_191, 8_192, 1_048_575, 1_048_576])
_OFFSETS = st.integers(0, 2**62)


@given(
    sizes=st.lists(_SIZES, min_size=1, max_size=5),
    base_offset=_OFFSETS,
    elsewhere=_OFFSETS,
    epoch=st.integers(-1, 2**31 - 1),
    timestamp_ms=st.integers(0, 2**60),
)
def test_batches(sizes: list[int], base_offset: int, elsewhere: int, epoch: int, timestamp_ms: int) -> None:
    values = [bytes([number]) * size for number, size in enumerate(sizes)]
    batch = write_batch(values, base_offset=base_offset, leader_epoch=epoch, timestamp_ms=timestamp_ms)

    def at(offset: int) -> bytes:
        records = [Record(offset + number, timestamp_ms, None, value) for number, value in enumerate(values)]
        return encoded.batch_v2(records, leader_epoch=epoch)

    assert batch == at(base_offset)
    assert moved_to(batch, elsewhere) == at(elsewhere)
