"""Partitions are verified as a whole: what Kafka wrote, what a broker left, what we built, and what was spoilt."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pytest
from click.testing import CliRunner

from kidxlib import formats, names
from kidxlib.audit import Verdict
from kidxlib.cli.main import kidx
from kidxlib.log_dir import CLEAN_SHUTDOWN_FILE
from kidxlib.recover import RecoverOptions
from kidxlib.reference import recover_reference
from kidxlib.show_audit import Kind, Row
from kidxlib.startup import Removal
from tests.conftest import Say
from tests.kidxlib import damages, golden
from tests.kidxlib.audits import audited
from tests.kidxlib.damages import Damage
from tests.kidxlib.golden import GoldenSegment


def _told(files: list[Row]) -> dict[str, tuple[str, str | None]]:
    """What is said of files that are not identical or whole, by name."""
    told = (row for row in files if not Verdict(row["verdict"]).is_well)
    return {Path(row["path"]).name: (row["verdict"], row["reason"]) for row in told}


def test_what_kafka_wrote_is_identical(golden_segments: list[GoldenSegment], tmp_path: Path, say: Say) -> None:
    """Indexes, transactions, snapshots and epochs of Kafka's recovery, and of a log that was cut by it."""
    counts = Counter[str]()
    for folder in sorted({segment.log.parent for segment in golden_segments}):
        segments = [segment for segment in golden_segments if segment.log.parent == folder]
        written = tmp_path / str(len(counts)) / folder.name
        shutil.rmtree(written, ignore_errors=True)
        written.mkdir(parents=True)
        for segment in segments:
            for suffix, content in (
                (names.OFFSET_INDEX_SUFFIX, segment.offset_index),
                (names.TIME_INDEX_SUFFIX, segment.time_index),
                (names.TRANSACTION_INDEX_SUFFIX, segment.transaction_index),
            ):
                if content is not None:
                    (written / names.segment_file(segment.base_offset, suffix)).write_bytes(content)
        (written / names.LEADER_EPOCH_CHECKPOINT).write_bytes(segments[0].leader_epoch_checkpoint)
        files = audited(folder, written.parent, segments[0].options)[Kind.FILE]
        side_files = [row for row in files if row["file"] != names.LOG_SUFFIX]
        assert not _told(side_files), folder
        counts.update(row["file"] for row in side_files)
    say(f"identical: {dict(counts)}")


