"""Segments' files are read as Kafka writes them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kidxlib.format.segment_files import LOG_SUFFIX, OFFSET_MAX, parse_segment_log, segment_file


@given(st.integers(0, OFFSET_MAX))
def test_every_log_name_is_read_back(base_offset: int) -> None:
    assert parse_segment_log(segment_file(base_offset, LOG_SUFFIX)) == base_offset
