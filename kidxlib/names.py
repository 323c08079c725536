"""File and folder names ↔ values, as Kafka writes them.

Source: `org.apache.kafka.storage.internals.log.LogFileUtils` and `UnifiedLog.parseTopicPartitionName`.
"""

from __future__ import annotations

import difflib
import enum
import re
from collections.abc import Iterable
from dataclasses import dataclass

LOG_SUFFIX = ".log"
OFFSET_INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"
DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT = "log-start-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT = "replication-offset-checkpoint"
CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"
#: Where a broker with tiered storage keeps indexes, beside its partitions (`RemoteIndexCache.DIR_NAME`).
REMOTE_INDEX_CACHE = "remote-log-index-cache"
#: KRaft's own, which `LogManager` does not load.
METADATA_TOPIC = "__cluster_metadata"

OFFSET_MAX = 2**63 - 1
PARTITION_MAX = 2**31 - 1
TOPIC_LENGTH_MAX = 249

#: Names that a message offers for one that is not there.
_NEAREST = 3

_NAME = re.compile(r"[A-Za-z0-9._-]+")
_NUMBER = re.compile(r"0|[1-9][0-9]*")
_JAVA_INTEGER = re.compile(r"[+-]?\d+")
_SEGMENT_FILE = re.compile(r"([0-9]{20})(\.[a-z]+)")
_MOVED_FOLDER = re.compile(r"\S+-\S+\.\S+-(delete|future|stray)")
_MOVED_SUFFIXES = ("-delete", "-future", "-stray")

SIDE_FILE_SUFFIXES = (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX, SNAPSHOT_SUFFIX)
_UNFINISHED_SUFFIXES = (DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX)
#: Those that a broker keeps in a log dir.
LOG_DIR_CHECKPOINTS = (
    RECOVERY_POINT_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    CLEANER_CHECKPOINT,
)
_CHECKPOINTS = (
    LEADER_EPOCH_CHECKPOINT,
    *LOG_DIR_CHECKPOINTS,
)
_BROKER_FILES = (
    "partition.metadata",
    "meta.properties",
    "bootstrap.checkpoint",
    "quorum-state",
    ".kafka_cleanshutdown",
    ".lock",
)


class NotASegment(enum.StrEnum):
    """Why something found in a Kafka log dir or a partition folder is left alone."""

    SIDE_FILE = "index or snapshot beside a segment"
    CHECKPOINT = "checkpoint file"
    BROKER_FILE = "broker file"
    DELETED = "file that Kafka is deleting (.deleted)"
    CLEANED = "file that Kafka's cleaner is writing (.cleaned)"
    SWAP = "file that Kafka is swapping in (.swap)"
    FOLDER_DELETE = "partition that Kafka is deleting (-delete)"
    FOLDER_FUTURE = "partition that Kafka is moving here (-future)"
    FOLDER_STRAY = "partition that Kafka set aside (-stray)"
    WRONG_SEGMENT_NAME = "a .log whose name is not a 20-digit base offset"
    NO_PARTITION_NUMBER = "folder whose name is not <topic>-<partition>"
    UNLISTABLE_FOLDER = "folder that cannot be listed"
    OTHER = "not a file of Kafka's"


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """A partition of a topic; its folder is `<topic>-<partition>`."""

    topic: str
    partition: int

    @property
    def folder(self) -> str:
        return f"{self.topic}-{self.partition}"


def parse_partition_folder(name: str) -> TopicPartition | None:
    """The partition whose folder is called `name`; None where it is not a partition's folder.

    The number stands behind the last dash, so topic names may hold dashes: `x-delete-0` is partition 0 of `x-delete`.
    """
    topic, dash, number = name.rpartition("-")
    if not dash or not _NUMBER.fullmatch(number) or int(number) > PARTITION_MAX:
        return None
    return TopicPartition(topic, int(number)) if is_name(topic) else None


