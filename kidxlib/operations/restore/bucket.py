"""A bucket of tiered storage as a source of a restore: the log dir of a broker that has nothing but the bucket.

What a follower makes of remote segments before it fetches from a leader (`TierStateMachine.buildRemoteLogAuxState`)
stands there for each partition that no log dir has: an empty log that begins where the last remote segment ends, with
the leader epochs and the producers of that segment. Beside it is what is lost of `__remote_log_metadata`, made from the
objects. All that comes after treats the log dir as another broker's. Nothing is written into the bucket.

A leader that starts without this metadata takes its local log for everything, and deletes the remote segments as soon
as it learns of them. So the metadata and the leader epochs are on the disk before the first start.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import re
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from kidxlib.audit.finding import Verdict
from kidxlib.audit.tiered.listing import findings_on_missing, findings_on_transaction_index, match_objects
from kidxlib.audit.tiered.local_log import LocalLog, finding_on_local_epochs, finding_on_local_start
from kidxlib.engine.protocol import Engine
from kidxlib.errors import (
    CheckpointError,
    RemoteLogMetadataError,
    SnapshotError,
    UsageError,
    describe_error,
)
from kidxlib.format.checkpoint_files import (
    HIGH_WATERMARK_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    EpochEntry,
    LeaderEpochs,
    offset_checkpoint,
    parse_epoch_entries,
)
from kidxlib.format.producer_snapshot import read_snapshot
from kidxlib.format.segment_files import LOG_SUFFIX, SNAPSHOT_SUFFIX, segment_file
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.indexing.source import ANY_TOPIC, LAYOUTS
from kidxlib.log.remote.layout import EPOCHS_SUFFIX, LOCAL, ObjectLayout, list_objects, object_name
from kidxlib.log.remote.metadata_topic import (
    REMOTE_LOG_METADATA_TOPIC,
    metadata_partition,
    metadata_partitions,
)
from kidxlib.log.remote.segments import (
    VisibleOffsets,
    epochs_read,
    fold_remote_segments,
    readable_segments,
    visible_offsets,
)
from kidxlib.log.remote.uploaded import as_read, read_uploaded, read_uploaded_part
from kidxlib.messages.remote_log_metadata import (
    RemoteSegment,
    RemoteSegmentUpdate,
    TopicIdPartition,
    write_remote_log_metadata,
)
from kidxlib.operations.restore.bucket_protection import Protected, protection_of
from kidxlib.operations.restore.inventory import BUCKET_NODE, Inventory, InventoryReplica, read_made_log_dir
from kidxlib.operations.restore.new_nodes import FormattedController, NewBroker
from kidxlib.operations.restore.surviving_metadata import SurvivingMetadata
from kidxlib.operations.tiered.remote_metadata import RemoteMetadata, RemoteMetadataReader, split_by_partition
from kidxlib.operations.tiered.tiered_request import bucket_at
from kidxlib.records.batch_writer import write_batch
from kidxlib.retention.policy import REMOTE_STORAGE_ENABLE
from kidxlib.storage.location import Location, overlapping_directory
from kidxlib.storage.log_dir import META_PROPERTIES, PARTITION_METADATA, read_leader_epochs
from kidxlib.storage.scratch import temporary_place
from kidxlib.terminal.console import begin_phase
from kidxlib.text.words import counted

_RECORDS_PER_BATCH: Final = 500
#: Who is to have copied segments whose metadata is made anew: no broker goes by it.
_COPYING_BROKER: Final = 0
#: `TopicBasedRemoteLogMetadataManagerConfig.DEFAULT_REMOTE_LOG_METADATA_TOPIC_PARTITIONS`.
_METADATA_PARTITIONS_DEFAULT: Final = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketOptions:
    """A bucket of tiered storage, and what somebody says of it.

    Attributes:
        place: a directory or a URL.
        layout: its name; None for that of `LocalTieredStorage`.
        protected: None: nobody has said how deletion is made impossible.
        is_cluster_stopped: the cluster that wrote it no longer lives.
    """

    place: str
    layout: str | None
    protected: Protected | None
    is_cluster_stopped: bool


@dataclass(frozen=True, slots=True)
class RestoreBucket:
    """A bucket that is to be a source of a restore.

    Attributes:
        place: the directory or prefix of the partitions' directories.
        log_dir: an empty directory for what is made of it, until the restore is done.
        protected, is_cluster_stopped: as in `protection_of`.
    """

    layout: ObjectLayout
    place: Location
    log_dir: Path
    protected: Protected | None
    is_cluster_stopped: bool


@dataclass(slots=True, kw_only=True)
class Taken:
    """What a restore takes from a bucket, if there is one.

    Attributes:
        inventory: all sources, the log dir that is made of the bucket among them.
        topics: those with remote segments that the restored cluster reads.
        not_tiered: those whose objects are left out, as metadata that survives does not say that they are tiered.
        left_out, lost, refusals: as in `RestorePlan`.
    """

    inventory: Inventory
    topics: set[str] = field(default_factory=set)
    not_tiered: set[str] = field(default_factory=set)
    left_out: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class TakenBucket(Taken):
    """What a restore takes from a bucket.

    Attributes:
        metadata_partitions: how many partitions `__remote_log_metadata` has.
        made: the metadata partitions that are made from the objects.
        segments: how many remote segments the restored cluster reads; `log_bytes` are the bytes of their logs.
        newest_ms: when the newest object that was looked at was written, in ms since the epoch.
        protection: what was found on how deletion is made impossible, a line each.
    """

    bucket: RestoreBucket
    metadata_partitions: int = _METADATA_PARTITIONS_DEFAULT
    made: list[int] = field(default_factory=list)
    segments: int = 0
    log_bytes: int = 0
    newest_ms: int | None = None
    protection: Sequence[str] = ()

    def as_json(self) -> dict[str, Any]:
        return {
            "place": str(self.bucket.place),
            "layout": self.bucket.layout.name,
            "topics": sorted(self.topics),
            "segments": self.segments,
            "log_bytes": self.log_bytes,
            "metadata_partitions": self.metadata_partitions,
            "made_metadata_partitions": self.made,
            "protected": None if self.bucket.protected is None else self.bucket.protected.value,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class _TakenPartition:
    """The remote segments of a partition, as the restored cluster's metadata has them.

    Attributes:
        rows: of `REMOTE_METADATA`, by start offset.
        records: what is to be written of it; empty where metadata that survives has it.
        visible: what consumers get of each segment, by id.
        highest_epoch: of all segments that were looked at, also those that are left out.
    """

    partition: TopicIdPartition
    directory: Location
    rows: pa.Table
    records: Sequence[RemoteSegment | RemoteSegmentUpdate]
    visible: Mapping[str, VisibleOffsets]
    highest_epoch: int

    @property
    def read(self) -> list[dict[str, Any]]:
        """The rows of the remote segments that a restore takes from a bucket, and that consumers get something of."""
        return [row for row in readable_segments(self.rows) if row["segment_id"] in self.visible]

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.partition.topic, self.partition.partition)

    @property
    def name(self) -> str:
        return self.topic_partition.directory


@dataclass(frozen=True, slots=True, kw_only=True)
class _MadeFolder:
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


@contextlib.contextmanager
def opened_restore_bucket(options: BucketOptions) -> Iterator[RestoreBucket]:
    """A bucket as a source of a restore, with a directory of this machine that is gone at the end of the context."""
    layout = LAYOUTS[options.layout or LOCAL.name]
    place = bucket_at(options.place, layout)
    place = Path(os.path.realpath(place)) if isinstance(place, Path) else place
    with tempfile.TemporaryDirectory(prefix="kidx-bucket-", dir=temporary_place()) as directory:
        yield RestoreBucket(
            layout, place, Path(os.path.realpath(directory)), options.protected, options.is_cluster_stopped
        )


def take_from_bucket(
    bucket: RestoreBucket | None,
    inventory: Inventory,
    surviving: SurvivingMetadata | None,
    topics: re.Pattern[str],
    brokers: Sequence[NewBroker],
    controllers: Sequence[FormattedController],
    engine: Engine,
) -> Taken:
    """Look at a bucket's objects, and make the log dir of what the other sources lack. Nothing is taken from no bucket.

    Args:
        surviving: the newest metadata of the sources, with all topics.
        topics: only topics whose full names match.
        brokers: the new ones.
        controllers: of the new cluster's id the id of a `__remote_log_metadata` without any copy is made.
    """
    if bucket is None:
        return Taken(inventory=inventory)
    begin_phase("reading the bucket")
    taken = TakenBucket(bucket=bucket, inventory=inventory)
    if topics.fullmatch(REMOTE_LOG_METADATA_TOPIC) is None:
        taken.refusals.append(
            f"--topics {topics.pattern}: without {REMOTE_LOG_METADATA_TOPIC} no broker finds what is in the bucket: "
            f"add |{REMOTE_LOG_METADATA_TOPIC}"
        )
    new_dirs = [path for broker in brokers for path in broker.log_dirs]
    taken.refusals += _why_new_dirs_overlap_bucket(
        bucket, [*new_dirs, *(controller.log_dir for controller in controllers)]
    )
    try:
        metadata = RemoteMetadataReader(inventory.paths, ANY_TOPIC).read()
        taken.metadata_partitions = _count_metadata_partitions(taken, metadata, surviving)
        wanted = _wanted_directories(taken, surviving, topics)
        remotes = [*_remote_partitions(taken, wanted, metadata)]
        taken.protection, why_not_attached = protection_of(
            bucket.place, wanted.values(), bucket.protected, brokers, is_cluster_stopped=bucket.is_cluster_stopped
        )
    except (OSError, RemoteLogMetadataError) as error:
        raise UsageError(f"{bucket.place}: {describe_error(error)}") from error
    if not remotes and not taken.refusals:
        taken.refusals.append(
            f"{bucket.place}: no remote segment of a topic that is to be restored; name the place that the storage "
            "plugin writes to, and its --layout"
        )
    taken.refusals += why_not_attached
    inventory = taken.inventory = _with_remote_starts(inventory, remotes)
    folders = _folders_only_in_bucket(taken, remotes)
    taken.lost += _offsets_nowhere(taken, remotes)
    if remotes:
        folders |= _made_metadata_folders(taken, remotes, metadata, surviving, controllers[0].properties.cluster_id)
    if folders:
        _write_log_dir(bucket.log_dir, folders)
        taken.inventory = _with_made_log_dir(inventory, bucket, folders, engine)
    return taken


def _folders_only_in_bucket(
    taken: TakenBucket, remotes: Sequence[_TakenPartition]
) -> dict[TopicPartition, _MadeFolder]:
    """The directories of partitions that no log dir has; the other directories are compared with remote segments."""
    folders: dict[TopicPartition, _MadeFolder] = {}
    for remote in remotes:
        _count_segments(taken, remote)
        name = remote.topic_partition
        replicas = taken.inventory.replicas.get(name, ())
        taken.lost += _gaps_between_segments(remote, min((each.start_offset for each in replicas), default=None))
        for replica in replicas:
            _compare_with_local_log(taken, remote, replica)
        if not replicas and (folder := _made_folder(taken, remote)) is not None:
            folders[name] = folder
    return folders


def _with_remote_starts(inventory: Inventory, remotes: Sequence[_TakenPartition]) -> Inventory:
    """The sources, whose replicas know where the bucket's part of them begins."""
    starts = {
        remote.topic_partition: min(visible.first_offset for visible in remote.visible.values())
        for remote in remotes
        if remote.visible
    }
    brokers = [
        replace(
            broker,
            replicas=[replace(each, remote_start=starts.get(each.topic_partition)) for each in broker.replicas],
        )
        for broker in inventory.brokers
    ]
    return Inventory(brokers, inventory.known)


