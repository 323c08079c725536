"""`recover` gives Kafka's bytes: on segments that Kafka itself recovered, and on generated ones by the reference. The
checksum of a whole log: what is known of it, and what is not worth a read. By several threads the segment is the same,
wherever the pieces are cut.
"""

from __future__ import annotations

import errno
import itertools
import os
import tempfile
from dataclasses import fields, replace
from pathlib import Path
from typing import Final

import google_crc32c
import numpy as np
import pytest
from hypothesis import event, example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from kidxlib.format import layouts
from kidxlib.java import as_long
from kidxlib.recovery.facts import SegmentFacts
from kidxlib.recovery.log_checksums import TAIL_BYTES_MAX
from kidxlib.recovery.options import RecoverOptions
from kidxlib.recovery.outcome import Status
from kidxlib.recovery.recover import RecoveredSegment, recover, recover_in_sections
from kidxlib.recovery.scan.ordinary_kernel import BATCHES_AHEAD
from kidxlib.recovery.scan.scan_state import EndReason
from kidxlib.storage.log_bytes import ChunkedLog, WholeLog
from kidxlib.storage.opened_log import map_log, open_local_log
from tests.kidxlib.recovery.test_check_kernel import BATCHES, LOG, STARTS
from tests.model import facts as facts_model
from tests.model.recover import Recovered, recover_reference
from tests.support.logs.batches import Batch, control, encode
from tests.support.logs.golden import GoldenSegment
from tests.support.logs.guarded import GuardedChunks, whole
from tests.support.logs.segments import Segment, segments

#: Bytes read at a time. Most batches are larger than the odd ones, so their checksum is computed in pieces.
CHUNK_BYTES: Final = (61, 4096)

_BATCHES = b"".join(encode(0, [Batch(), Batch()]))


def test_golden_mapped(golden_segment: GoldenSegment) -> None:
    """The promise itself: the bytes that Kafka wrote, and where it truncates the log. The facts are the reference's."""
    with open_local_log(str(golden_segment.log)) as (descriptor, version):
        recovered = recover(map_log(descriptor, version.size), golden_segment.base_offset, golden_segment.options)
    assert_as_kafka(recovered, golden_segment)
    reference = recover_reference(golden_segment.log.read_bytes(), golden_segment.base_offset, golden_segment.options)
    assert_equal(recovered, reference, golden_segment.base_offset)


def test_golden_in_chunks(golden_segment: GoldenSegment) -> None:
    """Memory is bounded by the chunk: nothing may depend on where one ends."""
    for chunk_bytes in CHUNK_BYTES:
        with open_local_log(str(golden_segment.log)) as (descriptor, version):
            log = GuardedChunks(descriptor, version.size, chunk_bytes)
            assert_as_kafka(recover(log, golden_segment.base_offset, golden_segment.options), golden_segment)


def test_generated_segments_as_reference() -> None:
    """The compiled loop against Kafka's loop in plain Python, and no read outside; every end must have been met."""
    seen = set()

    @given(segments())
    @example(Segment(log=log_of(Batch(), Batch(offset_step=0)), options=EACH))  # no entry yet: the base offset is fine
    def check(segment: Segment) -> None:
        reference = recover_reference(segment.log, segment.base_offset, segment.options)
        event(f"ends: {reference.reason}")
        seen.add(reference.reason)
        recovered = recover(whole(segment.log), segment.base_offset, segment.options)
        assert_equal(recovered, reference, segment.base_offset)

    for *_, segment in ENDS:
        check = example(segment)(check)
    check()
    assert seen == {reason for reason, *_ in ENDS}


@given(segments(), st.integers(61, 700))
def test_generated_segments_in_chunks(segment: Segment, chunk_bytes: int) -> None:
    """Whole or in chunks of any size: the same segment, to the last fact and word."""
    with tempfile.TemporaryFile(buffering=0) as file:
        file.write(segment.log)
        chunks = GuardedChunks(file.fileno(), len(segment.log), chunk_bytes)
        in_chunks = recover(chunks, segment.base_offset, segment.options)
    assert_same(in_chunks, recover(whole(segment.log), segment.base_offset, segment.options))


