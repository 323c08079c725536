"""How the broker of a log dir stopped, as a starting broker finds out, and what speaks against that: markers of a clean
stop that are not to be believed, log dirs of another time than the cluster's metadata, checkpoints that are lost, and
logs that end below what checkpoints say.

Source: `LogManager.loadLogs`; `LogManager.shutdown`, which flushes and closes all logs, writes their ends as recovery
points, and then one marker into each log dir, all with the epoch that the broker had; `AbstractIndex.close`, which
trims indexes.
"""

from __future__ import annotations

import contextlib
import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from kidxlib.audit.finding import Finding, Verdict
from kidxlib.audit.startup.directories import obstacles_of_directories
from kidxlib.audit.startup.meta_properties import accepted_properties, kafka_of
from kidxlib.audit.startup.metadata_log import lost_metadata
from kidxlib.audit.startup.node import obstacles_of_node
from kidxlib.audit.startup.obstacles import Effect, Obstacle, accepted_offsets
from kidxlib.errors import CheckpointError, LogChangedError
from kidxlib.format import checkpoint_files
from kidxlib.format.kafka_release import KafkaRelease, NodeRelease
from kidxlib.format.layouts import HEADER_SIZE_UP_TO_MAGIC, OFFSET_INDEX_ENTRY, TIME_INDEX_ENTRY
from kidxlib.format.segment_files import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    parse_segment_log,
    segment_file,
)
from kidxlib.format.topic_partition import (
    METADATA_TOPIC,
    TopicPartition,
    is_moved,
    is_other_name,
    loaded_as,
    may_be_renamed,
    served_as,
)
from kidxlib.log.metadata_image import ClusterMetadata
from kidxlib.log.metadata_replica import METADATA_DIRECTORY
from kidxlib.storage.location import Location, files_in
from kidxlib.storage.log_dir import (
    CLEAN_SHUTDOWN_FILE,
    META_PROPERTIES,
    MetaProperties,
    directories_in,
    read_leader_epochs,
)
from kidxlib.storage.opened_log import LogFile
from kidxlib.text.words import counted

#: So many topics that the metadata does not have are told by name.
_TOPICS_MAX: Final = 3
#: The reasons of logs that end below what a checkpoint says.
BELOW_CHECKPOINT_REASONS: Final = ("ends-below-log-start", "ends-below-recovery-point", "ends-below-high-watermark")

#: What mends a marker that is not to be believed.
_REMOVE_MARKERS: Final = (
    f"remove {CLEAN_SHUTDOWN_FILE} in all log dirs of the broker, which then recovers as after a crash"
)
_ENTRY_BYTES: Final = {
    OFFSET_INDEX_SUFFIX: OFFSET_INDEX_ENTRY.itemsize,
    TIME_INDEX_SUFFIX: TIME_INDEX_ENTRY.itemsize,
}
#: What tells against a marker, of a partition.
_WITH_RECORDS_BEYOND: Final = "with records from the recovery point on"
_WITH_ZEROS_BEYOND: Final = "with zeros from the recovery point on, and no records"
_WITH_PREALLOCATED_INDEXES: Final = "with a last segment whose index files are still preallocated"

#: What nobody knows about a partition that a checkpoint does not name.
_UNKNOWN_WITHOUT_CHECKPOINT: Final = {
    checkpoint_files.RECOVERY_POINT_CHECKPOINT: "whether logs end below what was flushed to disk",
    checkpoint_files.HIGH_WATERMARK_CHECKPOINT: "whether logs end below their high watermark",
    checkpoint_files.LOG_START_OFFSET_CHECKPOINT: "whether first logs are missing",
}

#: What a broker does that starts without such a checkpoint, or without the line.
_STARTS_WITHOUT_CHECKPOINT: Final = {
    checkpoint_files.RECOVERY_POINT_CHECKPOINT: "takes 0 for it, and reads all of the logs after an unclean stop",
    checkpoint_files.HIGH_WATERMARK_CHECKPOINT: "takes the log start for it until the replicas in sync are there",
    checkpoint_files.LOG_START_OFFSET_CHECKPOINT: "serves records again that were deleted, where their segments are "
    "left",
}


