"""A partition's log by the checkpoint files of its log dir: how far the log went, and where it began."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeAlias

from kidxlib.errors import CheckpointError, KidxError, describe_error
from kidxlib.format.checkpoint_files import HIGH_WATERMARK_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.log.log import LogDirEvidence, MissingStart
from kidxlib.storage.location import Location
from kidxlib.storage.log_dir import META_PROPERTIES, before_first_log, read_offset_checkpoint
from kidxlib.storage.logs_aside import LogsAside

#: Reads a checkpoint file, as `read_offset_checkpoint`.
ReadOffsets: TypeAlias = Callable[[Location], Mapping[TopicPartition, int] | None]


def evidence_of_checkpoints(
    directory: Location,
    partition: TopicPartition,
    first_base: int | None,
    high_watermark: int | None,
    offsets_in: ReadOffsets = read_offset_checkpoint,
) -> LogDirEvidence:
    """The answers of checkpoint files on a partition's log. Files are read at the first question. `first_base` is the
    base offset of its first log; None for that of the first log that is in the directory now.
    """
    return LogDirEvidence(
        high_watermark,
        partial(why_no_high_watermark, directory.parent, partition, offsets_in),
        partial(evidence_of_missing_start, directory, partition, first_base, offsets_in),
        unloaded_logs_remedy=partial(LogsAside().remedy, directory),
        is_log_dir=True,
    )


def checkpointed_high_watermark(
    directory: Location, partition: TopicPartition, offsets_in: ReadOffsets = read_offset_checkpoint
) -> int | None:
    """The high watermark of a partition in its log dir's checkpoint, as evidence of how far the log went; None if the
    checkpoint has none, or cannot be read: `why_no_high_watermark` tells which.
    """
    with contextlib.suppress(CheckpointError, OSError):
        return (offsets_in(directory.parent / HIGH_WATERMARK_CHECKPOINT) or {}).get(partition)
    return None


def why_no_high_watermark(
    log_dir: Location, partition: TopicPartition, offsets_in: ReadOffsets
) -> tuple[str, bool] | None:
    """Why a log dir's checkpoint has no high watermark of a partition, and whether the file cannot be read. None if it
    has one by now, or if no broker has written to the log dir: a broker writes one for each partition of a log dir
    (`ReplicaManager.checkpointHighWatermarks`).
    """
    path = log_dir / HIGH_WATERMARK_CHECKPOINT
    try:
        if not (log_dir / META_PROPERTIES).exists():
            return None
        offsets = offsets_in(path)
    except (CheckpointError, OSError) as error:
        return describe_error(error), True
    if offsets is None:
        return f"{path}: missing", False
    return None if partition in offsets else (f"{path}: has no line for {partition.directory}", False)


def evidence_of_missing_start(
    directory: Location, partition: TopicPartition, first_base: int | None, offsets_in: ReadOffsets
) -> MissingStart | None:
    """The logs that a partition had before its first one, by the evidence of its checkpoint of leader epochs. None if
    these begin with that log, cannot be read, or a log start is written down for the partition.

    When a broker deletes logs at the start, it cuts the epochs there at once
    (`LeaderEpochFileCache.truncateFromStart`). A partition in the checkpoint of log starts may begin inside its first
    log, or in a bucket (`LogManager.checkpointLogStartOffsetsInDir`); without the checkpoint nobody knows which.
    """
    with contextlib.suppress(KidxError, OSError):
        starts: Mapping[TopicPartition, int] | None = None
        with contextlib.suppress(CheckpointError):  # a malformed file is as none
            starts = offsets_in(directory.parent / LOG_START_OFFSET_CHECKPOINT)
        if starts is not None and partition in starts:
            return None
        lacks = before_first_log(directory, first_base)
        return None if lacks is None else MissingStart(lacks[0].start_offset, is_lost=starts is not None)
    return None
