"""Mends small files that keep a broker from starting, or without which it starts badly.

Only files that follow from the logs and the cluster's metadata are made. `quorum-state`, `meta.properties`, high
watermarks and log start offsets are not: nothing on the disk says what they were. That a partition's records are those
of a topic id, replicas in other log dirs may confirm (`_testimonies`).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from kidxlib.audit.startup import obstacles
from kidxlib.audit.startup.obstacles import KafkaThrows
from kidxlib.audit.tiered.local_log import TieredPartition, finding_on_local_epochs, local_log, mended_epochs
from kidxlib.engine.protocol import Engine
from kidxlib.errors import ClusterMetadataError, LogChangedError, UsageError, describe_error
from kidxlib.format import segment_files
from kidxlib.format.checkpoint_files import (
    LEADER_EPOCH_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    EpochEntry,
    LeaderEpochs,
    offset_checkpoint,
)
from kidxlib.format.segment_files import OFFSET_MAX, parse_segment_log
from kidxlib.format.topic_partition import METADATA_TOPIC, TopicPartition, loaded_as, parse_partition_directory
from kidxlib.indexing.source import ANY_TOPIC
from kidxlib.log.metadata_image import Assignment, ClusterMetadata
from kidxlib.log.metadata_replica import METADATA_DIRECTORY, read_replica
from kidxlib.operations.compare.comparison import FindingKind
from kidxlib.operations.compare.place import ComparedPlace, DirectoryPair, MetadataOfPlaces, list_place
from kidxlib.operations.compare.replica import compare_replica_directories
from kidxlib.operations.recover.make_ready import KeptCopies
from kidxlib.operations.recover.read_logs import log_path
from kidxlib.operations.recover.stopped_broker import Refusal, StoppedBroker, StoppedLogDir, log_dir_as_source
from kidxlib.operations.tiered.local_partitions import local_partitions_in, tiered_partitions
from kidxlib.recovery.options import RecoverOptions
from kidxlib.recovery.recover import recover
from kidxlib.retention.policy import REMOTE_STORAGE_ENABLE
from kidxlib.run.known_topics import KnownTopics
from kidxlib.storage.location import Directory
from kidxlib.storage.log_bytes import Access
from kidxlib.storage.log_dir import PARTITION_METADATA
from kidxlib.storage.opened_log import opened_log
from kidxlib.storage.publisher import FileOwner, Publisher
from kidxlib.text.words import counted

_MISSING_OR_EMPTY: Final = "it is missing or empty"
#: After such a finding nobody knows whether both replicas have the same records.
_KINDS_SPEAKING_AGAINST: Final = (FindingKind.DIFFERS, FindingKind.NOT_COMPARABLE)


@dataclass(frozen=True, slots=True)
class MendRequest:
    """What somebody who mends has said, and what is known besides.

    Attributes:
        accepted_topics: topics whose partitions belong to the topics that the metadata has by these names.
        sets_snapshot_aside: a snapshot of the cluster's metadata that cannot be read may be set aside.
        not_named: the broker has log dirs that nobody has named.
        replicas: log dirs, or copies of them, that have replicas of the broker's partitions.
        engine: compares these with the partitions.
    """

    accepted_topics: Collection[str]
    sets_snapshot_aside: bool
    not_named: bool
    replicas: Sequence[ComparedPlace]
    known: KnownTopics
    engine: Engine


@dataclass(frozen=True, slots=True)
class Mending:
    """A small file that is put in place, or set aside.

    Attributes:
        directory: where the file stands, by its log dir.
        content: None where the file is set aside.
        why: what is wrong with the file that is there, and where the content is from.
    """

    directory: Directory
    name: str
    content: bytes | None
    why: str

    @property
    def path(self) -> Path:
        return Path(str(self.directory)) / self.name

    @property
    def text(self) -> str:
        """The line that names the mended file, and says why it is mended."""
        return f"{self.path}: {self.why}"

    def answers(self, refusal: Refusal) -> bool:
        """Whether the mending removes a refusal."""
        lacks = f"{self.directory}: no {self.name}"
        return refusal.text.startswith((f"{self.path}:", f"{self.path};", lacks))


@dataclass(frozen=True, slots=True)
class UnmendedFile:
    """A small file that is not put in place, and why not."""

    path: Path
    why: str

    @property
    def text(self) -> str:
        """The line that names the small file, and says why it is not mended."""
        return f"{self.path}: not mended: {self.why}"


def mendings_of(broker: StoppedBroker, request: MendRequest) -> tuple[list[Mending], list[UnmendedFile]]:
    """The files that can be put in place, and those that cannot though they are missing or do not read. Nothing is
    written.
    """
    known, files = request.known, list[Mending | UnmendedFile]()
    images, tiered = [metadata.to_end for metadata in known.read()], _remote_segments_by_directory(broker)
    for log_dir in broker.log_dirs:
        files += _mend_recovery_points(log_dir)
        if request.sets_snapshot_aside:
            files += _mend_metadata_snapshot(log_dir)
        for name in log_dir.partitions:
            partition = parse_partition_directory(name)
            if partition is not None and partition.topic != METADATA_TOPIC:
                try:
                    files += _mend_leader_epochs(log_dir, partition, known, tiered.get(log_dir.path / name))
                    files += _mend_topic_id(log_dir, partition, broker, images, request)
                except (LogChangedError, OSError) as error:  # it does not hide the others
                    files.append(UnmendedFile(log_dir.path / name, describe_error(error)))
    mendings = [file for file in files if isinstance(file, Mending)]
    return mendings, [file for file in files if isinstance(file, UnmendedFile)]


def mend(mendings: Sequence[Mending], copies: KeptCopies) -> None:
    """Keep a copy of all files that are there, then put the new ones in place. The caller holds the log dirs' locks."""
    for mending in mendings:
        if os.path.lexists(mending.path):
            copies.keep(mending.path, f"{mending.path.parent.name}/{mending.name}")
    for mending in mendings:
        with Publisher() as publisher:
            if mending.content is None:
                publisher.remove(mending.directory, mending.name)
            else:
                owner = replace(FileOwner.of(mending.path.parent.stat()), mode=0o644)
                publisher.stage(mending.directory, mending.name, mending.content, owner)
                publisher.commit()


