"""A cluster with tiered storage, restored from its bucket: alone, with metadata of a node, and beside log dirs.
Consumers get what they got, and no object of the bucket is deleted, though the restored broker could.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource

from kidxlib.log.cluster_metadata.replica import METADATA_DIRECTORY
from kidxlib.log.remote.metadata_topic import REMOTE_LOG_METADATA_TOPIC
from kidxlib.storage.log_dir import META_PROPERTIES
from kidxlib.terminal.exit_codes import ExitCode
from tests.faults.processes import Ended, kidx
from tests.kafka.reading import TIMEOUT_SECONDS, Seen, read_all, wait_until_read
from tests.support.kafka.broker import DEADLINE_SECONDS, Broker
from tests.support.kafka.tiered import (
    ONE_PARTITION_EACH,
    PARTITIONS,
    PLAIN,
    TRANSACTIONS,
    fill,
    tiered_broker,
    write_briefly_kept,
)

_NEW_CLUSTER: Final = "bmV3LWNsdXN0ZXItMDAwMQ"
_NOBODY: Final = 65534
_CANARY: Final = "canary"
_COUNT: Final = "rlmm.config.remote.log.metadata.topic.num.partitions"
_MORE: Final = pytest.mark.exhaustive("more of the same, with a broker each")
_SETTINGS: Final = ("retention.ms", "local.retention.ms", "remote.log.copy.disable", "remote.storage.enable")


@dataclass(frozen=True, slots=True)
class _Killed:
    broker: Broker
    seen: Seen
    configs: dict[str, dict[str, str]]

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
    return _Killed(broker, seen, configs)


def _configs(bootstrap: str) -> dict[str, dict[str, str]]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    resources = [ConfigResource(ConfigResource.Type.TOPIC, topic) for topic in (PLAIN, TRANSACTIONS)]
    described = admin.describe_configs(resources)
    return {
        resource.name: {name: str(future.result(TIMEOUT_SECONDS)[name].value) for name in _SETTINGS}
        for resource, future in described.items()
    }


def _nothing(killed: _Killed, directory: Path) -> list[Path]:
    return []


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


def _wait_until_retention_has_run(broker: Broker) -> None:
    """Until the broker has deleted remote segments of another topic, which keeps its records for two seconds."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    steps: Iterator[None] = write_briefly_kept(broker, _CANARY)
    seen: set[Path] = set()
    while not seen or all(path.exists() for path in seen):
        next(steps)
        seen |= {path for path in (broker.directory / "remote").rglob("*.log") if _CANARY in path.parent.name}
        assert time.monotonic() < deadline, "it deletes nothing"


def _restore(sources: list[Path], new: Broker, *options: str) -> Ended:
    return kidx(
        *("restore", *map(str, sources), "--broker", f"1={new.log_dir}", "--controller", str(new.log_dir), "--json"),
        *("--bucket", str(new.directory / "remote"), "--bucket-protected", "read-only", "--living-cluster-stopped"),
        *("--accept-loss", *options),
    )


def _restored(sources: list[Path], new: Broker) -> dict[str, Any]:
    """Plan, and carry the plan out. The new log dir is that of a user who may not write in the bucket."""
    for path in (new.log_dir, *new.log_dir.rglob("*")):
        os.chown(path, _NOBODY, _NOBODY)
    planned = _restore(sources, new)
    assert planned.out, planned
    applied = _restore(sources, new, "--apply", planned.json["plan"])
    assert applied.out and applied.json["applied"], applied
    of_plan = {name: applied.json[name] for name in planned.json}  # and contents, for the check
    assert of_plan | {"applied": False, "disks": planned.json["disks"]} == planned.json, "but for the room that is free"
    return applied.json


def _assert_checked(new: Broker, plan: dict[str, Any]) -> None:
    """All records are compared, also those of the bucket, and the commands that lift the hold are printed."""
    path = new.directory / "restored.json"
    path.write_text(json.dumps(plan))
    checked = kidx("restore-check", str(path), "--bootstrap-server", new.bootstrap, "--json")
    assert checked.code == ExitCode.OK and checked.json["not_compared"] == [], checked
    assert len(checked.json["lift"]) == len(plan["lift"]) > 0


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files away")
@pytest.mark.parametrize(
    ("left", "count"),
    [
        pytest.param(_nothing, 50, id="bucket"),
        pytest.param(_log_dir, 2, id="bucket and log dir"),
        pytest.param(_metadata_alone, 2, id="bucket and metadata", marks=_MORE),
        pytest.param(_log_dir_without_remote_metadata, 2, id="bucket and log dir without remote metadata", marks=_MORE),
    ],
)
def test_tiered_topics_come_back_with_their_bucket(killed: _Killed, tmp_path: Path, left: Any, count: int) -> None:
    new = tiered_broker(
        tmp_path / "new", {**ONE_PARTITION_EACH, _COUNT: count}, killed.broker.version, cluster_id=_NEW_CLUSTER
    )
    shutil.copytree(killed.bucket, new.directory / "remote", dirs_exist_ok=True)
    sources = left(killed, tmp_path / "old")
    before = _objects(new.directory / "remote")
    plan = _restored(sources, new)
    assert _objects(new.directory / "remote") == before
    assert plan["bucket"]["metadata_partitions"] == count
    with new.running() as run:
        wait_until_read(new.bootstrap, PARTITIONS)
        _assert_checked(new, plan)
        assert read_all(new.bootstrap, PARTITIONS).differences(killed.seen) == []
        _wait_until_retention_has_run(new)
        assert read_all(new.bootstrap, PARTITIONS).differences(killed.seen) == []
        assert _objects(new.directory / "remote") == before
        for command in plan["lift"]:
            new.run_tool("org.apache.kafka.tools.ConfigCommand", "--bootstrap-server", new.bootstrap, *command.split())
        if sources:
            assert _configs(new.bootstrap) == killed.configs
    said = "\n".join(run.lines())
    assert "stray" not in said and "leader-epoch-cache truncation" not in said
