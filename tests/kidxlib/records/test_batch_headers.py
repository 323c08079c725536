"""A walk over headers ends where no whole batch follows."""

from __future__ import annotations

import pytest

from kidxlib.errors import MalformedRecordsError
from kidxlib.records import batch_headers
from tests.kidxlib.records.test_reader import SOUND, log_of, records_of
from tests.support.logs import encoded


@pytest.mark.parametrize("left_over", [b"", bytes(17), SOUND[:-1], SOUND[:18]])
def test_bytes_left_over(left_over: bytes) -> None:
    """They end the log, and are no error."""
    assert list(records_of(log_of(SOUND + left_over))) == list(encoded.RECORDS)


def test_position_before_the_file() -> None:
    """A damaged index names such."""
    with pytest.raises(MalformedRecordsError, match="batch at byte -1: found that position, expected one from 0 on"):
        list(batch_headers.batches(log_of(SOUND), -1))
