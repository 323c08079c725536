"""What is not ready for tiered storage is reported."""

from __future__ import annotations

import os
from pathlib import Path

from kidxlib.format import checkpoint_files, segment_files
from tests.support.audits import audited, verified


def test_the_gate_of_tiering(tree: Path) -> None:
    """All inactive segments pass; without a snapshot at the next base offset, a sound index or an epoch they do not."""
    directory = tree / "txn-mixed-0"
    assert verified(tree, "--require-tiering", code=0)["not_ready"] == []
    (directory / segment_files.segment_file(5797, segment_files.SNAPSHOT_SUFFIX)).unlink()
    spoilt = directory / segment_files.segment_file(5891, segment_files.SNAPSHOT_SUFFIX)
    spoilt.write_bytes(spoilt.read_bytes()[:-1])
    (directory / segment_files.segment_file(0, segment_files.TIME_INDEX_SUFFIX)).unlink()
    os.truncate(
        directory / segment_files.segment_file(5891, segment_files.TIME_INDEX_SUFFIX), 0
    )  # of the active one, which stays
    found = audited(tree, tiering=True).not_ready
    assert {each.base_offset: each.missing for each in found} == {
        0: [".timeindex is missing"],
        84: [".snapshot at 5797 is missing"],
        5797: [".snapshot at 5891 is broken: unreadable"],
    }
    (directory / checkpoint_files.LEADER_EPOCH_CHECKPOINT).write_text("0\n1\n0 90\n")
    found = verified(tree, "--require-tiering", code=3)["not_ready"]
    assert "leader-epoch-checkpoint has no epoch before 84" in found[0]["missing"]
    assert len(found[1]["missing"]) == 1, "it began within the second one"
