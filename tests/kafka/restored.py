"""Restores of clusters, and what is asked of a restored one and of its sources, whatever it is restored from."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.faults.processes import Ended, kidx
from tests.support.kafka.broker import Broker

NEW_CLUSTER: Final = "bmV3LWNsdXN0ZXItMDAwMQ"
_CONFIGS: Final = "org.apache.kafka.tools.ConfigCommand"
_TOPICS: Final = "org.apache.kafka.tools.TopicCommand"
_NOBODY: Final = 65534
#: A partition, as `kafka-topics --describe` prints it.
_DESCRIBED: Final = re.compile(
    r"\tTopic: (\S+)\tPartition: (\d+)\tLeader: (\d+)\tReplicas: ([\d,]+)\tIsr: ([\d,]+)(?:\t|$)", re.MULTILINE
)


def restore(
    sources: Iterable[str | Path], brokers: Mapping[int, Broker], *options: str | Path, bucket: Path | None = None
) -> Ended:
    """Restore a cluster into brokers, each of which is a controller, too; with a bucket that is protected meanwhile."""
    log_dirs = {node: ",".join(map(str, broker.log_dirs)) for node, broker in brokers.items()}
    of_bucket = ("--bucket", bucket, "--bucket-protected", "read-only", "--living-cluster-stopped") if bucket else ()
    return kidx(
        *("restore", *sources, *(word for node, each in log_dirs.items() for word in ("--broker", f"{node}={each}"))),
        *(word for broker in brokers.values() for word in ("--controller", broker.log_dir)),
        *(*of_bucket, "--json", *options),
    )


def restore_one(old: Broker, new: Broker, *options: str) -> Ended:
    """Restore the disk of one broker, whose log dirs are all of its cluster's, into one of a new cluster."""
    return restore([",".join(map(str, old.log_dirs))], {1: new}, *options)


def checked(bootstrap: str, plan: Mapping[str, Any], directory: Path) -> Ended:
    """What `restore-check` says of a running cluster and of what `restore --apply` has printed."""
    path = directory / "restored.json"
    path.write_text(json.dumps(plan))
    return kidx("restore-check", path, "--bootstrap-server", bootstrap, "--json")


def state_of(log_dirs: Iterable[Path]) -> dict[str, tuple[int, int, int, str]]:
    """Inode, mode, modification time and bytes of all files."""
    found = {}
    for log_dir in log_dirs:
        for path in sorted(log_dir.rglob("*")):
            status = path.stat()
            content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
            found[str(path)] = (status.st_ino, status.st_mode, status.st_mtime_ns, content)
    return found


def give_away(log_dir: Path) -> None:
    """Make a log dir that of a user who may not write in a bucket of root's."""
    for path in (log_dir, *log_dir.rglob("*")):
        os.chown(path, _NOBODY, _NOBODY)


def assert_described(broker: Broker, plan: Mapping[str, Any], in_sync: str = "in_sync") -> None:
    """`kafka-topics --describe` prints the topics of the plan, with their leaders and replicas.

    Args:
        in_sync: the key of the plan with the replicas that are in sync: `replicas`, once all have caught up.
    """
    said = broker.run_tool(_TOPICS, "--bootstrap-server", broker.bootstrap, "--describe")
    found = {
        (topic, int(number)): (int(leader), [*map(int, replicas.split(","))], {*map(int, isr.split(","))})
        for topic, number, leader, replicas, isr in _DESCRIBED.findall(said)
    }
    assert found == {
        (topic["topic"], each["partition"]): (each["leader"], each["replicas"], {*each[in_sync]})
        for topic in plan["topics"]
        for each in topic["partitions"]
    }, said


def lift(broker: Broker, commands: Sequence[str]) -> None:
    """Run the commands `kafka-configs …` that a check has printed."""
    for command in commands:
        tool, *arguments = shlex.split(command)
        assert tool == "kafka-configs"
        broker.run_tool(_CONFIGS, *arguments)