def _why_nothing_in_bucket(taken: TakenBucket, topic: str, what: str) -> str:
    """Why nothing of a partition comes from the bucket: it lacks `what`, or what it has of the topic is left out."""
    if topic in taken.not_tiered:
        return (
            "and what the bucket has of the topic is left out, as the metadata does not say "
            f"{REMOTE_STORAGE_ENABLE}=true of it"
        )
    return f"and the bucket has no {what} of the partition"


def _offsets_nowhere(taken: TakenBucket, remotes: Sequence[_TakenPartition]) -> Iterator[str]:
    """Offsets of logs that begin in a bucket (`LogManager.checkpointLogStartOffsets`), and of which it has nothing."""
    in_bucket = {remote.topic_partition for remote in remotes}
    for partition, replicas in taken.inventory.replicas.items():
        for replica in replicas:
            if partition not in in_bucket and replica.first_offset < replica.start_offset:
                yield (
                    f"{replica.directory}: offsets {replica.first_offset} to {replica.start_offset - 1} were in a "
                    f"bucket, {_why_nothing_in_bucket(taken, partition.topic, 'segment')}"
                )


def _why_new_dirs_overlap_bucket(bucket: RestoreBucket, new_dirs: Iterable[Path]) -> Iterator[str]:
    for path in sorted(set(new_dirs)):
        if isinstance(bucket.place, Path) and overlapping_directory(path, [bucket.place]) is not None:
            yield f"{path}: it is, holds or lies in the bucket {bucket.place}, where nothing is written; name another"