@dataclass(frozen=True, slots=True)
class PartitionStop:
    """How the broker of a partition's log dir stopped.

    Attributes:
        begins_with_first_log: `log-start-offset-checkpoint` is there and does not name the partition. So no record was
            deleted within its first log, and none of its logs is in a bucket (`LogManager.checkpointLogStartOffsets`).
        lost_log_starts: that file is missing, though the broker stopped cleanly, which writes it in any case
            (`LogManager.shutdown`).
        not_in: the checkpoints that say nothing of the partition, though a broker writes it into them: they are
            missing, or have no line for it.
        lost_from: those of them that must have said something, so that the file or the line is lost.
        is_only_replica: by the cluster's metadata no other node has a replica.
        kafka: whose answers count.
    """

    clean_shutdown: bool
    recovery_point: int
    log_start_offset: int
    high_watermark: int
    begins_with_first_log: bool = False
    lost_log_starts: bool = False
    not_in: tuple[str, ...] = ()
    lost_from: tuple[str, ...] = ()
    is_only_replica: bool = False
    kafka: NodeRelease = field(default_factory=NodeRelease)

    @property
    def known_end(self) -> int:
        """The offset up to which the log went by the broker's checkpoints; 0 where they say nothing."""
        return max(self.recovery_point, self.high_watermark)

    def wrong_log_start(self, end: int) -> str | None:
        """What to do where a log ends (at `end`) below its log start, and no other checkpoint knows of so large an
        offset; else None. A log start is at most the high watermark (`UnifiedLog.maybeIncrementLogStartOffset`).
        """
        if max(end, self.known_end) >= self.log_start_offset:
            return None
        return (
            f"{checkpoint_files.LOG_START_OFFSET_CHECKPOINT} is wrong: by the other checkpoints the high watermark is "
            f"{self.high_watermark}, and the recovery point {self.recovery_point}; remove the partition's line from it "
            "and count it off in the second line, or remove the file: then nothing is deleted, and at most records "
            "that DeleteRecords had deleted are served again"
        )

    def finding_below_checkpoints(self, next_offset: int, position: int | None) -> Finding | None:
        """The finding on the partition's last log that ends at this offset and position, if the broker knew of more: by
        the first of its checkpoints that says so.
        """
        of_log_start, of_recovery_point, of_high_watermark = BELOW_CHECKPOINT_REASONS
        for offset, reason, file, consequence in (
            (
                self.log_start_offset,
                of_log_start,
                checkpoint_files.LOG_START_OFFSET_CHECKPOINT,
                "a broker that starts deletes all segments, and begins an empty log at {offset}",
            ),
            (
                self.recovery_point,
                of_recovery_point,
                checkpoint_files.RECOVERY_POINT_CHECKPOINT,
                "offsets {end} to {last} are missing, which had been flushed to disk; another replica or a copy may "
                "have them",
            ),
            (
                self.high_watermark,
                of_high_watermark,
                checkpoint_files.HIGH_WATERMARK_CHECKPOINT,
                "offsets {end} to {last} are missing, which were committed; another replica may have them",
            ),
        ):
            if next_offset < offset:
                if file == checkpoint_files.LOG_START_OFFSET_CHECKPOINT and (why := self.wrong_log_start(next_offset)):
                    consequence = f"{consequence}; {why}"
                return Finding(
                    file=LOG_SUFFIX,
                    verdict=Verdict.BROKEN,
                    reason=reason,
                    position=position,
                    detail=f"the log ends at offset {next_offset}, {file} says {offset}",
                    consequence=consequence.format(offset=offset, end=next_offset, last=offset - 1),
                )
        return None

    @property
    def why_empty(self) -> str:
        """What a starting broker does with a partition's directory without a segment."""
        had = f", though the broker's checkpoints say that it had offsets up to {self.known_end - 1}"
        return f"no segment is there{had if self.known_end else ''}; a broker that starts makes an empty log"


