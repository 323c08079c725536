"""Checksums in pieces by several threads: the same segment as with one, wherever the pieces are cut."""

from __future__ import annotations

from typing import Final

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kidxlib import formats, kernels
from kidxlib.pieces import recover_in_pieces
from kidxlib.recover import RecoverOptions, recover
from tests.kidxlib.segments import FILLER, Batch, Segment, encode, segments, whole
from tests.kidxlib.test_recover import assert_same

_BATCHES: Final = encode(0, [Batch(body=FILLER[:number]) for number in range(39, 200)])
_LOG: Final = b"".join(_BATCHES)
_STARTS: Final = [sum(map(len, _BATCHES[:number])) for number in range(len(_BATCHES))]


@given(segments(), st.integers(2, 6), st.binary(max_size=80) | st.none())
def test_as_recover(segment: Segment, threads: int, offset_index: bytes | None) -> None:
    """Damaged or not, and with an index that is anything but one."""
    log = whole(segment.log)
    pieces = recover_in_pieces(
        log, segment.base_offset, segment.options, threads, offset_index, piece_bytes_min=1, batch_bytes_min=1
    )
    assert_same(pieces, recover(log, segment.base_offset, segment.options))


@given(segments(), st.integers(2, 6))
def test_as_recover_with_its_own_index(segment: Segment, threads: int) -> None:
    log = whole(segment.log)
    expected = recover(log, segment.base_offset, segment.options)
    pieces = recover_in_pieces(
        log, segment.base_offset, segment.options, threads, expected.offset_index, piece_bytes_min=1, batch_bytes_min=1
    )
    assert_same(pieces, expected)


@given(st.integers(0, len(_LOG)))
def test_batches_are_found_and_checked(position: int) -> None:
    """Without this all would go well, too, with one thread doing all the work at the end."""
    data = np.frombuffer(_LOG, np.uint8)
    behind = [start for start in _STARTS if start >= position]
    found = behind[0] if behind else -1
    assert kernels.find_batch(data, position, len(data)) == found
    if behind:
        assert kernels.check_batches(data, found, found + 1) == (behind[1] if len(behind) > 1 else len(data))
        assert kernels.check_batches(data, found, len(data)) == len(data)


@given(st.integers(0, len(_BATCHES) - 1))
def test_no_checksum_is_taken_for_granted(damaged: int) -> None:
    """A batch with a wrong checksum ends the log, whichever piece it lies in."""
    log = bytearray(_LOG)
    log[_STARTS[damaged] + formats.BATCH_V2.itemsize] ^= 1
    end = recover_in_pieces(whole(bytes(log)), 0, RecoverOptions(), threads=4, piece_bytes_min=1, batch_bytes_min=1).end
    assert (end.reason, end.position) == ("crc-mismatch", _STARTS[damaged])
