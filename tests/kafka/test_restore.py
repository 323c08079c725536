"""A killed broker's disk, restored into new log dirs of a new cluster, with its metadata and without: consumers get the
same, groups go on where they were, new producers lose nothing, retention waits until it is let go on, and the source
stays as it was.
"""

from __future__ import annotations

import copy
import re
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.cimpl import NewTopic

from kidxlib.format.segment_files import LOG_SUFFIX
from kidxlib.log.metadata_replica import METADATA_DIRECTORY
from kidxlib.storage.log_dir import CLEAN_SHUTDOWN_FILE
from kidxlib.terminal.exit_codes import ExitCode
from tests.kafka.crashed import killed_broker
from tests.kafka.reading import TIMEOUT_SECONDS, Seen, read, read_all
from tests.kafka.restored import NEW_CLUSTER, assert_described, checked, lift, restore_one, state_of
from tests.kafka.traffic import PARTITIONS
from tests.support.kafka.admin import delete_records, delete_topic, make_topics
from tests.support.kafka.broker import DEADLINE_SECONDS, Broker

_TABLE: Final = ("table", 0)
#: Retention removes all of it, once it runs. Kafka allows such a name; printed commands must be right with it, too.
_BRIEF: Final = ("--help", 0)
_CANARY: Final = "canary"
_BRIEFLY_KEPT: Final = {"internal.segment.bytes": "16384", "retention.ms": "1000"}
_LONG_AGO_MS: Final = 1_577_836_800_000
_NO_RETENTION: Final = {"log.retention.check.interval.ms": 10**9, "log.initial.task.delay.ms": 10**9}
_MUCH_RETENTION: Final = {"log.retention.check.interval.ms": 200, "log.initial.task.delay.ms": 200}
_ALL: Final = [*PARTITIONS, _TABLE, _BRIEF]
_GROUP: Final = "went-on"
_COMMITTED: Final = {("plain", 0): 7, ("transactions", 1): 11, _TABLE: 3}
_FRESH: Final = 50
#: Of `Partition.createLogIfNotExists`.
_HIGH_WATERMARK: Final = re.compile(r"Log loaded for partition (\S+) with initial high watermark (\d+)")
#: What a check says once a group, a log, a topic and a digest have changed.
_CHANGED: Final = (
    "group went-on, plain-0: is at offset 8, restored at 7",
    "plain-1: its log begins at offset 5, restored from 0",
    "topic table: the cluster has none",
    "plain-0, read_committed: ",
    "group went-on, table-0: has no offset, restored at 3",
)


def _use(broker: Broker) -> None:
    """A compacted topic, one whose records are older than it keeps them, and a group with offsets."""
    with broker.running():
        _create(broker.bootstrap, _TABLE[0], {"cleanup.policy": "compact", "segment.ms": "1000000000"})
        _create(broker.bootstrap, _BRIEF[0], _BRIEFLY_KEPT)
        _write_old_records(broker.bootstrap, _BRIEF[0])
        producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
        for number in range(200):
            producer.produce(_TABLE[0], f"value{number}".encode(), f"key{number % 20}".encode(), partition=0)
        assert producer.flush(TIMEOUT_SECONDS) == 0
        consumer = _consumer(broker.bootstrap)
        offsets = [TopicPartition(*place, offset) for place, offset in _COMMITTED.items()]
        consumer.commit(offsets=offsets, asynchronous=False)
        consumer.close()


def _create(bootstrap: str, topic: str, configs: Mapping[str, str]) -> None:
    make_topics(bootstrap, [NewTopic(topic, 1, 1, config=dict(configs))])