@dataclass(frozen=True, slots=True)
class LastStop:
    """How the broker of a log dir stopped, as `LogManager.loadLogs` finds out.

    Attributes:
        recovery_points, log_start_offsets, high_watermarks: by partition, as far as the files name them.
        cleaner_offsets: up to where the cleaner has come, of partitions that it has cleaned.
        obstacles: what a node meets in this log dir as it starts, and that is no partition's log.
        notes: remarks for a person on the files that say so.
        knows_log_starts: `log-start-offset-checkpoint` is there, and reads.
        marker_is_false: what tells against the marker of a clean stop; None for nothing. A broker starts all the same.
        lost_metadata: what its copy of the cluster's metadata may lack; None for nothing. It is a note.
        of_broker: a broker has left a file of its own there.
        missing: the checkpoints that are not there.
        unusable: those that do not read.
        written: the checkpoints that a clean stop of this node writes a line for each partition into.
        has_properties: a node has made the log dir its own (`meta.properties`).
        only_replicas: the partitions of which no other node has a replica, by the cluster's metadata.
        kafka: as in `PartitionStop`.
    """

    clean_shutdown: bool
    recovery_points: Mapping[TopicPartition, int]
    log_start_offsets: Mapping[TopicPartition, int]
    high_watermarks: Mapping[TopicPartition, int]
    obstacles: tuple[Obstacle, ...] = ()
    notes: tuple[str, ...] = ()
    cleaner_offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    knows_log_starts: bool = False
    marker_is_false: Obstacle | None = None
    lost_metadata: Obstacle | None = None
    of_broker: bool = False
    missing: frozenset[str] = frozenset()
    unusable: frozenset[str] = frozenset()
    written: frozenset[str] = frozenset()
    has_properties: bool = False
    only_replicas: frozenset[TopicPartition] = frozenset()
    kafka: NodeRelease = field(default_factory=NodeRelease)

    @property
    def failures(self) -> tuple[str, ...]:
        """The obstacles in words, and what tells against the marker. There may be thousands, and a row of a partition
        has none of them.
        """
        return tuple(map(str, filter(None, (self.marker_is_false, *self.obstacles))))

    def of(self, partition: TopicPartition) -> PartitionStop:
        """How the broker of a partition in the log dir stopped."""
        if partition.topic == METADATA_TOPIC:
            # `KafkaRaftLog.createLog`: the whole log is recovered at each start, and no checkpoint names it. So a clean
            # stop may leave its last indexes preallocated, as it does from 4.4 on (`KafkaRaftLog.close`).
            return PartitionStop(False, 0, 0, 0, kafka=self.kafka)
        not_in = tuple(self._checkpoints_without(partition)) if self.of_broker else ()
        return PartitionStop(
            self.clean_shutdown,
            self.recovery_points.get(partition, 0),
            self.log_start_offsets.get(partition, 0),
            self.high_watermarks.get(partition, 0),
            self.knows_log_starts and partition not in self.log_start_offsets,
            self.clean_shutdown and not self.knows_log_starts,
            not_in,
            tuple(filter(self._must_have_line, not_in)),
            partition in self.only_replicas,
            self.kafka,
        )

    def _must_have_line(self, name: str) -> bool:
        """Whether a checkpoint that says nothing of a partition must have: a broker makes the files that are not there
        as it starts (`LogManager`, `ReplicaManager`, `CheckpointFile`), and a clean stop writes the lines. A broker
        that stops before it has loaded its logs writes no recovery point at all, and `recover --mend` neither.
        """
        is_clean = self.clean_shutdown and self.marker_is_false is None
        if name == checkpoint_files.RECOVERY_POINT_CHECKPOINT and not self.recovery_points:
            is_clean = False
        return self.has_properties and (name in self.missing or (is_clean and name in self.written))

    def _checkpoints_without(self, partition: TopicPartition) -> Iterator[str]:
        """`LogManager.checkpointRecoveryOffsetsInDir`, `ReplicaManager.checkpointHighWatermarks`: all partitions of the
        log dir are written. Log starts are only those that are no segment's.
        """
        for name, offsets in (
            (checkpoint_files.RECOVERY_POINT_CHECKPOINT, self.recovery_points),
            (checkpoint_files.HIGH_WATERMARK_CHECKPOINT, self.high_watermarks),
            (checkpoint_files.LOG_START_OFFSET_CHECKPOINT, None),
        ):
            is_lacking = offsets is not None and partition not in offsets and name not in self.unusable
            if name in self.missing or is_lacking:
                yield name


