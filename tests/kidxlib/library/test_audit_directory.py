"""A directory is audited by one call: the findings of `kidx verify`, with the start-up simulation of each partition."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kidxlib.audit.finding import Verdict
from kidxlib.audit.startup.simulation import StartupAction
from kidxlib.errors import UsageError
from kidxlib.format.checkpoint_files import RECOVERY_POINT_CHECKPOINT
from kidxlib.format.segment_files import OFFSET_INDEX_SUFFIX, segment_file
from kidxlib.library.audit_directory import AuditedDirectory, audit_directory
from kidxlib.library.recover_directory import recover_directory
from tests.support.audits import audited
from tests.support.files import flip
from tests.support.logs.golden import SAMPLES


@pytest.fixture(scope="module")
def index_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("index")
    recover_directory(SAMPLES, directory, snapshots=True, epochs=True)
    return directory


def _files(found: AuditedDirectory) -> list[tuple[object, ...]]:
    return [
        (
            partition.topic_partition.topic,
            each.base_offset,
            each.finding.file,
            each.finding.verdict.value,
            each.finding.reason,
        )
        for partition in found.partitions
        for each in partition.findings
    ]


def test_what_was_just_built_is_problem_free(index_dir: Path) -> None:
    found = audit_directory(SAMPLES, index_dir, tiering=True)
    assert found.worst.is_problem_free and all(partition.worst.is_problem_free for partition in found.partitions)
    assert found.notes == ()
    assert [partition.not_ready for partition in found.partitions] == [()] * 5
    assert {segment.action for partition in found.partitions for segment in partition.simulation.segments} == {
        StartupAction.REBUILD
    }, "no index is beside the logs"


def test_damage_is_found_as_kidx_verify_finds_it(index_dir: Path, tmp_path: Path) -> None:
    """Each finding, in an order of its own: by partition, segment and file."""
    shutil.copytree(index_dir, tmp_path / "index")
    index = tmp_path / "index" / "txn-mixed-0" / segment_file(84, OFFSET_INDEX_SUFFIX)
    flip(index, 100, bits=0xFF)
    found = audit_directory(str(SAMPLES), str(tmp_path / "index"), deep=True)
    assert found.worst is Verdict.BROKEN
    assert [partition.worst is Verdict.BROKEN for partition in found.partitions] == [False] * 4 + [True]
    rows = audited(SAMPLES, tmp_path / "index", deep=True).files
    assert sorted(map(repr, _files(found))) == sorted(
        repr((row.topic, row.base_offset, row.file, row.verdict, row.reason)) for row in rows
    )
    mixed = found.partitions[-1]
    assert (mixed.directory, mixed.index_directory) == (str(SAMPLES / "txn-mixed-0"), str(index.parent))
    assert [*mixed.findings] == sorted(mixed.findings, key=lambda each: (each.base_offset, each.finding.file))
    assert mixed.not_ready is None


def test_a_partition_of_which_only_a_checkpoint_tells(tmp_path: Path) -> None:
    shutil.copytree(SAMPLES / "append-time-0", tmp_path / "append-time-0")
    (tmp_path / RECOVERY_POINT_CHECKPOINT).write_text("0\n1\nlost 3 500\n")
    found = audit_directory(tmp_path)
    assert [partition.topic_partition.directory for partition in found.partitions] == ["append-time-0", "lost-3"]
    lost = found.partitions[1]
    assert any("no segment is there, though" in failure for failure in lost.simulation.failures)
    assert audit_directory(tmp_path, topics="append-.*").partitions[0].topic_partition.topic == "append-time"


def test_how_the_broker_stopped_can_be_said(tmp_path: Path) -> None:
    """After a clean stop no segment is read again."""
    shutil.copytree(SAMPLES / "txn-mixed-0", tmp_path / "txn-mixed-0")
    recover_directory(tmp_path, tmp_path.parent / "index-of-it")
    for path in (tmp_path.parent / "index-of-it").glob("*/*"):
        shutil.copy(path, tmp_path / "txn-mixed-0")
    actions = [
        {
            segment.action
            for segment in audit_directory(tmp_path, clean_shutdown=clean).partitions[0].simulation.segments
        }
        for clean in (True, False)
    ]
    assert actions == [{StartupAction.LOAD}, {StartupAction.REBUILD}]


def test_wrong_directories_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no/such: No such file or directory"):
        audit_directory("no/such")
    with pytest.raises(UsageError, match="no such directory; expected an index directory"):
        audit_directory(SAMPLES, tmp_path / "index")
    with pytest.raises(UsageError, match="no partition directory"):
        audit_directory(tmp_path)
    with pytest.raises(UsageError, match=r"^topics \(: not a regular expression"):
        audit_directory(SAMPLES, topics="(")
    (tmp_path / "loop-0").symlink_to("loop-0")
    with pytest.raises(
        UsageError, match="loop-0: cannot be listed: Too many levels of symbolic links; leave its topic"
    ):
        audit_directory(tmp_path)
