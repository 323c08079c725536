"""Facts that are folded from headers: digests of parts add up, and no log makes the facts large."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence

from hypothesis import example, given
from hypothesis import strategies as st

from kidxlib.format import layouts
from kidxlib.java import as_long
from kidxlib.recovery.facts import HourRecords, OffsetDigest, SegmentFacts
from kidxlib.recovery.options import RecoverOptions
from kidxlib.recovery.recover import recover
from kidxlib.recovery.scan.header_facts_kernel import DIGESTS
from tests.model import facts as model
from tests.model.recover import recover_reference
from tests.support.logs.batches import FILLER, Batch, encode
from tests.support.logs.guarded import whole

_HOUR_MS = 3_600_000
_BATCHES = st.lists(
    st.builds(
        Batch,
        offset_step=st.integers(1, 3000),
        body=st.integers(0, 60).map(lambda size: FILLER[:size]),
        leader_epoch=st.integers(0, 3),
    ),
    min_size=1,
    max_size=60,
)


def facts_of(log: bytes, base_offset: int = 0) -> SegmentFacts:
    return recover(whole(log), base_offset, RecoverOptions()).facts


@given(_BATCHES, st.lists(st.integers(1, 60), max_size=5), st.lists(st.integers(1, 60), max_size=5), st.data())
def test_digests_do_not_depend_on_where_segments_end(
    batches: list[Batch], cuts: list[int], other_cuts: list[int], data: st.DataObject
) -> None:
    """On two brokers segments are cut differently, and leader epochs are not part of what was checked."""
    encoded = encode(0, batches)
    one = [digest for part in _parts(encoded, cuts) for digest in facts_of(part).offset_digests]
    epochs = [_with_leader_epoch(batch, data.draw(st.integers(0, 9))) for batch in encoded]
    other = [digest for part in _parts(epochs, other_cuts) for digest in facts_of(part).offset_digests]
    offsets = max(digest.offsets for digest in (*one, *other))
    assert _coarse(one, offsets) == _coarse(other, offsets)


@given(_BATCHES, st.data())
def test_a_batch_that_differs_changes_one_digest(batches: list[Batch], data: st.DataObject) -> None:
    which = data.draw(st.integers(0, len(batches) - 1))
    one = dict((digest[:2], digest.digest) for digest in facts_of(b"".join(encode(0, batches))).offset_digests)
    batches[which] = Batch(offset_step=batches[which].offset_step, body=b"another")
    other = dict((digest[:2], digest.digest) for digest in facts_of(b"".join(encode(0, batches))).offset_digests)
    assert one.keys() == other.keys()
    assert sum(one[key] != other[key] for key in one) == 1


@given(
    st.sampled_from([0, 2**62, 2**63 - 2**31, 2**63 - 40]),
    st.lists(
        st.builds(
            Batch,
            offset_step=st.integers(1, 20),
            last_offset_delta=st.sampled_from([0, 3, -1, -(2**20), -(2**31), 2**31 - 1]),
        ),
        min_size=1,
        max_size=8,
    ),
)
@example(2**63 - 2, [Batch(), Batch(), Batch()])  # the third offset is that of the first, plus 2 and less 2**64
@example(2**63 - 2**31, [Batch(), Batch(last_offset_delta=-(2**31))])
def test_digests_of_offsets_that_lie_far_apart(base_offset: int, batches: list[Batch]) -> None:
    """Offsets wrap as Java's do, and then one segment has some at both ends of 64 bits."""
    log = b"".join(encode(base_offset, batches))
    valid = recover_reference(log, base_offset, RecoverOptions()).valid
    found = facts_of(log, base_offset).offset_digests
    assert found == model.offset_digests(valid)
    assert len(found) <= DIGESTS


def test_hours_are_bounded() -> None:
    """Timestamps are what producers say. What is in the first 256 hours is told apart, the rest is counted."""
    batches = [Batch(timestamp=number * 7 * _HOUR_MS, records=1) for number in range(300)]
    batches += [Batch(timestamp=256 * 7 * _HOUR_MS, records=3), Batch(timestamp=2**63 - 1), Batch(timestamp=-(2**63))]
    found = facts_of(b"".join(encode(0, batches))).records_by_hour
    assert found is not None
    assert found[:-1] == tuple(HourRecords(number * 7 * _HOUR_MS, 1, 1) for number in range(256))
    assert found[-1] == HourRecords(None, 44 + 3 + 2, 44 + 2)


def test_smallest_timestamps_from_a_position_on() -> None:
    """One early record at the end of a log is known from everywhere before it."""
    batches = [Batch(timestamp=1000 + number, body=FILLER[:4000]) for number in range(100)]
    encoded = encode(0, [*batches, Batch(timestamp=1050)])
    in_order = facts_of(b"".join(encoded[:-1]))
    assert in_order.smallest_timestamps is not None
    assert in_order.smallest_timestamp_ms == 1000
    assert 32 < len(in_order.smallest_timestamps) <= 64
    starts = [0, *itertools.accumulate(map(len, encoded))]
    assert all(starts[timestamp - 1000] == position for position, timestamp in in_order.smallest_timestamps)
    disordered = facts_of(b"".join(encoded)).smallest_timestamps
    assert disordered is not None
    assert max(timestamp for _, timestamp in disordered) == 1050
    assert Counter(timestamp for _, timestamp in disordered).most_common(1)[0][1] == 1


def test_a_record_may_have_the_largest_timestamp_that_there_is() -> None:
    """It is no sign that there is no record; and one that has no record is none."""
    without = Batch(timestamp=2**63 - 1, records=0)
    encoded = encode(0, [without, Batch(timestamp=2**63 - 1, magic=1), without])
    assert facts_of(b"".join(encoded)).smallest_timestamps == ((0, 2**63 - 1),)
    assert facts_of(b"".join(encoded)).smallest_timestamp_ms == 2**63 - 1
    assert facts_of(encoded[0] + encoded[2]).smallest_timestamps == ()


def test_what_headers_do_not_say_is_not_known() -> None:
    """Of a batch of several records the smallest timestamp, unless a broker's clock gave them all the same."""
    assert facts_of(b"".join(encode(0, [Batch(timestamp=5, records=2)]))).smallest_timestamps is None
    append_time = Batch(timestamp=5, records=2, attributes=layouts.ATTRIBUTE_LOG_APPEND_TIME)
    facts = facts_of(b"".join(encode(0, [append_time, Batch(timestamp=3, records=0)])))
    assert facts.smallest_timestamps == ((0, 5),)
    assert facts.records_by_hour == (HourRecords(0, 2, 2),)
    assert facts_of(b"").smallest_timestamp_ms == -1
    assert facts_of(b"").smallest_timestamps == ()


def _parts(encoded: Sequence[bytes], cuts: Sequence[int]) -> list[bytes]:
    """Batches in segments that begin with these, among others."""
    bounds = [0, *sorted({cut for cut in cuts if cut < len(encoded)}), len(encoded)]
    return [b"".join(encoded[start:end]) for start, end in itertools.pairwise(bounds)]


def _with_leader_epoch(batch: bytes, epoch: int) -> bytes:
    at = layouts.field_position(layouts.BATCH_V2, "partition_leader_epoch")
    return batch[:at] + epoch.to_bytes(4) + batch[at + 4 :]


def _coarse(digests: Sequence[OffsetDigest], offsets: int) -> dict[int, int]:
    """Digests added up to those of larger ranges."""
    sums: Counter[int] = Counter()
    for digest in digests:
        sums[digest.start_offset // offsets] += digest.digest
    return {number: as_long(total) for number, total in sums.items()}