def _mend_recovery_points(log_dir: StoppedLogDir) -> Iterator[Mending | UnmendedFile]:
    """Recovery points begin anew where they cannot be read: no log counts as flushed until it was read."""
    path = log_dir.path / RECOVERY_POINT_CHECKPOINT
    read = obstacles.accepted_offsets(log_dir.path, RECOVERY_POINT_CHECKPOINT)
    if read.failure is None and read.note is None:
        return
    if (why := _why_not_replaceable(path)) is not None:
        yield UnmendedFile(path, why)
        return
    yield Mending(
        Directory(str(log_dir.path), ""),
        RECOVERY_POINT_CHECKPOINT,
        offset_checkpoint({}),
        "it cannot be read; all of the log dir's logs are read from their starts, and then it gets their ends",
    )


def _mend_leader_epochs(
    log_dir: StoppedLogDir, partition: TopicPartition, known: KnownTopics, remote: TieredPartition | None
) -> Iterator[Mending | UnmendedFile]:
    """Leader epochs as a broker that recovers all of the log would make them, after those of the remote segments: a
    leader without these would delete remote segments, or not find them.
    """
    directory = log_dir.path / partition.directory
    path = directory / LEADER_EPOCH_CHECKPOINT
    try:
        local = None if remote is None else local_log(directory, remote, log_dir.stop.of(partition))
    except OSError as error:
        yield UnmendedFile(path, describe_error(error))
        return
    what = _why_epochs_unusable(path)
    if what is None and remote is not None and local is not None:
        epochs_and_finding = finding_on_local_epochs(remote.segments, local)
        what = None if epochs_and_finding is None else epochs_and_finding[1].detail
    if what is None:
        return
    offsets = _base_offsets(directory)
    of_log = _epochs_in_logs(directory, offsets)
    if what == _MISSING_OR_EMPTY and of_log.first is None and remote is None:
        return
    start = max(offsets[0] if offsets else 0, log_dir.stop.log_start_offsets.get(partition, 0))
    epochs = of_log.within(start, OFFSET_MAX)
    if remote is not None and local is not None:
        mended = mended_epochs(remote.segments, local, of_log)
        if isinstance(mended, str):
            yield UnmendedFile(path, f"{what}; {mended}")
            return
        epochs = mended
    elif start > 0 and (why := _why_perhaps_tiered(log_dir, partition, known)) is not None:
        yield UnmendedFile(
            path,
            f"{what}, {why}, and the log begins at offset {start}: without the epochs of the remote segments a leader "
            "deletes these from the bucket",
        )
        return
    if (why := _why_not_replaceable(path)) is not None:
        yield UnmendedFile(path, why)
        return
    last, of = epochs.last, "the log" if remote is None else "the log and the remote segments"
    has = "no epoch" if last is None else f"epochs up to {last.epoch}, which begins at {last.start_offset}"
    directory_of = Directory(str(log_dir.path), partition.directory)
    yield Mending(directory_of, LEADER_EPOCH_CHECKPOINT, epochs.checkpoint(), f"{what}; in {of}: {has}")


