"""Builds that are killed, lose their power or run twice at once: the next one ends as if nothing had happened."""

from __future__ import annotations

import enum
import fcntl
import os
import random
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from kidxlib.engine.local import Workers
from kidxlib.format.segment_files import OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX
from kidxlib.terminal.exit_codes import ExitCode
from tests.conftest import Say
from tests.faults import children, disks
from tests.faults.conftest import Guard
from tests.faults.processes import (
    DEADLINE_SECONDS,
    Child,
    Running,
    again_if_too_late,
    end,
    kill_session,
    run_child,
    running_kidx,
    session,
    start_kidx,
    wait_for_end,
)
from tests.faults.trees import (
    OLD_INDEX,
    Entry,
    age,
    assert_each_index_has_its_transaction_index,
    assert_no_offset_index_alone,
    assert_whole,
    copy_tree,
    in_memory,
    indexes,
    is_final,
    is_staging,
    kafkas_indexes,
    link_samples,
    lying_log,
    small_log,
    snapshot,
    staging_files,
    write_log,
)
from tests.faults.watching import Did, Event, Watch

#: 130 partitions, 312 segments, 676 index files: published in four groups.
COPIES: Final = 26

_BASE_LOG: Final = "00000000000000000000.log"


@pytest.fixture(scope="module")
def log_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Many partitions with real segments. Only ever linked, never built in."""
    return link_samples(tmp_path_factory.mktemp("kills") / "kafka-logs", COPIES)


@pytest.fixture(scope="module")
def small_log_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two partitions, five segments, twelve index files, two of them of aborted transactions."""
    directory = tmp_path_factory.mktemp("kills") / "kafka-logs"
    return link_samples(directory, 1, ["txn-mixed", "__transaction_state"])


class Where(enum.Enum):
    INDEX_DIR = "index-dir"
    IN_PLACE = "in place"


class Place:
    """A log dir, and where one round of builds puts its indexes."""

    def __init__(self, directory: Path, log_dir: Path, where: Where) -> None:
        self.where = where
        self.log_dir = copy_tree(log_dir, directory / "kafka-logs") if where is Where.IN_PLACE else log_dir
        self.root = self.log_dir if where is Where.IN_PLACE else directory / "index"
        self.partitions = [self.root / path.name for path in log_dir.iterdir() if path.is_dir()]

    @property
    def arguments(self) -> tuple[Path, Path | None]:
        """For a build in a child."""
        return self.log_dir, None if self.where is Where.IN_PLACE else self.root

    def make_directories(self) -> None:
        """So that they can be watched from the start."""
        for partition in self.partitions:
            partition.mkdir(parents=True, exist_ok=True)


class Undisturbed:
    """What builds leave when nothing happens to them: the same bytes that Kafka writes."""

    def __init__(self, directory: Path, log_dir: Path) -> None:
        self.indexes = kafkas_indexes(log_dir)
        self.trees: dict[Where, dict[str, Entry]] = {}
        self.seconds: dict[Where, float] = {}
        for where in Where:
            place = Place(directory / where.name, log_dir, where)
            start = time.monotonic()
            run_child(children.build, *place.arguments)
            self.seconds[where] = time.monotonic() - start
            assert indexes(place.root) == self.indexes
            self.trees[where] = snapshot(place.root)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, log_dir: Path) -> Undisturbed:
    return Undisturbed(tmp_path_factory.mktemp("undisturbed"), log_dir)


@pytest.fixture(scope="module")
def small_undisturbed(tmp_path_factory: pytest.TempPathFactory, small_log_dir: Path) -> Undisturbed:
    return Undisturbed(tmp_path_factory.mktemp("undisturbed"), small_log_dir)


def kill_at_event(child: Child, watch: Watch, did: Did, number: int) -> list[Event]:
    """Kill at the number-th staging file that is made, or index that gets its final name. All that happened."""
    happened, wanted = [], 0
    for event in watch.events(child.process.sentinel):
        happened.append(event)
        wanted += did in event.did and (is_final if did is Did.RENAME_HERE else is_staging)(event.name)
        if wanted == number:
            child.process.kill()
    return happened


