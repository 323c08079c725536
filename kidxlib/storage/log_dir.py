"""A broker's log dir, but for its logs: how to recognize it, and where kidx makes no files; its `meta.properties`, its
checkpoints, and the topic id and leader epochs of its partitions.

Sources: `PartitionMetadataFile`, `CheckpointFile`, `OffsetCheckpointFile`, `LeaderEpochCheckpointFile`,
`CleanShutdownFileHandler`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from kidxlib.errors import CheckpointError, UsageError, describe_error
from kidxlib.format import checkpoint_files, segment_files, topic_partition
from kidxlib.format.checkpoint_files import EpochEntry, LeaderEpochs
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.java import parse_int, parse_properties
from kidxlib.storage.location import Location, entries_in, files_in, is_directory
from kidxlib.storage.lock import is_in_use
from kidxlib.storage.small_files import lines_of, small_file
from kidxlib.text.words import quoted

CLEAN_SHUTDOWN_FILE: Final = ".kafka_cleanshutdown"
META_PROPERTIES: Final = "meta.properties"
PARTITION_METADATA: Final = "partition.metadata"
#: All that is in a directory on which nothing is mounted, or a new file system.
UNMOUNTED: Final = frozenset({"lost+found"})


def is_broker_log_dir(directory: Path) -> bool:
    """Whether a directory is a broker's log dir: a broker writes `meta.properties` before anything else."""
    return os.path.lexists(directory / META_PROPERTIES)


def is_partition_directory(directory: Location) -> bool:
    """Whether a directory is a partition's: it has the name of one, holds a partition's files, and is no log dir. A log
    dir may be called `kafka-0`, too, and so may a directory on which no disk is mounted.
    """
    if topic_partition.parse_partition_directory(directory.name) is None:
        return False
    try:
        entries = entries_in(directory)
        is_log_dir = any(
            entry.name == META_PROPERTIES
            or (topic_partition.parse_partition_directory(entry.name) is not None and not entry.is_file())
            for entry in entries
        )
    except OSError:
        return False
    return not is_log_dir and any(segment_files.parse_segment_file(entry.name) is not None for entry in entries)


def why_not_to_build_in(directory: Path) -> str | None:
    """Why kidx must not make a directory in this one: it is a log dir, or index files are in it. None: it is neither.

    A broker does not start if its log dir has a directory that is not a partition's (`LogManager.loadLogs`,
    `UnifiedLog.parseTopicPartitionName`).
    """
    if is_broker_log_dir(directory):
        return f"{directory} is a broker's log dir: it holds {META_PROPERTIES}"
    with contextlib.suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            if topic_partition.parse_partition_directory(entry.name) is not None and _holds_segment_files(entry.path):
                return f"{directory} holds segments or index files, in {entry.name}"
    if topic_partition.parse_partition_directory(directory.name) is not None and _holds_segment_files(directory):
        return f"{directory} is a partition's directory"
    return None


def why_no_partitions(directory: Location) -> str:
    """Why a directory that is named as a log dir may hold no partition, as the end of a message: its disk is not
    mounted, or it is the directory above log dirs. Empty where neither is so.
    """
    if looks_unmounted(directory):
        return "; nothing is in it: is the disk mounted?"
    below: list[Location] = []
    if isinstance(directory, Path):
        with contextlib.suppress(OSError):
            below = [entry for entry in entries_in(directory) if _holds_partitions(entry)]
    if not below:
        return ""
    more = f", and {len(below) - 1} more" if len(below) > 1 else ""
    return f"; {below[0]} has some{more}: name {'these' if more else 'that one'}"


def looks_unmounted(directory: Location) -> bool:
    """Whether a directory is empty, or has only what a new file system has: its disk may not be mounted."""
    try:
        return isinstance(directory, Path) and {entry.name for entry in entries_in(directory)} <= UNMOUNTED
    except OSError:
        return False


def _holds_partitions(directory: Location) -> bool:
    try:
        return any(is_partition_directory(entry) for entry in entries_in(directory))
    except OSError:
        return False


def _holds_segment_files(directory: str | Path) -> bool:
    try:
        return any(segment_files.parse_segment_file(name) is not None for name in os.listdir(directory))
    except OSError:
        return False


def directories_in(log_dir: Location) -> list[Location]:
    """All directories in a log dir, by name."""
    if not isinstance(log_dir, Path):
        return sorted((path for path in log_dir.iterdir() if path.listed is None), key=str)
    with os.scandir(log_dir) as entries:
        return sorted((Path(entry.path) for entry in entries if is_directory(entry)), key=str)


