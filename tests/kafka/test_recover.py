"""A killed broker's disk, started alone and after `kidx recover`: the same logs, records, side files and producers."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType

from kidxlib.format.checkpoint_files import LEADER_EPOCH_CHECKPOINT
from kidxlib.format.segment_files import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
)
from kidxlib.terminal.exit_codes import ExitCode
from tests.faults.processes import Ended, kidx
from tests.kafka.reading import TIMEOUT_SECONDS, Seen, read_all
from tests.kafka.traffic import PARTITIONS, Traffic, create_topics
from tests.support.kafka.broker import Broker
from tests.support.logs.snapshots import Producer, producers_in

_SETTINGS: Final = {"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 2}
_STEPS: Final = 200
_LEFT_OPEN: Final = 2
_INDEX_SUFFIXES: Final = (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
_METADATA: Final = "__cluster_metadata-0"
_TORN: Final = "transactions-1"

#: Of `LogLoader` and `LogManager` in Kafka 4.3.1.
_RECOVERED: Final = re.compile(r"\[LogLoader partition=([^,]+),.*Recovering unflushed segment (\d+)")
_SKIPPED: Final = re.compile(r"Skipping recovery of (\d+) logs from .* since clean shutdown file was found")


@dataclass(frozen=True, slots=True)
class _Started:
    """What came of a disk that a broker was started on.

    Attributes:
        recovered: how many segments the broker read again, by partition.
        skipped: it found a clean shutdown.
        files: index files and epochs after its next clean stop.
        producers: those of its snapshots then.
    """

    seen: Seen
    recovered: Mapping[str, int]
    skipped: bool
    files: Mapping[str, bytes]
    producers: Mapping[str, frozenset[Producer]]


class _Crashed:
    """A killed broker's disk with some damage, and what a broker makes of it by itself."""

    def __init__(self, broker: Broker, directory: Path, damage: Callable[[Path], None]) -> None:
        self._broker, self._directory = broker, directory
        self._damage, self._numbers = damage, itertools.count()
        self.alone = _started(self.copy())

    def copy(self) -> Broker:
        twin = self._broker.copy(self._directory / str(next(self._numbers)))
        self._damage(twin.log_dir)
        return twin


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Broker:
    """It was stopped cleanly once, and killed amid work, with a transaction open; one topic has its own interval."""
    broker = Broker(tmp_path_factory.mktemp("recover") / "broker", _SETTINGS)
    with broker.running():
        create_topics(broker.bootstrap)
        entry = ConfigEntry("index.interval.bytes", "512", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, "transactions", incremental_configs=[entry])
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        [altered] = admin.incremental_alter_configs([resource]).values()
        altered.result(TIMEOUT_SECONDS)
        traffic = Traffic(broker.bootstrap, seed=7)
        traffic.run(_STEPS // 4)
        traffic.end_transactions(but=_LEFT_OPEN)
    with broker.running_until_killed():
        traffic.run(_STEPS)
        # Markers that are still to be written a broker would write after its start, sooner or later.
        traffic.end_transactions(but=_LEFT_OPEN)
    return broker


def _as_it_was(log_dir: Path) -> None:
    pass


def _torn_and_lost(log_dir: Path) -> None:
    """The last append is cut, zeros follow another; of a topic all that is not a log is gone."""
    logs = sorted((log_dir / _TORN).glob(f"*{LOG_SUFFIX}"))
    os.truncate(logs[-1], max(logs[-1].stat().st_size - 30, 0))
    with sorted((log_dir / "plain-0").glob(f"*{LOG_SUFFIX}"))[-1].open("ab") as log:
        log.write(bytes(4096))
    for path in (log_dir / "plain-1").iterdir():
        if path.suffix in (*_INDEX_SUFFIXES, SNAPSHOT_SUFFIX):
            path.unlink()


@pytest.fixture(scope="module")
def crashed(killed: Broker, tmp_path_factory: pytest.TempPathFactory) -> _Crashed:
    return _Crashed(killed, tmp_path_factory.mktemp("crashed"), _as_it_was)


def test_a_broker_reads_one_segment_of_each_partition_again(crashed: _Crashed) -> None:
    """At the level of checkpoints. By itself it reads all that it has written since it was stopped last."""
    broker = crashed.copy()
    ended = kidx("recover", broker.log_dir, "--apply", "--json")
    assert ended.code == 0, ended
    assert ended.json["applied"] and ended.json["start_bytes_now"] < ended.json["start_bytes"] / 3
    started = _started(broker)
    assert started.recovered == dict.fromkeys(crashed.alone.recovered, 1) and not started.skipped
    assert sum(crashed.alone.recovered.values()) > 3 * len(started.recovered)
    _assert_same(started, crashed.alone)


def test_a_broker_that_finds_the_marker_reads_nothing_again(crashed: _Crashed) -> None:
    broker = crashed.copy()
    ended = kidx("recover", broker.log_dir, "--apply", "--level", "marker")
    assert ended.code == 0 and "the broker finds a clean shutdown, of an unknown epoch" in ended.out, ended
    started = _started(broker)
    assert started.recovered == {} and started.skipped
    _assert_same(started, crashed.alone)


def test_a_plan_writes_nothing_and_says_the_same_twice(crashed: _Crashed) -> None:
    broker = crashed.copy()
    before = _digest(broker.log_dir)
    first, second = (kidx("recover", broker.log_dir, "--json") for _ in range(2))
    assert first.code == 0 and _digest(broker.log_dir) == before
    assert _without_times(first.json) == _without_times(second.json)
    applied = kidx("recover", broker.log_dir, "--apply", "--json")
    after = _digest(broker.log_dir)
    again = kidx("recover", broker.log_dir, "--apply", "--json")
    assert (applied.code, again.code) == (0, 0) and _digest(broker.log_dir) == after
    assert again.json["start_bytes"] == again.json["start_bytes_now"] == applied.json["start_bytes_now"]


def test_torn_ends_and_lost_files(killed: Broker, tmp_path: Path) -> None:
    """The broker cuts off what was never whole, whoever has prepared its start; the marker would have it keep that."""
    crashed = _Crashed(killed, tmp_path, _torn_and_lost)
    broker = crashed.copy()
    before = _digest(broker.log_dir)
    refused = kidx("recover", broker.log_dir, "--apply", "--level", "marker", "--json")
    assert refused.code == ExitCode.USAGE and _digest(broker.log_dir) == before
    assert "an append was not finished" in refused.json["refused"][0]
    left = kidx("recover", broker.log_dir, "--apply", "--level", "marker", "--or-leave")
    assert left.code == 0 and _digest(broker.log_dir) == before
    ended = kidx("recover", broker.log_dir, "--apply", "--json")
    assert ended.code == ExitCode.PROBLEMS_FOUND, ended
    dropped = {Path(each["directory"]).name: each["dropped"] for each in ended.json["partitions"] if each["dropped"]}
    assert dropped.keys() >= {"plain-0"} and all(each["unfinished"] for found in dropped.values() for each in found)
    _assert_same(_started(broker), crashed.alone)


def test_what_would_be_lost_is_refused(killed: Broker, tmp_path: Path) -> None:
    """A batch amid a log is damaged: the broker cuts it, and drops the segments after it. Nothing is changed, until
    somebody accepts that; then the partition is left to the broker.
    """

    def damage(log_dir: Path) -> None:
        with sorted((log_dir / "plain-0").glob(f"*{LOG_SUFFIX}"))[-3].open("r+b") as log:
            log.seek(4000)
            log.write(b"\xff" * 64)

    crashed = _Crashed(killed, tmp_path, damage)
    broker = crashed.copy()
    before = _digest(broker.log_dir)
    refused = kidx("recover", broker.log_dir, "--apply")
    assert refused.code == ExitCode.USAGE and _digest(broker.log_dir) == before
    assert "refused: " in refused.out and "--accept-loss leaves it to the broker" in refused.out
    ended = kidx("recover", broker.log_dir, "--apply", "--accept-loss", "--json")
    assert ended.code == ExitCode.PROBLEMS_FOUND, ended
    [left] = [each for each in ended.json["partitions"] if each["left_to_the_broker"]]
    assert Path(left["directory"]).name == "plain-0" and left["dropped"]
    _assert_same(_started(broker), crashed.alone)


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        (lambda log_dir: (log_dir / "meta.properties").unlink(), ("meta.properties: missing",)),
        (
            lambda log_dir: (log_dir / "meta.properties").write_text("version=0\nbroker.id=1\n"),
            ("version 0, expected 1",),
        ),
        (lambda log_dir: shutil.rmtree(log_dir), ("no such directory",)),
    ],
)
def test_what_is_no_log_dir_of_a_broker(
    killed: Broker, tmp_path: Path, change: Callable[[Path], object], parts: tuple[str, ...]
) -> None:
    broker = killed.copy(tmp_path / "broker")
    change(broker.log_dir)
    kidx("recover", broker.log_dir, "--apply").assert_one_line(ExitCode.USAGE, *parts)


