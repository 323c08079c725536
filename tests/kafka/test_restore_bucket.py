"""A cluster with tiered storage, restored from its bucket: alone, with metadata of a node, and beside log dirs.
Consumers get what they got, and no object of the bucket is deleted, though the restored broker could.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource

from kidxlib.log.metadata_replica import METADATA_DIRECTORY
from kidxlib.log.remote.metadata_topic import REMOTE_LOG_METADATA_TOPIC
from kidxlib.storage.log_dir import META_PROPERTIES
from kidxlib.terminal.exit_codes import ExitCode
from tests.kafka.reading import TIMEOUT_SECONDS, Seen, read_all, wait_until_read
from tests.kafka.restored import NEW_CLUSTER, assert_described, checked, give_away, lift, restore, state_of
from tests.support.kafka.admin import wait_until
from tests.support.kafka.broker import DEADLINE_SECONDS, Broker
from tests.support.kafka.cluster import Cluster
from tests.support.kafka.tiered import (
    ONE_PARTITION_EACH,
    PARTITIONS,
    PLAIN,
    SMALL_SEGMENTS,
    TRANSACTIONS,
    fill,
    tiered_broker,
    write_briefly_kept,
)

_CANARY: Final = "canary"
_COUNT: Final = "rlmm.config.remote.log.metadata.topic.num.partitions"
_MORE: Final = pytest.mark.exhaustive("more of the same, with a broker each")
_SETTINGS: Final = ("retention.ms", "local.retention.ms", "remote.log.copy.disable", "remote.storage.enable")
#: With which all records of a topic are too old.
_BRIEF_MS: Final = "1000"
_OF_THREE: Final = {
    **ONE_PARTITION_EACH,
    "offsets.topic.replication.factor": 3,
    "transaction.state.log.replication.factor": 3,
    "rlmm.config.remote.log.metadata.topic.replication.factor": 3,
}


@dataclass(frozen=True, slots=True)
class _Killed:
    broker: Broker
    seen: Seen
    configs: dict[str, dict[str, str]]
    described: str

    @property
    def bucket(self) -> Path:
        return self.broker.directory / "remote"


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory, broker_version: str) -> _Killed:
    broker = tiered_broker(tmp_path_factory.mktemp("killed") / "broker", ONE_PARTITION_EACH, broker_version)
    with broker.running_until_killed():
        fill(broker)
        seen = read_all(broker.bootstrap, PARTITIONS)
        configs = _configs(broker.bootstrap)
        described = broker.run_tool(
            *("org.apache.kafka.tools.ConfigCommand", "--bootstrap-server", broker.bootstrap),
            *("--describe", "--all", "--entity-type", "topics"),
        )
    return _Killed(broker, seen, configs, described)


def _configs(bootstrap: str) -> dict[str, dict[str, str]]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    resources = [ConfigResource(ConfigResource.Type.TOPIC, topic) for topic in (PLAIN, TRANSACTIONS)]
    described = admin.describe_configs(resources)
    return {
        resource.name: {name: str(future.result(TIMEOUT_SECONDS)[name].value) for name in _SETTINGS}
        for resource, future in described.items()
    }


def _metadata_alone(killed: _Killed, directory: Path) -> list[Path]:
    """A node of which only the cluster's metadata is left."""
    directory.mkdir()
    shutil.copytree(killed.broker.log_dir / METADATA_DIRECTORY, directory / METADATA_DIRECTORY)
    shutil.copy2(killed.broker.log_dir / META_PROPERTIES, directory)
    return [directory]


def _log_dir(killed: _Killed, directory: Path) -> list[Path]:
    shutil.copytree(killed.broker.log_dir, directory)
    return [directory]


def _log_dir_without_remote_metadata(killed: _Killed, directory: Path) -> list[Path]:
    [log_dir] = _log_dir(killed, directory)
    for path in log_dir.glob(f"{REMOTE_LOG_METADATA_TOPIC}-*"):
        shutil.rmtree(path)
    return [log_dir]


def _objects(bucket: Path) -> dict[str, tuple[int, int, int]]:
    """Inode, size and modification time of each object of the topics that were there before."""
    found = {}
    for path in sorted(bucket.rglob("*")):
        if path.is_file() and _CANARY not in path.parent.name:
            status = path.stat()
            found[str(path)] = (status.st_ino, status.st_size, status.st_mtime_ns)
    return found


def _with_brief_retention(described: str) -> str:
    """What `kafka-configs --describe --all` has printed, with another retention of `PLAIN`."""
    is_of_plain, lines = False, []
    for line in described.splitlines(keepends=True):
        if line.endswith(" are:\n"):
            is_of_plain = f" {PLAIN} " in line
        if is_of_plain and line.startswith("  retention.ms="):
            line = line.replace(SMALL_SEGMENTS["retention.ms"], _BRIEF_MS)
        lines.append(line)
    return "".join(lines)