def _write_old_records(bootstrap: str, topic: str) -> None:
    """Some segments of records that retention is to remove."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    for number in range(12):
        producer.produce(topic, bytes(5_000), partition=0, timestamp=_LONG_AGO_MS + number)
        assert producer.flush(TIMEOUT_SECONDS) == 0


def _wait_until_empty(bootstrap: str, topic: str) -> None:
    """Wait until retention has removed all segments of a topic."""
    consumer = _consumer(bootstrap)
    deadline = time.monotonic() + DEADLINE_SECONDS
    start, end = 0, 1
    while start < end:
        assert time.monotonic() < deadline, f"{topic} has records from {start} to {end}"
        start, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), TIMEOUT_SECONDS)
    consumer.close()


def _wait_until_retention_has_run(bootstrap: str) -> None:
    """Wait until the broker has looked at all logs: it has removed all of a topic that keeps it for a second, twice."""
    for _ in range(2):
        _write_old_records(bootstrap, _CANARY)
        _wait_until_empty(bootstrap, _CANARY)


def _logs(broker: Broker) -> set[Path]:
    """All segments, but for those that a broker has just renamed to delete them, and the canary's."""
    found = {path for log_dir in broker.log_dirs for path in log_dir.glob(f"*/*{LOG_SUFFIX}")}
    return {path for path in found if not path.parent.name.startswith((_CANARY, METADATA_DIRECTORY))}


def _assert_retention_is_held_until_lifted(new: Broker, commands: Sequence[str], *, is_proven: bool) -> None:
    """Retention removes nothing. Once the hold is lifted, it removes what is proven to be too old, and nothing else."""
    held = _logs(new)
    of_brief = {path for path in held if path.parent.name == _BRIEF[0] + "-0"}
    assert len(of_brief) > 2
    _create(new.bootstrap, _CANARY, _BRIEFLY_KEPT)
    _wait_until_retention_has_run(new.bootstrap)
    assert _logs(new) == held
    lift(new, commands)
    if is_proven:
        _wait_until_empty(new.bootstrap, _BRIEF[0])
    _wait_until_retention_has_run(new.bootstrap)
    assert held - _logs(new) == (of_brief if is_proven else set())


def _assert_cut_by_its_broker(new: Broker) -> None:
    """A broker that was not stopped cleanly cuts an unfinished append off, in place."""
    log = max(path for path in _logs(new) if path.parent.name == "plain-0")
    whole = log.read_bytes()
    with log.open("ab") as torn:
        torn.write(whole[:40])
    for log_dir in new.log_dirs:
        (log_dir / CLEAN_SHUTDOWN_FILE).unlink()
    with new.running():
        pass
    assert log.read_bytes() == whole


def _consumer(bootstrap: str) -> Consumer:
    return Consumer({"bootstrap.servers": bootstrap, "group.id": _GROUP, "enable.auto.commit": False})


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory, broker_version: str) -> Broker:
    return killed_broker(tmp_path_factory.mktemp("restore") / "broker", broker_version, _use, _NO_RETENTION)