def _why_epochs_unusable(path: Path) -> str | None:
    """Why a broker takes no epochs from a file; None where it takes some."""
    try:
        if path.stat().st_size:
            obstacles.ensure_epochs_accepted(path)
            return None
    except FileNotFoundError:
        pass
    except KafkaThrows:
        return "it cannot be read"
    except OSError as error:
        return f"it cannot be read: {error.strerror}"
    return _MISSING_OR_EMPTY


def _why_perhaps_tiered(log_dir: StoppedLogDir, partition: TopicPartition, known: KnownTopics) -> str | None:
    source = str(log_dir.path)
    tiered = known.config(source, partition.topic, REMOTE_STORAGE_ENABLE)
    if tiered is None or not known.is_settled(source, partition.topic, REMOTE_STORAGE_ENABLE):
        return "it is not known whether the topic is tiered (--cluster-metadata tells)"
    return None if tiered.value == "false" else "the topic is tiered, and no log dir has the metadata of its segments"


def _remote_segments_by_directory(broker: StoppedBroker) -> Mapping[Path, TieredPartition]:
    sources = [log_dir_as_source(log_dir) for log_dir in broker.log_dirs]
    partitions = [partition for source in sources for partition in local_partitions_in(source, ANY_TOPIC)]
    tiered = tiered_partitions([source.path for source in sources], partitions, ANY_TOPIC).found
    return {Path(str(local.directory)): remote for local, remote in tiered.items()}


def _base_offsets(directory: Path) -> list[int]:
    return sorted(offset for name in os.listdir(directory) if (offset := parse_segment_log(name)) is not None)


def _epochs_in_logs(directory: Path, base_offsets: Sequence[int]) -> LeaderEpochs:
    """The epochs of a partition's batches, as recovery adds them (`LogSegment.recover`)."""
    epochs = LeaderEpochs()
    for base_offset in base_offsets:
        with opened_log(log_path(directory, base_offset)) as opened:
            scanned = recover(
                opened.log(use_mmap=False, access=Access.SEQUENTIAL), base_offset, RecoverOptions(verify_crc=True)
            )
            opened.ensure_unchanged()
        epochs.assign_new(EpochEntry(*entry) for entry in scanned.leader_epochs[["epoch", "start_offset"]].tolist())
    return epochs