def _count_metadata_partitions(
    taken: TakenBucket, metadata: RemoteMetadata, surviving: SurvivingMetadata | None
) -> int:
    """How many partitions `__remote_log_metadata` has: by the cluster's metadata, else by its directories, else as
    Kafka makes it.
    """
    assigned = [] if surviving is None else [*surviving.metadata.assignments]
    numbers = [each.partition for each in assigned if each.topic == REMOTE_LOG_METADATA_TOPIC]
    count = max([*numbers, *metadata.read], default=_METADATA_PARTITIONS_DEFAULT - 1) + 1
    if metadata.known and count not in metadata.possible_counts:
        taken.refusals.append(
            f"{REMOTE_LOG_METADATA_TOPIC}: the sources have {count} partitions of it, and its records are not in "
            "those in which Kafka then looks for them: name the log dirs with all of it; or take its directories out, "
            "so that it is made from the bucket"
        )
    return count


def _wanted_directories(
    taken: TakenBucket, surviving: SurvivingMetadata | None, topics: re.Pattern[str]
) -> dict[TopicIdPartition, Location]:
    """The directories in the bucket of topics that are to be restored. Another topic of the same name was deleted."""
    ids: dict[str, set[str]] = defaultdict(set)
    for local, replicas in taken.inventory.replicas.items():
        ids[local.topic] |= {replica.topic_id for replica in replicas if replica.topic_id is not None}
    not_tiered: set[str] = set()
    if surviving is not None:
        ids |= {topic: {topic_id} for topic, topic_id in surviving.metadata.topics.items()}
        configs = surviving.metadata.topic_configs  # of a topic that was made later it says nothing
        not_tiered = {
            topic for topic in surviving.metadata.topics if configs.get(topic, {}).get(REMOTE_STORAGE_ENABLE) != "true"
        }
    listed = taken.bucket.layout.list_partitions(taken.bucket.place)
    in_bucket: dict[str, set[str]] = defaultdict(set)
    for partition in listed:
        in_bucket[partition.topic].add(partition.topic_id)
    wanted = {}
    for partition, place in listed.items():
        topic, known = partition.topic, ids.get(partition.topic, set())
        if topics.fullmatch(topic) is None:
            taken.left_out.append(f"{place}: --topics does not match")
        elif known and partition.topic_id not in known:
            taken.left_out.append(f"{place}: topic id {partition.topic_id}, and topic {topic} has {min(known)}")
        elif topic in not_tiered:
            taken.not_tiered.add(topic)
            taken.left_out.append(f"{place}: the metadata does not say {REMOTE_STORAGE_ENABLE}=true of topic {topic}")
        elif not known and len(in_bucket[topic]) > 1:
            taken.refusals.append(
                f"topic {topic}: the bucket has topics with the ids {', '.join(sorted(in_bucket[topic]))}, and no "
                "metadata says which of them was deleted: name a node's log dir with the cluster's metadata; or "
                "restore from a copy of the bucket without the deleted one"
            )
        else:
            wanted[partition] = place
    return wanted


