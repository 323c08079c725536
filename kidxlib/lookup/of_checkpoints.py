"""What the checkpoint files of a log dir say of a partition's log: how far it went, and where it began."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeAlias

from kidxlib.errors import CheckpointError, KidxError, describe_error
from kidxlib.format.checkpoint_files import HIGH_WATERMARK_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.log.log import OfLogDir
from kidxlib.storage.location import Location
from kidxlib.storage.log_dir import META_PROPERTIES
from kidxlib.storage.logs_aside import LogsAside
from kidxlib.storage.small_files import before_first_log, read_offset_checkpoint

#: Reads a checkpoint file, as `read_offset_checkpoint`.
ReadOffsets: TypeAlias = Callable[[Location], Mapping[TopicPartition, int] | None]


def of_checkpoints(
    directory: Location,
    partition: TopicPartition,
    first_base: int | None,
    high_watermark: int | None,
    offsets_in: ReadOffsets = read_offset_checkpoint,
) -> OfLogDir:
    """What is said of a log. Files are read once somebody asks.

    Args:
        directory: of the partition, in its log dir.
        first_base: the base offset of its first log; None for that of the first that is in the directory now.
        high_watermark: as the checkpoint has it.
        offsets_in: reads checkpoint files.
    """
    return OfLogDir(
        high_watermark,
        partial(why_no_high_watermark, directory.parent, partition, offsets_in),
        partial(lost_first_offset, directory, partition, first_base, offsets_in),
        what_is_aside=partial(LogsAside().remedy, directory),
        is_log_dir=True,
    )


def high_watermark_of(
    directory: Location, partition: TopicPartition, offsets_in: ReadOffsets = read_offset_checkpoint
) -> int | None:
    """The high watermark of a partition in its log dir's checkpoint; None where that has none, or cannot be read, which
    `why_no_high_watermark` says.
    """
    with contextlib.suppress(CheckpointError, OSError):
        return (offsets_in(directory.parent / HIGH_WATERMARK_CHECKPOINT) or {}).get(partition)
    return None


def why_no_high_watermark(
    log_dir: Location, partition: TopicPartition, offsets_in: ReadOffsets
) -> tuple[str, bool] | None:
    """Why a broker's checkpoint has no high watermark of a partition, and whether it cannot be read. None where it has
    one by now, or where no broker has written: a broker writes one of each partition of a log dir
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


def lost_first_offset(
    directory: Location, partition: TopicPartition, first_base: int | None, offsets_in: ReadOffsets
) -> int | None:
    """Where a partition's leader epochs begin, if logs from there on were lost; None where they were not, or nobody
    knows.

    Whatever a broker deletes from the start, it cuts the epochs there at once
    (`LeaderEpochFileCache.truncateFromStart`). A partition that the checkpoint of log starts names may begin amid its
    first log, or in a bucket (`LogManager.checkpointLogStartOffsetsInDir`).

    Args:
        first_base: as of `of_checkpoints`.
        offsets_in: reads checkpoint files, each once.
    """
    with contextlib.suppress(KidxError, OSError):
        starts = offsets_in(directory.parent / LOG_START_OFFSET_CHECKPOINT)
        if starts is None or partition in starts:
            return None
        lost = before_first_log(directory, first_base)
        return None if lost is None else lost[0].start_offset
    return None
