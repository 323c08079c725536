"""Partitions are verified as a whole: what Kafka wrote, what a broker left, what we built, and what was spoilt."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from kidxlib.audit.rows import RowKind
from kidxlib.catalog.findings import FileFinding
from kidxlib.cli.main import kidx
from kidxlib.format import checkpoint_files, layouts, segment_files
from kidxlib.storage.log_dir import CLEAN_SHUTDOWN_FILE
from tests.conftest import Say
from tests.support.audits import audited, problems_of, verified
from tests.support.damages import all_files
from tests.support.damages.damage import Damage
from tests.support.logs import golden
from tests.support.logs.golden import GoldenSegment


def test_what_kafka_wrote_is_identical(golden_segments: list[GoldenSegment], tmp_path: Path, say: Say) -> None:
    """Indexes, transactions, snapshots and epochs of Kafka's recovery, and of a log that was truncated by it."""
    counts = Counter[str]()
    for number, options in enumerate({segment.options: None for segment in golden_segments}):
        logs, indexes = tmp_path / f"logs-{number}", tmp_path / f"indexes-{number}"
        for segment in golden_segments:
            if segment.options != options:
                continue
            written = indexes / segment.log.parent.name
            written.mkdir(parents=True, exist_ok=True)
            (logs / written.name).mkdir(parents=True, exist_ok=True)
            (logs / written.name / segment.log.name).symlink_to(segment.log)
            for name, content in segment.indexes.items():
                (written / name).write_bytes(content)
            (written / checkpoint_files.LEADER_EPOCH_CHECKPOINT).write_bytes(segment.leader_epoch_checkpoint)
        files = audited(logs, indexes, options).files
        auxiliary_files = [row for row in files if row.file != segment_files.LOG_SUFFIX]
        assert not problems_of(auxiliary_files), options
        counts.update(row.file for row in auxiliary_files)
    say(f"identical: {dict(counts)}")


def test_what_was_built_is_identical(tmp_path: Path) -> None:
    """An audit of a tree that was just written finds nothing, and it needs no place to write to."""
    built = CliRunner().invoke(
        kidx, ["build", str(golden.SAMPLES), "--index-dir", str(tmp_path), "--snapshots", "--epochs"]
    )
    assert built.exit_code == 0
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    files = audited(golden.SAMPLES, tmp_path).files
    assert not problems_of(files) and len(files) > 40
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


@pytest.fixture(scope="module")
def of_damages(sound: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[FileFinding]]:
    """What one audit finds of a log dir with a partition for each damage, of its number."""
    log_dir = tmp_path_factory.mktemp("damaged")
    for number, damage in enumerate(all_files.DAMAGES):
        directory = log_dir / f"txn-mixed-{number}"
        directory.mkdir()
        for file in sound.iterdir():
            (directory / file.name).hardlink_to(file)
        path = directory / damage.file
        content = damage.content(path.read_bytes() if path.exists() else b"", directory)
        path.unlink(missing_ok=True)  # not through the link
        if content is not None:
            path.write_bytes(content)
    found: dict[int, list[FileFinding]] = {}
    for row in audited(log_dir).files:
        found.setdefault(row.partition, []).append(row)
    return found


@pytest.mark.parametrize(
    ("number", "damage"),
    [*enumerate(all_files.DAMAGES)],
    ids=[f"{damage.file.lstrip('0')}-{damage.name}" for damage in all_files.DAMAGES],
)
def test_each_damage_has_its_verdict(number: int, damage: Damage, of_damages: dict[int, list[FileFinding]]) -> None:
    """The file that is not as recovery writes it is reported with verdict and reason, and no other file is."""
    files = of_damages[number]
    assert problems_of(files) == damage.problems
    assert all(row.consequence for row in files if row.reason is not None)


def test_the_command_tells_what_is_spoilt(tree: Path) -> None:
    """Several damages, on screen and as JSON, with the exit codes that --fail-on asks for."""
    partition = tree / "txn-mixed-0"
    second, third = (
        partition / segment_files.segment_file(offset, segment_files.OFFSET_INDEX_SUFFIX) for offset in (84, 5797)
    )
    os.truncate(second, 8)
    rows = audited(tree)
    expected = {
        kind.value: [{**row.values(), "source": str(tree)} for row in of_kind]
        for kind, of_kind in rows.by_kind().items()
        if kind is not RowKind.NOT_READY
    }
    found = verified(tree, code=0)
    assert {name: found[name] for name in expected} == expected
    assert problems_of(rows.files) == {second.name: ("safe", "other-spacing")}
    assert verified(tree, "--fail-on", "safe", code=3) == found
    third.unlink()
    result = CliRunner().invoke(kidx, ["verify", str(tree)], standalone_mode=False)
    assert result.return_value == 3
    lines = result.stdout.splitlines()
    [broken] = [number for number, line in enumerate(lines) if line.startswith("broken: ")]
    assert lines[broken] == "broken: txn-mixed-0 5797 .index: missing: no such file"
    assert lines[broken + 2].startswith(
        "safe: txn-mixed-0 84 .index: other-spacing: 1 entries, recovery writes 214; entry 1 would be "
    )


