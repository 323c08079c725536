"""Wrappers of magic 0 and 1, as old clients left them."""

from __future__ import annotations

from kidxlib.records import header_walk, reader
from kidxlib.records.record import Record
from tests.kidxlib.records.test_reader import log_of
from tests.support.logs import encoded


def test_wrapper_that_an_old_client_left_at_offset_0() -> None:
    messages = [encoded.message(Record(number, 7, b"k", b"v"), 1) for number in range(3)]
    for offset, expected in [(0, [0, 1, 2]), (2, [0, 1, 2]), (12, [10, 11, 12])]:
        log = log_of(encoded.wrapper(messages, offset, magic=1, codec=1, compress=encoded.gzip))
        (batch,) = header_walk.batches(log)
        assert [record.offset for record in reader.records(log, batch)] == expected
        assert (reader.base_offset(log, batch), batch.records_count) == (expected[0], None)