def _remote_partitions(
    taken: TakenBucket, wanted: Mapping[TopicIdPartition, Location], metadata: RemoteMetadata
) -> Iterator[_TakenPartition]:
    """The remote segments of each partition: by the metadata that survives, else by the objects."""
    rows = split_by_partition(metadata.segments, "start_offset")
    forgotten = split_by_partition(metadata.forgotten, "start_offset")
    visible = _visible_in_metadata(taken.inventory.paths) if metadata.read else {}
    for partition, directory in wanted.items():
        number = metadata_partition(partition, taken.metadata_partitions)
        if number not in metadata.read:
            yield _remote_partition_by_objects(taken, partition, directory)
        elif partition in rows and partition not in forgotten:
            yield _remote_partition_by_metadata(
                taken, partition, directory, rows[partition], visible.get(partition, {}), metadata
            )
        elif list_objects(directory, taken.bucket.layout.suffixes).objects.num_rows:
            says = "has lost the first records on" if partition in forgotten else "says nothing of"
            taken.refusals.append(
                f"{directory}: {REMOTE_LOG_METADATA_TOPIC}-{number} of the sources {says} its objects, so that brokers "
                "would not find them: take that directory out of the sources, and it is made from the bucket"
            )
    for partition, of_partition in rows.items():
        segments = readable_segments(of_partition)
        if partition not in wanted and segments and _has_restored_replica(taken, partition):
            first, last = min(row["start_offset"] for row in segments), max(row["end_offset"] for row in segments)
            taken.lost.append(
                f"{partition.topic}-{partition.partition}: offsets {first} to {last} are in remote segments by "
                f"{REMOTE_LOG_METADATA_TOPIC}, {_why_nothing_in_bucket(taken, partition.topic, 'directory')}"
            )


