"""The log dir that is made of a bucket: directories of partitions as a follower makes them of remote segments, and of
`__remote_log_metadata`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kidxlib.format.checkpoint_files import (
    HIGH_WATERMARK_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    offset_checkpoint,
)
from kidxlib.format.segment_files import LOG_SUFFIX, SNAPSHOT_SUFFIX, segment_file
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.messages.remote_log_metadata import RemoteSegment, RemoteSegmentUpdate, write_remote_log_metadata
from kidxlib.records.batch_writer import write_batch
from kidxlib.storage.location import Location
from kidxlib.storage.log_dir import META_PROPERTIES, PARTITION_METADATA

_RECORDS_PER_BATCH: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeFolder:
    """A partition's directory that is made.

    Attributes:
        log_start_offset: for the checkpoint; None: the log begins with its first segment.
        base_offset, end_offset: of the only segment.
        log: its bytes.
        epochs: the content of `leader-epoch-checkpoint`.
        snapshot: that of the producers at `base_offset`; None: there are none.
        origin: what it is made of.
        highest_epoch: of all that it is made of.
    """

    topic_id: str
    log_start_offset: int | None
    base_offset: int
    end_offset: int
    log: bytes
    epochs: bytes
    snapshot: bytes | None
    origin: Location
    highest_epoch: int


def metadata_log(records: Sequence[RemoteSegment | RemoteSegmentUpdate]) -> bytes:
    """The log of a partition of `__remote_log_metadata`, from offset 0 on, in leader epoch 0."""
    log = b""
    for begin in range(0, len(records), _RECORDS_PER_BATCH):
        of_batch = records[begin : begin + _RECORDS_PER_BATCH]
        log += write_batch(
            [write_remote_log_metadata(record) for record in of_batch],
            base_offset=begin,
            leader_epoch=0,
            timestamp_ms=max(record.event_timestamp_ms for record in of_batch),
        )
    return log


def write_log_dir(log_dir: Path, folders: Mapping[TopicPartition, MadeFolder]) -> None:
    """Write the log dir. It has no recovery points, so that all of it is read as after a crash."""
    (log_dir / META_PROPERTIES).write_text("version=1\nnode.id=0\n")
    for partition, folder in folders.items():
        directory = log_dir / partition.directory
        directory.mkdir()
        (directory / PARTITION_METADATA).write_text(f"version: 0\ntopic_id: {folder.topic_id}")
        (directory / segment_file(folder.base_offset, LOG_SUFFIX)).write_bytes(folder.log)
        (directory / LEADER_EPOCH_CHECKPOINT).write_bytes(folder.epochs)
        if folder.snapshot is not None:
            (directory / segment_file(folder.base_offset, SNAPSHOT_SUFFIX)).write_bytes(folder.snapshot)
    starts = {name: each.log_start_offset for name, each in folders.items() if each.log_start_offset is not None}
    (log_dir / LOG_START_OFFSET_CHECKPOINT).write_bytes(offset_checkpoint(starts))
    marks = {name: each.end_offset for name, each in folders.items()}
    (log_dir / HIGH_WATERMARK_CHECKPOINT).write_bytes(offset_checkpoint(marks))
