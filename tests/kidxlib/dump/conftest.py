"""Files to dump."""

from __future__ import annotations

from pathlib import Path

import pytest

from kidxlib.format.checkpoint_files import LEADER_EPOCH_CHECKPOINT
from kidxlib.format.segment_files import segment_file
from tests.faults.trees import write_log
from tests.support.dump import RECORDS, SEGMENT
from tests.support.logs import encoded
from tests.support.logs.golden import DATA, SAMPLES


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    """All files of a segment of a real broker; its log."""
    topic, base_offset = SEGMENT
    for directory in (SAMPLES / topic, DATA / "expected" / topic):
        for path in [*directory.glob(segment_file(base_offset, ".*")), directory / LEADER_EPOCH_CHECKPOINT]:
            (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path / segment_file(base_offset, ".log")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return write_log(tmp_path, 7, encoded.batch_v2(RECORDS))
