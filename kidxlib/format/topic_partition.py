"""Topics and partitions, and the names of their directories in a log dir.

Source: `UnifiedLog.parseTopicPartitionName`, `Topic.validate`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kidxlib.java import parse_int

#: The directory in a log dir where a broker with tiered storage keeps indexes (`RemoteIndexCache.DIR_NAME`).
REMOTE_INDEX_CACHE = "remote-log-index-cache"
#: KRaft's own topic, which `LogManager` does not load.
METADATA_TOPIC = "__cluster_metadata"
#: Internal topics of brokers (`Topic.INTERNAL_TOPICS`), and a controller's log, which no consumer reads.
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state", METADATA_TOPIC})
#: Topics that brokers make with `cleanup.policy=compact` (`GroupCoordinatorService.groupMetadataTopicConfigs`,
#: `TransactionStateManager.transactionTopicConfigs`). `__share_group_state` (KIP-932) and `__remote_log_metadata` have
#: `delete`, and a cluster's metadata is not cleaned.
COMPACTED_BY_BROKERS = frozenset({"__consumer_offsets", "__transaction_state"})
PARTITION_MAX = 2**31 - 1
TOPIC_LENGTH_MAX = 249

_NAME = re.compile(r"[A-Za-z0-9._-]+")
_NUMBER = re.compile(r"0|[1-9][0-9]*")
MOVED_DIRECTORY = re.compile(r"\S+-\S+\.\S+-(delete|future|stray)")
_MOVED_SUFFIXES = ("-delete", "-future", "-stray")


#: source, topic, partition
PartitionKey = tuple[str, str, int]


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """A partition of a topic; its directory is `<topic>-<partition>`.

    Attributes:
        topic: the topic's name.
        partition: the partition's number.
    """

    topic: str
    partition: int

    @property
    def directory(self) -> str:
        return f"{self.topic}-{self.partition}"


def parse_partition_directory(name: str) -> TopicPartition | None:
    """The partition whose directory has this name; None if it is not a partition's.

    The number follows the last dash, so topic names may contain dashes: `x-delete-0` is partition 0 of `x-delete`.
    """
    topic, dash, number = name.rpartition("-")
    if not dash or not _NUMBER.fullmatch(number) or int(number) > PARTITION_MAX:
        return None
    return TopicPartition(topic, int(number)) if is_topic_name(topic) else None


def is_moved(name: str) -> bool:
    """Whether Kafka deletes, moves or has set aside a partition, by its directory's name."""
    return name.endswith(_MOVED_SUFFIXES)


def loaded_as(name: str) -> TopicPartition | None:
    """The partition that a broker loads from a directory with this name when it starts; None if it fails on the name.

    Brokers accept more names than they write: partitions that are moved or deleted, `a-00`, and topics with any
    characters (`LocalLog.parseTopicPartitionName`).
    """
    if is_moved(name):
        if MOVED_DIRECTORY.fullmatch(name) is None:
            return None
        name = name.rpartition(".")[0]
    topic, _, number = name.rpartition("-")
    partition = parse_int(number)
    return TopicPartition(topic, partition) if topic and partition is not None else None


def served_as(name: str) -> TopicPartition | None:
    """The partition that a broker serves, by its directory's name: none of one that Kafka moves, deletes or has set
    aside, nor of the cluster's metadata, which `LogManager` does not load.
    """
    partition = None if is_moved(name) else loaded_as(name)
    return None if partition is None or partition.topic == METADATA_TOPIC else partition


def is_other_name(name: str) -> bool:
    """Whether no command takes a directory for a partition's, by its name, such as one that Kafka moves or deletes, or
    that somebody has renamed.
    """
    return name.startswith(".") or parse_partition_directory(name) is None


def may_be_renamed(name: str, partition: TopicPartition) -> bool:
    """Whether a directory may be a renamed partition's, such as `t-2.bak`, `t-02` or `.t-2` for `t-2`, which no command
    takes for that partition. False for a directory that Kafka moves or deletes.
    """
    # Fast, as there may be many names and partitions, most of them unrelated.
    if f"{partition.topic}-" not in name or is_moved(name) or not is_other_name(name):
        return False
    like = rf"\.*{re.escape(partition.topic)}-0*{partition.partition}(?![0-9]).*"
    return name != partition.directory and re.fullmatch(like, name, re.DOTALL) is not None


def is_topic_name(text: str) -> bool:
    """Whether a name is valid for a topic, and so is exactly one part of a path (`Topic.validate`)."""
    return _NAME.fullmatch(text) is not None and text not in (".", "..") and len(text) <= TOPIC_LENGTH_MAX