#: Each unlike the many before it, in another way.
UNLIKE: Final = (
    Batch(timestamp=5, last_offset_delta=3),  # it begins among those before
    Batch(timestamp=5, offset_step=0),
    Batch(timestamp=5, offset_step=-7),
    Batch(timestamp=5, offset_step=2**31),
    Batch(timestamp=5, last_offset_delta=-2),
    Batch(timestamp=5, last_offset_delta=-1, offset_step=0),  # it begins after those before, and ends among them
    Batch(timestamp=5, leader_epoch=7),
    Batch(timestamp=4_000_000),
    Batch(timestamp=-1),
    Batch(timestamp=5, records=0),
    Batch(timestamp=5, records=3, last_offset_delta=2, offset_step=3),
    Batch(timestamp=5, attributes=4),
    Batch(timestamp=5, attributes=8, records=2),
    Batch(timestamp=5, magic=1),
    Batch(timestamp=5, magic=3),
    Batch(timestamp=5, crc_error=1),
    Batch(timestamp=5, bytes_kept=60),
    Batch(timestamp=5, producer_id=9, producer_epoch=1, base_sequence=4),
    Batch(timestamp=5, producer_id=9, producer_epoch=1, base_sequence=4, attributes=16),
    Batch(**control()),
)


@pytest.mark.parametrize("before", [Batch(timestamp=5), Batch(timestamp=5, magic=1)], ids=["v2", "v1"])
def test_one_that_is_unlike_many_before_it(before: Batch, exhaustive: bool) -> None:
    """Most batches are taken many at once. The others are seen among them, at any place, one or two of them."""
    for first, second in itertools.product(UNLIKE, (None, *UNLIKE)):
        unlike = (first,) if second is None else (first, before, second)
        log = log_of(*[before] * (BATCHES_AHEAD + 12), *unlike, *[before] * 8)  # none begins a range of digests there
        for options in (EACH, OF_TWO) if second is None or exhaustive else (EACH,):
            assert_equal(recover(whole(log), 0, options), recover_reference(log, 0, options), 0)


def test_an_offset_below_the_base_after_the_largest_that_there_is() -> None:
    """None is below the next offset then, which is the smallest of all."""
    base_offset = 2**63 - 6
    batches = [Batch(offset_step=6, last_offset_delta=1), Batch(offset_step=-11, last_offset_delta=-10)]
    log = b"".join(encode(base_offset, batches))
    recovered = recover(whole(log), base_offset, RecoverOptions())
    assert recovered.end.reason == "offset-overflow"
    assert_equal(recovered, recover_reference(log, base_offset, RecoverOptions()), base_offset)


def log_of(*batches: Batch) -> bytes:
    return b"".join(encode(0, batches))


