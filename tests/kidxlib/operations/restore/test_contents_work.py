"""Logs are read two at a time, and what consumers of committed records get is right with and without transactions."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path
from typing import Any, Final

import pytest

from kidxlib.format.checkpoint_files import LOG_DIR_CHECKPOINTS
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.operations.restore.contents_work import RestoredLog, read_logs
from kidxlib.storage import small_files
from tests.faults.processes import kidx
from tests.support.cluster_metadata import write_checkpoints
from tests.support.logs.transactions import Written, random_transactions
from tests.support.restored import formatted_log_dir, id_of, killed_log_dir, write_properties

_LOGS: Final = [RestoredLog(topic_partition=TopicPartition("t", 0), number=number) for number in range(10)]


def test_no_log_is_begun_after_an_interruption() -> None:
    """What was begun is finished."""
    is_stopped = False
    read = read_logs(itertools.takewhile(lambda _: not is_stopped, _LOGS))
    numbers = [next(read).rows[0]["contents"]["number"]]
    is_stopped = True
    numbers += [row["contents"]["number"] for done in read for row in done.rows]
    assert sorted(numbers) == [0, 1]


def test_all_logs_are_read() -> None:
    assert sorted(done.rows[0]["contents"]["number"] for done in read_logs(_LOGS)) == list(range(10))


@pytest.mark.parametrize("has_transactions", [False, True])
def test_no_checkpoint_of_the_log_dir_is_read_for_each_partition(
    has_transactions: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has an entry for every partition: to read 4,000 small ones took a minute."""
    log_dir, met = killed_log_dir(tmp_path, 1), list[str]()
    read_checkpoint = small_files._read_checkpoint

    def reading(path: Path, *arguments: Any) -> object:
        met.append(path.name)
        return read_checkpoint(path, *arguments)

    monkeypatch.setattr(small_files, "_read_checkpoint", reading)
    log = RestoredLog(
        topic_partition=TopicPartition("txn-mixed", 0),
        log_dir=log_dir,
        end_offset=10_000,
        has_transactions=has_transactions,
    )
    [done] = read_logs([log])
    assert done.rows[0]["contents"]["uncommitted"]["records"] > 1_000
    assert not {*met} & {*LOG_DIR_CHECKPOINTS}


def _without_transactions() -> Written:
    written = Written()
    for _ in range(4):
        written.data(None, 3)
    return written


def _with_one(*, aborts: bool | None) -> Written:
    """A transaction begins between records of nobody, and ends so; None: it is open."""
    written = _without_transactions()
    written.data(0, 2)
    written.data(None, 2)
    if aborts is not None:
        written.marker(0, aborts=aborts)
        written.data(None, 1)
    return written


_KINDS: Final = {
    "aborted": _with_one(aborts=True),
    "committed": _with_one(aborts=False),
    "none": _without_transactions(),
    "open": _with_one(aborts=None),
    **{f"random{seed}": random_transactions(random.Random(seed), 30) for seed in range(4)},
}


@pytest.mark.parametrize("ends", [False, True])
def test_committed_records_are_those_of_transactions_that_were_committed(tmp_path: Path, ends: bool) -> None:
    """Also where a log ends earlier: a transaction is not known then by its marker, or not at all."""
    old, new = tmp_path / "old1", formatted_log_dir(tmp_path, 1)
    old.mkdir()
    write_properties(old, 1, "old")
    for name, written in _KINDS.items():
        written.write(old / f"{name}-0", {5})
        (old / f"{name}-0" / "partition.metadata").write_text(f"version: 0\ntopic_id: {id_of(name)}\n")
    write_checkpoints(old)
    options: list[str] = []
    if ends:
        partitions = [{"topic": name, "partition": 0, "offset": 14} for name in _KINDS]
        (tmp_path / "until.json").write_text(json.dumps({"partitions": partitions, "version": 1}))
        options = ["--until-offsets", str(tmp_path / "until.json")]
    arguments = ["restore", str(old), "--broker", f"1={new}", "--controller", str(new), "--json", *options]
    applied = kidx(*arguments, "--apply", kidx(*arguments).json["plan"])
    assert applied.json["applied"], applied.json["refused"]
    contents = {each["partition"].removesuffix("-0"): each for each in applied.json["contents"]}
    assert contents.keys() == _KINDS.keys()
    for name, written in _KINDS.items():
        end = contents[name]["end_offset"]
        expected = len([offset for offset in written.fates if offset < end]), len(written.committed(end))
        found = tuple(contents[name][level]["records"] for level in ("uncommitted", "committed"))
        assert found == expected, name
