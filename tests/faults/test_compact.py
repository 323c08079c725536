"""Compaction of a log dir and its index directory: what it replaces, removes and leaves, and that a kill is no harm."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from kidxlib.compaction.compact_partition import (
    ChangeAction,
    ChangeOutcome,
    CompactionOptions,
    CompactionTask,
    Mode,
    compact_each_partition,
)
from kidxlib.compaction.policy import Rule
from kidxlib.format.segment_files import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    segment_file,
)
from kidxlib.recovery.options import RecoverOptions
from kidxlib.recovery.outcome import Status
from kidxlib.recovery.recover import recover
from kidxlib.storage.location import Directory
from kidxlib.storage.log_bytes import WholeLog
from tests.conftest import Say
from tests.faults import children
from tests.faults.processes import Child, run_child
from tests.support.compaction import applied, built, options, planned, to_interval
from tests.support.files import tree
from tests.support.logs.batches import Batch, encode

KILLS, KILLS_EXHAUSTIVE = 6, 100

_DENSE: Final = 200
_SPARSE: Final = 1500
_BASE_OFFSETS: Final = (0, 40, 80)
_STAGED: Final = f".kidx-0123-{segment_file(0, OFFSET_INDEX_SUFFIX)}.tmp"

#: Files that nothing needs, below the directory of each partition in the index directory, with the reason.
_LEFT_OVER: Final = {
    segment_file(7, OFFSET_INDEX_SUFFIX): "no-segment",
    segment_file(7, TRANSACTION_INDEX_SUFFIX): "no-segment",
    segment_file(9, SNAPSHOT_SUFFIX): "stray-snapshot",
    segment_file(5, ".log.deleted"): "deleted",
    segment_file(5, ".index.deleted"): "deleted",
    _STAGED: "staged",
}
#: Files that are none of these, though their names say so at first sight.
_NEEDED: Final = (segment_file(10**6, SNAPSHOT_SUFFIX), "notes.deleted", "00000000000000000007.index.bak")

Tree = dict[str, bytes]


def _in_two_hours_ms() -> int:
    return (time.time_ns() + 2 * 3600 * 10**9) // 10**6


class Place:
    """`kafka-logs` with two partitions of three segments, `index` with their indexes, and left-overs there; the log dir
    has preallocated index files of a broker's beside its segments.
    """

    def __init__(self, directory: Path) -> None:
        self.directory, self.log_dir, self.index_dir = directory, directory / "kafka-logs", directory / "index"
        rng = random.Random(5)
        for name in ("a-0", "b-1"):
            (self.log_dir / name).mkdir(parents=True)
            for base_offset in _BASE_OFFSETS:
                batches = [Batch(timestamp=1000 + base_offset + number, body=bytes(99)) for number in range(39)]
                log = self.log_dir / name / segment_file(base_offset, LOG_SUFFIX)
                log.write_bytes(b"".join(encode(base_offset, batches)))
                os.utime(log, ns=(10**18, 10**18))
        self.tasks = built(self.log_dir, self.index_dir, RecoverOptions(interval_bytes=_DENSE))
        for name in ("a-0", "b-1"):
            for path in (self.index_dir / name).iterdir():
                (self.log_dir / name / path.name).write_bytes(path.read_bytes() + bytes(2400))
            for left in (*_LEFT_OVER, *_NEEDED):
                (self.index_dir / name / left).write_bytes(rng.randbytes(30))
            (self.log_dir / name / "partition.metadata").write_text("version: 0\n")

    @property
    def everything(self) -> CompactionOptions:
        """Trim, coarsen and remove; the clock is two hours on, so that left-overs are old enough."""
        rules = [Rule(interval_bytes=_SPARSE)]
        return options(rules=rules, trim=True, orphans=True, now_ms=_in_two_hours_ms())


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Who compacts it takes a copy."""
    return Place(tmp_path_factory.mktemp("compact") / "place")


def _copy(place: Place, directory: Path) -> tuple[Path, list[CompactionTask]]:
    """A copy, and its partitions. The logs are hard links: the catalog knows inodes."""

    def copy(source: str, target: str) -> None:
        (os.link if source.endswith(LOG_SUFFIX) else shutil.copy2)(source, target)

    shutil.copytree(place.directory, directory, copy_function=copy)
    return directory, [_moved(task, place.directory, directory) for task in place.tasks]


def _moved(task: CompactionTask, before: Path, after: Path) -> CompactionTask:
    def moved(directory: Directory) -> Directory:
        return Directory(str(after / Path(directory.root).relative_to(before)), directory.path)

    assert task.segments_directory is not None
    return replace(task, segments_directory=moved(task.segments_directory), index_directory=moved(task.index_directory))


def _recorded_at(interval_bytes: int, task: CompactionTask) -> CompactionTask:
    """As the catalog has it once it was coarsened."""
    return replace(task, segments=tuple(replace(segment, interval_bytes=interval_bytes) for segment in task.segments))


