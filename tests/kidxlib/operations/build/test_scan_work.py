"""Rows of scanned segments: those that are read many in one pass, and those that are read alone."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kidxlib.catalog.results import SCANNED
from kidxlib.indexing import segments
from kidxlib.indexing.plan import BuildTask
from kidxlib.indexing.source import source_at
from kidxlib.operations.build.scan_work import scan_segments
from kidxlib.recovery.recover import scan_logs
from kidxlib.storage import opened_log
from kidxlib.storage.opened_log import SMALL_BYTES
from tests.support.files import tree
from tests.support.logs.batches import Batch, encode
from tests.support.logs.golden import DATA, SAMPLES
from tests.support.plans import plan_of

#: More epochs and events than there is room for at first, epochs that go back, more hours than are told apart.
_MANY = b"".join(
    encode(
        100,
        [
            Batch(
                timestamp=number * 3_600_000, leader_epoch=number % 7 + number // 9, producer_id=number, base_sequence=0
            )
            for number in range(600)
        ],
    )
)


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """Logs of all kinds, damaged and empty ones among them, one that leads nowhere, and a directory."""
    place = tmp_path / "log-dir"
    for directory in (*(DATA / "logs").iterdir(), *SAMPLES.iterdir()):
        if directory.is_dir():
            (place / directory.name).mkdir(parents=True, exist_ok=True)
            for log in directory.glob("*.log"):
                (place / directory.name / log.name).write_bytes(log.read_bytes())
    odd = place / "odd-0"
    odd.mkdir()
    for base_offset, content in enumerate((b"", _MANY, _MANY[:-1], _MANY[:-1] + b"x", bytes(100), _MANY)):
        (odd / f"{base_offset:020}.log").write_bytes(content)
    (odd / f"{200:020}.log").write_bytes(_MANY)  # its offsets begin at 100
    (odd / f"{7:020}.log").symlink_to(tmp_path / "nowhere")
    return place


def _tasks(log_dir: Path, index_dir: Path) -> list[BuildTask]:
    return plan_of([source_at(str(log_dir), "s")], index_dir).build_tasks(publish_truncated=False)


def _rows(tasks: list[BuildTask], *, use_mmap: bool) -> dict[str, list[dict[str, Any]]]:
    tables = []
    for done in scan_segments(tasks, use_mmap):
        tables += [pa.Table.from_batches([batch]) for batch in done.batches]
        tables.append(pa.Table.from_pylist(list(done.rows), SCANNED))
    rows = pa.concat_tables(tables).to_pylist()
    of_kinds = {kind: [row[kind] for row in rows if row[kind] is not None] for kind in SCANNED.names}
    for events in of_kinds.values():
        events.sort(key=lambda row: (row["topic"], row["base_offset"], row.get("position", 0)))
    return of_kinds


@pytest.mark.parametrize("use_mmap", [True, False])
def test_many_in_one_pass_are_as_each_alone(
    log_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, use_mmap: bool
) -> None:
    """The same rows and the same files, whatever the logs hold, and where they cannot be read."""
    index_dir = tmp_path / "index"
    together = _rows(_tasks(log_dir, index_dir), use_mmap=use_mmap)
    files = tree(index_dir)
    assert len(together["segment"]) > 20 and len(together["event"]) > 1000 and len(files) > 20
    index_dir.rename(tmp_path / "together")
    monkeypatch.setattr(segments, "_pass_of", lambda task: None)
    assert _rows(_tasks(log_dir, index_dir), use_mmap=use_mmap) == together
    assert tree(index_dir) == files
    assert {row["status"] for row in together["segment"]} >= {"ok", "truncated", "quarantined", "unreadable"}


def test_what_happens_to_one_of_many_is_told_of_that_one(
    log_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log that is mapped grows while it is scanned, one is gone by then, and one is no longer small."""
    monkeypatch.setattr(opened_log, "_CACHESTAT", -1)  # the kernel does not tell what is in memory
    tasks = _tasks(log_dir, tmp_path / "index")
    expected = {row["log_path"]: row for row in _rows(tasks, use_mmap=True)["segment"]}
    grows, gone, large = [task.segment.path for task in tasks if task.segment.topic_partition.topic == "odd"][1:4]
    scan = scan_logs

    def while_scanned(*arguments: Any) -> Any:
        scanned = scan(*arguments)
        with open(grows, "ab") as file:
            file.write(b"appended")
        return scanned

    monkeypatch.setattr(segments, "scan_logs", while_scanned)
    os.unlink(gone)
    with open(large, "ab") as file:
        file.truncate(2 * SMALL_BYTES)
    rows = {row["log_path"]: row for row in _rows(tasks, use_mmap=True)["segment"]}
    assert rows.pop(grows)["status"] == "changed"
    assert rows.pop(gone)["status"] == "gone"
    assert rows.pop(large)["log_bytes"] == 2 * SMALL_BYTES
    for path, row in rows.items():
        assert row == {**expected[path], "published": row["published"]}