def last_stops(
    log_dirs: Sequence[Location],
    clean_shutdown: bool | None = None,
    metadata: ClusterMetadata | None = None,
    kafka_version: KafkaRelease | None = None,
) -> Mapping[Location, LastStop]:
    """How the node with these log dirs stopped, and what it meets as it starts. `clean_shutdown` is the answer to use;
    None reads it from each log dir. `metadata` is read to its end. `kafka_version` is the node's; None for what it has
    registered.
    """
    # An archive may hold other directories, and no broker is to start there.
    of_broker = [log_dir for log_dir in log_dirs if _has_broker_files(log_dir)]
    found = obstacles_of_node(of_broker, metadata, kafka_version)
    stops = {
        log_dir: _last_stop(log_dir, found.get(log_dir, ()), clean_shutdown, metadata, kafka_version)
        for log_dir in log_dirs
    }
    for log_dir in of_broker:
        stops[log_dir] = _with_doubts(log_dir, stops[log_dir], metadata, reads_marker=clean_shutdown is None)
    return stops


def last_stop_by_directories(
    log_dir: Location,
    folders: Sequence[Location],
    clean_shutdown: bool | None,
    metadata: ClusterMetadata | None,
    kafka_version: KafkaRelease | None = None,
) -> LastStop:
    """How the broker of a log dir stopped, by some directories of the log dir alone: others do not count, and the log
    dir may be any directory.
    """
    obstacles = obstacles_of_directories(log_dir, folders, metadata) if _has_broker_files(log_dir) else ()
    return _last_stop(log_dir, obstacles, clean_shutdown, metadata, kafka_version)


def _last_stop(
    log_dir: Location,
    obstacles: Sequence[Obstacle],
    clean_shutdown: bool | None,
    metadata: ClusterMetadata | None,
    kafka_version: KafkaRelease | None,
) -> LastStop:
    names = checkpoint_files.LOG_DIR_CHECKPOINTS
    read = [accepted_offsets(log_dir, name) for name in names]
    points, starts, watermarks, cleaned = read
    if clean_shutdown is None:
        clean_shutdown = (log_dir / CLEAN_SHUTDOWN_FILE).exists()
    properties = accepted_properties(log_dir)
    is_kraft = isinstance(properties, MetaProperties) and properties.is_kraft
    return LastStop(
        clean_shutdown,
        points.by_partition,
        starts.by_partition,
        watermarks.by_partition,
        (*(offsets.failure for offsets in read if offsets.failure is not None), *obstacles),
        tuple(offsets.note for offsets in read if offsets.note is not None),
        cleaned.by_partition,
        starts.failure is None
        and starts.note is None
        and (log_dir / checkpoint_files.LOG_START_OFFSET_CHECKPOINT).exists(),
        of_broker=_has_broker_files(log_dir),
        missing=frozenset(name for name in names if not (log_dir / name).exists()),
        unusable=frozenset(
            name
            for name, offsets in zip(names, read, strict=True)
            if offsets.failure is not None or offsets.note is not None
        ),
        # With ZooKeeper a broker may stop before it is told of a partition that it has (`LeaderAndIsrRequest`).
        written=frozenset(
            (checkpoint_files.RECOVERY_POINT_CHECKPOINT, checkpoint_files.HIGH_WATERMARK_CHECKPOINT)
            if is_kraft
            else (checkpoint_files.RECOVERY_POINT_CHECKPOINT,)
        ),
        has_properties=properties is not None,
        kafka=kafka_of(properties, metadata, kafka_version),
    )


def _has_broker_files(log_dir: Location) -> bool:
    """Whether a broker has left a file of its own there."""
    return any(
        (log_dir / name).exists()
        for name in (META_PROPERTIES, CLEAN_SHUTDOWN_FILE, METADATA_DIRECTORY, *checkpoint_files.LOG_DIR_CHECKPOINTS)
    )