@pytest.fixture(scope="module")
def alone(killed: Broker, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """What consumers get of the disk where its own broker starts on it."""
    broker = killed.copy(tmp_path_factory.mktemp("alone") / "broker")
    with broker.running():
        return read_all(broker.bootstrap, _ALL)


def _new_broker(directory: Path, version: str) -> Broker:
    return Broker(directory, _MUCH_RETENTION, more_log_dirs=["more"], version=version, cluster_id=NEW_CLUSTER)


def _restored(old: Broker, new: Broker) -> dict[str, Any]:
    """Plan, and carry the plan out. Return it."""
    planned = restore_one(old, new)
    assert planned.code == ExitCode.OK and not planned.json["applied"], planned
    applied = restore_one(old, new, "--apply", planned.json["plan"])
    assert applied.code == ExitCode.OK and applied.json["applied"], applied
    of_apply = {"contents", "groups", "disks"}
    one, other = ({key: ended.json[key] for key in ended.json if key not in of_apply} for ended in (planned, applied))
    assert other == {**one, "applied": True}
    return applied.json


def _write_afresh(bootstrap: str, partitions: Sequence[tuple[str, int]]) -> None:
    """New producers, whose ids the logs must not know: their records would count as duplicates."""
    for place in partitions:
        for number in range(3):
            producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
            for _ in range(_FRESH):
                producer.produce(place[0], b"fresh", f"fresh{number}".encode(), partition=place[1])
            assert producer.flush(TIMEOUT_SECONDS) == 0


def _assert_changes_are_found(new: Broker, plan: dict[str, Any]) -> None:
    """What was written since is behind the restored records. A check finds all else that has changed."""
    found = checked(new.bootstrap, plan, new.directory)
    assert found.code == ExitCode.OK and any("plain-0" in note for note in found.json["notes"]), found
    consumer = _consumer(new.bootstrap)
    consumer.commit(offsets=[TopicPartition("plain", 0, 8)], asynchronous=False)
    consumer.close()
    delete_records(new.bootstrap, {("plain", 1): 5})
    delete_topic(new.bootstrap, _TABLE[0])
    changed = copy.deepcopy(plan)
    of_plain = next(each for each in changed["contents"] if each["partition"] == "plain-0")
    of_plain["committed"]["digest"] = "0" * 64
    found = checked(new.bootstrap, changed, new.directory)
    assert found.code == ExitCode.PROBLEMS_FOUND and not found.json["equal"] and found.json["lift"] == []
    assert len(found.json["differs"]) == len(_CHANGED), found
    for expected in _CHANGED:
        assert any(expected in line for line in found.json["differs"]), (expected, found)


@pytest.mark.parametrize("survives", [True, False], ids=["metadata", "folders"])
def test_a_cluster_comes_back_from_a_killed_brokers_disk(
    killed: Broker, alone: Seen, tmp_path: Path, survives: bool
) -> None:
    old, new = killed.copy(tmp_path / "old"), _new_broker(tmp_path / "new", killed.version)
    if not survives:
        shutil.rmtree(old.log_dir / METADATA_DIRECTORY)
    before = state_of(old.log_dirs)
    plan = _restored(old, new)
    assert (plan["metadata"] is not None) == survives
    ends = {replica["partition"]: replica["end_offset"] for replica in plan["replicas"]}
    with new.running() as run:
        assert read_all(new.bootstrap, _ALL).differences(alone) == []
        assert_described(new, plan)
        found = checked(new.bootstrap, plan, new.directory)
        assert found.code == ExitCode.OK and found.json["equal"], found
        assert found.json["group_offsets"] == len(_COMMITTED) and len(found.json["lift"]) == len(plan["lift"])
        consumer = _consumer(new.bootstrap)
        places = [TopicPartition(*place) for place in _COMMITTED]
        offsets = consumer.committed(places, TIMEOUT_SECONDS)
        assert {(each.topic, each.partition): each.offset for each in offsets} == _COMMITTED
        consumer.close()
        _write_afresh(new.bootstrap, [("plain", 0), ("plain", 1), _TABLE])
        after = read(new.bootstrap, [("plain", 0), ("plain", 1), _TABLE], "read_uncommitted")
        _assert_changes_are_found(new, plan)
        commands = [command for command in found.json["lift"] if f"--entity-name={_TABLE[0]} " not in command]
        _assert_retention_is_held_until_lifted(new, commands, is_proven=survives)
    for place, seen in after.items():
        assert len(seen.records) == len(alone.uncommitted[place].records) + 3 * _FRESH
    said = "\n".join(run.lines())
    began = {place: int(offset) for place, offset in _HIGH_WATERMARK.findall(said) if place in ends}
    assert began == ends, "else a coordinator may load its log before followers confirm it"
    assert "stray" not in said and said.count("Skipping recovery of") == len(new.log_dirs)
    assert not [path for log_dir in new.log_dirs for path in log_dir.iterdir() if path.name.endswith("-stray")]
    if not survives:
        _assert_cut_by_its_broker(new)
    assert state_of(old.log_dirs) == before
