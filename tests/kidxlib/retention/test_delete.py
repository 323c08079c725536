"""A retention plan applied to an archive: what it names goes, nothing else does, and a kill is no harm. It is decided
on again before anything is renamed: what has changed, or would not go now, stays.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from kidxlib.errors import UsageError
from kidxlib.format.checkpoint_files import LEADER_EPOCH_CHECKPOINT
from kidxlib.format.segment_files import AUXILIARY_SUFFIXES, LOG_SUFFIX, segment_file
from kidxlib.retention.delete import (
    DeletionOutcome,
    PartitionAsPlanned,
    PartitionDeletion,
    PlannedSegment,
    SegmentAsPlanned,
    SegmentResult,
    delete_planned_segments,
    log_dirs_of_deletions,
    reconsidered,
)
from kidxlib.retention.policy import TopicPolicy
from kidxlib.storage.location import Directory
from kidxlib.storage.lock import locked
from kidxlib.storage.publisher import is_staging
from kidxlib.storage.remover import Remover
from tests.conftest import Say
from tests.faults import children
from tests.faults.processes import Child, run_child

KILLS, KILLS_EXHAUSTIVE = 5, 100

#: Segments of each partition, and how many of them the plan names.
_BASE_OFFSETS: Final = (0, 10, 25, 40)
_NAMED: Final = {"a-0": 2, "b-0": 4, "c-0": 0}

#: Leader epochs before anything goes, and then by partition: those of the logs that are left, as Kafka cuts them.
_EPOCHS: Final = ("0\n2\n3 0\n5 26\n", {"a-0": "0\n2\n3 25\n5 26\n", "b-0": "0\n1\n5 40\n", "c-0": "0\n2\n3 0\n5 26\n"})

Tree = dict[str, tuple[bytes, int]]


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """`kafka-logs` with three partitions, `index` as their index directory, and what else a broker keeps there."""
    rng = random.Random(1)
    for name in _NAMED:
        for root in ("kafka-logs", "index"):
            directory = tmp_path / root / name
            directory.mkdir(parents=True)
            for base_offset in _BASE_OFFSETS:
                for suffix in (*((LOG_SUFFIX,) if root == "kafka-logs" else ()), *AUXILIARY_SUFFIXES):
                    (directory / segment_file(base_offset, suffix)).write_bytes(rng.randbytes(rng.randint(1, 99)))
        log_dir = tmp_path / "kafka-logs" / name
        (log_dir / "partition.metadata").write_text("version: 0\n")
        (log_dir / segment_file(7, ".log.deleted")).write_bytes(b"of a broker")
        (log_dir / segment_file(99, ".snapshot")).write_bytes(b"of the log's end")
        (log_dir / LEADER_EPOCH_CHECKPOINT).write_text(_EPOCHS[0])
    return tmp_path


def _plan(archive: Path) -> list[PartitionDeletion]:
    return [
        PartitionDeletion(
            ("it", name[0], 0),
            Directory(str(archive / "kafka-logs"), name),
            Directory(str(archive / "index"), name),
            tuple(_segment(archive, name, base_offset) for base_offset in _BASE_OFFSETS[:named]),
        )
        for name, named in _NAMED.items()
        if named
    ]


def _log(archive: Path, name: str, base_offset: int) -> Path:
    return archive / "kafka-logs" / name / segment_file(base_offset, LOG_SUFFIX)


def _segment(archive: Path, name: str, base_offset: int) -> PlannedSegment:
    status = _log(archive, name, base_offset).stat()
    return PlannedSegment(base_offset, status.st_size, status.st_mtime_ns)


def _tree(archive: Path) -> Tree:
    """All but leader epochs, and what of them is staged."""
    return {
        str(path.relative_to(archive)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in archive.rglob("*")
        if path.is_file() and path.name != ".lock" and LEADER_EPOCH_CHECKPOINT not in path.name
    }


def _epochs(archive: Path) -> dict[str, str]:
    return {name: (archive / "kafka-logs" / name / LEADER_EPOCH_CHECKPOINT).read_text() for name in _NAMED}


def _named(path: str) -> bool:
    """Whether the plan names the segment of a file, and that is not the last of its partition."""
    _, directory, name = path.split("/")
    of = _BASE_OFFSETS[: min(_NAMED[directory], 3)]
    return any(name.startswith(segment_file(base_offset, ".")) for base_offset in of)


def _reach_no_log(patch: pytest.MonkeyPatch, base_offset: int) -> None:
    """As of a disk that does not answer."""
    stat = os.stat

    def fails(path: Any, **options: Any) -> os.stat_result:
        if path == segment_file(base_offset, LOG_SUFFIX):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return stat(path, **options)

    patch.setattr(os, "stat", fails)


def _apply(deletions: Sequence[PartitionDeletion]) -> list[SegmentResult]:
    with locked(Path(deletions[0].segments_directory.root)):
        return delete_planned_segments(deletions, lambda _: None, lambda: None)


def test_what_the_plan_names_goes_with_its_index_and_auxiliary_files(archive: Path) -> None:
    """Logs, index files in both places, the snapshots at deleted bases; not the last segment, and nothing else. Leader
    epochs are cut where the log begins then.
    """
    before = _tree(archive)
    assert [(each.key[1], each.segment.base_offset, each.outcome) for each in _apply(_plan(archive))] == [
        *(("a", base_offset, DeletionOutcome.DELETED) for base_offset in (0, 10)),
        *(("b", base_offset, DeletionOutcome.DELETED) for base_offset in (0, 10, 25)),
        ("b", 40, DeletionOutcome.LAST),
    ]
    assert _tree(archive) == {path: content for path, content in before.items() if not _named(path)}
    assert _epochs(archive) == _EPOCHS[1]


def test_files_are_renamed_then_recorded_then_after_the_delay_removed(archive: Path) -> None:
    """Between renaming and removing every file is there under the name of a deleted one, as it was."""
    deletions, before = _plan(archive), _tree(archive)
    renamed = {f"{path}.deleted" if _named(path) else path: content for path, content in before.items()}
    seen: list[str] = []

    def see(what: str) -> None:
        assert _tree(archive) == renamed and _epochs(archive) == _EPOCHS[1]
        seen.append(what)

    delete_planned_segments(deletions, lambda results: see(f"{len(results)} recorded"), lambda: see("waited"))
    assert seen == ["6 recorded", "waited"]


def test_killed_anywhere_and_run_again(
    archive: Path, tmp_path: Path, rng: random.Random, say: Say, exhaustive: bool
) -> None:
    """Goal: a killed run loses nothing outside the plan and leaves no offset gap in a log; the next ends as if
    undisturbed, and between them they have recorded every segment that went.

    Method: the process is killed (-9) just before a random one of all that it does to files.
    """
    before = _tree(archive)
    undisturbed = shutil.copytree(archive, tmp_path / "undisturbed")
    _, steps = run_child(children.apply_until_step, undisturbed / "kafka-logs", _plan(undisturbed), None)
    after = _tree(undisturbed)
    kills = KILLS_EXHAUSTIVE if exhaustive else KILLS
    for number in range(kills):
        place = tmp_path / f"killed-{number}"
        for root in ("kafka-logs", "index"):
            shutil.copytree(archive / root, place / root)
        deletions, step = _plan(place), rng.randrange(steps)
        with Child(children.apply_until_step, place / "kafka-logs", deletions, step) as child:
            recorded, code = child.end()
        assert code == -signal.SIGKILL
        found = _tree(place)
        assert {path: content for path, content in before.items() if not _named(path)}.items() <= found.items()
        assert all(before[path.removesuffix(".deleted") if _named(path) else path] == found[path] for path in found)
        for name in _NAMED:
            left = [base_offset for base_offset in _BASE_OFFSETS if _log(place, name, base_offset).exists()]
            assert left == list(_BASE_OFFSETS[-len(left) :]), f"killed before step {step}: an offset gap"
        recorded += run_child(children.apply_until_step, place / "kafka-logs", deletions, None)[:1]
        assert _tree(place) == after and _epochs(place) == _EPOCHS[1], f"killed before step {step} of {steps}"
        assert not any(is_staging(path.name) for path in place.rglob("*"))
        deleted = {
            (each.key[1], each.segment.base_offset)
            for results in recorded
            for each in results
            if each.outcome is DeletionOutcome.DELETED
        }
        assert deleted == {("a", 0), ("a", 10), ("b", 0), ("b", 10), ("b", 25)}
        shutil.rmtree(place)
    say(f"{kills} kills, at random ones of {steps} steps")


@pytest.mark.parametrize("change", ["size", "mtime"])
def test_a_segment_that_is_not_what_was_planned_stays_and_all_after_it(change: str, archive: Path) -> None:
    deletions = _plan(archive)
    log = _log(archive, "b-0", 10)
    if change == "size":
        status = log.stat()
        log.write_bytes(log.read_bytes() + b"x")
        os.utime(log, ns=(status.st_atime_ns, status.st_mtime_ns))
    else:
        os.utime(log, ns=(0, 1))
    results = [each for each in _apply(deletions) if each.key[1] == "b"]
    assert [each.outcome for each in results] == [
        DeletionOutcome.DELETED,
        DeletionOutcome.CHANGED,
        DeletionOutcome.AFTER_KEPT,
        DeletionOutcome.AFTER_KEPT,
    ]
    assert results[1].detail is not None and results[1].detail.startswith(f"{log}: ")
    assert [offset for offset in _BASE_OFFSETS if _log(archive, "b-0", offset).exists()] == [10, 25, 40]


def test_a_deleted_file_of_someone_else_is_no_left_over_of_ours(archive: Path) -> None:
    """A broker's own `.log.deleted` of a planned segment, with another size, stays; without any log it is just gone."""
    deletions = _plan(archive)
    _log(archive, "a-0", 0).unlink()
    _log(archive, "b-0", 0).with_suffix(".log.deleted").write_bytes(b"other" * 99)
    _log(archive, "b-0", 0).unlink()
    outcomes = [each.outcome for each in _apply(deletions)]
    assert outcomes == [
        DeletionOutcome.GONE,
        DeletionOutcome.DELETED,
        DeletionOutcome.CHANGED,
        *[DeletionOutcome.AFTER_KEPT] * 3,
    ]
    assert _log(archive, "b-0", 0).with_suffix(".log.deleted").exists()