def _with_doubts(
    log_dir: Location, stop: LastStop, metadata: ClusterMetadata | None, *, reads_marker: bool
) -> LastStop:
    """How it stopped, with what tells against its marker, and against its being as old as the metadata."""
    folders, properties = directories_in(log_dir), accepted_properties(log_dir)
    is_false = (
        _why_marker_is_false(log_dir, folders, stop.recovery_points) if reads_marker and stop.clean_shutdown else None
    )
    differs, only_replicas = None, frozenset[TopicPartition]()
    if metadata is not None and isinstance(properties, MetaProperties) and properties.node_id is not None:
        differs = why_of_another_time(log_dir, folders, properties.node_id, metadata)
        only = (properties.node_id,)
        only_replicas = frozenset(
            partition for partition, assignment in metadata.assignments.items() if assignment.replicas == only
        )
    lost = None
    if metadata is not None and metadata.directory == log_dir / METADATA_DIRECTORY:
        lost = lost_metadata(metadata)
    if lost is not None and lost.where in {obstacle.where for obstacle in stop.obstacles}:
        lost = None
    unknown = (
        () if metadata is None or lost is not None else _remarks_on_unknown_topics(log_dir, folders, stop, metadata)
    )
    notes = (*stop.notes, *filter(None, (differs, None if lost is None else str(lost))), *unknown)
    return replace(stop, notes=notes, marker_is_false=is_false, lost_metadata=lost, only_replicas=only_replicas)


def _why_marker_is_false(
    log_dir: Location, folders: Iterable[Location], points: Mapping[TopicPartition, int]
) -> Obstacle | None:
    """What tells against a log dir's marker; None for nothing. At most the first bytes of a log are read: no clean stop
    leaves an index with zeros for its last entry, or bytes in a segment that begins at or above the recovery point, as
    it cuts off zeros behind the records, too (`FileRecords.close`). Partitions without a recovery point (`points`) tell
    nothing by it.
    """
    signs: defaultdict[str, list[str]] = defaultdict(list)
    is_read: list[str] = []
    for folder in folders:
        partition = served_as(folder.name)
        if partition is None:
            continue
        with contextlib.suppress(OSError, LogChangedError):  # a file that cannot be read is reported elsewhere
            files = files_in(folder)
            last = max((base for name in files if (base := parse_segment_log(name)) is not None), default=None)
            if last is None or files[segment_file(last, LOG_SUFFIX)].stat().st_size == 0:
                continue
            of_folder = []
            if points.get(partition, last + 1) <= last:
                of_folder.append(
                    _WITH_ZEROS_BEYOND
                    if _begins_with_zeros(files[segment_file(last, LOG_SUFFIX)])
                    else _WITH_RECORDS_BEYOND
                )
            if any(_ends_preallocated(files.get(segment_file(last, suffix)), suffix) for suffix in _ENTRY_BYTES):
                of_folder.append(_WITH_PREALLOCATED_INDEXES)
            for sign in of_folder:
                signs[sign].append(folder.name)
            if of_folder and segment_file(last, OFFSET_INDEX_SUFFIX) not in files:
                is_read.append(folder.name)
    if not signs:
        return None
    in_words = [
        f"{counted(len(signs[sign]), 'partition')} {sign} (the first: {min(signs[sign])})"
        for sign in (_WITH_RECORDS_BEYOND, _WITH_ZEROS_BEYOND, _WITH_PREALLOCATED_INDEXES)
        if sign in signs
    ]
    return Obstacle(
        log_dir / CLEAN_SHUTDOWN_FILE,
        f"it says that the broker stopped cleanly, and that is not so: {', and '.join(in_words)}, which no clean stop "
        "leaves",
        Effect.HIDES,
        _what_start_does_despite_marker(len({name for names in signs.values() for name in names}), is_read),
        _REMOVE_MARKERS,
    )


