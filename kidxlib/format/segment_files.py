"""The names of the files in a partition's directory, and names of files and directories that are not a segment's or a
partition's. A segment's file is named by an offset of 20 digits and a suffix, a snapshot of KRaft's log by its end
offset and epoch.

Sources: `org.apache.kafka.storage.internals.log.LogFileUtils`, `org.apache.kafka.snapshot.Snapshots`,
`BootstrapDirectory`.
"""

from __future__ import annotations

import enum
import re
from functools import lru_cache
from typing import Final, NamedTuple

from kidxlib import java
from kidxlib.format.checkpoint_files import CHECKPOINTS
from kidxlib.format.topic_partition import MOVED_DIRECTORY, REMOTE_INDEX_CACHE

LOG_SUFFIX = ".log"
OFFSET_INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"
DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"

OFFSET_MAX = 2**63 - 1
#: The largest producer snapshot: 46 bytes for each of a million producers. A larger file is none.
SNAPSHOT_BYTES_MAX: Final = 64 * 1024 * 1024
_SEGMENT_FILE = re.compile(r"([0-9]{20})(\.[a-z]+)")


INDEX_SUFFIXES = (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
AUXILIARY_SUFFIXES = (*INDEX_SUFFIXES, SNAPSHOT_SUFFIX)

KRAFT_SNAPSHOT_SUFFIX: Final = ".checkpoint"
#: Includes snapshots that are being written or deleted, which a node removes when it starts.
KRAFT_SNAPSHOT_SUFFIXES: Final = (KRAFT_SNAPSHOT_SUFFIX, ".checkpoint.part", ".checkpoint.deleted")
#: The snapshot that formatting a log dir writes for a controller's first start.
BOOTSTRAP_SNAPSHOT: Final = "bootstrap.checkpoint"

_KRAFT_SNAPSHOT_FILE: Final = re.compile(rf"([0-9]{{20}})-([0-9]{{10}}){re.escape(KRAFT_SNAPSHOT_SUFFIX)}")
_EPOCH_MAX: Final = 2**31 - 1
#: Names whose offset is kept: who lists a directory asks for a name several times.
_NAMES_KEPT: Final = 4096


def segment_file(base_offset: int, suffix: str) -> str:
    return f"{base_offset:020d}{suffix}"


def parse_segment_log(name: str) -> int | None:
    """The base offset of a segment's log by its file name; None if it is not a segment's log."""
    return _offset_in(name, LOG_SUFFIX)


def parse_snapshot(name: str) -> int | None:
    """The offset of a producer snapshot by its file name; None if it is not one."""
    return _offset_in(name, SNAPSHOT_SUFFIX)


def parse_segment_file(name: str) -> tuple[int, str] | None:
    """The offset and the suffix of a segment's file or a snapshot by its name; None if it is neither."""
    match = _SEGMENT_FILE.fullmatch(name)
    if match is None or int(match[1]) > OFFSET_MAX:
        return None
    return int(match[1]), match[2]


def _offset_in(name: str, suffix: str) -> int | None:
    parsed = parse_segment_file(name)
    return parsed[0] if parsed is not None and parsed[1] == suffix else None


@lru_cache(_NAMES_KEPT)
def offset_in_name(name: str) -> int | None:
    """The offset in any file's name, as Kafka reads it: all up to the first dot (`LogFileUtils.offsetFromFileName`)."""
    return java.parse_long(name.partition(".")[0])


class SnapshotId(NamedTuple):
    """The id of a snapshot, which covers the log below `end_offset`; the last record there has `epoch`."""

    end_offset: int
    epoch: int


def kraft_snapshot_file(snapshot: SnapshotId) -> str:
    return f"{snapshot.end_offset:020d}-{snapshot.epoch:010d}{KRAFT_SNAPSHOT_SUFFIX}"


def parse_kraft_snapshot(name: str) -> SnapshotId | None:
    """The id of a snapshot by its file name; None if it is not one."""
    match = _KRAFT_SNAPSHOT_FILE.fullmatch(name)
    if match is None or int(match[1]) > OFFSET_MAX or int(match[2]) > _EPOCH_MAX:
        return None
    return SnapshotId(int(match[1]), int(match[2]))


_UNFINISHED_SUFFIXES = (DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX)
_BROKER_FILES = (
    "partition.metadata",
    "meta.properties",
    BOOTSTRAP_SNAPSHOT,
    "quorum-state",
    ".kafka_cleanshutdown",
    ".lock",
)


class NotASegment(enum.StrEnum):
    """Why an entry of a Kafka log dir or a partition's directory is skipped."""

    AUXILIARY = "index or snapshot beside a segment"
    CHECKPOINT = "checkpoint file"
    BROKER_FILE = "broker file"
    DELETED = "file that Kafka is deleting (.deleted)"
    CLEANED = "file that Kafka's cleaner is writing (.cleaned)"
    SWAP = "file that Kafka is swapping in (.swap)"
    DIRECTORY_DELETE = "partition that Kafka is deleting (-delete)"
    DIRECTORY_FUTURE = "partition that Kafka is moving here (-future)"
    DIRECTORY_STRAY = "partition that Kafka set aside (-stray)"
    WRONG_SEGMENT_NAME = "a .log whose name is not a 20-digit base offset"
    LOOSE_LOG = "a log that is in no partition's directory, so that no broker loads it"
    # Keys in JSON and values of a column, which stay until the catalog's next version.
    NO_PARTITION_NUMBER = "folder whose name is not <topic>-<partition>"
    UNLISTABLE_DIRECTORY = "folder that cannot be listed"
    OTHER = "not a file of Kafka's"

    @property
    def in_words(self) -> str:
        """The reason as messages say it."""
        return self.value.replace("folder", "directory")


def why_not_a_segment(name: str) -> NotASegment:
    """Why a file in a partition's directory is not read as a segment."""
    for suffix, reason in zip(
        _UNFINISHED_SUFFIXES, (NotASegment.DELETED, NotASegment.CLEANED, NotASegment.SWAP), strict=True
    ):
        if name.endswith(suffix):
            return reason
    if name.endswith(LOG_SUFFIX):
        return NotASegment.WRONG_SEGMENT_NAME
    if name.endswith(AUXILIARY_SUFFIXES):
        return NotASegment.AUXILIARY
    if name in CHECKPOINTS or name.endswith(KRAFT_SNAPSHOT_SUFFIX):
        return NotASegment.CHECKPOINT
    return NotASegment.BROKER_FILE if name in _BROKER_FILES else NotASegment.OTHER


def why_not_in_a_log_dir(name: str) -> NotASegment:
    """Why a file in a log dir, beside its partitions, is not read as a segment."""
    return NotASegment.LOOSE_LOG if parse_segment_log(name) is not None else why_not_a_segment(name)


def why_not_a_partition(name: str) -> NotASegment:
    """Why a directory in a log dir is not read as a partition."""
    if name == REMOTE_INDEX_CACHE:
        return NotASegment.BROKER_FILE
    match = MOVED_DIRECTORY.fullmatch(name)
    if match is None:
        return NotASegment.NO_PARTITION_NUMBER
    return {
        "delete": NotASegment.DIRECTORY_DELETE,
        "future": NotASegment.DIRECTORY_FUTURE,
        "stray": NotASegment.DIRECTORY_STRAY,
    }[match[1]]