def loaded_as(name: str) -> TopicPartition | None:
    """The partition for which a broker that starts takes the folder called `name`; None where it ends over it.

    That is more than what it writes itself: partitions that it moves or deletes, `a-00`, and topics of any characters
    (`LocalLog.parseTopicPartitionName`).
    """
    if name.endswith(_MOVED_SUFFIXES):
        if _MOVED_FOLDER.fullmatch(name) is None:
            return None
        name = name.rpartition(".")[0]
    topic, _, number = name.rpartition("-")
    partition = java_integer(number, 32)
    return TopicPartition(topic, partition) if topic and partition is not None else None


def java_integer(text: str, bits: int) -> int | None:
    """What Java's `parseInt` and `parseLong` make of a text; None where they throw a `NumberFormatException`."""
    if _JAVA_INTEGER.fullmatch(text) is None:
        return None
    value = int(text)
    return value if -(1 << (bits - 1)) <= value < 1 << (bits - 1) else None


def is_name(text: str) -> bool:
    """Whether a path may be made of a name, which is then one directory of that path and no other: as a topic's
    (`Topic.validate`).
    """
    return _NAME.fullmatch(text) is not None and text not in (".", "..") and len(text) <= TOPIC_LENGTH_MAX


def segment_file(base_offset: int, suffix: str) -> str:
    """The name of a segment's file: the base offset, zero-padded to 20 digits, and the suffix with its dot."""
    return f"{base_offset:020d}{suffix}"


def parse_segment_log(name: str) -> int | None:
    """The base offset of the segment whose log is called `name`; None where that is no segment's log."""
    return _offset_in(name, LOG_SUFFIX)


def parse_snapshot(name: str) -> int | None:
    """The offset of the producer snapshot that is called `name`; None where that is none."""
    return _offset_in(name, SNAPSHOT_SUFFIX)


def parse_segment_file(name: str) -> tuple[int, str] | None:
    """The offset and the suffix of any file of a segment, or of a snapshot; None where `name` is that of none."""
    match = _SEGMENT_FILE.fullmatch(name)
    if match is None or int(match[1]) > OFFSET_MAX:
        return None
    return int(match[1]), match[2]


def _offset_in(name: str, suffix: str) -> int | None:
    parsed = parse_segment_file(name)
    return parsed[0] if parsed is not None and parsed[1] == suffix else None


def why_not_a_segment(name: str) -> NotASegment:
    """Why the file called `name` in a partition's folder is not read as a segment."""
    for suffix, reason in zip(
        _UNFINISHED_SUFFIXES, (NotASegment.DELETED, NotASegment.CLEANED, NotASegment.SWAP), strict=True
    ):
        if name.endswith(suffix):
            return reason
    if name.endswith(LOG_SUFFIX):
        return NotASegment.WRONG_SEGMENT_NAME
    if name.endswith(SIDE_FILE_SUFFIXES):
        return NotASegment.SIDE_FILE
    if name in _CHECKPOINTS or name.endswith(".checkpoint"):
        return NotASegment.CHECKPOINT
    return NotASegment.BROKER_FILE if name in _BROKER_FILES else NotASegment.OTHER


def why_not_a_partition(name: str) -> NotASegment:
    """Why the folder called `name` in a Kafka log dir is not read as a partition."""
    match = _MOVED_FOLDER.fullmatch(name)
    if match is None:
        return NotASegment.NO_PARTITION_NUMBER
    return {
        "delete": NotASegment.FOLDER_DELETE,
        "future": NotASegment.FOLDER_FUTURE,
        "stray": NotASegment.FOLDER_STRAY,
    }[match[1]]


def no_such_partition(wanted: TopicPartition, known: Iterable[TopicPartition]) -> str:
    """That a partition is not among those that there are, and the most similar names of these."""
    there = sorted(partition.folder for partition in set(known))
    nearest = difflib.get_close_matches(wanted.folder, there, n=_NEAREST) or there[:_NEAREST]
    more = f" and {len(there) - len(nearest)} more" if len(there) > len(nearest) else ""
    return f"no partition {wanted.folder} in it; it has {', '.join(nearest) or 'none'}{more}"