def bytes_of_logs(directory: Location) -> int:
    """The size of all logs in a partition's directory, in bytes; 0 if not all can be looked at."""
    try:
        files = files_in(directory)
        return sum(
            path.stat().st_size for name, path in files.items() if segment_files.parse_segment_log(name) is not None
        )
    except OSError:  # it cannot be listed, or a broker that runs deletes a log
        return 0


def read_topic_id(partition_directory: Location) -> str | None:
    """The topic id in a partition's `partition.metadata`; None where the file is absent."""
    path = partition_directory / PARTITION_METADATA
    try:
        lines = lines_of(path)
    except FileNotFoundError:
        return None
    fields = dict(line.split(": ", 1) for line in lines if ": " in line)
    if "topic_id" not in fields:
        raise CheckpointError(f"{path}: no line 'topic_id: …' in it, expected 'version: 0' and 'topic_id: <id>'")
    return fields["topic_id"]


def topic_id_or_none(partition_directory: Location) -> str | None:
    """The topic id of `read_topic_id`; None, too, where the file cannot be read."""
    with contextlib.suppress(CheckpointError, OSError):
        return read_topic_id(partition_directory)
    return None


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """A log dir's `meta.properties`; each attribute is None if the setting or the file is missing.

    Attributes:
        directory_id: the id of this log dir (`directory.id`, KIP-858), since Kafka 3.7.
        version: 1 is KRaft's, 0 ZooKeeper's (`MetaPropertiesVersion`).
    """

    node_id: int | None = None
    cluster_id: str | None = None
    directory_id: str | None = None
    version: str | None = None

    @property
    def is_kraft(self) -> bool:
        """Whether the node runs with KRaft, as far as the file says it."""
        return self.version == "1"


def read_meta_properties(log_dir: Location) -> MetaProperties:
    """Read a log dir's `meta.properties`; empty if the file is missing."""
    path = log_dir / META_PROPERTIES
    try:
        properties = parse_properties(small_file(path))
    except FileNotFoundError:
        return MetaProperties()
    return meta_properties_of(properties, str(path))


def usable_meta_properties(log_dir: Location) -> MetaProperties:
    """A log dir's `meta.properties`; empty if the file is missing, or cannot be read."""
    try:
        return read_meta_properties(log_dir)
    except (CheckpointError, OSError):
        return MetaProperties()


def meta_properties_of(settings: Mapping[str, str], where: str) -> MetaProperties:
    """What a log dir's `meta.properties` says, by the settings in it; `where` is named in errors."""
    version = settings.get("version")
    return MetaProperties(
        node_id=node_id_of(settings, where),
        cluster_id=settings.get("cluster.id"),
        directory_id=settings.get("directory.id"),
        version=None if version is None else version.strip(),
    )


def node_id_of(properties: Mapping[str, str], where: str) -> int | None:
    """The id of a node in `meta.properties` or `server.properties`; None if there is none."""
    text = properties.get("node.id", properties.get("broker.id"))
    if text is None:
        return None
    node_id = parse_int(text.strip())
    if node_id is None:
        raise CheckpointError(f"{where}: node.id is {quoted(text)}, expected a number")
    return node_id


def ensure_one_broker(log_dirs: Collection[tuple[Location, MetaProperties]]) -> None:
    """Refuse log dirs that by their `meta.properties` are of several brokers, and copies of one log dir. There is at
    least one log dir.
    """
    first, first_properties = next(iter(log_dirs))
    for path, properties in log_dirs:
        if (properties.node_id, properties.cluster_id) != (first_properties.node_id, first_properties.cluster_id):
            raise UsageError(
                f"{path}: of node {properties.node_id} of cluster {properties.cluster_id}, and {first} is of node "
                f"{first_properties.node_id} of cluster {first_properties.cluster_id}; name the log dirs of one broker"
            )
    ensure_no_copies(log_dirs)


def ensure_no_copies(log_dirs: Iterable[tuple[Location, MetaProperties]]) -> None:
    """Refuse two copies of one log dir, which have the same `directory.id`. Log dirs without an id pass."""
    by_id: dict[str, Location] = {}
    for path, properties in log_dirs:
        if properties.directory_id is not None and (other := by_id.setdefault(properties.directory_id, path)) != path:
            raise UsageError(
                f"{path}: directory.id {properties.directory_id}, as {other} has it; one of the two is a copy; leave "
                "it out"
            )


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """The checkpoints of one log dir, by partition. Each is None if its file is missing, and may lack partitions.

    Attributes:
        recovery_points: all records below were flushed; a broker recovers from there after an unclean stop.
        log_start_offsets: only for partitions whose log starts above the first segment's base offset.
        high_watermarks: as the broker last wrote them.
        cleaner_offsets: the offsets up to which the cleaner has compacted.
        clean_shutdown: the broker stopped cleanly and has not started since.
        error: why none of the files is used, in words; None: they are used.
    """

    recovery_points: dict[TopicPartition, int] | None
    log_start_offsets: dict[TopicPartition, int] | None
    high_watermarks: dict[TopicPartition, int] | None
    cleaner_offsets: dict[TopicPartition, int] | None
    clean_shutdown: bool
    error: str | None = None


