"""Topics and configs as the records of `__cluster_metadata` leave them.

Sources: `MetadataDelta`, `TopicsDelta`, `ConfigurationsDelta`, `MetadataBatchLoader`.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from kidxlib.errors import ClusterMetadataError, UnreadableMessageError
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.log.cluster_metadata.replica import Endpoint, MetadataBatch, endpoints_of
from kidxlib.messages.definitions import messages_of
from kidxlib.messages.framed import CLUSTER_METADATA, FramedMessage, read_framed
from kidxlib.records.reader import Record
from kidxlib.text.quoted import quoted

#: `ConfigResource.Type`.
_TOPIC: Final = 2
_BROKER: Final = 4

_CHANGES: Final = ("TopicRecord", "RemoveTopicRecord", "ConfigRecord")
_NODE_CHANGES: Final = (
    "RegisterBrokerRecord",
    "BrokerRegistrationChangeRecord",
    "UnregisterBrokerRecord",
    "RegisterControllerRecord",
)
_PARTITION_CHANGES: Final = ("PartitionRecord", "PartitionChangeRecord")
#: In a `PartitionChangeRecord` (`NO_LEADER_CHANGE`). Each other leader begins an epoch, also the same one again.
_SAME_LEADER: Final = -2
#: `LeaderConstants.NO_LEADER`.
_NO_LEADER: Final = -1
_TRANSACTION_MARKS: Final = ("BeginTransactionRecord", "EndTransactionRecord", "AbortTransactionRecord")


@dataclass(frozen=True, slots=True)
class Assignment:
    """Where the replicas of a partition are (`PartitionRegistration`).

    Attributes:
        replicas: the ids of their nodes; during a reassignment those that come and those that go, too.
        directories: for each of them the id of the log dir (`directory.id`); empty where metadata of before 3.7 says
            nothing of them.
        leader_epoch: of the partition.
        last_leader, led_epoch: the node that led it last, and in which epoch: a stop leaves a partition without a
            leader, in an epoch of its own. −1 where a snapshot does not tell.
    """

    replicas: tuple[int, ...]
    directories: tuple[str, ...]
    leader_epoch: int = 0
    last_leader: int = _NO_LEADER
    led_epoch: int = -1

    @property
    def places(self) -> Iterator[tuple[int, str]]:
        """The node and the log dir of each replica, as far as the metadata names log dirs."""
        return zip(self.replicas, self.directories, strict=False)

    def changed(self, values: dict[str, Any]) -> Assignment:
        """The assignment after a change: what a change does not name stays (`PartitionRegistration.merge`)."""
        replicas, directories = values.get("replicas"), values.get("directories")
        leader = values.get("leader", _SAME_LEADER)
        epoch = values.get("leaderEpoch", self.leader_epoch + (leader != _SAME_LEADER))
        is_led = leader not in (_SAME_LEADER, _NO_LEADER)
        return Assignment(
            self.replicas if replicas is None else tuple(replicas),
            self.directories if directories is None else tuple(directories),
            epoch,
            *((leader, epoch) if is_led else (self.last_leader, self.led_epoch)),
        )


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """What a broker told its cluster of itself as it last started (`BrokerLifecycleManager`).

    Attributes:
        rack: its `broker.rack`; None where it has none.
        endpoints: its listeners as it advertises them, without those of a controller.
    """

    rack: str | None
    endpoints: tuple[Endpoint, ...]


def is_wanted(record: Record) -> bool:
    """Whether an image looks at a record: also at one that is none of metadata, to say so."""
    return record.value is None or record.value[:1] != b"\1" or record.value.startswith(_wanted())


@functools.cache
def _wanted() -> tuple[bytes, ...]:
    """Frame version and record type of what is read, and of nodes and partitions the versions that are known: all are
    varints of one byte.
    """
    messages = messages_of(CLUSTER_METADATA)
    wanted = [bytes([1, messages[name].api_key or 0]) for name in (*_CHANGES, *_TRANSACTION_MARKS)]
    for message in map(messages.__getitem__, (*_NODE_CHANGES, *_PARTITION_CHANGES)):
        versions = range(message.versions.lowest, message.versions.highest + 1)
        wanted += [bytes([1, message.api_key or 0, version]) for version in versions]
    return tuple(wanted)


class Image:
    """What batches have left so far.

    Attributes:
        topics: by name, the id.
        topic_configs: by topic, what was set for it.
        assignments: where the replicas of each partition are.
        broker_configs: by node id, what was set for it; by "", what was set for all brokers.
        log_dirs: by node id, the ids of the log dirs that its broker had when it last said so; not there where none has
            an id. What a newer Kafka has written of brokers is passed over.
    """

    def __init__(self) -> None:
        self.topics: dict[str, str] = {}
        self.log_dirs: dict[int, tuple[str, ...]] = {}
        self.brokers: dict[int, BrokerRegistration] = {}
        self.controllers: dict[int, tuple[Endpoint, ...]] = {}
        self.topic_configs: defaultdict[str, dict[str, str]] = defaultdict(dict)
        self.broker_configs: defaultdict[str, dict[str, str]] = defaultdict(dict)
        self.assignments: dict[TopicPartition, Assignment] = {}
        self._names: dict[str, str] = {}
        self._open: list[FramedMessage] | None = None

    def apply(self, batches: Iterable[MetadataBatch]) -> None:
        """Take batches into account. What a transaction changes counts when that has ended.

        Raises:
            ClusterMetadataError: a record is none of metadata, or of a version that Kafka does not know.
        """
        for batch in batches:
            for record in batch.records:
                self._apply(_read(record))

    def _apply(self, change: FramedMessage) -> None:
        match change.message.name:
            case "BeginTransactionRecord":
                self._open = []
            case "AbortTransactionRecord":
                self._open = None
            case "EndTransactionRecord":
                ended, self._open = self._open or [], None
                for each in ended:
                    self._change(each)
            case _ if self._open is not None:
                self._open.append(change)
            case _:
                self._change(change)

    def _change(self, change: FramedMessage) -> None:
        values = change.values
        match change.message.name:
            case "TopicRecord":
                self.topics[values["name"]] = values["topicId"]
                self._names[values["topicId"]] = values["name"]
            case "PartitionRecord" | "PartitionChangeRecord":
                self._assign(values)
            case "RegisterBrokerRecord" | "BrokerRegistrationChangeRecord" | "UnregisterBrokerRecord":
                self._register(change)
            case "RegisterControllerRecord":
                self.controllers[values["controllerId"]] = endpoints_of(values["endPoints"])
            case "RemoveTopicRecord":
                name = self._names.pop(values["topicId"], None)
                if name is not None:
                    self.topics.pop(name, None)
                    self.topic_configs.pop(name, None)
                    self._forget_partitions(name)
            case _:
                self._configure(values["resourceType"], values["resourceName"], values["name"], values["value"])

    def _assign(self, values: dict[str, Any]) -> None:
        name = self._names.get(values["topicId"])
        if name is not None:
            partition = TopicPartition(name, values["partitionId"])
            self.assignments[partition] = self.assignments.get(partition, Assignment((), ())).changed(values)

    def _forget_partitions(self, topic: str) -> None:
        number = 0  # a topic's partitions are numbered from 0 on, without gaps
        while self.assignments.pop(TopicPartition(topic, number), None) is not None:
            number += 1

    def _register(self, change: FramedMessage) -> None:
        """Note a broker and its log dirs. A change that names none changes nothing of them (`ClusterDelta`)."""
        values, kind = change.values, change.message.name
        log_dirs = tuple(values.get("logDirs", ()))
        if log_dirs:
            self.log_dirs[values["brokerId"]] = log_dirs
        elif kind != "BrokerRegistrationChangeRecord":
            self.log_dirs.pop(values["brokerId"], None)
        if kind == "RegisterBrokerRecord":
            self.brokers[values["brokerId"]] = BrokerRegistration(values["rack"], endpoints_of(values["endPoints"]))
        elif kind == "UnregisterBrokerRecord":
            self.brokers.pop(values["brokerId"], None)

    def _configure(self, kind: int, resource: str, name: str, value: str | None) -> None:
        if kind not in (_TOPIC, _BROKER):
            return
        configs = (self.topic_configs if kind == _TOPIC else self.broker_configs)[resource]
        if value is None:
            configs.pop(name, None)
        else:
            configs[name] = value


def _read(record: Record) -> FramedMessage:
    try:
        framed = read_framed(record.value, CLUSTER_METADATA)
    except UnreadableMessageError as error:
        raise ClusterMetadataError(
            f"record at offset {record.offset}: found {quoted(record.value)}, expected {error.expected}"
        ) from error
    if framed.version not in framed.message.versions:
        versions = framed.message.versions
        raise ClusterMetadataError(
            f"record at offset {record.offset}: {framed.message.name} of version {framed.version}, expected "
            f"{versions.lowest} to {versions.highest}; it is of a newer Kafka"
        )
    return framed
