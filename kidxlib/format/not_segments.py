"""Files and directories that are not a segment's or a partition's, told apart by name."""

from __future__ import annotations

import enum

from kidxlib.format import segment_files
from kidxlib.format.checkpoint_files import CHECKPOINTS
from kidxlib.format.segment_files import AUXILIARY_SUFFIXES, CLEANED_SUFFIX, DELETED_SUFFIX, LOG_SUFFIX, SWAP_SUFFIX
from kidxlib.format.topic_partition import MOVED_DIRECTORY, REMOTE_INDEX_CACHE

_UNFINISHED_SUFFIXES = (DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX)
_BROKER_FILES = (
    "partition.metadata",
    "meta.properties",
    segment_files.BOOTSTRAP_SNAPSHOT,
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
    if name in CHECKPOINTS or name.endswith(segment_files.KRAFT_SNAPSHOT_SUFFIX):
        return NotASegment.CHECKPOINT
    return NotASegment.BROKER_FILE if name in _BROKER_FILES else NotASegment.OTHER


def why_not_in_a_log_dir(name: str) -> NotASegment:
    """Why a file in a log dir, beside its partitions, is not read as a segment."""
    return NotASegment.LOOSE_LOG if segment_files.parse_segment_log(name) is not None else why_not_a_segment(name)


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
