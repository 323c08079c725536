"""The names of Kafka's checkpoint files, and what a broker writes into those of a log dir."""

from __future__ import annotations

from collections.abc import Mapping

from kidxlib.format.topic_partition import TopicPartition

LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT = "log-start-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT = "replication-offset-checkpoint"
CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"
#: Those that a broker keeps in a log dir.
LOG_DIR_CHECKPOINTS = (
    RECOVERY_POINT_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    CLEANER_CHECKPOINT,
)
CHECKPOINTS = (
    LEADER_EPOCH_CHECKPOINT,
    *LOG_DIR_CHECKPOINTS,
)


def offset_checkpoint(offsets: Mapping[TopicPartition, int]) -> bytes:
    """The content of an offset checkpoint (`OffsetCheckpointFile`, version 0)."""
    lines = ["0", str(len(offsets))]
    lines += [f"{each.topic} {each.partition} {offset}" for each, offset in sorted(offsets.items())]
    return "".join(f"{line}\n" for line in lines).encode()


def clean_shutdown(broker_epoch: int) -> bytes:
    """The content of `.kafka_cleanshutdown` (`CleanShutdownFileHandler`, version 0)."""
    return f'{{"version":0,"brokerEpoch":{broker_epoch}}}'.encode()