@pytest.mark.parametrize("suffix", [LOG_SUFFIX, *AUXILIARY_SUFFIXES])
@pytest.mark.parametrize("root", ["kafka-logs", "index"])
@pytest.mark.parametrize("is_alone", [False, True])
def test_a_file_in_the_way_is_named_and_left(archive: Path, root: str, suffix: str, is_alone: bool) -> None:
    """A file that has the name of a deleted one before anything of its segment was renamed is not ours, be the file
    that would get this name there or not; its segment stays whole, and all after it.
    """
    if (root, suffix) == ("index", LOG_SUFFIX):
        return  # there is no log
    deletions = _plan(archive)
    file = archive / root / "b-0" / segment_file(10, suffix)
    in_the_way = file.with_name(f"{file.name}.deleted")
    in_the_way.write_bytes(b"precious")
    if is_alone and suffix != LOG_SUFFIX:
        file.unlink()
    before = {path: content for path, content in _tree(archive).items() if not _is_of(path, "b-0", 0)}
    results = [each for each in _apply(deletions) if each.key[1] == "b"]
    assert [each.outcome for each in results] == [
        DeletionOutcome.DELETED,
        DeletionOutcome.NOT_RENAMED,
        *[DeletionOutcome.AFTER_KEPT] * 2,
    ]
    assert str(results[1].detail).startswith(
        f"{in_the_way}: in the way of what the plan renames; expected no such file"
    )
    left = {path: content for path, content in before.items() if "/a-0/" not in path}
    assert left.items() <= _tree(archive).items()
    in_the_way.unlink()
    assert [each.outcome for each in _apply(deletions)][2:] == [
        DeletionOutcome.GONE,
        *([DeletionOutcome.DELETED] * 2),
        DeletionOutcome.LAST,
    ]