def test_a_log_that_cannot_be_read_is_a_finding(tree: Path) -> None:
    """The other segments are looked at all the same; what depends on it is not known any more."""
    log = tree / "txn-mixed-0" / segment_files.segment_file(84, segment_files.LOG_SUFFIX)
    log.unlink()
    log.mkdir()
    found = problems_of(audited(tree).files)
    assert found.pop(log.name) == ("broken", "cannot-read")
    assert all(verdict == "safe" for verdict, _ in found.values()), found


@pytest.mark.parametrize("in_place", [True, False], ids=["in-place", "index-dir"])
def test_a_repair_writes_what_is_broken_and_nothing_else(tree: Path, tmp_path: Path, in_place: bool) -> None:
    """Broken files are as before, to the byte; files that are safe or identical keep their bytes and their times."""
    directory, where = tree / "txn-mixed-0", ["--in-place"]
    if not in_place:
        index_dir = tmp_path / "indexes"
        directory, where = index_dir / "txn-mixed-0", ["--index-dir", str(index_dir)]
        built = CliRunner().invoke(kidx, ["build", str(tree), *where, "--snapshots", "--epochs"])
        assert built.exit_code == 0
    sound = {path.name: path.read_bytes() for path in directory.iterdir()}
    broken = [
        segment_files.segment_file(84, segment_files.TIME_INDEX_SUFFIX),
        segment_files.segment_file(84, segment_files.TRANSACTION_INDEX_SUFFIX),
        segment_files.segment_file(5797, segment_files.OFFSET_INDEX_SUFFIX),
        segment_files.segment_file(5891, segment_files.SNAPSHOT_SUFFIX),
        checkpoint_files.LEADER_EPOCH_CHECKPOINT,
    ]
    for name in broken[:4]:
        os.truncate(directory / name, len(sound[name]) - 7)
    (directory / broken[4]).write_text("0\n1\n1 5\n")
    sparse = segment_files.segment_file(84, segment_files.OFFSET_INDEX_SUFFIX)
    os.truncate(directory / sparse, 80)
    of_follower = segment_files.segment_file(5891, segment_files.TRANSACTION_INDEX_SUFFIX)
    entries = np.frombuffer(sound[of_follower], layouts.ABORTED_TRANSACTION).copy()
    entries["last_stable_offset"][0] -= 1
    (directory / of_follower).write_bytes(entries.tobytes())
    before = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in directory.iterdir()}
    repaired = CliRunner().invoke(kidx, ["build", str(tree), *where, "--repair", "--json"], standalone_mode=False)
    assert repaired.return_value == 0, repaired.output
    assert json.loads(repaired.stdout)["broken"] == sorted(f"txn-mixed-0/{name}" for name in broken)
    after = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in directory.iterdir()}
    assert after.keys() == sound.keys()
    for name, (content, _) in after.items():
        assert content == sound[name] if name in broken else after[name] == before[name], name
    files = audited(tree, None if in_place else directory.parent).files
    assert problems_of(files) == {sparse: ("safe", "other-spacing"), of_follower: ("safe", "other-last-stable-offset")}


def test_epochs_begin_where_records_were_deleted_amid_a_segment(tree: Path) -> None:
    """`DeleteRecords` cuts the epochs at the new log start, which its checkpoint has after a clean stop. Epochs that
    begin later are those of a later log start.
    """
    epochs = tree / "txn-mixed-0" / checkpoint_files.LEADER_EPOCH_CHECKPOINT
    assert epochs.read_text() == "0\n1\n0 0\n"
    (tree / CLEAN_SHUTDOWN_FILE).touch()
    for log_start, begins, problem in (
        (0, 0, {}),
        (40, 40, {}),
        (5_900, 5_900, {}),
        (40, 41, {epochs.name: ("safe", "later-log-start")}),
    ):
        line = f"txn-mixed 0 {log_start}\n" if log_start else ""
        starts = tree / checkpoint_files.LOG_START_OFFSET_CHECKPOINT
        starts.write_text(f"0\n{line.count('txn')}\n{line}")
        epochs.write_text(f"0\n1\n0 {begins}\n")
        assert problems_of(audited(tree).files) == problem, (log_start, begins)


def test_safe_files_of_one_reason_are_one_line(tree: Path) -> None:
    """More than three of them, with how many there are of each suffix; --list-safe and --json have each."""
    directory = tree / "txn-mixed-0"
    for number in (1, 2, 3):
        shutil.copytree(directory, tree / f"txn-mixed-{number}")
    for path in tree.glob(f"*/{5891:020d}.*index"):
        if path.suffix in (".index", ".timeindex"):
            os.truncate(path, 10_485_756 // 24 * 24)
    command = ["verify", str(tree)]
    lines = CliRunner().invoke(kidx, command, standalone_mode=False).stdout.splitlines()
    assert [line for line in lines if line.startswith("safe: ")] == [
        "safe: preallocated: 4 .index, 4 .timeindex (the first: txn-mixed-0 5891 .index)"
    ]
    assert not [line for line in lines if "more" in line and "--json" in line]
    listed = CliRunner().invoke(kidx, [*command, "--list-safe"], standalone_mode=False).stdout
    assert listed.count("safe: txn-mixed-") == 8
