"""A retention plan carried out on an archive: what it names goes, nothing else does, and a kill is no harm."""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from kidxlib.errors import UsageError
from kidxlib.log_dir import locked
from kidxlib.names import LOG_SUFFIX, SIDE_FILE_SUFFIXES, segment_file
from kidxlib.publish import Folder
from kidxlib.retire import Outcome, PlannedSegment, Retired, Retirement, carry_out, log_dirs_of
from tests.conftest import Say
from tests.faults import children
from tests.faults.processes import Child, run_child

KILLS, KILLS_EXHAUSTIVE = 5, 100

#: Segments of each partition, and how many of them the plan names.
_BASE_OFFSETS: Final = (0, 10, 25, 40)
_NAMED: Final = {"a-0": 2, "b-0": 4, "c-0": 0}

Tree = dict[str, tuple[bytes, int]]


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """`kafka-logs` with three partitions, `index` with a mirror of theirs, and what else a broker keeps there."""
    rng = random.Random(1)
    for name in _NAMED:
        for root in ("kafka-logs", "index"):
            folder = tmp_path / root / name
            folder.mkdir(parents=True)
            for base_offset in _BASE_OFFSETS:
                for suffix in (*((LOG_SUFFIX,) if root == "kafka-logs" else ()), *SIDE_FILE_SUFFIXES):
                    (folder / segment_file(base_offset, suffix)).write_bytes(rng.randbytes(rng.randint(1, 99)))
        log_dir = tmp_path / "kafka-logs" / name
        (log_dir / "partition.metadata").write_text("version: 0\n")
        (log_dir / segment_file(7, ".log.deleted")).write_bytes(b"of a broker")
        (log_dir / segment_file(99, ".snapshot")).write_bytes(b"of the log's end")
    return tmp_path


