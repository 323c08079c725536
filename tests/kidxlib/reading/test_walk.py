"""A time leads to the offset to which it leads on a broker: of the first record that is as late."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kidxlib.errors import DamagedLogError
from kidxlib.format import layouts
from kidxlib.reading.plan import plan_reads
from kidxlib.reading.request import read_request
from kidxlib.reading.segment_read import SegmentRead
from kidxlib.reading.walk import raise_damage, walk_to_time
from kidxlib.records.reader import Record
from tests.conftest import one_in
from tests.faults.trees import topic_log as _log
from tests.support.consumed import rows_of_partition
from tests.support.logs import encoded
from tests.support.logs.random_logs import write_random_log


def _reads(directory: Path, start: int | None = None) -> tuple[SegmentRead, ...]:
    return plan_reads(read_request(directory, offsets=(start, None), to_log_end=False), goes_on=False).reads


@given(seed=st.integers(0, 2**32), time=st.integers(95, 145), start=st.none() | st.integers(0, 60))
@one_in(2)
def test_it_is_the_first_in_the_log(
    seed: int, time: int, start: int | None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Of logs of all formats, with timestamps in any order, from wherever reading begins."""
    directory = tmp_path_factory.mktemp("log-dir") / "topic-0"
    write_random_log(directory, random.Random(seed))
    found = walk_to_time(_reads(directory, start), time, raise_damage, goes_on=False)
    as_late = [row["offset"] for row in rows_of_partition(directory) if row["timestamp"] >= time]
    assert found == next((offset for offset in as_late if offset >= (start or 0)), None)


def test_markers_count(tmp_path: Path) -> None:
    """And a consumer that begins there sees what follows them, whenever that was."""
    of_producer: dict[str, Any] = {"producer_id": 1, "producer_epoch": 0}
    transactional = layouts.ATTRIBUTE_TRANSACTIONAL
    _log(
        tmp_path,
        0,
        encoded.batch_v2([Record(0, 100, None, b"")], attributes=transactional, **of_producer),
        encoded.batch_v2(
            [Record(1, 130, b"\0\0\0\0", bytes(6))], attributes=transactional | layouts.ATTRIBUTE_CONTROL, **of_producer
        ),
        encoded.batch_v2([Record(2, 90, None, b""), Record(3, 140, None, b"")]),
    )
    assert [walk_to_time(_reads(tmp_path), time, raise_damage, goes_on=False) for time in (100, 101, 131, 141)] == [
        0,
        1,
        3,
        None,
    ]


def test_damage_is_told_that_stands_before_it(tmp_path: Path) -> None:
    sound = encoded.batch_v2([Record(2, 120, None, b"")])
    log = _log(tmp_path, 0, encoded.batch_v2([Record(0, 110, None, b"")], crc_error=1), sound)
    with pytest.raises(DamagedLogError, match="byte 0: the batch's checksum is not"):
        walk_to_time(_reads(tmp_path), 105, raise_damage, goes_on=False)
    told: list[object] = []
    assert walk_to_time(_reads(tmp_path), 105, told.append, goes_on=True) == 2
    assert len(told) == 1
    log.write_bytes(encoded.batch_v2([Record(0, 110, None, b"")], records=2))
    with pytest.raises(DamagedLogError, match="which offset a time leads to cannot be told"):
        walk_to_time(_reads(tmp_path), 105, raise_damage, goes_on=False)