def _mend_topic_id(
    log_dir: StoppedLogDir,
    partition: TopicPartition,
    broker: StoppedBroker,
    images: Sequence[ClusterMetadata],
    request: MendRequest,
) -> Iterator[Mending | UnmendedFile]:
    """The topic's id, where the metadata has the partition in this very log dir and nothing speaks against it."""
    directory = log_dir.path / partition.directory
    path = directory / PARTITION_METADATA
    if not log_dir.meta.is_kraft:
        return
    try:
        obstacles.accepted_topic_id(path)
    except (FileNotFoundError, KafkaThrows):
        pass
    except OSError as error:
        yield UnmendedFile(path, f"it cannot be read: {error.strerror}")
        return
    else:
        return
    assigned = [(metadata, metadata.assignments.get(partition)) for metadata in images]
    why = _why_topic_id_uncertain(log_dir, partition, broker, assigned, request) or _why_not_replaceable(path)
    if why is not None:
        yield UnmendedFile(path, why)
        return
    [(metadata, _)] = assigned
    topic_id = metadata.topics[partition.topic]
    confirmed, testimony = _confirm_topic_id(log_dir, partition, topic_id, request)
    if not confirmed:
        yield UnmendedFile(path, testimony)
        return
    yield Mending(
        Directory(str(log_dir.path), partition.directory),
        PARTITION_METADATA,
        f"version: 0\ntopic_id: {topic_id}".encode(),
        f"it is missing or cannot be read; the metadata as of {metadata.as_of} has the partition here, and {testimony}",
    )


def _confirm_topic_id(
    log_dir: StoppedLogDir, partition: TopicPartition, topic_id: str, request: MendRequest
) -> tuple[bool, str]:
    """Whether a replica or an option confirms that a partition's records are the topic's; which one, or why none."""
    testimonies = list(_testimonies(request, log_dir, partition.directory, topic_id))
    if against := [testimony.text for testimony in testimonies if testimony.confirms is False]:
        return False, f"{against[0]}: its records are of another topic of that name, or the replicas have diverged"
    if confirming := [testimony.text for testimony in testimonies if testimony.confirms]:
        return True, confirming[0]
    if partition.topic in request.accepted_topics:
        return True, f"--accept-topic-id {partition.topic} says that its records are the topic's"
    said = "".join(f"; {testimony.text}" for testimony in testimonies)
    return False, (
        "the metadata has the partition here, and nothing speaks against it; but a topic that was deleted and made "
        f"again looks the same: name a log dir with a replica (--replica DIR), or --accept-topic-id {partition.topic}"
        f"{said}"
    )


def _why_topic_id_uncertain(
    log_dir: StoppedLogDir,
    partition: TopicPartition,
    broker: StoppedBroker,
    assigned: Sequence[tuple[ClusterMetadata, Assignment | None]],
    request: MendRequest,
) -> str | None:
    if len(assigned) != 1 or (assignment := assigned[0][1]) is None:
        return "no metadata was read that has the partition"
    if (broker.node_id, log_dir.meta.directory_id) not in set(assignment.places):
        return "the metadata does not have the partition in this log dir of this node"
    if request.not_named:
        return "not all log dirs of the broker are named, and another one may have the partition"
    names = [str(log_dir.path / name) for log_dir in broker.log_dirs for name in log_dir.directories]
    others = [name for name in names if loaded_as(os.path.basename(name)) == partition]
    others.remove(str(log_dir.path / partition.directory))
    if others:
        return f"{others[0]} is of that partition too"
    directory = log_dir.path / partition.directory
    last = _epochs_in_logs(directory, _base_offsets(directory)).last
    if last is not None and last.epoch > assignment.leader_epoch:
        return (
            f"its log has leader epoch {last.epoch}, and the metadata {assignment.leader_epoch}: it is of another "
            "topic of that name, or the metadata is older"
        )
    return None


