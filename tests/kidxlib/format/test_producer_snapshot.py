"""A producer snapshot is read whole, or refused: a changed bit or a missing byte is never taken for producers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kidxlib.errors import SnapshotError
from kidxlib.format import layouts
from kidxlib.format.checksums import crc32c
from kidxlib.format.producer_snapshot import CRC_COVERS_FROM, read_snapshot
from tests.support.logs import golden

SNAPSHOTS = [segment.snapshot for segment in golden.committed() if segment.snapshot is not None]
LARGEST = max(SNAPSHOTS, key=len)


def test_kafkas_snapshots_are_read_whole() -> None:
    assert len(LARGEST) > layouts.SNAPSHOT_HEADER.itemsize + layouts.SNAPSHOT_ENTRY.itemsize
    for snapshot in SNAPSHOTS:
        assert read_snapshot(snapshot).tobytes() == snapshot[layouts.SNAPSHOT_HEADER.itemsize :]


@given(st.integers(0, 8 * len(LARGEST) - 1))
def test_a_changed_bit_is_refused(bit: int) -> None:
    changed = bytearray(LARGEST)
    changed[bit // 8] ^= 1 << bit % 8
    with pytest.raises(SnapshotError):
        read_snapshot(bytes(changed))


@given(st.integers(0, len(LARGEST) - 1))
def test_a_part_of_a_snapshot_is_refused(size: int) -> None:
    with pytest.raises(SnapshotError, match=f"{size} bytes"):
        read_snapshot(LARGEST[:size])


def test_another_version_is_refused_though_its_checksum_is_right() -> None:
    header = np.frombuffer(LARGEST, layouts.SNAPSHOT_HEADER, count=1).copy()
    header["version"] += 1
    data = header.tobytes() + LARGEST[layouts.SNAPSHOT_HEADER.itemsize :]
    header["crc"] = crc32c(data[CRC_COVERS_FROM:])
    with pytest.raises(SnapshotError, match="expected version 1"):
        read_snapshot(header.tobytes() + data[layouts.SNAPSHOT_HEADER.itemsize :])
