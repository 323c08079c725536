"""Copies of `__cluster_metadata` that no broker wrote: records, snapshots, quorums of any size; a log dir with one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from kidxlib.format import layouts, segment_files
from kidxlib.format.checkpoint_files import (
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    offset_checkpoint,
)
from kidxlib.format.kafka_release import METADATA_VERSION
from kidxlib.format.segment_files import SnapshotId, kraft_snapshot_file, segment_file
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.log.metadata_replica import METADATA_DIRECTORY
from kidxlib.messages.definitions import messages_of
from kidxlib.messages.interpreter import write_message as message_bytes
from kidxlib.messages.typed_records import CLUSTER_METADATA, FramedMessage, write_framed
from kidxlib.records.reader import Record
from kidxlib.recovery.options import INTERVAL, MAX_INDEX
from kidxlib.storage.log_dir import META_PROPERTIES
from tests.support.logs import encoded

_LEADER_CHANGE: Final = 2
_SNAPSHOT_HEADER: Final = 3
_SNAPSHOT_FOOTER: Final = 4
_VOTERS: Final = 6

TOPIC: Final = 2
BROKER: Final = 4


def change(message_name: str, /, version: int = 0, **values: Any) -> bytes:
    """The value of a record of metadata, from its fields."""
    return write_framed(FramedMessage(messages_of(CLUSTER_METADATA)[message_name], version, values))


def topic(name: str, topic_id: str) -> bytes:
    return change("TopicRecord", name=name, topicId=topic_id)


def partition(topic_id: str, number: int, replicas: Sequence[int], directories: Sequence[str]) -> bytes:
    """A new partition; the first replica is its leader, and all are in sync."""
    nobody: dict[str, list[int]] = {"removingReplicas": [], "addingReplicas": []}
    epochs = {"leader": replicas[0], "leaderEpoch": 0, "partitionEpoch": 0}
    where = {"partitionId": number, "topicId": topic_id, "replicas": replicas, "directories": directories}
    return change("PartitionRecord", 1, isr=replicas, **nobody, **epochs, **where)


def config(resource: str, name: str, value: str | None, kind: int = TOPIC) -> bytes:
    return change("ConfigRecord", resourceType=kind, resourceName=resource, name=name, value=value)


def of_broker(
    message_name: str,
    broker: int,
    log_dirs: Sequence[str],
    rack: str | None = None,
    listeners: Sequence[str] = (),
    level: int | None = None,
) -> bytes:
    """A registration of a broker with its log dirs, or a change of one. `level` is the largest of `metadata.version`
    that it supports.
    """
    values = {"brokerId": broker, "brokerEpoch": 1, "logDirs": list(log_dirs)}
    if message_name == "RegisterBrokerRecord":
        values |= {"isMigratingZkBroker": False, "incarnationId": topic_id("i"), "rack": rack}
        values |= {"endPoints": [_endpoint(name) | {"securityProtocol": 0} for name in listeners]}
        values |= {"features": _features(level)}
    return change(message_name, version=3, **values, fenced=False, inControlledShutdown=False, cordonedLogDirs=None)


def of_controller(controller: int, listener: str, level: int | None = None) -> bytes:
    values: dict[str, Any] = {
        "controllerId": controller,
        "incarnationId": topic_id("i"),
        "zkMigrationReady": False,
        "features": _features(level),
    }
    return change("RegisterControllerRecord", **values, endPoints=[_endpoint(listener) | {"securityProtocol": 0}])


def _features(level: int | None) -> list[dict[str, Any]]:
    levels = {"kraft.version": 1} if level is None else {"kraft.version": 1, METADATA_VERSION: level}
    return [
        {"name": name, "minSupportedVersion": 0, "maxSupportedVersion": largest} for name, largest in levels.items()
    ]


def _endpoint(listener: str) -> dict[str, Any]:
    name, _, address = listener.partition("://")
    host, _, port = address.rpartition(":")
    return {"name": name, "host": host, "port": int(port)}


def write_checkpoints(log_dir: Path, ends: Mapping[TopicPartition, int] | None = None) -> None:
    """Write the offset checkpoints that a log dir lacks: a broker makes them as it starts, and writes ends of logs into
    two of them as it stops.
    """
    for name in (RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT):
        if not (log_dir / name).exists():
            of_stop = {} if name == LOG_START_OFFSET_CHECKPOINT else (ends or {})
            (log_dir / name).write_bytes(offset_checkpoint(of_stop))


def write_properties(log_dir: Path, directory_id: str) -> None:
    """Write `meta.properties` of a log dir of node 1, as `kafka-storage format` does."""
    (log_dir / META_PROPERTIES).write_text(f"version=1\nnode.id=1\ncluster.id=c\ndirectory.id={directory_id}\n")


def topic_id(letter: str) -> str:
    """A topic id made of one letter."""
    return letter * 21 + "A"


def data(base_offset: int, values: Sequence[bytes | None], timestamp_ms: int = 0, **fields: Any) -> bytes:
    records = [Record(base_offset + number, timestamp_ms, None, value) for number, value in enumerate(values)]
    return encoded.batch_v2(records, **fields)


def leader_change(offset: int, voters: Iterable[int]) -> bytes:
    ids = [{"voterId": voter} for voter in voters]
    return _control(offset, _LEADER_CHANGE, "LeaderChangeMessage", leaderId=1, voters=ids, grantingVoters=[])


def voters_record(offset: int, voters: dict[int, str]) -> bytes:
    """A control batch that names the voters of a dynamic quorum, each with its listener."""
    versions = {"minSupportedVersion": 0, "maxSupportedVersion": 1}
    records = [
        {"voterId": node, "voterDirectoryId": topic_id("v"), "endpoints": [_endpoint(listener)]}
        | {"kRaftVersionFeature": versions}
        for node, listener in voters.items()
    ]
    return _control(offset, _VOTERS, "VotersRecord", voters=records)


def _control(offset: int, kind: int, message_name: str, /, **values: Any) -> bytes:
    message = messages_of("kafka-clients")[message_name]
    value = message_bytes(message, {"version": 0, **values}, 0)
    key = (0).to_bytes(2) + kind.to_bytes(2)
    return encoded.batch_v2([Record(offset, 0, key, value)], attributes=layouts.ATTRIBUTE_CONTROL)


def snapshot(values: Sequence[bytes], last_timestamp_ms: int) -> bytes:
    header = _control(0, _SNAPSHOT_HEADER, "SnapshotHeaderRecord", lastContainedLogTimestamp=last_timestamp_ms)
    footer = _control(len(values) + 1, _SNAPSHOT_FOOTER, "SnapshotFooterRecord")
    return header + (data(1, values) if values else b"") + footer


def write_copy(directory: Path, logs: dict[int, bytes], snapshots: dict[tuple[int, int], bytes] | None = None) -> Path:
    """A copy of the metadata with logs by base offset, and snapshots by end offset and epoch."""
    directory.mkdir(parents=True, exist_ok=True)
    for base_offset, content in logs.items():
        (directory / segment_file(base_offset, segment_files.LOG_SUFFIX)).write_bytes(content)
    for (end_offset, epoch), content in (snapshots or {}).items():
        (directory / kraft_snapshot_file(SnapshotId(end_offset, epoch))).write_bytes(content)
    return directory


def put_metadata(log_dir: Path, values: Iterable[bytes], timestamp_ms: int = 0) -> Path:
    """The copy of the only voter in a log dir: all of these records count."""
    log = leader_change(0, [1]) + data(1, [*values], timestamp_ms)
    return write_copy(log_dir / METADATA_DIRECTORY, {0: log})


#: The ids of topic t and of another topic.
ID_OF_T: Final = topic_id("a")
OTHER_ID: Final = topic_id("b")


def log_dir_of_t(directory: Path, node_id: int = 1, cluster_id: str = "c", *, has_metadata: bool = True) -> Path:
    """A log dir of one partition of topic t, with an interval of its own and an index size that no broker takes."""
    partition = directory / "t-0"
    partition.mkdir(parents=True)
    (directory / "meta.properties").write_text(f"version=1\nnode.id={node_id}\ncluster.id={cluster_id}\n")
    (partition / "partition.metadata").write_text(f"version: 0\ntopic_id: {ID_OF_T}\n")
    batches = (encoded.batch_v2([Record(offset, 1, b"k", bytes(700))]) for offset in range(20))
    (partition / "00000000000000000000.log").write_bytes(b"".join(batches))
    if has_metadata:
        values = [
            *(topic("t", ID_OF_T), config("t", INTERVAL, "512"), topic("u", OTHER_ID)),
            *(config("1", "log.retention.ms", "5", BROKER), config("t", MAX_INDEX, "4")),
        ]
        put_metadata(directory, values, 1_000)
    return directory