#: One segment for each way to end, what that makes of it, and how many bytes of it are good. Batches have 100 bytes.
TWO: Final = (Batch(timestamp=5), Batch(timestamp=6))
EACH: Final = RecoverOptions(interval_bytes=0)
OF_TWO: Final = RecoverOptions(interval_bytes=200)
ENDS: Final[list[tuple[str | None, Status, int, Segment]]] = [
    (None, Status.OK, 200, Segment(log=log_of(*TWO))),
    ("trailing-bytes", Status.TRUNCATED, 200, Segment(log=log_of(*TWO, *TWO)[:217])),
    ("batch-overruns-file", Status.TRUNCATED, 200, Segment(log=log_of(*TWO, *TWO)[:218])),
    ("size-too-small", Status.TRUNCATED, 200, Segment(log=log_of(*TWO) + bytes(18))),
    ("batch-too-small", Status.TRUNCATED, 200, Segment(log=log_of(*TWO, Batch(bytes_kept=60)))),
    ("crc-mismatch", Status.TRUNCATED, 200, Segment(log=log_of(*TWO, Batch(crc_error=1), *TWO))),
    (
        "invalid-control-record",
        Status.TRUNCATED,
        278,
        Segment(log=log_of(*TWO, Batch(**control(b"\xff\xff\0\1")), *TWO)),
    ),
    ("unknown-control-type", Status.QUARANTINED, 200, Segment(log=log_of(*TWO, Batch(**control(b"\0\0\0\2")), *TWO))),
    (
        "malformed-control-record",
        Status.QUARANTINED,
        200,
        Segment(log=log_of(*TWO, Batch(**control(value=None)), *TWO)),
    ),
    ("compressed-control-batch", Status.QUARANTINED, 200, Segment(log=log_of(*TWO, Batch(**control(codec=4)), *TWO))),
    (
        "control-batch-too-large",
        Status.QUARANTINED,
        200,
        Segment(log=log_of(*TWO, Batch(**control(trailing=bytes(2**16))), *TWO)),
    ),
    ("offset-overflow", Status.QUARANTINED, 200, Segment(log=log_of(*TWO, Batch(offset_step=2**31 - 1)))),
    (
        "offset-index-full",
        Status.QUARANTINED,
        400,
        Segment(log=log_of(*[Batch()] * 5), options=RecoverOptions(interval_bytes=0, max_index_bytes=24)),
    ),
    (
        "time-index-full",
        Status.QUARANTINED,
        100,
        Segment(log=log_of(*TWO), options=RecoverOptions(interval_bytes=0, max_index_bytes=12)),
    ),
    ("offset-not-increasing", Status.QUARANTINED, 200, Segment(log=log_of(*TWO, Batch(offset_step=0)), options=EACH)),
    (
        "time-index-offset-decreasing",
        Status.QUARANTINED,
        400,
        Segment(
            log=log_of(*TWO, Batch(timestamp=7), Batch(timestamp=8, offset_step=-1)),
            options=RecoverOptions(interval_bytes=150),
        ),
    ),
]


@pytest.mark.parametrize(("reason", "status", "valid_bytes", "segment"), ENDS, ids=[str(end[0]) for end in ENDS])
def test_ends(reason: str | None, status: Status, valid_bytes: int, segment: Segment) -> None:
    """Each way to end, with the smallest segment that does: what it is called and where it lies."""
    end = recover(whole(segment.log), segment.base_offset, segment.options).end
    assert (end.reason, end.status, end.position) == (reason, status, valid_bytes)


def test_no_end_is_forgotten() -> None:
    """A new way to end needs its segment above. Only a scan that waits for something and a file of 2 GiB have none."""
    not_ends = {EndReason.NEEDS_BYTES, EndReason.NEEDS_ROOM, EndReason.SEGMENT_TOO_LARGE}
    assert len(ENDS) == len(EndReason) - len(not_ends)


def test_interval_is_strict() -> None:
    """The rule in numbers: the first batch never, one exactly an interval after the last entry not yet."""
    log = log_of(*[Batch(timestamp=1000 + number, offset_step=10) for number in range(8)])
    recovered = recover(whole(log), 0, RecoverOptions(interval_bytes=200))
    assert recovered.offset_index.hex(" ", 4) == "00000027 0000012c 00000045 00000258"  # offset 39 at 300, 69 at 600
    times = np.frombuffer(recovered.time_index, layouts.TIME_INDEX_ENTRY).tolist()
    assert times == [(1003, 39), (1006, 69), (1007, 79)]


@pytest.mark.parametrize(("size", "reason"), [(2**31 - 1, "size-too-small"), (2**31, "segment-too-large")])
def test_largest_file(tmp_path: Path, size: int, reason: str) -> None:
    """Positions are 32 bits wide: a file of 2 GiB is refused unread, one byte less (here of zeros) is scanned."""
    path = tmp_path / "00000000000000000000.log"
    path.touch()
    os.truncate(path, size)
    with open_local_log(str(path)) as (descriptor, version):
        end = recover(ChunkedLog(descriptor, version.size), 0, RecoverOptions()).end
    assert (end.reason, end.position) == (reason, 0)