def test_a_swap_under_way_and_a_running_broker(killed: Broker, tmp_path: Path) -> None:
    broker = killed.copy(tmp_path / "broker")
    log = sorted((broker.log_dir / "plain-0").glob(f"*{LOG_SUFFIX}"))[0]
    swap = log.with_name(f"{log.name}{SWAP_SUFFIX}")
    log.rename(swap)
    refused = kidx("recover", broker.log_dir, "--apply")
    assert refused.code == ExitCode.USAGE and f"refused: {swap}: the broker was about to put it" in refused.out
    swap.rename(log)
    with broker.running():
        running: Ended = kidx("recover", broker.log_dir)
        running.assert_one_line(ExitCode.USAGE, ".lock: held by another process")
    stopped = kidx("recover", broker.log_dir, "--apply")
    assert stopped.code == 0 and "stopped cleanly" in stopped.out


def _started(broker: Broker) -> _Started:
    """Start a broker on a disk, read all, and stop it."""
    with broker.running() as run:
        seen = read_all(broker.bootstrap, PARTITIONS)
    recovered: dict[str, int] = {}
    for found in filter(None, map(_RECOVERED.search, run.lines())):
        recovered[found[1]] = recovered.get(found[1], 0) + 1
    recovered.pop(_METADATA, None)
    files = {
        str(path.relative_to(broker.log_dir)): path.read_bytes()
        for topic, partition in PARTITIONS
        for path in (broker.log_dir / f"{topic}-{partition}").iterdir()
    }
    return _Started(
        seen=seen,
        recovered=recovered,
        skipped=any(map(_SKIPPED.search, run.lines())),
        files={
            name: content
            for name, content in files.items()
            if name.endswith((*_INDEX_SUFFIXES, LOG_SUFFIX, LEADER_EPOCH_CHECKPOINT))
        },
        producers={name: _lasting(files[name]) for name in files if name.endswith(SNAPSHOT_SUFFIX)},
    )


def _lasting(snapshot: bytes) -> frozenset[Producer]:
    """The producers that a broker does not drop when it loads the snapshot (`producer.id.expiration.ms`)."""
    a_day_ago_ms = time.time() * 1000 - 24 * 60 * 60 * 1000
    return frozenset(
        producer
        for producer in producers_in(snapshot)
        if producer.timestamp > a_day_ago_ms or producer.current_transaction_first_offset >= 0
    )


def _assert_same(started: _Started, alone: _Started) -> None:
    assert started.seen.differences(alone.seen) == []
    assert started.files.keys() == alone.files.keys()
    assert [name for name in alone.files if started.files[name] != alone.files[name]] == []
    assert started.producers == alone.producers and any(alone.producers.values())


def _digest(log_dir: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in log_dir.rglob("*")
        if path.is_file() and path.name != ".lock"
    }


def _without_times(plan: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in plan.items() if name != "plan_seconds"}