def _tree(directory: Path) -> Tree:
    return tree(directory, but=(".lock",))


def test_each_change_is_told_before_and_done_as_told(place: Place, tmp_path: Path) -> None:
    """All that a plan says and nothing else, with the bytes that recovery writes; again, there is nothing left."""
    directory, tasks = _copy(place, tmp_path / "copy")
    before = _tree(directory)
    plan = planned(tasks, place.everything)
    assert _tree(directory) == before
    done = applied(tasks, place.everything)
    assert [replace(change, outcome=ChangeOutcome.PLANNED) for change in done] == plan
    assert Counter(change.action for change in done) == {
        ChangeAction.COARSEN: 4,
        ChangeAction.TRIM: 8,
        ChangeAction.REMOVE: 2 * len(_LEFT_OVER),
    }
    after = _tree(directory)
    for path, content in before.items():
        root, name, file = path.split("/")
        base_offset = int(file[:20]) if file[:20].isdigit() else -1
        if root == "index" and file in _LEFT_OVER:
            assert path not in after
        elif file.endswith((OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX)) and base_offset in _BASE_OFFSETS[:-1]:
            log = np.fromfile(directory / "kafka-logs" / name / segment_file(base_offset, LOG_SUFFIX), np.uint8)
            interval = _SPARSE if root == "index" else _DENSE
            recovered = recover(WholeLog(log), base_offset, RecoverOptions(interval_bytes=interval))
            is_offset_index = file.endswith(OFFSET_INDEX_SUFFIX)
            assert after[path] == (recovered.offset_index if is_offset_index else recovered.time_index), path
        else:
            assert after[path] == content, path
    reasons = {Path(change.place.path).name: change.reason for change in done if change.action is ChangeAction.REMOVE}
    assert reasons == _LEFT_OVER
    # The catalog would say by now that the interval is another.
    assert planned(tasks, options(trim=True, orphans=True, now_ms=_in_two_hours_ms())) == []
    assert {change.outcome for change in applied(tasks, to_interval(_SPARSE))} == {ChangeOutcome.UNCHANGED}


def test_the_dense_index_comes_back(place: Place, tmp_path: Path) -> None:
    """Coarsened and back, mapped and in chunks: byte for byte what the build wrote."""
    directory, tasks = _copy(place, tmp_path / "copy")
    before = _tree(directory)
    for use_mmap in (True, False):
        for change in applied(tasks, to_interval(_SPARSE), use_mmap=use_mmap):
            costs = change.coarsened
            assert costs is not None and costs.cost_before is not None and costs.cost_after is not None
            assert costs.cost_before.most <= _DENSE + 160 < _SPARSE <= costs.cost_after.most  # batches have 160 bytes
        assert _tree(directory) != before
        back = list(applied([_recorded_at(_SPARSE, task) for task in tasks], to_interval(_DENSE), use_mmap=use_mmap))
        assert {(change.action, change.outcome) for change in back} == {(ChangeAction.DENSIFY, ChangeOutcome.WRITTEN)}
        assert _tree(directory) == before


def test_killed_anywhere_and_run_again(
    place: Place, tmp_path: Path, rng: random.Random, say: Say, exhaustive: bool
) -> None:
    """A killed run leaves each file as it was or as it is to be; the next ends as if undisturbed, and what they said
    was done stands. The process is killed (-9) just before a random one of all that it does to files.
    """
    before = _tree(place.directory)
    directory, tasks = _copy(place, tmp_path / "undisturbed")
    *_, steps = run_child(children.compact_until_step, directory / "kafka-logs", tasks, place.everything, None)
    after = _tree(directory)
    kills = KILLS_EXHAUSTIVE if exhaustive else KILLS
    for number in range(kills):
        directory, tasks = _copy(place, tmp_path / f"killed-{number}")
        step = rng.randrange(steps)
        with Child(children.compact_until_step, directory / "kafka-logs", tasks, place.everything, step) as child:
            changes, code = child.end()
        assert code == -signal.SIGKILL
        found = {
            path: content for path, content in _tree(directory).items() if not Path(path).name.startswith(".kidx-")
        }
        for path, content in before.items():
            if path in after:
                assert found[path] in (content, after[path]), f"killed before step {step}: {path}"
            elif path in found:
                assert found[path] == content
        for change in changes:
            path = str(Path(change.place.path).relative_to(directory))
            assert found.get(path) == after.get(path), f"killed before step {step}: {path} was said to be done"
        run_child(children.compact_until_step, directory / "kafka-logs", tasks, place.everything, None)
        assert _tree(directory) == after, f"killed before step {step} of {steps}"
        shutil.rmtree(directory)
    say(f"{kills} kills, at random ones of {steps} steps")