def _visible_in_metadata(places: Sequence[Path]) -> dict[TopicIdPartition, dict[str, VisibleOffsets]]:
    visible = {}
    for of_number in metadata_partitions(places).values():
        for partition, reads in epochs_read(of_number.records()).items():
            visible[partition] = visible_offsets(reads)
    return visible


def _has_restored_replica(taken: TakenBucket, partition: TopicIdPartition) -> bool:
    replicas = taken.inventory.replicas.get(TopicPartition(partition.topic, partition.partition), ())
    return any(replica.topic_id == partition.topic_id for replica in replicas)


def _remote_partition_by_objects(
    taken: TakenBucket, partition: TopicIdPartition, directory: Location
) -> _TakenPartition:
    uploaded = read_uploaded(taken.bucket.layout, partition, directory, _COPYING_BROKER)
    taken.left_out += uploaded.unusable
    taken.newest_ms = max(taken.newest_ms or 0, uploaded.newest_ms or 0) or None
    visible = visible_offsets(epochs_read(as_read(uploaded.records())).get(partition, []))
    for segment in uploaded.segments:
        if segment.segment.id not in visible:
            taken.left_out.append(
                f"{directory / object_name(segment.start_offset, segment.segment.id, '')}: other segments have its "
                f"offsets {segment.start_offset} to {segment.end_offset}, as after an upload that was tried again"
            )
    written = [record for record in uploaded.records() if record.segment.id in visible]
    return _TakenPartition(
        partition=partition,
        directory=directory,
        rows=fold_remote_segments(as_read(written)).segments,
        records=written,
        visible=visible,
        highest_epoch=max((epoch for each in uploaded.segments for epoch in each.leader_epochs), default=-1),
    )


def _remote_partition_by_metadata(
    taken: TakenBucket,
    partition: TopicIdPartition,
    directory: Location,
    rows: pa.Table,
    visible: Mapping[str, VisibleOffsets],
    metadata: RemoteMetadata,
) -> _TakenPartition:
    objects = list_objects(directory, taken.bucket.layout.suffixes).objects
    presence = match_objects(taken.bucket.layout, rows, objects)
    found = [*findings_on_missing(presence)]
    if taken.bucket.layout.has_single_files:
        found += findings_on_transaction_index(presence, metadata.flag_since, reads_logs=False)
    for key, finding in found:
        if finding.verdict is Verdict.BROKEN and key.segment_id in visible:
            place = directory / object_name(key.start_offset, key.segment_id or "", "")
            taken.lost.append(f"{place}: {finding.file} {finding.reason}: {finding.consequence}")
    if presence.strays.num_rows:
        taken.left_out.append(
            f"{directory}: {counted(presence.strays.num_rows, 'object')} that {REMOTE_LOG_METADATA_TOPIC} does not know"
        )
    written = [ms for ms in objects["written_ms"].to_pylist() if ms is not None]
    taken.newest_ms = max([taken.newest_ms or 0, *written]) or None
    epochs = (entry["epoch"] for row in rows.to_pylist() for entry in row["leader_epochs"])
    return _TakenPartition(
        partition=partition,
        directory=directory,
        rows=rows,
        records=(),
        visible=visible,
        highest_epoch=max(epochs, default=-1),
    )


