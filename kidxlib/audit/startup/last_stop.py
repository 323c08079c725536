"""How the broker of a log dir stopped, as a starting broker finds out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kidxlib.audit.startup import checkpoints, log_dir_entries
from kidxlib.format import checkpoint_files
from kidxlib.format.topic_partition import METADATA_TOPIC, TopicPartition
from kidxlib.storage.checkpoints import CLEAN_SHUTDOWN_FILE
from kidxlib.storage.location import Location
from kidxlib.storage.log_dir import META_PROPERTIES


@dataclass(frozen=True, slots=True)
class PartitionStop:
    """How the broker of a partition's log dir stopped.

    Attributes:
        failures: of the log dir as a whole.
    """

    clean_shutdown: bool
    recovery_point: int
    log_start_offset: int
    high_watermark: int
    failures: tuple[str, ...] = ()

    @property
    def known_end(self) -> int:
        """The largest offset up to which the broker's checkpoints say that the log went; 0 where they say nothing."""
        return max(self.recovery_point, self.high_watermark)

    @property
    def why_empty(self) -> str:
        """What becomes of a partition's directory in which there is no segment."""
        had = f", though the broker's checkpoints say that it had offsets up to {self.known_end - 1}"
        return f"no segment is there{had if self.known_end else ''}; a broker that starts makes an empty log"


@dataclass(frozen=True, slots=True)
class LastStop:
    """How the broker of a log dir stopped, as `LogManager.loadLogs` finds out.

    Attributes:
        recovery_points, log_start_offsets, high_watermarks: by partition; 0 for partitions that the files do not name.
        failures: why a broker does not start with this log dir.
        notes: remarks for a person on the files that say so.
    """

    clean_shutdown: bool
    recovery_points: Mapping[TopicPartition, int]
    log_start_offsets: Mapping[TopicPartition, int]
    high_watermarks: Mapping[TopicPartition, int]
    failures: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def of(self, partition: TopicPartition) -> PartitionStop:
        if partition.topic == METADATA_TOPIC:
            # `KafkaRaftLog.createLog`: the whole log is recovered at each start, and no checkpoint names it.
            return PartitionStop(False, 0, 0, 0, self.failures)
        return PartitionStop(
            self.clean_shutdown,
            self.recovery_points.get(partition, 0),
            self.log_start_offsets.get(partition, 0),
            self.high_watermarks.get(partition, 0),
            self.failures,
        )


def last_stop(log_dir: Location, clean_shutdown: bool | None = None, *, is_listed: bool = True) -> LastStop:
    """Read from a log dir how its broker stopped.

    Args:
        clean_shutdown: the answer to use; None reads it from the log dir.
        is_listed: the directory was given as a log dir, so its other entries count. If not, one of its partitions was
            given, and it may be any directory.

    Raises:
        OSError: it cannot be listed.
    """
    read = [checkpoints.read_offsets(log_dir, name) for name in checkpoint_files.LOG_DIR_CHECKPOINTS]
    points, starts, watermarks, _ = read
    failures = [each.failure for each in read if each.failure is not None]
    # An archive may hold other directories, and no broker is to start there.
    if is_listed and _is_of_broker(log_dir):
        failures += log_dir_entries.failures_in_log_dir(log_dir)
    if clean_shutdown is None:
        clean_shutdown = (log_dir / CLEAN_SHUTDOWN_FILE).exists()
    return LastStop(
        clean_shutdown,
        points.by_partition,
        starts.by_partition,
        watermarks.by_partition,
        tuple(failures),
        tuple(each.note for each in read if each.note is not None),
    )


def _is_of_broker(log_dir: Location) -> bool:
    """Whether a broker has left a file of its own there."""
    return any(
        (log_dir / name).exists()
        for name in (META_PROPERTIES, CLEAN_SHUTDOWN_FILE, *checkpoint_files.LOG_DIR_CHECKPOINTS)
    )
