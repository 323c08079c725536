"""The checksum of a whole log: what is known of it, and what is not worth a read."""

from __future__ import annotations

import errno

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from kidxlib.format import layouts as formats
from kidxlib.recovery.log_facts.log_checksum import TAIL_BYTES_MAX
from kidxlib.recovery.options import RecoverOptions
from kidxlib.recovery.outcome import Status
from kidxlib.recovery.segment import recover
from kidxlib.storage.log_bytes import WholeLog
from tests.support.logs.batches import Batch, encode
from tests.support.logs.guarded import whole

_BATCHES = b"".join(encode(0, [Batch(), Batch()]))


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
        end = len(_BATCHES) + formats.BATCH_V2.itemsize
        if position >= end:
            raise OSError(errno.EIO, "Input/output error")
        return start, window[:end]