def test_what_was_built_is_identical(tmp_path: Path) -> None:
    """An audit of a tree that was just written finds nothing, and it needs no place to write to."""
    built = CliRunner().invoke(
        kidx, ["build", str(golden.SAMPLES), "--index-dir", str(tmp_path), "--snapshots", "--epochs"]
    )
    assert built.exit_code == 0
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    files = audited(golden.SAMPLES, tmp_path)[Kind.FILE]
    assert not _told(files) and len(files) > 40
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The partition that damages are made from, with all its side files."""
    log_dir = tmp_path_factory.mktemp("sound")
    folder = Path(shutil.copytree(golden.SAMPLES / "txn-mixed-0", log_dir / "txn-mixed-0"))
    built = CliRunner().invoke(kidx, ["build", str(log_dir), "--in-place", "--snapshots", "--epochs"])
    assert built.exit_code == 0
    return folder


@pytest.fixture
def tree(sound: Path, tmp_path: Path) -> Path:
    """A log dir with that partition, to be changed."""
    shutil.copytree(sound, tmp_path / "logs" / sound.name)
    return tmp_path / "logs"


@pytest.mark.parametrize("damage", damages.DAMAGES, ids=lambda damage: f"{damage.file.lstrip('0')}-{damage.name}")
def test_each_damage_has_its_verdict(damage: Damage, sound: Path, tmp_path: Path) -> None:
    """The file that is not as recovery writes it is told with verdict and reason, and no other file is."""
    folder = tmp_path / sound.name
    folder.mkdir()
    for file in sound.iterdir():
        (folder / file.name).hardlink_to(file)
    path = folder / damage.file
    content = damage.content(path.read_bytes() if path.exists() else b"", folder)
    path.unlink(missing_ok=True)  # not through the link
    if content is not None:
        path.write_bytes(content)
    files = audited(folder)[Kind.FILE]
    assert _told(files) == {damage.file: (damage.verdict, damage.reason)}
    assert all(row["consequence"] for row in files if row["reason"] is not None)


def _verify(*arguments: object, code: int) -> dict[str, Any]:
    """The JSON object of `kidx verify`."""
    result = CliRunner().invoke(kidx, ["verify", "--json", *map(str, arguments)], standalone_mode=False)
    assert result.return_value == code, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_the_command_tells_what_is_spoilt(tree: Path) -> None:
    """Several damages, on screen and as JSON, with the exit codes that --fail-on asks for."""
    partition = tree / "txn-mixed-0"
    second, third = (partition / names.segment_file(offset, names.OFFSET_INDEX_SUFFIX) for offset in (84, 5797))
    os.truncate(second, 8)
    rows = {kind.value: rows for kind, rows in audited(tree).items() if kind is not Kind.NOT_READY}
    found = _verify(tree, code=0)
    for each in [row for of_kind in rows.values() for row in of_kind]:
        each["source"] = str(tree)
    rows["files"].sort(key=lambda row: (row["base_offset"], row["file"]))
    assert {name: found[name] for name in rows} == rows
    assert _told(found["files"]) == {second.name: ("safe", "other-spacing")}
    assert _verify(tree, "--fail-on", "safe", code=3) == found
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
    log = tree / "txn-mixed-0" / names.segment_file(84, names.LOG_SUFFIX)
    log.unlink()
    log.mkdir()
    found = _told(audited(tree)[Kind.FILE])
    assert found.pop(log.name) == ("broken", "cannot-read")
    assert all(verdict == "safe" for verdict, _ in found.values()), found


def _actions(segments: list[Row]) -> dict[int, tuple[str, int, int | None]]:
    """By base offset, what a broker would do, and what it would read and lose."""
    return {row["base_offset"]: (row["action"], row["read_bytes"], row["lost_records"]) for row in segments}


def test_the_next_start_goes_by_the_log_dir(tree: Path) -> None:
    """After an unclean stop the segment with the recovery point is read, and what is behind it; after a clean one none.

    A checkpoint that cannot be read says 0, as to a broker.
    """
    size = (tree / "txn-mixed-0" / names.segment_file(5891, names.LOG_SUFFIX)).stat().st_size
    loaded = dict.fromkeys((0, 84, 5797), ("load", 0, 0))
    (tree / names.RECOVERY_POINT_CHECKPOINT).write_text("0\n1\ntxn-mixed 0 6000\n")
    found = _verify(tree, "--start-rate", size, code=0)
    assert _actions(found["startup"]) == {**loaded, 5891: ("rebuild", size, 0)}
    assert (found["start_bytes"], found["start_seconds"]) == (size, 1)
    [partition] = found["partitions"]
    assert not partition["clean_shutdown"]
    assert (partition["log_start_offset"], partition["log_end_offset"]) == (0, 10333)
    (tree / CLEAN_SHUTDOWN_FILE).touch()
    assert _actions(audited(tree)[Kind.SEGMENT]) == {**loaded, 5891: ("load", 0, 0)}
    unclean = _actions(audited(tree, clean_shutdown=False)[Kind.SEGMENT])
    assert unclean == {**loaded, 5891: ("rebuild", size, 0)}
    (tree / names.RECOVERY_POINT_CHECKPOINT).write_text("0\n1\nno offset\n")
    unclean = _actions(audited(tree, clean_shutdown=False)[Kind.SEGMENT])
    assert {action for action, *_ in unclean.values()} == {"rebuild"}


def test_what_a_start_would_cost_is_told(tree: Path) -> None:
    """A flipped bit cuts a segment and takes the later ones with it; files that belong to nothing would go."""
    folder = tree / "txn-mixed-0"
    records = {base_offset: valid[0] for base_offset, valid in _valid(folder).items()}
    log = folder / names.segment_file(84, names.LOG_SUFFIX)
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    kept_records, kept_bytes = _valid(folder)[84]
    (folder / names.segment_file(9000, names.TIME_INDEX_SUFFIX)).touch()
    (folder / f"{names.segment_file(0, names.LOG_SUFFIX)}{names.DELETED_SUFFIX}").touch()
    rows = audited(tree)
    found = {offset: (action, lost) for offset, (action, _, lost) in _actions(rows[Kind.SEGMENT]).items()}
    assert found == {
        0: ("rebuild", 0),
        84: ("truncate", records[84] - kept_records),
        5797: ("delete", records[5797]),
        5891: ("delete", records[5891]),
    }
    assert [row["lost_bytes"] for row in rows[Kind.SEGMENT]][:2] == [0, len(data) - kept_bytes]
    [partition] = rows[Kind.PARTITION]
    assert {each["file"].partition(".")[2]: each["why"] for each in partition["removed"]} == {
        "timeindex": Removal.ORPHAN.value,
        "log.deleted": Removal.DELETED.value,
    }
    shown = CliRunner().invoke(kidx, ["verify", str(tree)]).stdout
    lost = f"{len(data) - kept_bytes:,} of {len(data):,} bytes, {records[84] - kept_records:,} records"
    assert f"truncate: txn-mixed-0 84: {lost}\n  crc-mismatch at byte {kept_bytes}: " in shown
    assert "removed: 1 × an index without a log" in shown


def _valid(folder: Path) -> dict[int, tuple[int, int]]:
    """By base offset, how many records and bytes are valid, found in plain Python."""
    found = {}
    for log in sorted(folder.glob("*.log")):
        valid = recover_reference(log.read_bytes(), int(log.stem), RecoverOptions()).valid
        sizes = (batch.header["batch_length"] + formats.LOG_OVERHEAD for batch in valid)
        found[int(log.stem)] = sum(batch.header["records_count"] for batch in valid), sum(sizes)
    return found


def test_the_gate_of_tiering(tree: Path) -> None:
    """All inactive segments pass; without a snapshot at the next base offset, a sound index or an epoch they do not."""
    folder = tree / "txn-mixed-0"
    assert _verify(tree, "--gate", "tiering", code=0)["not_ready"] == []
    (folder / names.segment_file(5797, names.SNAPSHOT_SUFFIX)).unlink()
    spoilt = folder / names.segment_file(5891, names.SNAPSHOT_SUFFIX)
    spoilt.write_bytes(spoilt.read_bytes()[:-1])
    (folder / names.segment_file(0, names.TIME_INDEX_SUFFIX)).unlink()
    os.truncate(folder / names.segment_file(5891, names.TIME_INDEX_SUFFIX), 0)  # of the active one, which stays
    found = audited(tree, tiering=True)[Kind.NOT_READY]
    assert {each["base_offset"]: each["missing"] for each in found} == {
        0: [".timeindex is missing"],
        84: [".snapshot at 5797 is missing"],
        5797: [".snapshot at 5891 is broken: unreadable"],
    }
    (folder / names.LEADER_EPOCH_CHECKPOINT).write_text("0\n1\n0 90\n")
    found = _verify(tree, "--gate", "tiering", code=3)["not_ready"]
    assert "leader-epoch-checkpoint has no epoch before 84" in found[0]["missing"]
    assert len(found[1]["missing"]) == 1, "it began within the second one"


def test_records_are_read_when_asked(tree: Path) -> None:
    """A batch whose checksum fits and whose records do not passes, but not with --deep-iteration."""
    log = tree / "txn-mixed-0" / names.segment_file(5797, names.LOG_SUFFIX)
    data = bytearray(log.read_bytes())
    count = formats.field_position(formats.BATCH_V2, "records_count")
    data[count : count + 4] = (99).to_bytes(4)
    crc, covered = (formats.field_position(formats.BATCH_V2, field) for field in ("crc", "attributes"))
    size = formats.LOG_OVERHEAD + int.from_bytes(data[8:12])
    data[crc : crc + 4] = int(google_crc32c.value(bytes(data[covered:size]))).to_bytes(4)
    log.write_bytes(data)
    assert not _told(audited(tree)[Kind.FILE])
    files = _verify(tree, "--deep-iteration", code=3)["files"]
    logs = {each["base_offset"]: each for each in files if each["file"] == names.LOG_SUFFIX}
    assert len(logs) == 4
    assert (logs[5797]["reason"], logs[5797]["position"], logs[5797]["path"]) == ("malformed-records", 0, str(log))


@pytest.mark.parametrize("in_place", [True, False], ids=["in-place", "mirror"])
def test_a_repair_writes_what_is_broken_and_nothing_else(tree: Path, tmp_path: Path, in_place: bool) -> None:
    """Broken files are as before, to the byte; files that are safe or identical keep their bytes and their times."""
    folder, where = tree / "txn-mixed-0", ["--in-place"]
    if not in_place:
        mirror = tmp_path / "mirror"
        folder, where = mirror / "txn-mixed-0", ["--index-dir", str(mirror)]
        built = CliRunner().invoke(kidx, ["build", str(tree), *where, "--snapshots", "--epochs"])
        assert built.exit_code == 0
    sound = {path.name: path.read_bytes() for path in folder.iterdir()}
    broken = [
        names.segment_file(84, names.TIME_INDEX_SUFFIX),
        names.segment_file(84, names.TRANSACTION_INDEX_SUFFIX),
        names.segment_file(5797, names.OFFSET_INDEX_SUFFIX),
        names.segment_file(5891, names.SNAPSHOT_SUFFIX),
        names.LEADER_EPOCH_CHECKPOINT,
    ]
    for name in broken[:4]:
        os.truncate(folder / name, len(sound[name]) - 7)
    (folder / broken[4]).write_text("0\n1\n0 5\n")
    sparse = names.segment_file(84, names.OFFSET_INDEX_SUFFIX)
    os.truncate(folder / sparse, 80)
    of_follower = names.segment_file(5891, names.TRANSACTION_INDEX_SUFFIX)
    entries = np.frombuffer(sound[of_follower], formats.ABORTED_TRANSACTION).copy()
    entries["last_stable_offset"][0] -= 1
    (folder / of_follower).write_bytes(entries.tobytes())
    before = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()}
    repaired = CliRunner().invoke(kidx, ["build", str(tree), *where, "--repair", "--json"], standalone_mode=False)
    assert repaired.return_value == 0, repaired.output
    assert json.loads(repaired.stdout)["broken"] == sorted(f"txn-mixed-0/{name}" for name in broken)
    after = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()}
    assert after.keys() == sound.keys()
    for name, (content, _) in after.items():
        assert content == sound[name] if name in broken else after[name] == before[name], name
    files = audited(tree, None if in_place else folder.parent)[Kind.FILE]
    assert _told(files) == {sparse: ("safe", "other-spacing"), of_follower: ("safe", "other-last-stable-offset")}