def assert_published_by_renaming(happened: list[Event], old: bool) -> None:
    """Final names appear by renaming only, nothing else is written to, and each `.timeindex` before its `.index`."""
    renamed = set()
    for event in happened:
        if is_staging(event.name) or event.name == ".lock":
            continue
        assert is_final(event.name) and event.did is Did.RENAME_HERE, event
        renamed.add(event.directory / event.name)
        if event.name.endswith(OFFSET_INDEX_SUFFIX) and not old:
            time_index = event.name.removesuffix(OFFSET_INDEX_SUFFIX) + TIME_INDEX_SUFFIX
            assert event.directory / time_index in renamed, f"{event.directory / event.name} before its .timeindex"


class Moment(enum.Enum):
    AT_A_TIME = "at a random time"
    AT_STAGING = "when the n-th staging file is made"
    AT_RENAMING = "when the n-th index gets its final name"


def build_and_kill(place: Place, moment: Moment, undisturbed: Undisturbed, old: bool, rng: random.Random) -> bool:
    """Start a build and kill it at that moment; whether it had not ended before."""
    with (
        Watch(place.partitions if moment is not Moment.AT_A_TIME else ()) as watch,
        Child(children.build, *place.arguments) as child,
    ):
        if moment is Moment.AT_A_TIME:
            child.process.join(rng.uniform(0, undisturbed.seconds[place.where]))
            child.process.kill()
        else:
            did = Did.RENAME_HERE if moment is Moment.AT_RENAMING else Did.CREATE
            happened = kill_at_event(child, watch, did, rng.randint(1, len(undisturbed.indexes) - 50))
            assert_published_by_renaming(happened, old)
        _, code = child.end()
    assert code in (0, -signal.SIGKILL)
    return code != 0


def assert_left_whole(place: Place, undisturbed: Undisturbed, old: bool = False) -> None:
    """What a killed build leaves: Kafka's bytes or the old ones, and no index without those that belong to it."""
    found = indexes(place.root)
    assert_whole(found, undisturbed.indexes, OLD_INDEX if old else None)
    if not old:
        assert_no_offset_index_alone(found)
        if place.where is Where.IN_PLACE:
            assert_each_index_has_its_transaction_index(found, undisturbed.indexes)


def assert_next_build_finishes(place: Place, undisturbed: Undisturbed, killed: str) -> None:
    """It leaves what one build leaves, and no staging file that is older than any run."""
    age(staging_files(place.root))
    run_child(children.build, *place.arguments)
    assert snapshot(place.root) == undisturbed.trees[place.where], killed


