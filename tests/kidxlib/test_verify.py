"""Partitions are verified as a whole: what Kafka wrote, what a broker left, what we built, and what was spoilt."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner

from kidxlib import names
from kidxlib.audit import Finding, Verdict
from kidxlib.cli.main import kidx
from kidxlib.discover import source_at
from kidxlib.plan import Target, find_segments, parse_topics
from kidxlib.recover import RecoverOptions
from kidxlib.verify import audit_partition, audit_segment, partition_audits
from tests.conftest import Say
from tests.kidxlib import damages, golden
from tests.kidxlib.damages import Damage
from tests.kidxlib.golden import GoldenSegment


def _verified(folder: Path, mirror: Path, options: RecoverOptions) -> list[Finding]:
    """The findings on a partition whose side files are in `mirror`, in a folder of its name."""
    target = Target(index_dir=mirror, by_source=False, publish_truncated=False)
    plan = find_segments([source_at(str(folder))], parse_topics(".*"), target, lambda _: options)
    audits, _ = partition_audits(plan, lambda _: options, clean_shutdown=True, tiering=False)
    [audit] = audits.values()
    segments = [audit_segment(task, True, deep=False) for task in plan.tasks]
    found = [finding for segment in segments for finding in segment.findings]
    return found + [each.finding for each in audit_partition(audit, segments).findings]


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
        for found in _verified(folder, written.parent, segments[0].options):
            assert found.verdict is Verdict.IDENTICAL, (folder, found)
            counts[found.file] += 1
    say(f"identical: {dict(counts)}")


def test_what_was_built_is_identical(tmp_path: Path) -> None:
    """An audit of a tree that was just written finds nothing, and it needs no place to write to."""
    built = CliRunner().invoke(
        kidx, ["build", str(golden.SAMPLES), "--index-dir", str(tmp_path), "--snapshots", "--epochs"]
    )
    assert built.exit_code == 0
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    for folder in sorted(golden.SAMPLES.iterdir()):
        for found in _verified(folder, tmp_path, RecoverOptions()):
            assert found.verdict is Verdict.IDENTICAL, (folder, found)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A log dir with one partition and all its side files."""
    log_dir = tmp_path / "logs"
    shutil.copytree(golden.SAMPLES / "txn-mixed-0", log_dir / "txn-mixed-0")
    built = CliRunner().invoke(kidx, ["build", str(log_dir), "--in-place", "--snapshots", "--epochs"])
    assert built.exit_code == 0
    return log_dir


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The partition that damages are made from, with all its side files."""
    log_dir = tmp_path_factory.mktemp("sound")
    folder = Path(shutil.copytree(golden.SAMPLES / "txn-mixed-0", log_dir / "txn-mixed-0"))
    built = CliRunner().invoke(kidx, ["build", str(log_dir), "--in-place", "--snapshots", "--epochs"])
    assert built.exit_code == 0
    return folder


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
    found = [finding for finding in _verified(folder, tmp_path, RecoverOptions()) if finding.reason is not None]
    told = [(finding.verdict, finding.reason) for finding in found]
    assert (told, damage.file.endswith(found[0].file)) == ([(damage.verdict, damage.reason)], True), found
    assert all(finding.consequence for finding in found)


def _spoilt(tree: Path) -> dict[str, tuple[str, str | None]]:
    """What `kidx verify` says of files that are not identical, by name."""
    result = CliRunner().invoke(kidx, ["verify", str(tree), "--json", "--fail-on", "safe"], standalone_mode=False)
    files = json.loads(result.output)["files"]
    found = {
        f"{each['base_offset']}{each['file'] if each['file'][0] == '.' else ''}": (each["verdict"], each["reason"])
        for each in files
        if each["verdict"] != "identical"
    }
    assert (result.return_value != 0) == bool(found)
    return found


def test_spoilt_files_are_found(tree: Path) -> None:
    """One damage a file, in the sample's segments 0, 84, 5797 and 10332 (the active one)."""
    partition = tree / "txn-mixed-0"
    assert _spoilt(tree) == {}

    def file(base_offset: int, suffix: str) -> Path:
        return partition / names.segment_file(base_offset, suffix)

    bases = sorted(o for path in partition.iterdir() if (o := names.parse_segment_log(path.name)) is not None)
    first, second, third, active = bases
    file(first, names.OFFSET_INDEX_SUFFIX).unlink()
    file(first, names.TIME_INDEX_SUFFIX).unlink()
    os.truncate(file(second, names.OFFSET_INDEX_SUFFIX), 8)
    padded = file(third, names.TIME_INDEX_SUFFIX)
    padded.write_bytes(padded.read_bytes() + bytes(24))
    transactions = file(second, names.TRANSACTION_INDEX_SUFFIX)
    transactions.write_bytes(transactions.read_bytes()[34:])
    snapshot = file(third, names.SNAPSHOT_SUFFIX)
    snapshot.write_bytes(snapshot.read_bytes()[:-1] + b"\1")
    shutil.copy(file(second, names.SNAPSHOT_SUFFIX), file(second + 1, names.SNAPSHOT_SUFFIX))
    (partition / names.LEADER_EPOCH_CHECKPOINT).write_text("0\n1\n0 5\n")
    with file(active, names.LOG_SUFFIX).open("ab") as log:
        log.write(b"torn")
    assert _spoilt(tree) == {
        f"{first}.index": ("broken", "missing"),
        f"{first}.timeindex": ("broken", "missing"),
        f"{second}.index": ("safe", "other-spacing"),
        f"{third}.timeindex": ("broken", "fails-sanity-check"),
        f"{second}.txnindex": ("broken", "missing-transaction"),
        f"{third}.snapshot": ("broken", "unreadable"),
        f"{second + 1}.snapshot": ("safe", "stray"),
        f"{first}": ("broken", "wrong-start-offset"),
    }


def test_a_log_that_cannot_be_read_is_a_finding(tree: Path) -> None:
    """The other segments are looked at all the same; what depends on it is not known any more."""
    log = tree / "txn-mixed-0" / names.segment_file(84, names.LOG_SUFFIX)
    log.unlink()
    log.mkdir()
    found = _spoilt(tree)
    assert found.pop("84.log") == ("broken", "unreadable")
    assert all(verdict == "safe" for verdict, _ in found.values()), found
