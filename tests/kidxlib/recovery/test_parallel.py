"""Checksums in pieces by several threads: the same segment as with one, wherever the pieces are cut."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kidxlib.format import layouts
from kidxlib.recovery.options import RecoverOptions
from kidxlib.recovery.parallel import recover_in_sections
from kidxlib.recovery.segment import recover
from tests.kidxlib.recovery.test_check_kernel import BATCHES, LOG, STARTS
from tests.kidxlib.recovery.test_segment import assert_same
from tests.support.logs.guarded import whole
from tests.support.logs.segments import Segment, segments


@given(segments(), st.integers(2, 6), st.binary(max_size=80) | st.none())
def test_as_recover(segment: Segment, threads: int, offset_index: bytes | None) -> None:
    """Damaged or not, and with an index that is anything but one."""
    log = whole(segment.log)
    pieces = recover_in_sections(
        log, segment.base_offset, segment.options, threads, offset_index, section_bytes_min=1, batch_bytes_min=1
    )
    assert_same(pieces, recover(log, segment.base_offset, segment.options))


@given(segments(), st.integers(2, 6))
def test_as_recover_with_its_own_index(segment: Segment, threads: int) -> None:
    log = whole(segment.log)
    expected = recover(log, segment.base_offset, segment.options)
    pieces = recover_in_sections(
        log,
        segment.base_offset,
        segment.options,
        threads,
        expected.offset_index,
        section_bytes_min=1,
        batch_bytes_min=1,
    )
    assert_same(pieces, expected)


@given(st.integers(0, len(BATCHES) - 1))
def test_no_checksum_is_taken_for_granted(damaged: int) -> None:
    """A batch with a wrong checksum ends the log, whichever piece it lies in."""
    log = bytearray(LOG)
    log[STARTS[damaged] + layouts.BATCH_V2.itemsize] ^= 1
    end = recover_in_sections(
        whole(bytes(log)), 0, RecoverOptions(), threads=4, section_bytes_min=1, batch_bytes_min=1
    ).end
    assert (end.reason, end.position) == ("crc-mismatch", STARTS[damaged])
