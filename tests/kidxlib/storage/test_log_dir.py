"""What a partition's metadata file says."""

from __future__ import annotations

from pathlib import Path

import pytest

from kidxlib.errors import CheckpointError
from kidxlib.storage.log_dir import read_topic_id
from tests.support.logs import golden


def test_a_topic_id_comes_from_a_real_brokers_file(tmp_path: Path) -> None:
    """The sample has it; without the file there is none; a file without it is malformed."""
    directory = golden.SAMPLES / "txn-mixed-0"
    topic_id = read_topic_id(directory)
    assert topic_id is not None and len(topic_id) == 22
    assert read_topic_id(tmp_path) is None
    (tmp_path / "partition.metadata").write_text("version: 0\n")
    with pytest.raises(CheckpointError, match="topic_id"):
        read_topic_id(tmp_path)