def _mend_metadata_snapshot(log_dir: StoppedLogDir) -> Iterator[Mending | UnmendedFile]:
    """The latest snapshot of the cluster's metadata, if it cannot be read and the other files lead to its end."""
    directory = log_dir.path / METADATA_DIRECTORY
    if not directory.is_dir():
        return
    latest = max(filter(None, map(segment_files.parse_kraft_snapshot, os.listdir(directory))), default=None)
    if latest is None:
        return
    name = segment_files.kraft_snapshot_file(latest)
    try:
        read_replica(directory, lambda record: False)
    except (ClusterMetadataError, OSError) as error:
        what = str(error)
    else:
        return
    if name not in what:
        yield UnmendedFile(directory, what)
        return
    try:
        without = read_replica(directory, lambda record: False, left_out=name)
    except (ClusterMetadataError, OSError) as error:
        yield UnmendedFile(directory / name, f"without it the metadata does not read either: {error}")
        return
    if without.end_offset < latest.end_offset:
        yield UnmendedFile(
            directory / name,
            f"without it the metadata ends at offset {without.end_offset}, below {latest.end_offset}, its own end",
        )
        return
    yield Mending(
        Directory(str(log_dir.path), METADATA_DIRECTORY),
        name,
        None,
        f"it cannot be read; a snapshot of offset {without.snapshot_end} and the log lead to offset "
        f"{without.end_offset}. In a quorum the node gets what it lacks from the leader",
    )


def _why_not_replaceable(path: Path) -> str | None:
    try:
        status = path.lstat()
    except FileNotFoundError:
        return None
    return None if stat.S_ISREG(status.st_mode) else "it is no regular file"


@dataclass(frozen=True, slots=True)
class _Testimony:
    """What a replica says of a topic id.

    Attributes:
        confirms: None where the replica says nothing.
        text: names the replica, and says what it has.
    """

    confirms: bool | None
    text: str


def _testimonies(request: MendRequest, log_dir: StoppedLogDir, name: str, topic_id: str) -> Iterator[_Testimony]:
    """What each replica says of a partition that is to be mended, with the directory `name`, whose topic has this id by
    the metadata.
    """
    if not request.replicas:
        return
    of_broker = list_place(str(log_dir.path / name))
    here = of_broker.directories.get(name)
    known = MetadataOfPlaces(request.known, [str(log_dir.path)])
    if here is None or here.problem is not None:
        return
    for place in request.replicas:
        there = place.directories.get(name)
        if there is None:
            yield _Testimony(None, f"{place.name} has no {name}")
        elif there.problem is not None:
            yield _Testimony(None, f"{there.path}: {there.problem}")
        elif there.topic_id != topic_id:
            has = "no topic id that can be read" if there.topic_id is None else f"topic id {there.topic_id}"
            yield _Testimony(None, f"{there.path} has {has}, and the metadata {topic_id}")
        else:
            yield _testimony_of_replica(DirectoryPair(here, there), of_broker, place, known, request.engine)


def _testimony_of_replica(
    pair: DirectoryPair, one: ComparedPlace, other: ComparedPlace, known: MetadataOfPlaces, engine: Engine
) -> _Testimony:
    [comparison] = compare_replica_directories([pair], one, other, known, engine)
    against = [finding for finding in comparison.findings() if finding.kind in _KINDS_SPEAKING_AGAINST]
    where = f"{pair.other.path}, a replica with that topic id,"
    if differing := [finding for finding in against if finding.kind is FindingKind.DIFFERS]:
        first, last = differing[0].first_offset, differing[0].last_offset
        return _Testimony(False, f"{where} has other batches at offsets {first}–{last}")
    if against:
        return _Testimony(None, f"{where} cannot be compared to its end: {against[0].detail}")
    if not comparison.same_batches:
        cleaned = " above what a cleaner has worked on" if comparison.cleaned_to else ""
        return _Testimony(None, f"{where} has no batch in common with it{cleaned}")
    return _Testimony(
        True, f"{where} has {counted(comparison.same_batches, 'batch')} in common, and no other ones there"
    )


def replicas_to_mend_by(texts: Sequence[str], log_dirs: Sequence[Path]) -> list[ComparedPlace]:
    """The replicas that may confirm a mended topic id (`--replica`); none may be one of the broker's log dirs."""
    places = [list_place(text) for text in texts]
    for place in places:
        own = {str(path.resolve()) for path in log_dirs} & {str(path) for path in place.log_dirs}
        if own:
            raise UsageError(
                f"--replica {place.name}: it is a log dir of this broker, and confirms nothing of itself; name one of "
                "another replica, or a copy of that"
            )
    return places
