"""The records of a restored cluster's metadata: what its first active controller appends to an empty metadata log.

In them is no broker, no controller and no voter: each node registers at its start, and gets its epoch then. A
registration that was carried over would be of a process that is gone. A partition's leader need not be registered:
as the leader registers, the controller gives the partition no leader in a new epoch, and elects one of those in sync
once that is unfenced (`ReplicationControlManager.handleBrokerShutdown`, `handleBrokerUnfenced`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from kidxlib.format.kafka_release import METADATA_VERSION
from kidxlib.messages.definitions import messages_of
from kidxlib.messages.typed_records import CLUSTER_METADATA, FramedMessage
from kidxlib.operations.restore.cluster import SAFE_CONFIGS, RestoredCluster, RestoredPartition, RestoredTopic

#: The levels of `metadata.version` from which on a `PartitionRecord` has directories, and eligible leader replicas
#: (`MetadataVersion.partitionRecordVersion`).
_PARTITION_VERSIONS: Final = ((23, 2), (17, 1))
#: `ConfigResource.Type`.
TOPIC_RESOURCE: Final = 2
_NO_BROKER: Final = -1


def records_of(cluster: RestoredCluster, formatted: Sequence[FramedMessage]) -> list[FramedMessage]:
    """The records, in an order in which each names only what is before it.

    Args:
        formatted: the records of `kafka-storage format` in the target. Its users (`--add-scram`) win over those of the
            old cluster; its levels are not taken over.

    Raises:
        ValueError: a topic has no value for a setting by which Kafka deletes records, and would get Kafka's default.
    """
    users = [record for record in formatted if record.message.name == "UserScramCredentialRecord"]
    made = {_scram_user(record) for record in users}
    carried = [record for record in cluster.carried if _scram_user(record) not in made]
    levels = sorted(cluster.features.items(), key=lambda level: (level[0] != METADATA_VERSION, level[0]))
    return [
        *(_framed_record("FeatureLevelRecord", name=name, featureLevel=level) for name, level in levels if level > 0),
        *carried,
        *users,
        *(record for topic in cluster.topics for record in _topic_records(topic, cluster.features[METADATA_VERSION])),
        _framed_record("ProducerIdsRecord", brokerId=_NO_BROKER, nextProducerId=cluster.next_producer_id),
    ]


def _scram_user(record: FramedMessage) -> tuple[str, int] | None:
    """The user and mechanism of SCRAM credentials; None for another record."""
    if record.message.name != "UserScramCredentialRecord":
        return None
    return record.values["name"], record.values["mechanism"]


def _topic_records(topic: RestoredTopic, metadata_version: int) -> Iterator[FramedMessage]:
    if missing := sorted(SAFE_CONFIGS.keys() - {config.name for config in topic.configs if config.value is not None}):
        raise ValueError(f"topic {topic.name}: no value of {missing[0]}, so that Kafka's default would decide")
    yield _framed_record("TopicRecord", name=topic.name, topicId=topic.topic_id)
    for partition in topic.partitions:
        yield _partition_record(partition, metadata_version)
    for config in topic.configs:
        if config.value is not None:
            resource = {"resourceType": TOPIC_RESOURCE, "resourceName": topic.name}
            yield _framed_record("ConfigRecord", **resource, name=config.name, value=config.value)


def _partition_record(partition: RestoredPartition, metadata_version: int) -> FramedMessage:
    version = next((version for level, version in _PARTITION_VERSIONS if metadata_version >= level), 0)
    directories = {"directories": list(partition.directories)} if version > 0 else {}
    return _framed_record(
        "PartitionRecord",
        version,
        partitionId=partition.partition,
        topicId=partition.topic_id,
        replicas=list(partition.replicas),
        isr=list(partition.in_sync),
        leader=partition.leader,
        leaderEpoch=partition.leader_epoch,
        partitionEpoch=0,
        **directories,
    )


def _framed_record(message: str, version: int = 0, /, **values: Any) -> FramedMessage:
    return FramedMessage(messages_of(CLUSTER_METADATA)[message], version, values)
