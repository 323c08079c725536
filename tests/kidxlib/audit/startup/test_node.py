"""Odd files of a copy of the cluster's metadata are obstacles, and end no look at it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kidxlib.audit.startup.node import obstacles_of_raft
from kidxlib.log.cluster_metadata.replica import METADATA_DIRECTORY, QUORUM_STATE


@pytest.mark.parametrize(
    ("name", "content", "found"),
    [
        (QUORUM_STATE, '{"data_version": []}', "data_version [], expected 0 or 1"),
        (QUORUM_STATE, '{"data_version": {"a": 1}}', "data_version {'a': 1}, expected 0 or 1"),
        (
            f"{100:020}-{1:010}-bad.checkpoint",
            "",
            f"a node takes it for {100:020}-{1:010}.checkpoint, looks for that file, and then for no other snapshot",
        ),
    ],
)
def test_an_odd_file(tmp_path: Path, name: str, content: str, found: str) -> None:
    directory = tmp_path / METADATA_DIRECTORY
    directory.mkdir()
    (directory / name).write_text(content)
    [obstacle] = obstacles_of_raft(tmp_path, metadata_is_read=False)
    assert (obstacle.where, obstacle.found) == (directory / name, found)