def assert_as_kafka(recovered: RecoveredSegment, golden_segment: GoldenSegment) -> None:
    assert recovered.offset_index == golden_segment.offset_index
    assert recovered.time_index == golden_segment.time_index
    assert golden_segment.log.stat().st_size - recovered.facts.valid_bytes == golden_segment.truncated_bytes


def assert_same(one: RecoveredSegment, other: RecoveredSegment) -> None:
    """Equal in all, arrays by their elements."""
    for field in fields(RecoveredSegment):
        values = getattr(one, field.name), getattr(other, field.name)
        equal = np.array_equal(*values) if isinstance(values[0], np.ndarray) else values[0] == values[1]
        assert equal, field.name


def assert_equal(recovered: RecoveredSegment, reference: Recovered, base_offset: int) -> None:
    assert recovered.end.reason == reference.reason
    assert recovered.end.position == reference.valid_bytes
    assert recovered.offset_index == reference.offset_index
    assert recovered.time_index == reference.time_index
    expected = facts(reference, base_offset)
    if recovered.end.status is Status.QUARANTINED:  # the largest timestamp may be that of the batch it failed at
        largest = recovered.facts.max_timestamp_ms, recovered.facts.offset_of_max_timestamp
        expected = replace(expected, max_timestamp_ms=largest[0], offset_of_max_timestamp=largest[1])
    assert recovered.facts == expected
    assert recovered.odd_position == odd_position(reference, base_offset)


def odd_position(reference: Recovered, base_offset: int) -> int | None:
    """Where the first batch starts that no broker writes there, by its offsets or its magic."""
    position, next_offset = 0, base_offset
    for batch in reference.valid:
        first_offset = batch.header["base_offset" if batch.is_v2 else "offset"]
        if min(first_offset, batch.last_offset) < next_offset or not 0 <= batch.header["magic"] <= layouts.MAGIC_V2:
            return position
        position, next_offset = position + len(batch.data), as_long(batch.last_offset + 1)
    return None


def facts(reference: Recovered, base_offset: int) -> SegmentFacts:
    """The facts by their definitions, over the list of batches that the loop must do without."""
    valid = reference.valid
    v2 = [batch.header for batch in valid if batch.is_v2]
    max_timestamp = max((batch.max_timestamp for batch in valid), default=layouts.NO_TIMESTAMP)
    timed = [batch for batch in valid if batch.max_timestamp == max_timestamp > layouts.NO_TIMESTAMP]
    epochs = [header["partition_leader_epoch"] for header in v2 if header["partition_leader_epoch"] >= 0]
    codecs = {batch.header["attributes"] & layouts.ATTRIBUTE_CODEC for batch in valid}
    wrappers = any(batch.header["attributes"] & layouts.ATTRIBUTE_CODEC for batch in valid if not batch.is_v2)
    records = sum(batch.header["records_count"] if batch.is_v2 else 1 for batch in valid)
    timestamps = facts_model.header_timestamps(valid)
    smallest = facts_model.smallest_timestamps(timestamps, len(reference.log))
    return SegmentFacts(
        next_offset=as_long(valid[-1].last_offset + 1) if valid else base_offset,
        valid_bytes=reference.valid_bytes,
        batches=len(valid),
        records=None if wrappers else records,
        max_timestamp_ms=max(max_timestamp, layouts.NO_TIMESTAMP),
        offset_of_max_timestamp=timed[0].last_offset if timed else None,
        first_leader_epoch=epochs[0] if epochs else None,
        last_leader_epoch=epochs[-1] if epochs else None,
        magics=tuple(sorted({magic if 0 <= magic < 63 else -1 for magic in (b.header["magic"] for b in valid)})),
        codecs=tuple(layouts.CODECS[codec] for codec in sorted(codecs)),
        transactional_batches=sum(header["attributes"] & layouts.ATTRIBUTE_TRANSACTIONAL != 0 for header in v2),
        control_batches=sum(header["attributes"] & layouts.ATTRIBUTE_CONTROL != 0 for header in v2),
        offset_entries=len(reference.offset_index) // layouts.OFFSET_INDEX_ENTRY.itemsize,
        time_entries=len(reference.time_index) // layouts.TIME_INDEX_ENTRY.itemsize,
        map_end_offset=base_offset if reference.map_end_offset is None else reference.map_end_offset,
        offsets_increase=all(one.last_offset < other.last_offset for one, other in itertools.pairwise(valid)),
        log_crc32c=facts_model.log_crc32c(reference),
        log_crc64nvme=None,
        offset_digests=facts_model.offset_digests(valid),
        smallest_timestamp_ms=None if smallest is None else smallest[0].timestamp_ms if smallest else -1,
        smallest_timestamps=smallest,
        records_by_hour=None if wrappers else facts_model.records_by_hour(timestamps),
    )