def _what_start_does_despite_marker(partitions: int, is_read: Sequence[str]) -> str:
    """What a broker that believes the marker does with so many partitions. It recovers a segment without an `.index`
    all the same (`LogSegment.sanityCheck`); `is_read` are the partitions whose last segment has none.
    """
    if not is_read:
        return "a broker that starts reads no log that has an .index, and takes these and their indexes as they are"
    reads = f"a broker that starts reads the last segment of {counted(len(is_read), 'partition')} all the same"
    others = ", and takes the others and their indexes as they are" if len(is_read) < partitions else ""
    return f"{reads}, as its .index is missing, and cuts off what is no whole batch (the first: {min(is_read)}){others}"


def _begins_with_zeros(log: Location) -> bool:
    with contextlib.closing(LogFile(str(log), HEADER_SIZE_UP_TO_MAGIC)) as opened:
        return not any(opened.read(0, min(HEADER_SIZE_UP_TO_MAGIC, opened.size)))


def _ends_preallocated(path: Location | None, suffix: str) -> bool:
    """Whether an index's last entry is zeros, as if it was preallocated and never closed. The only entry of a time
    index may be all zeros.
    """
    if path is None:
        return False
    size = _ENTRY_BYTES[suffix]
    with contextlib.closing(LogFile(str(path), size)) as index:
        return index.size > size and not any(index.read(index.size - size, size))


def why_of_another_time(
    log_dir: Location, folders: Sequence[Location], node_id: int, metadata: ClusterMetadata
) -> str | None:
    """Why a log dir may be of another time than the cluster's metadata (read to its end), as a remark; None where
    nothing says so.

    A node that begins to lead a partition writes the epoch into its `leader-epoch-checkpoint` at once
    (`Partition.makeLeader`). So if all partitions that the node leads in a log dir have older epochs, the log dir may
    be an older copy; if all have newer epochs, the metadata may be. It is never certain: as a broker loads a log it
    removes the epochs from the log's end on (`LogLoader`, `LeaderEpochFileCache.truncateFromEnd`), and one that dies
    before its next election has lost those in which nothing was written, however long it led.
    """
    older: dict[TopicPartition, tuple[int, int]] = {}
    newer: dict[TopicPartition, tuple[int, int]] = {}
    compared, led = 0, 0
    for folder in folders:
        partition = served_as(folder.name)
        assignment = None if partition is None else metadata.assignments.get(partition)
        if partition is None or assignment is None:
            continue
        newest = _newest_leader_epoch(folder)
        if newest is None:
            continue
        compared, led = compared + 1, led + (assignment.last_leader == node_id)
        if assignment.last_leader == node_id and newest < assignment.led_epoch:
            older[partition] = newest, assignment.led_epoch
        elif newest > assignment.leader_epoch:
            newer[partition] = newest, assignment.leader_epoch
        if len(older) < led and len(newer) < compared:
            return None  # it takes all of them: of most log dirs two or three files are read
    see = "see that all log dirs of the broker are of one time"
    if older and len(older) == led:
        return f"{log_dir}: it may be an older copy than the cluster's metadata: {_epochs_in_words(older)}; {see}"
    if newer and len(newer) == compared:
        directory = metadata.directory
        return (
            f"{directory}: the cluster's metadata may be an older copy than {log_dir}: {_epochs_in_words(newer)}; {see}"
        )
    return None


def _epochs_in_words(epochs: Mapping[TopicPartition, tuple[int, int]]) -> str:
    first = min(epochs)
    epoch, in_metadata = epochs[first]
    return (
        f"the newest leader epoch of {first.directory} is {epoch} there, and {in_metadata} in the metadata, and so it "
        f"is of all {counted(len(epochs), 'partition')} that can be compared"
    )


def _newest_leader_epoch(folder: Location) -> int | None:
    try:
        epochs = read_leader_epochs(folder)
    except (CheckpointError, OSError):
        return None
    return None if epochs is None or epochs.last is None else epochs.last.epoch