def test_a_killed_build_is_finished_by_the_next_one(
    tmp_path: Path,
    log_dir: Path,
    undisturbed: Undisturbed,
    guard: Guard,
    rng: random.Random,
    say: Say,
    exhaustive: bool,
) -> None:
    """Kill -9 at random times and at random events among the 676 files, by turns in an index directory and in place;
    every other time zeros of an old index stand under half of the final names. What the first build leaves must be
    Kafka's bytes or the old ones; after the second one, all is the same as without the kill: bytes, modes, no staging
    file.
    """
    guard(log_dir)
    kills, killed, left_staging, left_part = (100 if exhaustive else 6), 0, 0, 0
    start = time.monotonic()
    for number in range(kills):
        where = list(Where)[number % 2]
        moment = (Moment.AT_STAGING, Moment.AT_RENAMING, Moment.AT_A_TIME)[number // 2 % 3]
        place = Place(tmp_path / str(number), log_dir, where)
        names = sorted(undisturbed.indexes)
        old = number % 8 in (1, 2, 4)
        if old or moment is not Moment.AT_A_TIME:
            place.make_directories()
        for name in rng.sample(names, len(names) // 2) if old else ():
            (place.root / name).write_bytes(OLD_INDEX)

        killed += build_and_kill(place, moment, undisturbed, old, rng)
        assert_left_whole(place, undisturbed, old)
        found = indexes(place.root)
        left_staging += bool(staging_files(place.root))
        left_part += 0 < sum(content != OLD_INDEX for content in found.values()) < len(names)

        assert_next_build_finishes(place, undisturbed, f"round {number}, {moment}, {where}")
        shutil.rmtree(tmp_path / str(number))
    say(
        f"{kills} rounds, {killed} killed before the end, {left_staging} left staging files, {left_part} left some of "
        f"the indexes, {time.monotonic() - start:.0f} s"
    )
    assert killed >= kills // 2 and left_staging and left_part


@pytest.mark.parametrize("where", Where, ids=lambda where: where.name.lower())
def test_a_build_killed_before_any_of_its_steps_is_finished_by_the_next_one(
    where: Where,
    tmp_path: Path,
    small_log_dir: Path,
    small_undisturbed: Undisturbed,
    guard: Guard,
    rng: random.Random,
    say: Say,
    exhaustive: bool,
) -> None:
    """A build of twelve files in groups of four kills itself (-9) before its n-th open, mkdir, rename, … for every n
    (every fourth, but for --exhaustive). The same then holds as for random kills.
    """
    guard(small_log_dir)
    every = Place(tmp_path / "every", small_log_dir, where)
    (steps,) = run_child(children.build_until_step, *every.arguments, None)
    tried = range(steps) if exhaustive else range(rng.randrange(4), steps, 4)
    for step in tried:
        place = Place(tmp_path / str(step), small_log_dir, where)
        with Child(children.build_until_step, *place.arguments, step) as child:
            assert child.end() == ([], -signal.SIGKILL)
        assert_left_whole(place, small_undisturbed)
        assert_next_build_finishes(place, small_undisturbed, f"killed before step {step} of {steps}")
    say(f"{len(tried)} of {steps} steps")


def test_indexes_of_rows_that_were_given_out_outlive_a_power_cut(
    tmp_path: Path,
    log_dir: Path,
    undisturbed: Undisturbed,
    guard: Guard,
    rng: random.Random,
    say: Say,
    exhaustive: bool,
) -> None:
    """A build into an ext4 in a file, while another process makes the file system commit names (not contents) by
    flushing a file of its own again and again. At a random row ext4 is made to forget all that was not flushed (the
    ioctl of its own crash tests), then mounted again. Skips where it may not be mounted.
    """
    guard(log_dir)
    image = disks.make_image(tmp_path / "empty.img")
    rounds, missing, segments = (40 if exhaustive else 3), 0, len(list(log_dir.glob("*/*.log")))
    for number in range(rounds):
        disk = Path(shutil.copy(image, tmp_path / "disk.img"))
        index_dir = tmp_path / "disk" / "index"
        rows: set[Path] = set()
        with disks.mounted(tmp_path / "disk", disk, "ext4", "loop"):
            last_row = rng.randint(1, segments - 1)
            with (
                Child(children.flush_forever, tmp_path / "disk" / "noise") as noise,
                Child(children.build_and_tell, log_dir, index_dir) as child,
            ):
                assert noise.received.recv() == "flushing"
                while len(rows) < last_row:
                    rows.add(child.received.recv())
                child.process.join(rng.uniform(0, 0.02))
                disks.cut_power(tmp_path / "disk")
        with disks.mounted(tmp_path / "disk", disk, "ext4", "loop"):
            found = indexes(index_dir)
            assert_whole(found, undisturbed.indexes)
            assert_no_offset_index_alone(found)
            for log in rows:
                assert f"{log.parent.name}/{log.stem}{OFFSET_INDEX_SUFFIX}" in found, f"round {number}: {log}"
            missing += len(undisturbed.indexes) - len(found)
            age(staging_files(index_dir))
            run_child(children.build, log_dir, index_dir)
            assert snapshot(index_dir) == undisturbed.trees[Where.INDEX_DIR]
    say(f"{rounds} power cuts, {missing} of {rounds * len(undisturbed.indexes)} indexes not there after them")
    assert missing


def test_two_builds_at_the_same_time_leave_what_one_leaves(
    tmp_path: Path, log_dir: Path, undisturbed: Undisturbed, guard: Guard, say: Say, exhaustive: bool
) -> None:
    """Both wait for one lock and start when it is released, into no directory at all or into directories that are
    watched: what gets a final name is read at once. In the end all is as one build leaves it, without staging files.
    Once with the command itself.
    """
    guard(log_dir)
    rounds = 60 if exhaustive else 4
    for number in range(rounds):
        place = Place(tmp_path / str(number), log_dir, Where.INDEX_DIR)
        if number % 2:
            place.make_directories()
        gate = tmp_path / "gate"
        with gate.open("w") as file, Watch(place.partitions if number % 2 else ()) as watch, ExitStack() as stack:
            fcntl.flock(file, fcntl.LOCK_EX)
            both = [stack.enter_context(Child(children.build, *place.arguments, gate)) for _ in range(2)]
            assert [child.received.recv() for child in both] == ["waiting", "waiting"]
            fcntl.flock(file, fcntl.LOCK_UN)
            for child in both:
                for event in watch.events(child.process.sentinel):
                    if is_final(event.name):
                        assert event.did is Did.RENAME_HERE
                        name = f"{event.directory.name}/{event.name}"
                        assert (event.directory / event.name).read_bytes() == undisturbed.indexes[name]
            assert [child.end() for child in both] == [([], 0), ([], 0)]
        assert snapshot(place.root) == undisturbed.trees[Where.INDEX_DIR]
        shutil.rmtree(place.root)

    arguments = ("build", log_dir, "--index-dir", tmp_path / "index", "--processes", "1")
    commands = [start_kidx(*arguments) for _ in range(2)]
    assert [(ended.code, ended.err) for ended in map(end, commands)] == [(0, ""), (0, "")]
    assert snapshot(tmp_path / "index") == undisturbed.trees[Where.INDEX_DIR]
    say(f"{rounds} rounds")


@pytest.fixture
def slow_log_dir(tmp_path: Path) -> Iterator[Path]:
    """A segment that takes a moment to be checked, and is truncated at its start, and three small ones."""
    directory = tmp_path / "kafka-logs"
    log = lying_log(directory / "slow-0", 0, 1 << 30)
    for partition, base_offset in (("slow-0", 1), ("fast-0", 0), ("fast-0", 1)):
        write_log(directory / partition, base_offset, small_log(base_offset=base_offset))
    with in_memory(log):
        yield directory


@again_if_too_late
def test_workers_end_with_the_command(slow_log_dir: Path, guard: Guard) -> None:
    """When `kidx build --in-place` is killed, and so its lock is free, nobody writes to the log dir any more. Kill -9
    the first process alone while a worker scans; all of its processes end, and that log gets no index.
    """
    guard(slow_log_dir)
    log = slow_log_dir / "slow-0" / _BASE_LOG
    log.with_suffix(OFFSET_INDEX_SUFFIX).unlink(missing_ok=True)  # of an attempt that came too late
    with start_kidx("build", slow_log_dir, "--in-place", "--accept-truncated", "--processes", "1") as process:
        try:
            Running(process).mapping(log)
            process.send_signal(signal.SIGKILL)
            process.wait()
            deadline = time.monotonic() + 20
            left = [pid for pid in session(process) if not wait_for_end(pid, max(0, deadline - time.monotonic()))]
            assert left == [], "processes that go on without the command and its lock"
            assert not log.with_suffix(OFFSET_INDEX_SUFFIX).exists()
        finally:
            kill_session(process)


@again_if_too_late
def test_a_killed_worker_costs_time_only(tmp_path: Path, slow_log_dir: Path, guard: Guard) -> None:
    """A worker that dies does not stop the build; two in a row end it with one clear line. Kill -9 the worker that has
    mapped a log. In another build, kill also the one that then reads it in chunks.
    """
    guard(slow_log_dir)
    log = slow_log_dir / "slow-0" / _BASE_LOG
    build = ("build", slow_log_dir, "--processes", "1", "--index-dir")

    with running_kidx(*build, tmp_path / "one", "--json") as running:
        running.kill(running.mapping(log))
    ended = running.ended
    assert (ended.code, ended.json["by_status"]) == (ExitCode.PROBLEMS_FOUND, {"truncated": 1, "ok": 3}), ended
    assert len(indexes(tmp_path / "one")) == 8
    (warning,) = ended.err.splitlines()
    assert warning.startswith("warning: a worker process died"), warning

    with running_kidx(*build, tmp_path / "two") as running:
        running.kill(running.mapping(log))
        running.kill(running.reading(log))
    ended = running.ended
    assert (ended.code, ended.out) == (ExitCode.FAILED, ""), ended
    assert [line.partition(":")[0] for line in ended.err.splitlines()] == ["warning", "warning", "error"], ended
    assert_whole(indexes(tmp_path / "two"), indexes(tmp_path / "one"))


def test_a_worker_that_is_killed_between_two_kinds_of_work_is_replaced() -> None:
    """Kill -9 the only worker, then give it something to do."""
    pids: list[int] = []
    with Workers(1) as workers:
        workers.run(children.own_pid, ["work"], pids.append)
        os.kill(pids[0], signal.SIGKILL)
        assert wait_for_end(pids[0], DEADLINE_SECONDS)
        workers.run(children.own_pid, ["work"], pids.append)
    assert len(set(pids)) == 2
