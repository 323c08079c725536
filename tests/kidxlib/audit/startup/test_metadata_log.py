"""Odd files of a copy of the cluster's metadata are obstacles, and end no look at it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kidxlib.audit.startup.metadata_log import obstacles_of_raft
from kidxlib.format.kafka_release import NodeRelease
from kidxlib.log.metadata_replica import METADATA_DIRECTORY, QUORUM_STATE
from kidxlib.storage.log_dir import META_PROPERTIES
from tests.docs.log_dirs import put
from tests.support.audits import verified
from tests.support.logs.batches import Batch


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
    [obstacle] = obstacles_of_raft(tmp_path, NodeRelease(), metadata_is_read=False)
    assert (obstacle.where, obstacle.found) == (directory / name, found)


def test_what_is_wrong_with_folders_is_said_once_and_not_of_each_partition(tmp_path: Path) -> None:
    """Else rows and tasks grow with the square of such folders."""
    (tmp_path / META_PROPERTIES).write_text("version=1\nnode.id=1\ncluster.id=c\n")
    for number in range(3):
        put(tmp_path / f"orders-{number}", 0, [Batch()])
    found = verified(tmp_path, "--this-dir-alone", code=3)
    said = [line.split("; ")[0] for line in found["log_dir_failures"]]
    assert said == [f"{tmp_path}/orders-{number}: no partition.metadata" for number in range(3)]
    assert [row["failure"] for row in found["partitions"]] == [None] * 3