def _wait_until_retention_has_run(broker: Broker, bucket: Path) -> None:
    """Until a broker has deleted remote segments of another topic, which keeps its records for two seconds."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    steps: Iterator[None] = write_briefly_kept(broker, _CANARY)
    seen: set[Path] = set()
    while not seen or all(path.exists() for path in seen):
        next(steps)
        seen |= {path for path in bucket.rglob("*.log") if _CANARY in path.parent.name}
        assert time.monotonic() < deadline, "it deletes nothing"


def _restored(sources: Sequence[Path], brokers: Mapping[int, Broker], bucket: Path, *options: str) -> dict[str, Any]:
    """Plan, and carry the plan out. The new log dirs are those of a user who may not write in the bucket."""
    for broker in brokers.values():
        give_away(broker.log_dir)
    planned = restore(sources, brokers, "--accept-loss", *options, bucket=bucket)
    assert planned.out, planned
    applied = restore(sources, brokers, "--accept-loss", *options, "--apply", planned.json["plan"], bucket=bucket)
    assert applied.out and applied.json["applied"], applied
    of_plan = {name: applied.json[name] for name in planned.json}  # and contents, for the check
    assert of_plan | {"applied": False, "disks": planned.json["disks"]} == planned.json, "but for the room that is free"
    return applied.json


def _assert_checked(new: Broker, plan: dict[str, Any]) -> None:
    """All records are compared, also those of the bucket, and the commands that lift the hold are printed."""
    found = checked(new.bootstrap, plan, new.directory)
    assert found.code == ExitCode.OK and found.json["not_compared"] == [], found
    assert len(found.json["lift"]) == len(plan["lift"]) > 0


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files away")
@pytest.mark.parametrize(
    ("left", "count"),
    [
        pytest.param(lambda killed, directory: [], 50, id="bucket"),
        pytest.param(_log_dir, 2, id="bucket and log dir"),
        pytest.param(_metadata_alone, 2, id="bucket and metadata", marks=_MORE),
        pytest.param(_log_dir_without_remote_metadata, 2, id="bucket and log dir without remote metadata", marks=_MORE),
    ],
)
def test_tiered_topics_come_back_with_their_bucket(killed: _Killed, tmp_path: Path, left: Any, count: int) -> None:
    """Without a source with their settings, kafka-configs has told them before, and one topic's retention was short."""
    new = tiered_broker(
        tmp_path / "new", {**ONE_PARTITION_EACH, _COUNT: count}, killed.broker.version, cluster_id=NEW_CLUSTER
    )
    bucket = new.directory / "remote"
    shutil.copytree(killed.bucket, bucket, dirs_exist_ok=True)
    sources = left(killed, tmp_path / "old")
    (tmp_path / "described.txt").write_text(_with_brief_retention(killed.described))
    options = [] if sources else ["--topic-configs", str(tmp_path / "described.txt")]
    before = _objects(bucket)
    plan = _restored(sources, {1: new}, bucket, *options)
    assert _objects(bucket) == before
    assert plan["bucket"]["metadata_partitions"] == count
    with new.running() as run:
        wait_until_read(new.bootstrap, PARTITIONS)
        _assert_checked(new, plan)
        assert read_all(new.bootstrap, PARTITIONS).differences(killed.seen) == []
        _wait_until_retention_has_run(new, bucket)
        assert read_all(new.bootstrap, PARTITIONS).differences(killed.seen) == []
        assert _objects(bucket) == before
        lift(new, [f"kafka-configs --bootstrap-server {new.bootstrap} {arguments}" for arguments in plan["lift"]])
        configs = _configs(new.bootstrap)
        if sources:
            assert configs == killed.configs
        else:
            assert configs == {**killed.configs, PLAIN: {**killed.configs[PLAIN], "retention.ms": _BRIEF_MS}}
            wait_until(lambda: not any(PLAIN in path for path in _objects(bucket)), "objects stay")
        kept = {path: found for path, found in before.items() if sources or PLAIN not in path}
        assert kept and _objects(bucket) == kept
    said = "\n".join(run.lines())
    assert "stray" not in said and "leader-epoch-cache truncation" not in said


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files away")
@pytest.mark.exhaustive("takes minutes; one broker is restored with its bucket always")
@pytest.mark.parametrize("has_metadata", [True, False])
def test_tiered_topics_of_three_brokers(has_metadata: bool, tmp_path: Path, broker_version: str) -> None:
    """One disk is lost. The replicas on the others begin where each had deleted what was uploaded."""
    old = Cluster(
        tmp_path / "old", {**_OF_THREE, "rsm.config.dir": tmp_path / "living"}, broker_version, make=tiered_broker
    )
    with old.running():
        fill(old.brokers[1], replicas=3)
        seen = read_all(old.bootstrap, PARTITIONS)
    bucket = tmp_path / "bucket"
    shutil.copytree(tmp_path / "living", bucket)
    new = Cluster(
        tmp_path / "new",
        {**_OF_THREE, "rsm.config.dir": bucket},
        broker_version,
        in_place_of=old,
        cluster_id=NEW_CLUSTER,
        make=tiered_broker,
    )
    sources = [old.brokers[node].log_dir for node in (1, 2)]
    shutil.rmtree(old.brokers[3].log_dir)
    if not has_metadata:
        for log_dir in sources:
            shutil.rmtree(log_dir / METADATA_DIRECTORY)
    left, before = state_of(sources), _objects(bucket)
    plan = _restored(sources, new.brokers, bucket)
    assert not plan["lost"] and not plan["disagreements"]
    with new.running():
        wait_until_read(new.bootstrap, PARTITIONS)
        assert read_all(new.bootstrap, PARTITIONS).differences(seen) == []
        assert_described(new.brokers[1], plan, "replicas")
        _wait_until_retention_has_run(new.brokers[1], bucket)
        assert read_all(new.bootstrap, PARTITIONS).differences(seen) == []
        assert _objects(bucket) == before
        said = "\n".join(line for node in new.brokers for line in new.lines(node))
    assert "stray" not in said and "leader-epoch-cache truncation" not in said
    assert state_of(sources) == left