def _count_segments(taken: TakenBucket, remote: _TakenPartition) -> None:
    rows = remote.read
    taken.topics.add(remote.partition.topic)
    taken.segments += len(rows)
    taken.log_bytes += sum(row["log_bytes"] for row in rows)


def _gaps_between_segments(remote: _TakenPartition, local_start: int | None) -> Iterator[str]:
    """
    Args:
        local_start: where the longest log in a log dir begins; None: no log dir has the partition.
    """
    end = None
    for visible in sorted(remote.visible.values(), key=lambda each: each.first_offset):
        if end is not None and end < visible.first_offset and (local_start is None or end < local_start):
            yield (
                f"{remote.name}: offsets {end} to {visible.first_offset - 1} are in no remote segment: consumers that "
                "come there get OFFSET_OUT_OF_RANGE"
            )
        end = max(end or 0, visible.last_offset + 1)


def _compare_with_local_log(taken: TakenBucket, remote: _TakenPartition, replica: InventoryReplica) -> None:
    """Whether a leader that starts with a log dir's directory deletes remote segments, or does not find them."""
    simulation = replica.forecast.simulation
    try:
        epochs = read_leader_epochs(replica.directory)
    except (CheckpointError, OSError):
        epochs = None
    log = LocalLog(
        entries=None if epochs is None else epochs.entries,
        log_start_offset=replica.forecast.stop.log_start_offset,
        first_offset=simulation.segments[0].base_offset if simulation.segments else None,
        end_offset=replica.end_offset,
        recovered=[entry for seen in replica.forecast.seen.logs for entry in seen.epochs],
    )
    instead = "take this directory out of the sources, and the partition comes from the bucket alone"
    if (found := finding_on_local_epochs(remote.rows, log)) is not None:
        finding = found[1]
        taken.refusals.append(
            f"{replica.directory / LEADER_EPOCH_CHECKPOINT}: {finding.detail}: {finding.consequence}; write the epochs "
            f"again with kidx recover --mend on a copy; or {instead}"
        )
    if (found := finding_on_local_start(remote.rows, log)) is not None:
        taken.lost.append(f"{replica.directory}: {found[1].detail}")
    end = max((visible.last_offset + 1 for visible in remote.visible.values()), default=0)
    if replica.end_offset < end:
        taken.refusals.append(
            f"{replica.directory}: its log ends at offset {replica.end_offset}, and remote segments go on to offset "
            f"{end - 1}, so that new records would take their place: {instead}"
        )