def _remarks_on_unknown_topics(
    log_dir: Location, folders: Sequence[Location], stop: LastStop, metadata: ClusterMetadata
) -> Iterator[str]:
    """A remark for each topic that the cluster does not have, and that lines of checkpoints name although no directory
    is there under any name. A broker that deletes a log writes its log dir's checkpoints anew without it
    (`LogManager.asyncDelete`), and the one of high watermarks each five seconds, as long as the log dir has a partition
    (`ReplicaManager.checkpointHighWatermarks`).
    """
    names = [folder.name for folder in folders if folder.name != METADATA_DIRECTORY]
    loaded = {loaded_as(name) for name in names}
    renamed = [name for name in names if is_other_name(name) and not is_moved(name)]  # few: each line looks at all
    by_topic: defaultdict[str, dict[TopicPartition, list[str]]] = defaultdict(dict)
    for file, offsets in (
        (checkpoint_files.RECOVERY_POINT_CHECKPOINT, stop.recovery_points),
        (checkpoint_files.LOG_START_OFFSET_CHECKPOINT, stop.log_start_offsets),
        (checkpoint_files.HIGH_WATERMARK_CHECKPOINT, stop.high_watermarks if names else {}),
    ):
        for partition in offsets:
            topic = partition.topic
            is_known = topic in metadata.topics or topic == METADATA_TOPIC or partition in loaded
            if not is_known and not any(may_be_renamed(name, partition) for name in renamed):
                by_topic[topic].setdefault(partition, []).append(file)
    for topic, partitions in itertools.islice(sorted(by_topic.items()), _TOPICS_MAX):
        files = sorted(set(itertools.chain.from_iterable(partitions.values())))
        yield (
            f"{log_dir}: {' and '.join(files)}: {counted(len(partitions), 'partition')} of topic {topic} (as "
            f"{min(partitions).directory}), which the cluster's metadata does not have, and no directory: a deletion "
            "that was cut short leaves the lines; else the metadata is older than this log dir, or of another cluster, "
            "and what was there is lost"
        )
    if len(by_topic) > _TOPICS_MAX:
        yield f"{log_dir}: its checkpoints have {counted(len(by_topic) - _TOPICS_MAX, 'more topic')} of that kind"


def checkpoints_not_compared(stops: Iterable[tuple[Location, TopicPartition, PartitionStop]]) -> Iterator[str]:
    """A line for each checkpoint that, by `stops`, says nothing of partitions which are there, and need not: these were
    not compared with it.
    """
    lacking = ((log_dir, partition, set(stop.not_in) - set(stop.lost_from)) for log_dir, partition, stop in stops)
    for path, has in _lines_by_file(lacking):
        yield f"{path}: {has}: it is not known {_UNKNOWN_WITHOUT_CHECKPOINT[path.name]}"


def lost_checkpoints(stops: Iterable[tuple[Location, TopicPartition, PartitionStop]]) -> Iterator[str]:
    """A line for each checkpoint that, by `stops`, is lost, or has lost lines of partitions which are there, and what a
    broker does without.
    """
    for path, has in _lines_by_file((log_dir, partition, stop.lost_from) for log_dir, partition, stop in stops):
        written = "a clean stop writes one" if path.exists() else "a broker makes the file as it starts"
        yield (
            f"{path}: {has}, though {written}: it is not known {_UNKNOWN_WITHOUT_CHECKPOINT[path.name]}; "
            f"a broker that starts {_STARTS_WITHOUT_CHECKPOINT[path.name]}; restore the file, if a copy of this "
            "log dir has it"
        )


def _lines_by_file(lacking: Iterable[tuple[Location, TopicPartition, Iterable[str]]]) -> Iterator[tuple[Location, str]]:
    """The files that say nothing of partitions, and the first of these in words."""
    by_file: defaultdict[tuple[Location, str], list[TopicPartition]] = defaultdict(list)
    for log_dir, partition, names in lacking:
        for name in names:
            by_file[log_dir, name].append(partition)
    for (log_dir, name), partitions in sorted(by_file.items(), key=lambda item: (str(item[0][0]), item[0][1])):
        path, number = log_dir / name, counted(len(partitions), "partition")
        yield (
            path,
            f"has no line for {number}, as {min(partitions).directory}" if path.exists() else f"missing ({number})",
        )