def _is_of(path: str, directory: str, base_offset: int) -> bool:
    return f"/{directory}/{segment_file(base_offset, '.')}" in path


def test_a_file_that_comes_just_before_it_is_renamed_to_is_left(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the directory was listed."""
    deletions = _plan(archive)
    precious = _log(archive, "b-0", 0).with_suffix(".log.deleted")
    names = Remover.names

    def then_written(remover: Remover, directory: Directory) -> set[str]:
        listed = names(remover, directory)
        precious.write_bytes(b"precious")
        return listed

    monkeypatch.setattr(Remover, "names", then_written)
    results = _apply(deletions[1:])
    assert [each.outcome for each in results] == [DeletionOutcome.NOT_RENAMED, *[DeletionOutcome.AFTER_KEPT] * 3]
    assert precious.read_bytes() == b"precious" and _log(archive, "b-0", 0).exists()


def test_no_link_is_followed(archive: Path) -> None:
    """Neither a partition that leads elsewhere, nor a log that does."""
    deletions = _plan(archive)
    directory = archive / "kafka-logs" / "a-0"
    directory.rename(archive / "elsewhere")
    directory.symlink_to(archive / "elsewhere")
    log = _log(archive, "b-0", 0)
    log.rename(archive / "log")
    log.symlink_to(archive / "log")
    before = _tree(archive)
    results = _apply([deletions[0], replace(deletions[1], segments=deletions[1].segments[:1])])
    assert [each.outcome for each in results] == [
        DeletionOutcome.CHANGED,
        DeletionOutcome.AFTER_KEPT,
        DeletionOutcome.GONE,
    ]
    assert "symbolic link" in str(results[0].detail)
    assert _tree(archive) == before


def test_a_partition_that_cannot_be_renamed_holds_up_no_other(archive: Path) -> None:
    """What is in the way is named, and all after it stays. The others are recorded and removed; the next run goes on.

    Root may write everywhere, so a directory stands in the way of the name of the deleted file.
    """
    deletions = _plan(archive)
    in_the_way = _log(archive, "a-0", 10).with_suffix(".index.deleted")
    in_the_way.mkdir()
    results = _apply(deletions)
    assert [each.outcome for each in results] == [
        *(DeletionOutcome.DELETED, DeletionOutcome.NOT_RENAMED),
        *([DeletionOutcome.DELETED] * 3),
        DeletionOutcome.LAST,
    ]
    assert str(results[1].detail).startswith(f"{in_the_way}: in the way of what the plan renames; ")
    assert _log(archive, "a-0", 10).exists()
    assert not _log(archive, "a-0", 0).exists() and not list(archive.rglob(segment_file(0, ".log.deleted")))
    in_the_way.rmdir()
    assert [each.outcome for each in _apply(deletions)][:2] == [DeletionOutcome.GONE, DeletionOutcome.DELETED]
    assert not list(archive.glob(f"*/a-0/{segment_file(10, '.*')}"))


def test_all_after_a_segment_that_cannot_be_renamed_stays(archive: Path) -> None:
    deletions = _plan(archive)
    _log(archive, "b-0", 0).with_suffix(".log.deleted").mkdir()
    outcomes = [each.outcome for each in _apply(deletions)]
    assert outcomes == [*[DeletionOutcome.DELETED] * 2, DeletionOutcome.NOT_RENAMED, *[DeletionOutcome.AFTER_KEPT] * 3]
    assert all(_log(archive, "b-0", base_offset).exists() for base_offset in _BASE_OFFSETS)


def test_what_is_renamed_waits_until_leader_epochs_are_cut(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the file would say that these logs were lost. The next run goes on; a file that no broker reads stays."""
    replace_file = os.replace

    def fails(source: str, name: str, **options: Any) -> None:
        if name == LEADER_EPOCH_CHECKPOINT:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        replace_file(source, name, **options)

    deletions, torn = _plan(archive), archive / "kafka-logs" / "a-0" / LEADER_EPOCH_CHECKPOINT
    torn.write_text("0\n2\n3 0\n")
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", fails)
        results = _apply(deletions)
    assert [each.outcome for each in results] == [
        *[DeletionOutcome.DELETED] * 2,
        *[DeletionOutcome.EPOCHS_NOT_CUT] * 3,
        DeletionOutcome.LAST,
    ]
    assert "b-0/leader-epoch-checkpoint: not written: No space left on device; " in str(results[2].detail)
    assert _log(archive, "b-0", 0).with_suffix(".log.deleted").exists()
    assert [each.outcome for each in _apply(deletions)[2:5]] == [DeletionOutcome.DELETED] * 3
    assert _epochs(archive) == _EPOCHS[1] | {"a-0": "0\n2\n3 0\n"}


def test_a_log_that_cannot_be_reached_is_not_gone(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The segment stays, and all after it."""
    deletions = _plan(archive)[1:]
    _reach_no_log(monkeypatch, 10)
    results = _apply(deletions)
    assert [each.outcome for each in results] == [
        DeletionOutcome.DELETED,
        DeletionOutcome.CHANGED,
        DeletionOutcome.AFTER_KEPT,
        DeletionOutcome.AFTER_KEPT,
    ]
    assert results[1].detail == f"{_log(archive, 'b-0', 10)}: not reached: Input/output error"


def test_a_partition_whose_directory_is_away_is_not_gone(archive: Path) -> None:
    """It may not be mounted: exit code 3, and the other partition goes."""
    deletions = _plan(archive)
    (archive / "kafka-logs" / "a-0").rename(archive / "away")
    assert log_dirs_of_deletions(deletions) == [archive / "kafka-logs"]
    results = _apply(deletions)
    assert [each.outcome for each in results] == [
        *(DeletionOutcome.CHANGED, DeletionOutcome.AFTER_KEPT),
        *([DeletionOutcome.DELETED] * 3),
        DeletionOutcome.LAST,
    ]
    assert str(results[0].detail).startswith(f"{archive}/kafka-logs/a-0: no such directory; is it mounted?")


def test_a_log_that_vanished_after_the_last_is_named(archive: Path) -> None:
    """What is the last log now is not what was planned as the last."""
    deletions = _plan(archive)
    _log(archive, "b-0", 40).unlink()
    results = _apply(deletions[1:])
    assert [each.outcome for each in results] == [
        *[DeletionOutcome.DELETED] * 2,
        DeletionOutcome.LAST,
        DeletionOutcome.CHANGED,
    ]
    assert str(results[3].detail).startswith(f"{_log(archive, 'b-0', 40)}: not there as a file")


def test_a_log_dir_without_any_of_the_plans_partitions_is_refused(archive: Path) -> None:
    """Nothing is mounted there: no lock file is to be made in its mount point."""
    deletions = _plan(archive)
    (archive / "kafka-logs").rename(archive / "away")
    (archive / "kafka-logs").mkdir()
    with pytest.raises(UsageError, match=f"^{archive}/kafka-logs: no partition of the plan is there, a-0 neither; "):
        log_dirs_of_deletions(deletions)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "t-0" / "00000000000000000007.log"
    path.parent.mkdir()
    path.write_bytes(b"log")
    return path


def planned(log: Path) -> PlannedSegment:
    status = log.stat()
    return PlannedSegment(int(log.stem), status.st_size, status.st_mtime_ns, status.st_ino)


def deletion(root: Path, partition: int, index: str | None = None) -> PartitionDeletion:
    directory = Directory(str(root), f"t-{partition}")
    other = directory if index is None else Directory(index, f"t-{partition}")
    return PartitionDeletion(("it", "t", partition), directory, other, ())


def test_each_of_size_time_and_inode_tells_another_file(log: Path) -> None:
    then, status = planned(log), log.stat()
    assert not then.differs(status)
    for other in (
        replace(then, log_bytes=4),
        replace(then, log_mtime_ns=0),
        replace(then, log_mtime_ns=None),
        replace(then, log_inode=0),
    ):
        assert other.differs(status)
    assert not replace(then, log_inode=None).differs(status), "a plan without inodes"


def test_what_differs_is_said_of_both(log: Path) -> None:
    then = planned(log)
    log.write_bytes(b"longer")
    os.utime(log, ns=(5, 5))
    said = then.difference(str(log), log.stat())
    assert said.startswith(f"{log}: 6 bytes, modified at 5 ns, inode {log.stat().st_ino}; planned as 3 bytes, ")


def test_beside_logs_there_is_one_directory_and_with_an_index_directory_two(tmp_path: Path) -> None:
    alone, apart = deletion(tmp_path, 0), deletion(tmp_path, 0, str(tmp_path / "index"))
    assert [str(each) for each in alone.directories] == [f"{tmp_path}/t-0"]
    assert [str(each) for each in apart.directories] == [f"{tmp_path}/t-0", f"{tmp_path}/index/t-0"]
    assert apart.log_path(PlannedSegment(7, 0, 0)) == f"{tmp_path}/t-0/00000000000000000007.log"


def test_one_partition_shows_that_a_log_dir_is_mounted(log: Path, tmp_path: Path) -> None:
    """A link that leads nowhere is there, too: it is refused later, with its name."""
    away = tmp_path / "away"
    away.mkdir()
    assert log_dirs_of_deletions([deletion(tmp_path, 1), deletion(tmp_path, 0)]) == [tmp_path]
    with pytest.raises(UsageError, match=r"away: no partition of the plan is there, t-1 neither; is it mounted\?"):
        log_dirs_of_deletions([deletion(tmp_path, 0), deletion(away, 1)])
    (away / "t-1").symlink_to(tmp_path / "nowhere")
    assert log_dirs_of_deletions([deletion(tmp_path, 0), deletion(away, 1)]) == [tmp_path, away]


_BYTES: Final = 100
#: Each segment's largest timestamp is its base offset, and at this time the first three are older than 10 ms.
_NOW: Final = 36
_POLICY: Final = TopicPolicy(retention_ms=10)


class _Planned:
    """A log dir with one partition, of which three segments are planned to go."""

    def __init__(self, root: Path) -> None:
        self.root, self.directory = root, root / "t-0"
        self.directory.mkdir(parents=True)
        for base_offset in _BASE_OFFSETS:
            self.log(base_offset).write_bytes(bytes(_BYTES))
        (self.directory / "partition.metadata").write_text("version: 0\ntopic_id: abc\n")
        self.checkpoint("replication-offset-checkpoint", 50)
        self.checkpoint("log-start-offset-checkpoint", 3)
        files = [planned(self.log(base_offset)) for base_offset in _BASE_OFFSETS]
        self.then = PartitionAsPlanned(
            topic_id="abc",
            log_start_offset=3,
            high_watermark=50,
            segments=[
                SegmentAsPlanned(
                    file=file,
                    next_offset=next_offset,
                    counted_bytes=_BYTES,
                    max_timestamp_ms=file.base_offset,
                    fully_read=True,
                )
                for file, next_offset in zip(files, (*_BASE_OFFSETS[1:], 50), strict=True)
            ],
        )
        here = Directory(str(root), "t-0")
        self.deletion = PartitionDeletion(("it", "t", 0), here, here, tuple(files[:3]))

    def log(self, base_offset: int) -> Path:
        return self.directory / segment_file(base_offset, LOG_SUFFIX)

    def checkpoint(self, name: str, offset: int) -> None:
        (self.root / name).write_text(f"0\n1\nt 0 {offset}\n")

    def applied(self, now_ms: int = _NOW, policy: TopicPolicy = _POLICY) -> list[SegmentResult]:
        with Remover() as remover:
            again = reconsidered(remover, self.deletion, self.then, policy, now_ms)
        return delete_planned_segments([again], self._record, lambda: None)

    def _record(self, results: Sequence[SegmentResult]) -> None:
        deleted = {found.segment.base_offset for found in results if found.outcome is DeletionOutcome.DELETED}
        segments = [
            replace(segment, deleted=segment.deleted or segment.file.base_offset in deleted)
            for segment in self.then.segments
        ]
        self.then = replace(self.then, segments=segments)


@pytest.fixture
def partition(tmp_path: Path) -> _Planned:
    return _Planned(tmp_path / "logs")


def _outcomes(results: list[SegmentResult]) -> list[str]:
    return [found.outcome.value for found in results]


def test_what_is_as_it_was_goes_as_planned(partition: _Planned) -> None:
    assert _outcomes(partition.applied()) == ["deleted"] * 3
    assert [partition.log(base_offset).exists() for base_offset in _BASE_OFFSETS] == [False, False, False, True]
    assert _outcomes(partition.applied()) == ["gone"] * 3


def test_what_a_run_before_has_renamed_is_finished(partition: _Planned) -> None:
    """With sizes as they were, also where a limit of size decides."""
    for base_offset in _BASE_OFFSETS[:2]:
        partition.log(base_offset).rename(f"{partition.log(base_offset)}.deleted")
    by_size = TopicPolicy(retention_ms=-1, retention_bytes=_BYTES)
    assert _outcomes(partition.applied(policy=by_size)) == ["deleted"] * 3
    assert sorted(path.name for path in partition.directory.glob("*.log*")) == [segment_file(40, LOG_SUFFIX)]


def _topic_made_anew(partition: _Planned) -> None:
    (partition.directory / "partition.metadata").write_text("version: 0\ntopic_id: xyz\n")


def _no_watermark(partition: _Planned) -> None:
    (partition.root / "replication-offset-checkpoint").unlink()


def _malformed(partition: _Planned) -> None:
    (partition.root / "log-start-offset-checkpoint").write_text("0\n1\nt 0 x\n")


def _older_segment(partition: _Planned) -> None:
    partition.log(5).write_bytes(b"of another time")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_topic_made_anew, "topic id xyz, planned with abc"),
        (_no_watermark, "high watermark not there, planned with 50"),
        (
            lambda partition: partition.checkpoint("replication-offset-checkpoint", 20),
            "high watermark 20, planned with 50",
        ),
        (
            lambda partition: partition.checkpoint("log-start-offset-checkpoint", 9),
            "log start offset 9, planned with 3",
        ),
        (_malformed, "log-start-offset-checkpoint: line 3: 't 0 x', expected"),
        (_older_segment, f"{segment_file(5, LOG_SUFFIX)}: the plan does not know it"),
    ],
    ids=["topic id", "no watermark", "watermark", "log start", "malformed", "unknown segment"],
)
def test_a_partition_that_has_changed_stays(
    change: Callable[[_Planned], None], message: str, partition: _Planned
) -> None:
    change(partition)
    results = partition.applied()
    assert _outcomes(results) == ["changed", "behind", "behind"]
    assert message in str(results[0].detail) and str(results[0].detail).endswith("run build_index and plan again")
    assert all(partition.log(base_offset).exists() for base_offset in _BASE_OFFSETS)


def test_what_would_not_go_now_stays(partition: _Planned) -> None:
    """By the clock, by the policy, or as the catalog says by now that it is damaged; with all after it."""
    earlier = partition.applied(now_ms=15)
    assert _outcomes(earlier)[1:] == ["not-due", "behind"] and partition.log(10).exists()
    assert str(earlier[1].detail) == f"{partition.log(10)}: time-not-reached, decided on again"
    longer = partition.applied(policy=TopicPolicy(retention_ms=1000))
    assert _outcomes(longer) == ["gone", "not-due", "behind"]
    first, second, *others = partition.then.segments
    partition.then = replace(partition.then, segments=[first, replace(second, fully_read=False), *others])
    [_, damaged, later] = partition.applied()
    assert (damaged.outcome, later.outcome) == (DeletionOutcome.NOT_DUE, DeletionOutcome.AFTER_KEPT)
    assert str(damaged.detail).endswith("not-well, decided on again") and partition.log(10).exists()


def _emptied(log: Path) -> None:
    os.truncate(log, 0)


def _led_elsewhere(log: Path) -> None:
    log.rename(log.with_suffix(".elsewhere"))
    log.symlink_to(log.with_suffix(".elsewhere"))


@pytest.mark.parametrize("base_offset", [0, 10, 25, 40])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (Path.unlink, "not there as a file; planned as 100 bytes: run build_index and plan again"),
        (_emptied, "0 bytes, modified at "),
        (_led_elsewhere, "not there as a file; planned as 100 bytes"),
    ],
)
def test_a_log_that_is_missing_or_empty_is_named_and_its_partition_left_alone(
    change: Callable[[Path], None], message: str, base_offset: int, partition: _Planned
) -> None:
    """A log that was to go, or one that was to stay: a limit of size counts what stays."""
    log = partition.log(base_offset)
    change(log)
    before = {path.name for path in partition.directory.iterdir()}
    results = partition.applied(policy=TopicPolicy(retention_ms=-1, retention_bytes=_BYTES))
    reported = [found for found in results if found.detail is not None]
    assert [(found.segment.base_offset, found.outcome) for found in reported] == [
        (base_offset, DeletionOutcome.CHANGED)
    ]
    assert str(reported[0].detail).startswith(f"{log}: {message}")
    assert {found.outcome for found in results if found not in reported} == {DeletionOutcome.LEFT}
    assert {path.name for path in partition.directory.iterdir()} == before


def test_every_log_of_a_partition_that_has_changed_is_named(partition: _Planned) -> None:
    for base_offset in (10, 40):
        partition.log(base_offset).unlink()
    results = partition.applied()
    assert _outcomes(results) == ["left", "changed", "left", "changed"]
    assert [str(found.detail).partition(": ")[0] for found in results if found.detail is not None] == [
        str(partition.log(base_offset)) for base_offset in (10, 40)
    ]


def test_a_log_that_could_not_be_read_holds_up_none_before_it(partition: _Planned) -> None:
    """Nothing was recorded of it that it could differ from; it stays, as it was not fully read."""
    *others, last = partition.then.segments
    unread = replace(last, file=replace(last.file, log_bytes=0, log_mtime_ns=None, log_inode=None), fully_read=False)
    partition.then = replace(partition.then, segments=[*others, unread])
    assert _outcomes(partition.applied()) == ["deleted"] * 3


def test_a_directory_that_is_away_is_told_once(partition: _Planned) -> None:
    partition.directory.rename(partition.root / "away")
    results = partition.applied()
    assert _outcomes(results) == ["changed", "behind", "behind"]
    assert [found.detail is None for found in results] == [False, True, True]
    assert str(results[0].detail).startswith(f"{partition.directory}: no such directory; is it mounted?")


def test_a_log_of_the_same_size_and_time_is_another(partition: _Planned) -> None:
    """An older snapshot restored with its times: the inode tells."""
    log, status = partition.log(10), partition.log(10).stat()
    shutil.copy(log, partition.root / "other")
    os.replace(partition.root / "other", log)
    os.utime(log, ns=(status.st_atime_ns, status.st_mtime_ns))
    results = partition.applied()
    assert _outcomes(results) == ["left", "changed", "left"]
    assert f"inode {log.stat().st_ino}; planned as" in str(results[1].detail)


def test_a_log_that_cannot_be_reached_stays(partition: _Planned, monkeypatch: pytest.MonkeyPatch) -> None:
    """With all of its partition: what a limit of size comes to is not known without it."""
    _reach_no_log(monkeypatch, 40)
    results = partition.applied()
    assert _outcomes(results) == ["changed", "behind", "behind"]
    assert "not reached: Input/output error" in str(results[0].detail)
