"""A real broker takes our files: it starts with them, rebuilds nothing, and consumers get what they got before.

A broker takes traffic of many kinds, is restarted amid it, and stops. Its files are then copied for each test, index
files are deleted and rebuilt by the command `kidx`, and a broker starts on the copy. What it did at its start is
read from its own log, what it serves is read by a client that shares no code with it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import numpy as np
import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME

import kidxlib
from kidxlib.format import layouts
from tests.faults.processes import kidx
from tests.kafka.crashed import INDEX_SUFFIXES, lasts
from tests.kafka.reading import Record, Seen, read, read_all
from tests.kafka.traffic import PARTITIONS, Traffic, create_topics
from tests.support.consumed import Row, read_rows
from tests.support.kafka.broker import Broker, BrokerRun
from tests.support.logs.snapshots import Producer, producers_in

#: Of `LogLoader` in Kafka 4.3.1: each says that the broker did not take the files of a segment as they were.
_NOT_TAKEN: Final = re.compile(
    "recovering segment and rebuilding index files|Recovering unflushed segment|Found an orphaned index file"
    "|Found invalid offset during recovery|Corruption found in segment|Deleting segments as part of log recovery"
)
_LOADER: Final = re.compile(r"\[LogLoader partition=([^,]+),")
_SNAPSHOT_LOADED: Final = re.compile(
    r"\[ProducerStateManager partition=([^]]+)\] Loading producer state from snapshot file '.*/(\d{20})\.snapshot"
)

#: The controller's own log. A broker never takes it for cleanly stopped, recovers it at each start, and adds to it.
_METADATA: Final = "__cluster_metadata-0"

_SETTINGS: Final = {"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 2}
_STEPS: Final = 350

#: Which transactional producer has a transaction open over the restart, and which in the end.
_OPEN_OVER_RESTART: Final = 3
_LEFT_OPEN: Final = 2

_EPOCHS: Final = "leader-epoch-checkpoint"

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Stopped:
    """A broker after its work, cleanly stopped.

    Attributes:
        seen: what consumers got before the stop.
        files: the index files, snapshots and leader epochs that it left.
        interrupted: the segments that were active when it was restarted, as `<directory>/<base offset>`.
    """

    broker: Broker
    traffic: Traffic
    seen: Seen
    files: dict[str, bytes]
    interrupted: set[str]


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """A copy of it that has files of ours in place of those that were deleted.

    Attributes:
        files: the index files, snapshots and leader epochs, as built.
    """

    broker: Broker
    files: dict[str, bytes]


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory, broker_version: str) -> Stopped:
    broker = Broker(tmp_path_factory.mktemp("kafka") / "broker", _SETTINGS, version=broker_version)
    with broker.running():
        create_topics(broker.bootstrap)
        traffic = Traffic(broker.bootstrap, seed=1)
        traffic.run(_STEPS)
        traffic.end_transactions(but=_OPEN_OVER_RESTART)
    interrupted = {max(segments) for _, segments in _segments_by_partition(broker)}
    with broker.running():
        traffic.run(_STEPS)
        traffic.end_transactions(but=_LEFT_OPEN)
        seen = read_all(broker.bootstrap, PARTITIONS)
    return Stopped(broker, traffic, seen, _auxiliary_files(broker), interrupted)


@pytest.fixture(scope="module")
def indexes_rebuilt(stopped: Stopped) -> Rebuilt:
    """The broker lost its index files alone."""
    return _rebuild(stopped, "indexes-rebuilt", everything=False)


@pytest.fixture(scope="module")
def all_rebuilt(stopped: Stopped) -> Rebuilt:
    """The broker lost its producer snapshots and leader epochs too."""
    return _rebuild(stopped, "all-rebuilt", everything=True)


@pytest.fixture(params=["indexes", "all"])
def rebuilt(request: pytest.FixtureRequest, indexes_rebuilt: Rebuilt, all_rebuilt: Rebuilt) -> Rebuilt:
    return indexes_rebuilt if request.param == "indexes" else all_rebuilt


def test_traffic_is_of_many_kinds(stopped: Stopped) -> None:
    """The files that all this is tried on hold what can go wrong: else the other tests show little."""
    segments = [len(segments) for directory, segments in _segments_by_partition(stopped.broker) if directory[0] != "_"]
    assert len(segments) == len(PARTITIONS) and min(segments) >= 3 and sum(segments) >= 60, segments
    aborted = {
        segment: np.frombuffer(content, layouts.ABORTED_TRANSACTION)
        for segment, content in _of(stopped.files, ".txnindex").items()
    }
    from_earlier_segments = [
        segment for segment, entries in aborted.items() if (entries["first_offset"] < int(Path(segment).name)).any()
    ]
    held_up_by_others = [
        segment
        for segment, entries in aborted.items()
        if (entries["last_stable_offset"] <= entries["last_offset"]).any()
    ]
    assert len(from_earlier_segments) >= 10 and len(held_up_by_others) >= 10
    seen = stopped.seen
    # A clean stop takes one epoch, the new start the next.
    assert {record.leader_epoch for found in seen.uncommitted.values() for record in found.records} == {0, 2}
    for place in PARTITIONS:
        if place[0] == "transactions":
            assert seen.committed[place].end < seen.uncommitted[place].end
            assert len(seen.committed[place].records) < len(seen.uncommitted[place].records)


def test_broker_takes_rebuilt_files_and_serves_the_same(stopped: Stopped, rebuilt: Rebuilt) -> None:
    """The broker starts on the rebuilt files without rebuilding any, and every consumer gets what it got before.

    Then the transaction that was left open is aborted, so the broker must know of it, and all that was ever committed
    is there to be read.
    """
    broker = rebuilt.broker
    active = {max(segments) for _, segments in _segments_by_partition(broker)}
    times = _modification_times(broker)
    with broker.running() as run:
        seen = read_all(broker.bootstrap, PARTITIONS)
        stopped.traffic.abort_left_over(_LEFT_OPEN)
        in_the_end = read(broker.bootstrap, PARTITIONS, "read_committed")

    assert _not_taken(run) == []
    assert any("since clean shutdown file was found" in line for line in run.lines())
    assert _without(_modification_times(broker), active) == _without(times, active)
    snapshots_loaded = {match[1]: int(match[2]) for match in map(_SNAPSHOT_LOADED.search, run.lines()) if match}
    assert seen.differences(stopped.seen) == []
    for topic, partition in PARTITIONS:
        place = (topic, partition)
        end = stopped.seen.uncommitted[place].end
        assert snapshots_loaded[f"{topic}-{partition}"] == end  # so producers were known without reading the log
        committed = {offset for *written_to, offset in stopped.traffic.committed if written_to == [topic, partition]}
        assert {record.offset for record in in_the_end[place].records} == committed
        assert in_the_end[place].end >= end
        stable = seen.committed[place]
        assert {record.offset for record in stable.records} == {offset for offset in committed if offset < stable.end}


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_what_is_read_from_its_files_is_what_consumers_got(stopped: Stopped, isolation: str) -> None:
    """Of each partition, all of it and from one offset to below another."""
    seen = stopped.seen.committed if isolation == "read_committed" else stopped.seen.uncommitted
    for topic, partition in PARTITIONS:
        directory = stopped.broker.log_dir / f"{topic}-{partition}"
        records = seen[topic, partition].records
        found = kidxlib.read(directory, isolation=isolation, include_headers=True).read_all()
        assert read_rows(found) == [_row(topic, partition, record) for record in records]
        middle = [record.offset for record in records[len(records) // 3 : 2 * len(records) // 3]]
        part = kidxlib.read(directory, isolation=isolation, columns=["offset"], offsets=(middle[0], middle[-1] + 1))
        assert part.read_all()["offset"].to_pylist() == middle


def _row(topic: str, partition: int, record: Record) -> Row:
    timestamp_type, timestamp = record.timestamp
    return {
        "key": record.key,
        "value": record.value,
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp": timestamp,
        "timestampType": {TIMESTAMP_CREATE_TIME: 0, TIMESTAMP_LOG_APPEND_TIME: 1}[timestamp_type],
        "headers": [{"key": key, "value": value} for key, value in record.headers] or None,
    }


def test_rebuilt_index_files_equal_the_brokers_own(stopped: Stopped, rebuilt: Rebuilt) -> None:
    """Byte for byte what the broker wrote as it went, but where it was restarted within a segment: there it counted
    the interval from zero (`docs/fidelity.md`)."""
    for suffix in (".index", ".timeindex"):
        theirs, ours = _of(stopped.files, suffix), _of(rebuilt.files, suffix)
        assert ours.keys() == theirs.keys()
        assert _differing(_without(ours, stopped.interrupted), _without(theirs, stopped.interrupted)) == []
    assert _differing(_of(rebuilt.files, ".txnindex"), _of(stopped.files, ".txnindex")) == []


def test_rebuilt_snapshots_and_epochs_equal_the_brokers_own(stopped: Stopped, all_rebuilt: Rebuilt) -> None:
    """Each snapshot holds the producers that the broker's own does, and those that it dropped when it was restarted
    because they had been silent for a day. Epochs are those that records tell of."""
    ours, theirs = _snapshots(all_rebuilt.files), _snapshots(stopped.files)
    # What it left when it was first stopped. A broker deletes such a snapshot at a start, once there is a later one.
    left_at_restart = {snapshot for snapshot in theirs if snapshot not in _segments(stopped.broker)} - ours.keys()
    assert left_at_restart and ours.keys() == theirs.keys() - left_at_restart
    dropped = _dropped(ours, theirs)
    assert dropped and not any(map(lasts, dropped))

    our_epochs, their_epochs = _epochs(all_rebuilt.files), _epochs(stopped.files)
    without_records = {directory for directory, epochs in our_epochs.items() if not epochs}
    assert without_records.isdisjoint(f"{topic}-{partition}" for topic, partition in PARTITIONS)
    assert our_epochs == {**their_epochs, **{directory: [] for directory in without_records}}


def test_broker_rebuilds_what_is_missing_to_the_same_bytes(stopped: Stopped, all_rebuilt: Rebuilt) -> None:
    """The other tests can fail: without our files the broker rebuilds every segment, and its log says so.

    It comes to the same bytes, for the segments too in which it was restarted.
    """
    broker = _with_files_lost(stopped, "not-rebuilt", everything=True)
    with broker.running() as run:
        pass
    segments = [segment for segment in _segments(broker) if not segment.startswith(_METADATA)]
    assert len(_not_taken(run)) == len(segments)
    ours, theirs = _apart_from_metadata(all_rebuilt.files), _apart_from_metadata(_auxiliary_files(broker))
    for suffix in INDEX_SUFFIXES:
        assert _differing(_of(ours, suffix), _of(theirs, suffix)) == []
    our_snapshots, their_snapshots = _snapshots(ours), _snapshots(theirs)
    assert our_snapshots.keys() == their_snapshots.keys()
    assert not any(map(lasts, _dropped(our_snapshots, their_snapshots)))
    # Its start began an epoch of its own, in which nothing was written.
    assert _epochs(ours) == {directory: epochs[:-1] for directory, epochs in _epochs(theirs).items()}


def _rebuild(stopped: Stopped, name: str, *, everything: bool) -> Rebuilt:
    broker = _with_files_lost(stopped, name, everything=everything)
    more = ("--snapshots", "--epochs") if everything else ()
    ended = kidx("build", broker.log_dir, "--in-place", *more)
    assert ended.code == 0, ended
    return Rebuilt(broker, _auxiliary_files(broker))


def _with_files_lost(stopped: Stopped, name: str, *, everything: bool) -> Broker:
    """A copy of the broker without its index files, or without anything but its logs."""
    broker = stopped.broker.copy(stopped.broker.directory.with_name(name))
    for file in _auxiliary_files(broker):
        if everything or file.endswith(INDEX_SUFFIXES):
            (broker.log_dir / file).unlink()
    return broker


def _auxiliary_files(broker: Broker) -> dict[str, bytes]:
    """Its index files, producer snapshots and leader epochs by `<directory>/<name>`."""
    return {
        str(path.relative_to(broker.log_dir)): path.read_bytes()
        for path in broker.log_dir.glob("*/*")
        if path.suffix in (*INDEX_SUFFIXES, ".snapshot") or path.name == _EPOCHS
    }


def _segments_by_partition(broker: Broker) -> Iterator[tuple[str, list[str]]]:
    """Each partition's directory with its segments as `<directory>/<base offset>`."""
    segments = sorted(str(path.relative_to(broker.log_dir).with_suffix("")) for path in broker.log_dir.glob("*/*.log"))
    for directory, found in itertools.groupby(segments, lambda segment: segment.partition("/")[0]):
        yield directory, list(found)


