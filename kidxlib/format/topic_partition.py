"""Topics and partitions, and the names of their directories in a log dir.

Source: `UnifiedLog.parseTopicPartitionName`, `Topic.validate`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kidxlib.java import parse_integer

#: Where a broker with tiered storage keeps indexes, beside its partitions (`RemoteIndexCache.DIR_NAME`).
REMOTE_INDEX_CACHE = "remote-log-index-cache"
#: KRaft's own, which `LogManager` does not load.
METADATA_TOPIC = "__cluster_metadata"
#: Topics that brokers keep for themselves (`Topic.INTERNAL_TOPICS`), and a controller's log, which no consumer reads.
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
    """The partition whose directory is called `name`; None where it is not a partition's directory.

    The number follows the last dash, so topic names may hold dashes: `x-delete-0` is partition 0 of `x-delete`.
    """
    topic, dash, number = name.rpartition("-")
    if not dash or not _NUMBER.fullmatch(number) or int(number) > PARTITION_MAX:
        return None
    return TopicPartition(topic, int(number)) if is_name(topic) else None


def is_moved(name: str) -> bool:
    """Whether Kafka deletes, moves or has set aside a directory of that name."""
    return name.endswith(_MOVED_SUFFIXES)


def loaded_as(name: str) -> TopicPartition | None:
    """The partition for which a broker that starts takes the directory called `name`; None where it ends over it.

    That is more than what it writes itself: partitions that it moves or deletes, `a-00`, and topics of any characters
    (`LocalLog.parseTopicPartitionName`).
    """
    if is_moved(name):
        if MOVED_DIRECTORY.fullmatch(name) is None:
            return None
        name = name.rpartition(".")[0]
    topic, _, number = name.rpartition("-")
    partition = parse_integer(number, 32)
    return TopicPartition(topic, partition) if topic and partition is not None else None


def is_other_name(name: str) -> bool:
    """Whether no command takes a directory called `name` for a partition's: it may be one that Kafka moves or deletes,
    or that somebody has renamed.
    """
    return name.startswith(".") or parse_partition_directory(name) is None


def looks_like(name: str, partition: TopicPartition) -> bool:
    """Whether a directory called `name` may be a partition's that somebody has renamed, as `t-2.bak`, `t-02` or `.t-2`
    of `t-2`: no command takes it for that partition. Not what Kafka moves or deletes.
    """
    # Most names and partitions have nothing to do with each other, and there may be many of both.
    if f"{partition.topic}-" not in name or is_moved(name) or not is_other_name(name):
        return False
    like = rf"\.*{re.escape(partition.topic)}-0*{partition.partition}(?![0-9]).*"
    return name != partition.directory and re.fullmatch(like, name, re.DOTALL) is not None


def is_name(text: str) -> bool:
    """Whether a path may be made of a name, which is then one directory of that path and no other: as a topic's
    (`Topic.validate`).
    """
    return _NAME.fullmatch(text) is not None and text not in (".", "..") and len(text) <= TOPIC_LENGTH_MAX
