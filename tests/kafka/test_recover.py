"""A killed broker's disk, started alone and after `kidx recover`: the same logs, records, side files and producers."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from kidxlib.format.checkpoint_files import clean_shutdown
from kidxlib.format.segment_files import (
    DELETED_SUFFIX,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
)
from kidxlib.storage.log_dir import CLEAN_SHUTDOWN_FILE, META_PROPERTIES
from kidxlib.terminal.exit_codes import ExitCode
from tests.conftest import Say
from tests.faults.processes import Ended, kidx
from tests.kafka.crashed import INDEX_SUFFIXES, Crashed, Started, killed_broker, logs_of, partition_directory, started
from tests.support.kafka.broker import Broker
from tests.support.kafka.classes import Kafka
from tests.support.kafka.jars import OLDER, with_older_kafkas

_TORN: Final = "transactions-1"


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory, broker_version: str) -> Broker:
    return killed_broker(tmp_path_factory.mktemp("recover") / "broker", broker_version)


def _torn_and_lost(broker: Broker) -> None:
    """The last append is cut, zeros follow another; of a topic all that is not a log is gone."""
    logs = logs_of(broker, _TORN)
    os.truncate(logs[-1], max(logs[-1].stat().st_size - 30, 0))
    with logs_of(broker, "plain-0")[-1].open("ab") as log:
        log.write(bytes(4096))
    for path in partition_directory(broker, "plain-1").iterdir():
        if path.suffix in (*INDEX_SUFFIXES, SNAPSHOT_SUFFIX):
            path.unlink()


@pytest.fixture(scope="module")
def crashed(killed: Broker, tmp_path_factory: pytest.TempPathFactory) -> Crashed:
    return Crashed(killed, tmp_path_factory.mktemp("crashed"))


def _assert_starts_as_by_itself(crashed: Crashed, level: str) -> Started:
    """It reads one segment of each partition again, or nothing where it finds the marker; by itself it reads all that
    it has written since it was stopped last.
    """
    broker, is_marked, by_itself = crashed.copy(), level == "marker", crashed.alone.recovered
    ended = kidx("recover", *broker.log_dirs, "--apply", "--level", level, "--json")
    assert ended.code == 0 and ended.json["applied"], ended
    assert ended.json["start_bytes_now"] < ended.json["start_bytes"] / 3
    found = started(broker)
    assert found.recovered == ({} if is_marked else dict.fromkeys(by_itself, 1))
    assert found.skipped == (len(broker.log_dirs) if is_marked else 0)
    assert sum(by_itself.values()) > 3 * len(by_itself)
    found.assert_same(crashed.alone)
    return found


@pytest.mark.parametrize("level", ["checkpoint", "marker"])
def test_a_broker_starts_as_by_itself(crashed: Crashed, level: str) -> None:
    _assert_starts_as_by_itself(crashed, level)


def test_a_plan_writes_nothing_and_says_the_same_twice(crashed: Crashed) -> None:
    broker = crashed.copy()
    before = _digest(broker)
    first, second = (kidx("recover", *broker.log_dirs, "--json") for _ in range(2))
    assert first.code == 0 and _digest(broker) == before
    assert _without_times(first.json) == _without_times(second.json)
    applied = kidx("recover", *broker.log_dirs, "--apply", "--json")
    after = _digest(broker)
    again = kidx("recover", *broker.log_dirs, "--apply", "--json")
    assert (applied.code, again.code) == (0, 0) and _digest(broker) == after
    assert again.json["start_bytes"] == again.json["start_bytes_now"] == applied.json["start_bytes_now"]


def test_torn_ends_and_lost_files(killed: Broker, tmp_path: Path) -> None:
    """With the marker a broker would keep what was never whole: that is refused, until it was cut where the broker cuts
    it. `test_recover_damages.py` starts brokers on such disks.
    """
    broker, cut_by_us = killed.copy(tmp_path / "broker"), killed.copy(tmp_path / "cut")
    _torn_and_lost(broker)
    _torn_and_lost(cut_by_us)
    before = _digest(broker)
    refused = kidx("recover", *broker.log_dirs, "--apply", "--level", "marker", "--json")
    assert refused.code == ExitCode.USAGE and _digest(broker) == before
    assert "an append was not finished" in refused.json["refused"][0]
    kept = tmp_path / "kept"
    cut = kidx("recover", *cut_by_us.log_dirs, "--apply", "--level", "marker", "--truncate", "--keep", kept, "--json")
    assert cut.code == ExitCode.PROBLEMS_FOUND, cut
    assert {Path(each["directory"]).name for each in cut.json["partitions"] if each["cut"]} >= {"plain-0"}
    zeros = logs_of(broker, "plain-0")[-1]
    assert zeros.read_bytes() == logs_of(cut_by_us, "plain-0")[-1].read_bytes() + bytes(4096)
    [copy] = (kept / "plain-0").iterdir()
    assert copy.name.startswith(f"{zeros.name}.from-") and copy.read_bytes() == bytes(4096)
    left = kidx("recover", *broker.log_dirs, "--apply", "--level", "marker", "--or-leave")
    assert left.code == 0 and _digest(broker) == before
    assert kidx("recover", *broker.log_dirs, "--or-leave").code == 0  # it would be 3
    ended = kidx("recover", *broker.log_dirs, "--apply", "--json")
    assert ended.code == ExitCode.PROBLEMS_FOUND, ended
    dropped = {Path(each["directory"]).name: each["dropped"] for each in ended.json["partitions"] if each["dropped"]}
    assert dropped.keys() >= {"plain-0"} and all(each["unfinished"] for found in dropped.values() for each in found)


def test_what_would_be_lost_is_refused(killed: Broker, tmp_path: Path) -> None:
    """A batch amid a log is damaged: the broker cuts it, and drops the segments after it. Nothing is changed, until
    somebody accepts that; then the partition is left to the broker, or cut. `test_recover_damages.py` starts brokers on
    such disks.
    """
    broker = killed.copy(tmp_path / "broker")
    with logs_of(broker, "plain-0")[-3].open("r+b") as log:
        log.seek(4000)
        log.write(b"\xff" * 64)
    before = _digest(broker)
    refused = kidx("recover", *broker.log_dirs, "--apply")
    assert refused.code == ExitCode.USAGE and _digest(broker) == before
    assert "refused: " in refused.out and "--accept-loss leaves it to the broker" in refused.out
    level = ("--apply", "--level", "marker", "--truncate", "--keep", tmp_path / "kept")
    refused = kidx("recover", *broker.log_dirs, *level)
    assert refused.code == ExitCode.USAGE and _digest(broker) == before
    assert "high watermark" in refused.out and "--accept-loss goes on without" in refused.out
    dropped = {log.stem for log in logs_of(broker, "plain-0")[-3:]}
    cut_by_us = broker.copy(tmp_path / "cut")
    cut = kidx("recover", *cut_by_us.log_dirs, *level, "--accept-loss", "--json")
    assert cut.code == ExitCode.PROBLEMS_FOUND, cut
    assert not any(each["left_to_the_broker"] for each in cut.json["partitions"])
    names = {path.name.partition(LOG_SUFFIX)[0] for path in (tmp_path / "kept" / "plain-0").glob(f"*{LOG_SUFFIX}*")}
    assert names == dropped
    ended = kidx("recover", *broker.log_dirs, "--apply", "--accept-loss", "--json")
    assert ended.code == ExitCode.PROBLEMS_FOUND, ended
    [left] = [each for each in ended.json["partitions"] if each["left_to_the_broker"]]
    assert Path(left["directory"]).name == "plain-0" and left["dropped"]


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        (lambda first, second: (second / META_PROPERTIES).unlink(), ("meta.properties: missing",)),
        (
            lambda first, second: (second / META_PROPERTIES).write_text("version=0\nbroker.id=1\n"),
            ("meta.properties: version 0, of a broker with ZooKeeper",),
        ),
        (
            lambda first, second: shutil.copy(first / META_PROPERTIES, second),
            ("/more/meta.properties: directory.id ", "one of the two is a copy"),
        ),
        (lambda first, second: shutil.rmtree(second), ("no such directory",)),
        (
            lambda first, second: (
                shutil.copytree(first / "plain-0", second / "plain-0", dirs_exist_ok=True)
                if (first / "plain-0").is_dir()
                else shutil.copytree(second / "plain-0", first / "plain-0")
            ),
            ("plain-0: ", "has that partition too"),
        ),
    ],
)
def test_what_is_no_log_dir_of_a_broker(
    killed: Broker, tmp_path: Path, change: Callable[[Path, Path], object], parts: tuple[str, ...]
) -> None:
    """One of several log dirs is lost, foreign, or a copy. Nothing is changed in any; the broker is let start by
    itself where that is asked for.
    """
    broker = killed.copy(tmp_path / "broker")
    change(*broker.log_dirs)
    before = _digest(broker)
    refused = kidx("recover", *broker.log_dirs, "--apply", "--json")
    assert refused.code == ExitCode.USAGE and [p for p in parts if p not in " ".join(refused.json["refused"])] == []
    left = kidx("recover", *broker.log_dirs, "--apply", "--or-leave", "--json")
    assert left.code == 0 and left.json["refused"] == refused.json["refused"]
    assert _digest(broker) == before


def test_a_log_dir_that_nobody_names(killed: Broker, tmp_path: Path) -> None:
    """The cluster knows of it, so what is dropped there is not known. If it is lost the other one is made ready."""
    broker = killed.copy(tmp_path / "broker")
    before = _digest(broker)
    for level in ("marker", "checkpoint"):
        refused = kidx("recover", broker.log_dir, "--apply", "--level", level, "--json")
        assert refused.code == ExitCode.USAGE and _digest(broker) == before
        assert "broker 1 has 1 more log dir (directory.id " in refused.json["refused"][0]
    assert kidx("recover", broker.log_dir, "--apply", "--this-dir-alone").code == 0


def test_a_broker_that_was_killed_as_it_stopped(killed: Broker, kafka: Kafka, tmp_path: Path) -> None:
    """It has left its own marker in one log dir. That must not make the controller take the stop for a clean one, so no
    marker with an epoch is left: beside one of -1 that epoch would count.
    """
    broker = killed.copy(tmp_path / "broker")
    for number, epoch in enumerate((-1, 7)):
        marker = tmp_path / str(number) / CLEAN_SHUTDOWN_FILE
        marker.parent.mkdir()
        marker.write_bytes(clean_shutdown(epoch))
    assert kafka.epoch_of_clean_stop([tmp_path / "0", tmp_path / "1"]) == 7
    (broker.log_dirs[1] / CLEAN_SHUTDOWN_FILE).write_text('{"version":0,"brokerEpoch":7}')
    ended = kidx("recover", *broker.log_dirs, "--apply", "--level", "marker")
    assert ended.code == ExitCode.PROBLEMS_FOUND and "that is not so" in ended.err, "the logs beside it are of a kill"
    assert "the broker finds a marker of a clean stop" in ended.out, ended
    markers = [(log_dir / CLEAN_SHUTDOWN_FILE).read_text() for log_dir in broker.log_dirs]
    assert markers == ['{"version":0,"brokerEpoch":-1}'] * 2
    assert kafka.epoch_of_clean_stop(broker.log_dirs) == -1


def test_producers_that_nothing_tells_are_not_forgotten(killed: Broker, tmp_path: Path) -> None:
    """The first segments are deleted, and all snapshots are lost: a broker that finds a marker would write empty ones.
    That is seen before anything is changed.
    """
    broker = killed.copy(tmp_path / "broker")
    directory = partition_directory(broker, "transactions-0")
    for path in directory.iterdir():
        if path.suffix == SNAPSHOT_SUFFIX or path.name.startswith(f"{0:020}"):
            path.unlink()
    before = _digest(broker)
    refused = kidx("recover", *broker.log_dirs, "--apply", "--level", "marker", "--json")
    assert refused.code == ExitCode.USAGE and _digest(broker) == before
    assert [each for each in refused.json["refused"] if f"{directory}: no producer snapshot" in each]
    ended = kidx("recover", *broker.log_dirs, "--apply")
    assert ended.code == ExitCode.PROBLEMS_FOUND and "first-logs-missing" in ended.out + ended.err, ended


def test_a_swap_under_way_and_a_running_broker(killed: Broker, tmp_path: Path) -> None:
    """A compacted segment takes the place of another, in each phase that a crash may break off in which there are files
    to be renamed (`LogLoaderTest`, `LogCleanerTest.testRecoveryAfterCrash`). What comes before and after is only to be
    deleted: `test_recover_damages.py` has it.
    """
    broker = killed.copy(tmp_path / "broker")
    swaps = [
        _all_are_to_be_renamed(logs_of(broker, "plain-0")[0], is_old_left=True),
        _all_are_to_be_renamed(logs_of(broker, "plain-1")[0], is_old_left=False),
        _indexes_are_to_be_renamed(logs_of(broker, "transactions-0")[0]),
    ]
    before = _digest(broker)
    refused = kidx("recover", *broker.log_dirs, "--apply", "--json")
    assert refused.code == ExitCode.USAGE and _digest(broker) == before
    assert {each.partition(": the broker was about to put it")[0] for each in refused.json["refused"]} == {
        str(swap) for swap in swaps
    }
    with broker.running():
        running: Ended = kidx("recover", broker.log_dir)
        running.assert_one_line(ExitCode.USAGE, ".lock: held by another process")
    stopped = kidx("recover", *broker.log_dirs, "--apply")
    assert stopped.code == 0 and "stopped cleanly" in stopped.out


def _all_are_to_be_renamed(log: Path, *, is_old_left: bool) -> Path:
    """The first of the files that are."""
    swaps = []
    for suffix in (OFFSET_INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX):
        old = log.with_suffix(suffix)
        swaps.append(Path(shutil.copyfile(old, f"{old}{SWAP_SUFFIX}")))
        if not is_old_left:
            old.rename(f"{old}{DELETED_SUFFIX}")
    return swaps[0]


def _indexes_are_to_be_renamed(log: Path) -> Path:
    """The first of the files that are; the log is renamed already."""
    shutil.copyfile(log, f"{log}{DELETED_SUFFIX}")
    index, times = (log.with_suffix(suffix) for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX))
    times.rename(f"{times}{SWAP_SUFFIX}")
    return index.rename(f"{index}{SWAP_SUFFIX}")


def _digest(broker: Broker) -> dict[str, tuple[bytes, int]]:
    return {
        str(path): (path.read_bytes(), path.stat().st_mtime_ns)
        for log_dir in broker.log_dirs
        for path in log_dir.rglob("*")
        if path.is_file() and path.name != ".lock"
    }


def _without_times(plan: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in plan.items() if name != "plan_seconds"}


@with_older_kafkas
@pytest.mark.parametrize("version", OLDER)
def test_an_older_broker_starts_as_by_itself(version: str, tmp_path: Path, say: Say) -> None:
    crashed = Crashed(killed_broker(tmp_path / "broker", version), tmp_path / "crashed")
    found = [_assert_starts_as_by_itself(crashed, level) for level in ("checkpoint", "marker")]
    say(
        f"Kafka {version}: {sum(crashed.alone.recovered.values())} segments of {len(crashed.alone.recovered)} "
        f"partitions recovered alone; {len(found[0].files)} files equal at both levels"
    )