def _made_folder(taken: TakenBucket, remote: _TakenPartition) -> _MadeFolder | None:
    """The directory of a partition that no log dir has; None: nothing of the partition can be read, or the plan is
    refused.
    """
    if not remote.visible:
        taken.lost.append(f"{remote.name}: the bucket has no segment of it that can be read")
        return None
    last = max(remote.read, key=lambda row: (row["end_offset"], row["start_offset"]))
    end, start = last["end_offset"] + 1, min(visible.first_offset for visible in remote.visible.values())
    place = remote.directory / object_name(last["start_offset"], last["segment_id"], "")
    layout = taken.bucket.layout
    try:
        epochs, snapshot = (
            read_uploaded_part(layout, remote.directory, last["start_offset"], last["segment_id"], suffix)
            for suffix in (EPOCHS_SUFFIX, SNAPSHOT_SUFFIX)
        )
        read_snapshot(snapshot)
        entries = LeaderEpochs(parse_epoch_entries(epochs, f"{place}{EPOCHS_SUFFIX}")).within(start, end)
    except (OSError, CheckpointError, SnapshotError, RemoteLogMetadataError) as error:
        taken.refusals.append(
            f"{place}: the last segment of {remote.name}, whose leader epochs and producers a leader begins with: "
            f"{describe_error(error)}: put these objects back in a copy of the bucket, or take the segment out there"
        )
        return None
    log = LocalLog(entries=entries.entries, log_start_offset=start, first_offset=end, end_offset=end)
    if (found := finding_on_local_epochs(remote.rows, log)) is not None:
        taken.refusals.append(
            f"{place}{EPOCHS_SUFFIX}: {found[1].detail}: {found[1].consequence}; put the right object back in a "
            "copy of the bucket"
        )
    taken.lost.append(
        f"{remote.name}: no log dir has it, and the bucket ends at offset {end - 1}: records that were not uploaded "
        "yet are gone"
    )
    return _MadeFolder(
        topic_id=remote.partition.topic_id,
        log_start_offset=start,
        base_offset=end,
        end_offset=end,
        log=b"",
        epochs=entries.checkpoint(),
        snapshot=snapshot,
        origin=remote.directory,
        highest_epoch=max(remote.highest_epoch, *(entry.epoch for entry in entries.entries)),
    )


def _made_metadata_folders(
    taken: TakenBucket,
    remotes: Sequence[_TakenPartition],
    metadata: RemoteMetadata,
    surviving: SurvivingMetadata | None,
    cluster_id: str | None,
) -> dict[TopicPartition, _MadeFolder]:
    """The partitions of `__remote_log_metadata` that no source has, each with what it is to say of the bucket."""
    taken.made = [number for number in range(taken.metadata_partitions) if number not in metadata.read]
    records: dict[int, list[RemoteSegment | RemoteSegmentUpdate]] = {number: [] for number in taken.made}
    for remote in remotes:
        if remote.records:
            records[metadata_partition(remote.partition, taken.metadata_partitions)] += remote.records
    topic_id = _metadata_topic_id(taken.inventory, surviving, cluster_id)
    folders = {}
    for number, of_number in records.items():
        folders[TopicPartition(REMOTE_LOG_METADATA_TOPIC, number)] = _MadeFolder(
            topic_id=topic_id,
            log_start_offset=None,
            base_offset=0,
            end_offset=len(of_number),
            log=_metadata_log(of_number),
            epochs=LeaderEpochs([EpochEntry(0, 0)] if of_number else []).checkpoint(),
            snapshot=None,
            origin=taken.bucket.place,
            highest_epoch=0,
        )
    return folders


def _metadata_log(records: Sequence[RemoteSegment | RemoteSegmentUpdate]) -> bytes:
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


def _metadata_topic_id(inventory: Inventory, surviving: SurvivingMetadata | None, cluster_id: str | None) -> str:
    """The id that the topic has in a source; else one that is made of the new cluster's."""
    if surviving is not None and REMOTE_LOG_METADATA_TOPIC in surviving.metadata.topics:
        return surviving.metadata.topics[REMOTE_LOG_METADATA_TOPIC]
    for partition, replicas in inventory.replicas.items():
        if partition.topic == REMOTE_LOG_METADATA_TOPIC and replicas[0].topic_id is not None:
            return replicas[0].topic_id
    digest = hashlib.sha256(f"{REMOTE_LOG_METADATA_TOPIC} {cluster_id}".encode()).digest()[:16]
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def _write_log_dir(log_dir: Path, folders: Mapping[TopicPartition, _MadeFolder]) -> None:
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


def _with_made_log_dir(
    inventory: Inventory, bucket: RestoreBucket, folders: Mapping[TopicPartition, _MadeFolder], engine: Engine
) -> Inventory:
    broker = read_made_log_dir(bucket.log_dir, inventory.known, engine)
    replicas = [
        replace(
            replica,
            origin=folders[replica.topic_partition].origin,
            highest_epoch=max(replica.highest_epoch, folders[replica.topic_partition].highest_epoch),
        )
        for replica in broker.replicas
    ]
    made = replace(broker, node_id=BUCKET_NODE, cluster_id=None, replicas=replicas, bucket=bucket.place)
    return Inventory([*inventory.brokers, made], inventory.known)