#: For a log dir whose checkpoints are not known.
NO_CHECKPOINTS: Final = Checkpoints(None, None, None, None, clean_shutdown=False)


def read_checkpoints(log_dir: Location) -> Checkpoints:
    """Read the checkpoints of a log dir."""
    return Checkpoints(
        recovery_points=read_offset_checkpoint(log_dir / checkpoint_files.RECOVERY_POINT_CHECKPOINT),
        log_start_offsets=read_offset_checkpoint(log_dir / checkpoint_files.LOG_START_OFFSET_CHECKPOINT),
        high_watermarks=read_offset_checkpoint(log_dir / checkpoint_files.HIGH_WATERMARK_CHECKPOINT),
        cleaner_offsets=read_offset_checkpoint(log_dir / checkpoint_files.CLEANER_CHECKPOINT),
        clean_shutdown=(log_dir / CLEAN_SHUTDOWN_FILE).exists(),
    )


def usable_checkpoints(log_dir: Location) -> Checkpoints:
    """The checkpoints of a log dir. If one file cannot be used, all are empty, and `error` says why."""
    try:
        return read_checkpoints(log_dir)
    except (CheckpointError, OSError) as error:
        used = f"{describe_error(error)}; none of the checkpoint files of {log_dir} is used"
        return replace(NO_CHECKPOINTS, error=used)


def read_offset_checkpoint(path: Location) -> dict[TopicPartition, int] | None:
    """The offsets of an offset checkpoint (version 0), by partition; None if the file is missing."""
    content = _checkpoint_content(path)
    return None if content is None else checkpoint_files.parse_offset_checkpoint(content, str(path))


def read_leader_epochs(partition_directory: Location) -> LeaderEpochs | None:
    """The leader epochs in a partition's `leader-epoch-checkpoint` (version 0); None if the file is missing."""
    entries = read_epoch_entries(partition_directory / checkpoint_files.LEADER_EPOCH_CHECKPOINT)
    return None if entries is None else LeaderEpochs(entries)


def read_epoch_entries(path: Location) -> list[EpochEntry] | None:
    """The entries of a `leader-epoch-checkpoint`, unchanged; None if the file is missing."""
    content = _checkpoint_content(path)
    return None if content is None else checkpoint_files.parse_epoch_entries(content, str(path))


def _checkpoint_content(path: Location) -> bytes | None:
    """The bytes of a checkpoint file; None if it is missing."""
    try:
        return small_file(path)
    except FileNotFoundError:
        return None


#: What comes of `before_first_log` where no file tells whether the log start was in a bucket.
IN_BUCKET_OR_LOST: Final = (
    f"they are in a bucket, or they were lost: {checkpoint_files.LOG_START_OFFSET_CHECKPOINT} would tell, and is "
    "missing, cannot be read, or has a line for the partition; unless the topic is tiered, look for them on other "
    "replicas and copies"
)


def before_first_log(
    partition_directory: Location, first_base: int | None = None, names: Collection[str] | None = None
) -> tuple[EpochEntry, int] | None:
    """The first epoch in a partition's `leader-epoch-checkpoint`, and the base offset of its first log (`first_base`,
    or by the directory's `names`), if the epoch begins before that log. None if it does not, or while a log is being
    deleted.
    """
    epochs = read_leader_epochs(partition_directory)
    if epochs is None or epochs.first is None or (first_base is not None and epochs.first.start_offset >= first_base):
        return None
    names = files_in(partition_directory) if names is None else names
    if may_be_deleting(partition_directory, names):
        return None
    if first_base is None:
        bases = [base for name in names if (base := segment_files.parse_segment_log(name)) is not None]
        first_base = min(bases, default=0)
    return (epochs.first, first_base) if epochs.first.start_offset < first_base else None


def may_be_deleting(partition_directory: Location, names: Iterable[str]) -> bool:
    """Whether a log dir is in use, and its broker may have renamed logs of a partition without having written yet that
    the leader epochs begin later (`LeaderEpochFileCache.truncateFromStartAsyncFlush`, before
    `LocalLog.removeAndDeleteSegments`). A stopped broker has written it.
    """
    return any(name.endswith(segment_files.DELETED_SUFFIX) for name in names) and is_in_use(partition_directory.parent)
