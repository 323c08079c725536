"""What a broker takes for a segment's largest timestamp, from the time index that it finds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kidxlib.format import layouts
from kidxlib.format.segment_files import OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, segment_file
from kidxlib.operations.retention.plan_work import OnDisk, max_timestamp_on_disk
from kidxlib.retention.policy import PlanWarning

BASE_OFFSET, KNOWN = 45, 2_000
RIGHT = [(1_000, 3), (KNOWN, 9)]


def put(directory: Path, entries: list[tuple[int, int]] | None, *, has_offset_index: bool = True) -> str:
    directory.mkdir(exist_ok=True)
    if entries is not None:
        content = np.array(entries, layouts.TIME_INDEX_ENTRY).tobytes()
        (directory / segment_file(BASE_OFFSET, TIME_INDEX_SUFFIX)).write_bytes(content)
    if has_offset_index:
        (directory / segment_file(BASE_OFFSET, OFFSET_INDEX_SUFFIX)).touch()
    return str(directory)


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        (RIGHT, OnDisk(KNOWN, None)),
        ([*RIGHT, (KNOWN + 1, 10)], OnDisk(KNOWN + 1, None)),
        (RIGHT[:1], OnDisk(1_000, PlanWarning.TIME_INDEX_INCOMPLETE)),
        ([*RIGHT, (0, 0)], OnDisk(0, PlanWarning.TIME_INDEX_PADDED)),
        ([*RIGHT, (0, 9)], OnDisk(0, PlanWarning.TIME_INDEX_INCOMPLETE)),
        ([], OnDisk(-1, PlanWarning.TIME_INDEX_INCOMPLETE)),
        (None, OnDisk(-1, PlanWarning.TIME_INDEX_INCOMPLETE)),
    ],
)
def test_the_last_entry_counts(entries: list[tuple[int, int]] | None, expected: OnDisk, tmp_path: Path) -> None:
    assert max_timestamp_on_disk([put(tmp_path / "a", entries)], BASE_OFFSET, KNOWN) == expected


def test_without_an_offset_index_a_broker_rebuilds_both(tmp_path: Path) -> None:
    """And looks in no other directory."""
    first = put(tmp_path / "a", RIGHT[:1], has_offset_index=False)
    assert max_timestamp_on_disk([first, put(tmp_path / "b", RIGHT)], BASE_OFFSET, KNOWN) is None


def test_the_first_directory_that_has_an_index_counts(tmp_path: Path) -> None:
    none = put(tmp_path / "a", None, has_offset_index=False)
    first, second = put(tmp_path / "b", RIGHT[:1]), put(tmp_path / "c", RIGHT)
    assert max_timestamp_on_disk([none, first, second], BASE_OFFSET, KNOWN) == OnDisk(
        1_000, PlanWarning.TIME_INDEX_INCOMPLETE
    )
    assert max_timestamp_on_disk([none], BASE_OFFSET, KNOWN) is None