def _plan(archive: Path) -> list[Retirement]:
    return [
        Retirement(
            ("it", name[0], 0),
            Folder(str(archive / "kafka-logs"), name),
            Folder(str(archive / "index"), name),
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
    return {
        str(path.relative_to(archive)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in archive.rglob("*")
        if path.is_file() and path.name != ".lock"
    }


def _named(path: str) -> bool:
    """Whether the plan names the segment of a file, and that is not the last of its partition."""
    _, folder, name = path.split("/")
    of = _BASE_OFFSETS[: min(_NAMED[folder], 3)]
    return any(name.startswith(segment_file(base_offset, ".")) for base_offset in of)


def _carry_out(retirements: Sequence[Retirement]) -> list[Retired]:
    with locked(Path(retirements[0].segments_folder.root)):
        return carry_out(retirements, lambda _: None, lambda: None)


def test_what_the_plan_names_goes_with_its_side_files(archive: Path) -> None:
    """Logs, indexes here and in the mirror, the snapshots at deleted bases; not the last segment, and nothing else."""
    before = _tree(archive)
    assert [(each.key[1], each.segment.base_offset, each.outcome) for each in _carry_out(_plan(archive))] == [
        *(("a", base_offset, Outcome.DELETED) for base_offset in (0, 10)),
        *(("b", base_offset, Outcome.DELETED) for base_offset in (0, 10, 25)),
        ("b", 40, Outcome.LAST),
    ]
    assert _tree(archive) == {path: content for path, content in before.items() if not _named(path)}


def test_files_are_renamed_then_recorded_then_after_the_delay_removed(archive: Path) -> None:
    """Between renaming and removing every file is there under the name of a deleted one, as it was."""
    retirements, before = _plan(archive), _tree(archive)
    renamed = {f"{path}.deleted" if _named(path) else path: content for path, content in before.items()}
    seen: list[str] = []

    def see(what: str) -> None:
        assert _tree(archive) == renamed
        seen.append(what)

    carry_out(retirements, lambda retired: see(f"{len(retired)} recorded"), lambda: see("waited"))
    assert seen == ["6 recorded", "waited"]


def test_killed_anywhere_and_run_again(
    archive: Path, tmp_path: Path, rng: random.Random, say: Say, exhaustive: bool
) -> None:
    """Goal: a killed run loses nothing outside the plan and leaves no hole in a log; the next ends as if undisturbed,
    and between them they have recorded every segment that went.

    Method: the process is killed (-9) just before a random one of all that it does to files.
    """
    before = _tree(archive)
    undisturbed = shutil.copytree(archive, tmp_path / "undisturbed")
    _, steps = run_child(children.retire_until_step, undisturbed / "kafka-logs", _plan(undisturbed), None)
    after = _tree(undisturbed)
    kills = KILLS_EXHAUSTIVE if exhaustive else KILLS
    for number in range(kills):
        place = tmp_path / f"killed-{number}"
        for root in ("kafka-logs", "index"):
            shutil.copytree(archive / root, place / root)
        retirements, step = _plan(place), rng.randrange(steps)
        with Child(children.retire_until_step, place / "kafka-logs", retirements, step) as child:
            recorded, code = child.end()
        assert code == -signal.SIGKILL
        found = _tree(place)
        assert {path: content for path, content in before.items() if not _named(path)}.items() <= found.items()
        assert all(before[path.removesuffix(".deleted") if _named(path) else path] == found[path] for path in found)
        for name in _NAMED:
            left = [base_offset for base_offset in _BASE_OFFSETS if _log(place, name, base_offset).exists()]
            assert left == list(_BASE_OFFSETS[-len(left) :]), f"killed before step {step}: a hole"
        recorded += run_child(children.retire_until_step, place / "kafka-logs", retirements, None)[:1]
        assert _tree(place) == after, f"killed before step {step} of {steps}"
        deleted = {
            (each.key[1], each.segment.base_offset)
            for retired in recorded
            for each in retired
            if each.outcome is Outcome.DELETED
        }
        assert deleted == {("a", 0), ("a", 10), ("b", 0), ("b", 10), ("b", 25)}
        shutil.rmtree(place)
    say(f"{kills} kills, at random ones of {steps} steps")


@pytest.mark.parametrize("change", ["size", "mtime"])
def test_a_segment_that_is_not_what_was_planned_stays_and_all_behind_it(change: str, archive: Path) -> None:
    retirements = _plan(archive)
    log = _log(archive, "b-0", 10)
    if change == "size":
        status = log.stat()
        log.write_bytes(log.read_bytes() + b"x")
        os.utime(log, ns=(status.st_atime_ns, status.st_mtime_ns))
    else:
        os.utime(log, ns=(0, 1))
    retired = [each for each in _carry_out(retirements) if each.key[1] == "b"]
    assert [each.outcome for each in retired] == [Outcome.DELETED, Outcome.CHANGED, Outcome.BEHIND, Outcome.BEHIND]
    assert retired[1].detail is not None and retired[1].detail.startswith(f"{log}: ")
    assert [offset for offset in _BASE_OFFSETS if _log(archive, "b-0", offset).exists()] == [10, 25, 40]


def test_a_deleted_file_of_someone_else_is_no_left_over_of_ours(archive: Path) -> None:
    """A broker's own `.log.deleted` of a planned segment, with another size, stays; without any log it is just gone."""
    retirements = _plan(archive)
    _log(archive, "a-0", 0).unlink()
    _log(archive, "b-0", 0).with_suffix(".log.deleted").write_bytes(b"other" * 99)
    _log(archive, "b-0", 0).unlink()
    outcomes = [each.outcome for each in _carry_out(retirements)]
    assert outcomes == [Outcome.GONE, Outcome.DELETED, Outcome.CHANGED, *[Outcome.BEHIND] * 3]
    assert _log(archive, "b-0", 0).with_suffix(".log.deleted").exists()


def test_no_link_is_followed(archive: Path) -> None:
    """Neither a partition that leads elsewhere, nor a log that does."""
    retirements = _plan(archive)
    folder = archive / "kafka-logs" / "a-0"
    folder.rename(archive / "elsewhere")
    folder.symlink_to(archive / "elsewhere")
    log = _log(archive, "b-0", 0)
    log.rename(archive / "log")
    log.symlink_to(archive / "log")
    before = _tree(archive)
    retired = _carry_out([retirements[0], replace(retirements[1], segments=retirements[1].segments[:1])])
    assert [each.outcome for each in retired] == [Outcome.CHANGED, Outcome.CHANGED, Outcome.GONE]
    assert "symbolic link" in str(retired[0].detail)
    assert _tree(archive) == before


def test_a_partition_that_cannot_be_renamed_holds_up_no_other(archive: Path) -> None:
    """What is in the way is told, and all behind it stays; the others are recorded and removed. The next run goes on.

    Root may write everywhere, so a folder stands in the way of the name of the deleted file.
    """
    retirements = _plan(archive)
    in_the_way = _log(archive, "a-0", 10).with_suffix(".index.deleted")
    in_the_way.mkdir()
    retired = _carry_out(retirements)
    assert [each.outcome for each in retired] == [
        *(Outcome.DELETED, Outcome.NOT_RENAMED),
        *([Outcome.DELETED] * 3),
        Outcome.LAST,
    ]
    assert str(retired[1].detail).startswith(f"{_log(archive, 'a-0', 10).with_suffix('.index')}: not renamed: ")
    assert not _log(archive, "a-0", 0).exists() and not list(archive.rglob(segment_file(0, ".log.deleted")))
    in_the_way.rmdir()
    assert [each.outcome for each in _carry_out(retirements)][:2] == [Outcome.GONE, Outcome.DELETED]
    assert not list(archive.glob(f"*/a-0/{segment_file(10, '.*')}"))


def test_behind_a_segment_that_cannot_be_renamed_all_stays(archive: Path) -> None:
    retirements = _plan(archive)
    _log(archive, "b-0", 0).with_suffix(".log.deleted").mkdir()
    outcomes = [each.outcome for each in _carry_out(retirements)]
    assert outcomes == [*[Outcome.DELETED] * 2, Outcome.NOT_RENAMED, *[Outcome.BEHIND] * 3]
    assert all(_log(archive, "b-0", base_offset).exists() for base_offset in _BASE_OFFSETS)


def test_a_log_that_cannot_be_reached_is_not_gone(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that does not answer: the segment stays, and all behind it."""
    stat = os.stat

    def fails(path: Any, **options: Any) -> os.stat_result:
        if path == segment_file(10, LOG_SUFFIX):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return stat(path, **options)

    retirements = _plan(archive)[1:]
    monkeypatch.setattr(os, "stat", fails)
    retired = _carry_out(retirements)
    assert [each.outcome for each in retired] == [Outcome.DELETED, Outcome.CHANGED, Outcome.BEHIND, Outcome.BEHIND]
    assert retired[1].detail == f"{_log(archive, 'b-0', 10)}: not reached: Input/output error"


def test_a_partition_whose_folder_is_away_is_not_gone(archive: Path) -> None:
    """It may not be mounted: exit code 3, and the other partition goes."""
    retirements = _plan(archive)
    (archive / "kafka-logs" / "a-0").rename(archive / "away")
    assert log_dirs_of(retirements) == [archive / "kafka-logs"]
    retired = _carry_out(retirements)
    assert [each.outcome for each in retired] == [
        *([Outcome.CHANGED] * 2),
        *([Outcome.DELETED] * 3),
        Outcome.LAST,
    ]
    assert str(retired[0].detail).startswith(f"{archive}/kafka-logs/a-0: no such folder; is it mounted?")


def test_a_log_dir_without_any_of_the_plans_partitions_is_refused(archive: Path) -> None:
    """Nothing is mounted there: no lock file is to be made in its mount point."""
    retirements = _plan(archive)
    (archive / "kafka-logs").rename(archive / "away")
    (archive / "kafka-logs").mkdir()
    with pytest.raises(UsageError, match=f"^{archive}/kafka-logs: no partition of the plan is there, a-0 neither; "):
        log_dirs_of(retirements)