def _segments(broker: Broker) -> set[str]:
    return {segment for _, segments in _segments_by_partition(broker) for segment in segments}


def _modification_times(broker: Broker) -> dict[str, list[int]]:
    """When each segment's index files were last written to."""
    return {
        segment: [
            path.stat().st_mtime_ns
            for path in (broker.log_dir / f"{segment}{suffix}" for suffix in INDEX_SUFFIXES)
            if path.exists()
        ]
        for segment in _segments(broker)
    }


def _of(files: dict[str, bytes], suffix: str) -> dict[str, bytes]:
    """The files with that suffix, by segment."""
    return {name.removesuffix(suffix): content for name, content in files.items() if name.endswith(suffix)}


def _without(by_segment: dict[str, _T], segments: Collection[str]) -> dict[str, _T]:
    return {segment: item for segment, item in by_segment.items() if segment not in segments}


def _apart_from_metadata(files: dict[str, bytes]) -> dict[str, bytes]:
    return {name: content for name, content in files.items() if not name.startswith(_METADATA)}


def _differing(ours: dict[str, bytes], theirs: dict[str, bytes]) -> list[str]:
    return [name for name in sorted({*ours, *theirs}) if ours.get(name) != theirs.get(name)]


def _snapshots(files: dict[str, bytes]) -> dict[str, frozenset[Producer]]:
    return {name: producers_in(content) for name, content in _of(files, ".snapshot").items()}


def _dropped(ours: dict[str, frozenset[Producer]], theirs: dict[str, frozenset[Producer]]) -> list[Producer]:
    """The producers of our snapshots that theirs do not have; theirs have no others."""
    assert [name for name, producers in ours.items() if not theirs[name] <= producers] == []
    return [producer for name, producers in ours.items() for producer in producers - theirs[name]]


def _epochs(files: dict[str, bytes]) -> dict[str, list[tuple[int, int]]]:
    """Leader epochs and their first offsets, by directory."""
    found = {}
    for name, content in _of(files, f"/{_EPOCHS}").items():
        lines = content.decode().splitlines()[2:]  # after version and count
        found[name] = [(int(epoch), int(offset)) for epoch, offset in map(str.split, lines)]
    return found


def _not_taken(run: BrokerRun) -> list[str]:
    """What a broker said about segments that it did not take as they were, the controller's own log left out."""
    said = []
    for line in run.lines():
        loader = _LOADER.search(line)
        if loader and _NOT_TAKEN.search(line) and loader[1] != _METADATA:
            said.append(line)
    return said
