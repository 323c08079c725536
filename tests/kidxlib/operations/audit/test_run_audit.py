"""Partitions are audited from the rows of their segments, however many of these are held at a time."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kidxlib.format.checkpoint_files import RECOVERY_POINT_CHECKPOINT
from kidxlib.operations.audit import run_audit
from kidxlib.operations.audit.run_audit import PartitionsToAudit, partitions_to_audit
from tests.support.audits import audited
from tests.support.logs import golden


@pytest.mark.parametrize("rows_max", [1, 50, 400])
def test_what_is_found_does_not_depend_on_how_much_is_read_at_once(
    rows_max: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of partitions with and without transactions, without segments, and without a directory."""
    log_dir = Path(shutil.copytree(golden.SAMPLES, tmp_path / "logs"))
    (log_dir / "empty-0").mkdir()
    (log_dir / RECOVERY_POINT_CHECKPOINT).write_text("0\n1\nnowhere 0 7\n")
    expected = audited(log_dir)
    shares: list[int] = []

    def counted(staged: Any, engine: Any, audits: Any) -> Iterator[PartitionsToAudit]:
        for share in partitions_to_audit(staged, engine, audits, rows_max):
            shares.append(len(share.audits))
            yield share

    monkeypatch.setattr(run_audit, "partitions_to_audit", counted)
    assert audited(log_dir) == expected
    assert sum(shares) == len(expected.partitions) == 7
    assert rows_max > 1 or max(shares) <= 2, "of few rows each"