def test_a_guest_removes_only_what_it_knows_for_its_own(place: Place, tmp_path: Path) -> None:
    """In a log dir: index files without a log stay, but for those that the catalog knows by their checksums; what a
    broker renamed to delete it goes, and so does what a killed run staged.
    """
    directory, _ = _copy(place, tmp_path / "copy")
    log_dir = directory / "kafka-logs"
    shutil.rmtree(directory / "index")
    for path in log_dir.glob("*/*index"):
        path.unlink()
    tasks = built(log_dir, None, RecoverOptions(interval_bytes=_DENSE))
    for name in ("a-0", "b-1"):
        (log_dir / name / segment_file(0, LOG_SUFFIX)).unlink()
        for left in _LEFT_OVER:
            (log_dir / name / left).write_bytes(b"left")
    gone = [
        replace(task, segments=(replace(task.segments[0], status=Status.GONE), *task.segments[1:])) for task in tasks
    ]
    done = applied(gone, options(orphans=True, now_ms=_in_two_hours_ms()))
    by_name = {Path(change.place.path).name: (change.outcome, change.reason) for change in done}
    assert by_name == {
        segment_file(0, OFFSET_INDEX_SUFFIX): (ChangeOutcome.REMOVED, "no-segment"),
        segment_file(0, TIME_INDEX_SUFFIX): (ChangeOutcome.REMOVED, "no-segment"),
        segment_file(5, ".log.deleted"): (ChangeOutcome.REMOVED, "deleted"),
        segment_file(5, ".index.deleted"): (ChangeOutcome.REMOVED, "deleted"),
        _STAGED: (ChangeOutcome.REMOVED, "staged"),
        segment_file(7, OFFSET_INDEX_SUFFIX): (ChangeOutcome.KEPT, "not-ours"),
        segment_file(7, TRANSACTION_INDEX_SUFFIX): (ChangeOutcome.KEPT, "not-ours"),
        segment_file(9, SNAPSHOT_SUFFIX): (ChangeOutcome.KEPT, "not-ours"),
    }
    assert {change.place.log_dir for change in done} == {str(log_dir)}


def test_nothing_is_written_in_a_log_dir_that_is_not_locked(place: Place, tmp_path: Path) -> None:
    """Which ones to lock was looked up before; what came into another since then is left to the next run."""
    directory, tasks = _copy(place, tmp_path / "copy")
    before = {path: content for path, content in _tree(directory).items() if path.startswith("kafka-logs")}
    done = list(compact_each_partition(tasks, place.everything, Mode.APPLY, use_mmap=True))
    assert before.items() <= _tree(directory).items()
    kept = [change for change in done if change.reason == "not-locked"]
    assert {change.place.log_dir for change in kept} == {str(directory / "kafka-logs")} and len(kept) == 8
    assert {change.outcome for change in kept} == {ChangeOutcome.KEPT}


def test_what_is_young_stays(place: Place, tmp_path: Path) -> None:
    """Left-overs of a minute ago may be someone's work; those of segments that are gone are not."""
    _, tasks = _copy(place, tmp_path / "copy")
    now_ms = time.time_ns() // 10**6 + 60_000
    assert {change.reason for change in planned(tasks, options(orphans=True, now_ms=now_ms))} == {
        "no-segment",
        "stray-snapshot",
    }


def test_a_log_that_is_not_what_was_built_keeps_its_indexes(place: Place, tmp_path: Path) -> None:
    """Changed, gone or a link: it is reported, and the other segments go on. In place new files take the log's mode."""
    directory, tasks = _copy(place, tmp_path / "copy")
    changed = directory / "kafka-logs" / "a-0" / segment_file(0, LOG_SUFFIX)
    content = changed.read_bytes()
    changed.unlink()
    changed.write_bytes(content)
    (directory / "kafka-logs" / "b-1" / segment_file(0, LOG_SUFFIX)).unlink()
    done = applied(tasks, options(rules=[Rule(interval_bytes=_SPARSE)], trim=True))
    outcomes = {
        (change.key[1], change.base_offset, change.action, change.reason): change.outcome
        for change in done
        if change.base_offset == 0
    }
    assert outcomes == {
        ("a", 0, ChangeAction.COARSEN, "log-changed"): ChangeOutcome.KEPT,
        ("a", 0, ChangeAction.TRIM, "log-changed"): ChangeOutcome.KEPT,
        ("b", 0, ChangeAction.COARSEN, "unreadable"): ChangeOutcome.KEPT,
        ("b", 0, ChangeAction.TRIM, "unreadable"): ChangeOutcome.KEPT,
    }
    assert {change.outcome for change in done if change.base_offset == 40} == {ChangeOutcome.WRITTEN}


def test_beside_logs_new_files_are_the_logs_owners(tmp_path: Path) -> None:
    place = Place(tmp_path / "place")
    for path in place.log_dir.glob("*/*index"):
        path.unlink()
    for log in place.log_dir.glob("*/*.log"):
        log.chmod(0o640)
    tasks = built(place.log_dir, None, RecoverOptions(interval_bytes=_DENSE))
    done: Sequence[str] = [change.place.path for change in applied(tasks, to_interval(_SPARSE))]
    assert len(done) == 4 and {os.stat(path).st_mode & 0o777 for path in done} == {0o640}