def test_known_with_an_invalid_tail() -> None:
    log = _BATCHES + bytes(5000)
    assert recover(whole(log), 0, RecoverOptions()).facts.log_crc32c == google_crc32c.value(log)


def test_not_known() -> None:
    """Nobody verified it; another checksum; a long tail, as a preallocated log has."""
    assert recover(whole(_BATCHES), 0, RecoverOptions(verify_crc=False)).facts.log_crc32c is None
    mixed = _BATCHES + b"".join(encode(2, [Batch(magic=1)]))
    assert recover(whole(mixed), 0, RecoverOptions()).facts.log_crc32c is None
    for size in (TAIL_BYTES_MAX, TAIL_BYTES_MAX + 1):
        log = _BATCHES + bytes(size)
        known = google_crc32c.value(log) if size == TAIL_BYTES_MAX else None
        recovered = recover(WholeLog(np.frombuffer(log, np.uint8)), 0, RecoverOptions())
        assert recovered.facts.log_crc32c == known


def test_a_tail_that_cannot_be_read_changes_nothing_else() -> None:
    """A bad sector after the end of the valid part: the scan has no need of it."""
    recovered = recover(_BadTail(_BATCHES + bytes(5000)), 0, RecoverOptions())
    assert (recovered.end.status, recovered.end.position) == (Status.TRUNCATED, len(_BATCHES))
    assert recovered.facts.log_crc32c is None


class _BadTail(WholeLog):
    """A log whose end is read in a window of its own, which fails."""

    def __init__(self, log: bytes) -> None:
        super().__init__(np.frombuffer(log, np.uint8))

    def window(self, position: int) -> tuple[int, NDArray[np.uint8]]:
        start, window = super().window(position)
        end = len(_BATCHES) + layouts.BATCH_V2.itemsize
        if position >= end:
            raise OSError(errno.EIO, "Input/output error")
        return start, window[:end]


def in_sections(segment: Segment, threads: int, offset_index: bytes | None) -> RecoveredSegment:
    """Recovered by threads, however small the segment."""
    log, base_offset, options = whole(segment.log), segment.base_offset, segment.options
    return recover_in_sections(log, base_offset, options, threads, offset_index, section_bytes_min=1, batch_bytes_min=1)


@given(segments(), st.integers(2, 6), st.binary(max_size=80) | st.none())
def test_as_recover(segment: Segment, threads: int, offset_index: bytes | None) -> None:
    """Damaged or not, and with an index that is anything but one."""
    expected = recover(whole(segment.log), segment.base_offset, segment.options)
    assert_same(in_sections(segment, threads, offset_index), expected)


@given(segments(), st.integers(2, 6))
def test_as_recover_with_its_own_index(segment: Segment, threads: int) -> None:
    expected = recover(whole(segment.log), segment.base_offset, segment.options)
    assert_same(in_sections(segment, threads, expected.offset_index), expected)


@given(st.integers(0, len(BATCHES) - 1))
def test_no_checksum_is_taken_for_granted(damaged: int) -> None:
    """A batch with a wrong checksum ends the log, whichever piece it lies in."""
    log = bytearray(LOG)
    log[STARTS[damaged] + layouts.BATCH_V2.itemsize] ^= 1
    end = in_sections(Segment(log=bytes(log)), 4, None).end
    assert (end.reason, end.position) == ("crc-mismatch", STARTS[damaged])
