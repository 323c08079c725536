"""The directories in a node's log dirs: what keeps a node from starting with them, what it sets aside, takes for
others, or does not serve.

Some names keep a broker from starting before it reads a log, as do files and directories that the owner of the log dir,
as whom a broker runs, may not use (`obstacles_in_log_dir`). Other names are of directories that Kafka moves, deletes or
has set aside (`directories_aside`). What a node has by names, topic ids and assignments is compared with the cluster's
metadata (`obstacles_by_metadata`); without that, topic ids are compared with each other (`obstacles_without_metadata`).

Source: `LocalLog.parseTopicPartitionName`, `LogManager.loadLog`, `LogManager.isStrayReplica` (`isStrayKraftReplica`
before 4.0), `LogManager.findAbandonedFutureLogs`, `ReplicaManager.maybeAddLogDirFetchers`, `LogManager.getOrCreateLog`,
`DirectoryId.isOnline`.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import stat
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.filesize import decimal

from kidxlib.audit.startup.meta_properties import accepted_properties
from kidxlib.audit.startup.obstacles import (
    Effect,
    KafkaThrows,
    Obstacle,
    Thrown,
    accepted_topic_id,
    obstacles_in_partition,
)
from kidxlib.errors import CheckpointError, CorruptIndexError, IndexSizeError, LogChangedError, MalformedRecordsError
from kidxlib.format import checkpoint_files, topic_partition
from kidxlib.format.segment_files import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    parse_segment_log,
    segment_file,
)
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.log.metadata_image import Assignment, ClusterMetadata
from kidxlib.storage.location import Location, files_in
from kidxlib.storage.lock import LOCK_FILE
from kidxlib.storage.log_dir import (
    CLEAN_SHUTDOWN_FILE,
    META_PROPERTIES,
    PARTITION_METADATA,
    MetaProperties,
    bytes_of_logs,
    directories_in,
    read_offset_checkpoint,
)
from kidxlib.storage.logs_aside import LogsAside
from kidxlib.storage.opened_log import LogFile
from kidxlib.storage.small_files import small_file
from kidxlib.text.words import counted

#: Files that a broker opens for reading and writing.
_WRITTEN: Final = (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    LOCK_FILE,
)
_READ: Final = 4
_WRITE: Final = 2
_ENTER: Final = 1

#: What a starting broker does with a folder that Kafka moves, deletes or has set aside, by the end of its name
#: (`LogManager.loadLog`).
_BECOMES: Final = {
    "-delete": "a broker deletes it a minute after its start (file.delete.delay.ms), also where it is the only copy of "
    "the partition: rename it then",
    "-stray": "a broker loads it at each start, and serves nothing of it; nobody but you deletes it. To read "
    "its records, copy it to a directory called <topic>-<partition>",
    "-future": "a broker goes on copying the partition to it, and takes it in the partition's place once it has all; "
    "where that partition is missing, a start takes it for the partition if the cluster's metadata has that in this "
    "log dir; of a partition or records that are lost a line of its own tells",
}

_FUTURE: Final = "-future"
#: `DirectoryId.UNASSIGNED` and `MIGRATING`: any log dir of the node may have the replica.
ANYWHERE: Final = frozenset({"AAAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAAQ"})
SET_ASIDE: Final = "a broker that starts sets the directory aside (-stray), and serves nothing of it"
#: `BrokerMetadataPublisher.initializeManagers`, `LogManager.isStrayReplica`.
STRAY: Final = "a broker that starts sets the directory aside (-stray), and begins an empty partition in its place"
#: With the name of the partition, which tells commands what a directory is.
_KEEP_RECORDS_REMEDY: Final = (
    "nothing of it is deleted: where its records are wanted, copy it to a directory called {}, outside of the log "
    "dirs, and read that (kidx export)"
)
_NO_TOPIC_ID: Final = (
    f"write two lines into {PARTITION_METADATA}: 'version: 0', and 'topic_id: ID' with the topic's id, which the "
    "cluster's metadata has"
)
#: `meta.properties` of a broker with KRaft (`MetaPropertiesVersion.V1`).
_OF_KRAFT: Final = re.compile(r"^version\s*[=:]\s*1\s*$", re.MULTILINE)
_ASK_METADATA: Final = "--cluster-metadata DIR tells which is the cluster's"


def obstacles_in_log_dir(log_dir: Location) -> Iterator[Obstacle]:
    """What is wrong with a log dir's directories: names that are no partition's, or repeat a partition; files that are
    not the broker's; and the contents of directories that Kafka moves or deletes. A broker loads these as it loads
    partitions (`LogManager.loadLog`); their logs are not looked at here.
    """
    served: dict[TopicPartition, Location] = {}
    directories = directories_in(log_dir)
    for directory in directories:
        partition = topic_partition.loaded_as(directory.name)
        if partition is None:
            # A broker passes by the one, and removes the other before it lists the rest, whatever it is.
            if directory.name in (topic_partition.REMOTE_INDEX_CACHE, CLEAN_SHUTDOWN_FILE):
                continue
            yield Obstacle(
                directory,
                "a directory whose name is not <topic>-<partition>",
                Effect.ENDS,
                "a broker does not start beside it, with any of its log dirs",
                "move it out of the log dir, or give it its name again; where that is a mount point, "
                "let log.dirs name a directory below it",
            )
            continue
        if partition.topic == topic_partition.METADATA_TOPIC:
            continue
        if topic_partition.parse_partition_directory(directory.name) is None:
            yield from obstacles_in_partition(directory)
        if (
            not topic_partition.is_moved(directory.name)
            and (other := served.setdefault(partition, directory)) is not directory
        ):
            yield Obstacle(
                directory,
                f"to a broker it is {partition.directory}, as {other} is",
                Effect.ENDS,
                "it does not start with both",
                "look which of them is whole, and move the other one out of the log dir",
            )
    if isinstance(log_dir, Path):
        yield from _obstacles_of_permissions(log_dir, directories)


def _obstacles_of_permissions(log_dir: Path, directories: Iterable[Location]) -> Iterator[Obstacle]:
    """The files and directories that the owner of a log dir may not use. A broker runs as that user."""
    status = log_dir.stat()
    if status.st_uid == 0:
        return
    user = _User.of(status)
    if not user.may(status, _READ | _WRITE | _ENTER):
        found = f"mode {stat.S_IMODE(status.st_mode):03o}, expected rwx for its owner"
        yield Obstacle(log_dir, found, Effect.LOG_DIR, str(Thrown.IO), "give its owner these rights (chmod)")
    for directory in (log_dir, *directories):
        refused = sorted(_inaccessible_entries(Path(str(directory)), user, is_log_dir=directory is log_dir))
        if refused:
            name, found_there, needed = refused[0]
            more = f" ({len(refused) - 1} more there)" if len(refused) > 1 else ""
            yield Obstacle(
                directory / name,
                f"of user {found_there.st_uid}, group {found_there.st_gid}, mode "
                f"{stat.S_IMODE(found_there.st_mode):03o}{more}; the log dir's owner, user {user.uid}, needs {needed}",
                Effect.LOG_DIR,
                str(Thrown.IO),
                "give the files to that user (chown)",
            )


@dataclass(frozen=True, slots=True)
class _User:
    uid: int
    groups: frozenset[int]

    @classmethod
    def of(cls, status: os.stat_result) -> _User:
        """The user who has a file. If the machine does not know the user's groups, the file's group alone counts."""
        try:
            import pwd  # here, as not each system has it that index files are audited on

            name = pwd.getpwuid(status.st_uid).pw_name
        except (ImportError, KeyError):
            return cls(status.st_uid, frozenset({status.st_gid}))
        return cls(status.st_uid, frozenset(os.getgrouplist(name, status.st_gid)))

    def may(self, status: os.stat_result, bits: int) -> bool:
        shift = 6 if status.st_uid == self.uid else 3 if status.st_gid in self.groups else 0
        return status.st_mode >> shift & bits == bits


def _inaccessible_entries(
    directory: Path, user: _User, *, is_log_dir: bool
) -> Iterator[tuple[str, os.stat_result, str]]:
    """What a user may not use in a directory: name, status, and the rights that are needed."""
    try:
        entries = list(os.scandir(directory))
    except OSError:  # reported with its partition
        return
    for entry in entries:
        try:
            status = entry.stat()
        except OSError:
            continue
        if entry.is_dir():
            bits, needed = (_READ | _WRITE | _ENTER if is_log_dir else 0), "rwx"
        elif entry.name.endswith(_WRITTEN):
            bits, needed = _READ | _WRITE, "rw"
        else:
            bits, needed = _READ, "r"
        if not user.may(status, bits) and not _has_access_list(entry.path):
            yield entry.name, status, needed


def _has_access_list(path: str) -> bool:
    if not hasattr(os, "listxattr"):
        return False
    try:
        return "system.posix_acl_access" in os.listxattr(path)
    except OSError:
        return False


@dataclass(frozen=True, slots=True)
class DirectoryAside:
    """A directory that Kafka moves, deletes or has set aside.

    Attributes:
        kind: the end of its name, a key of `_BECOMES`.
        bytes: the size of its logs. Indexes are not counted: they may be preallocated, and take no room then.
    """

    path: Location
    kind: str
    bytes: int


def directories_aside(log_dirs: Iterable[Location]) -> list[DirectoryAside]:
    """The directories in log dirs that Kafka moves, deletes or has set aside; one that cannot be read has 0 bytes, and
    its failure is reported elsewhere.
    """
    return [
        DirectoryAside(directory, f"-{directory.name.rpartition('-')[2]}", bytes_of_logs(directory))
        for log_dir in log_dirs
        for directory in directories_in(log_dir)
        if topic_partition.is_moved(directory.name) and topic_partition.loaded_as(directory.name) is not None
    ]


def lines_of_directories_aside(folders: Iterable[DirectoryAside]) -> Iterator[str]:
    """A line for each kind of the directories that Kafka moves, deletes or has set aside."""
    kinds = defaultdict(list)
    for folder in sorted(folders, key=lambda folder: (-folder.bytes, str(folder.path))):
        kinds[folder.kind].append(folder)
    for kind, group in kinds.items():
        size = decimal(sum(folder.bytes for folder in group))
        number = counted(len(group), "directory", "directories")
        yield f"{kind}: {number}, {size} of logs, the largest {group[0].path}: {_BECOMES[kind]}"


@dataclass(frozen=True)
class DirectoriesInLogDir:
    """The directories in a log dir of a node, by name. The metadata knows the log dir by its `directory_id`; None where
    it has none.
    """

    path: Location
    directory_id: str | None
    directories: Sequence[Location]

    @functools.cached_property
    def known_ends(self) -> Mapping[TopicPartition, int]:
        """The ends of logs by the log dir's checkpoints. A file that cannot be read is reported elsewhere."""
        ends: dict[TopicPartition, int] = {}
        for name in (checkpoint_files.RECOVERY_POINT_CHECKPOINT, checkpoint_files.HIGH_WATERMARK_CHECKPOINT):
            with contextlib.suppress(CheckpointError, OSError):
                for partition, offset in (read_offset_checkpoint(self.path / name) or {}).items():
                    ends[partition] = max(offset, ends.get(partition, offset))
        return ends


@dataclass(frozen=True, slots=True)
class _PartitionFolder:
    """A directory that a broker loads as a partition, or as a copy of one that moves to another log dir.

    Attributes:
        named: the partition of its name.
        topic_id: by its `partition.metadata`; None without the file.
    """

    path: Location
    log_dir: DirectoriesInLogDir
    named: TopicPartition
    topic_id: str | None

    @property
    def is_future(self) -> bool:
        return self.path.name.endswith(_FUTURE)


@dataclass(frozen=True, slots=True)
class _NodeMetadata:
    """What the metadata says of a node's replicas.

    Attributes:
        names: of topics, by id.
        log_dirs: the ids of the log dirs that the node last registered.
    """

    node_id: int
    topics: Mapping[str, str]
    names: Mapping[str, str]
    assignments: Mapping[TopicPartition, Assignment]
    log_dirs: tuple[str, ...]

    def assigned(self, partition: TopicPartition) -> str | None:
        """The id of the log dir that has the node's replica; None where it may be any log dir, or is not known."""
        assignment = self.assignments.get(partition)
        directory = None if assignment is None else dict(assignment.places).get(self.node_id)
        return None if directory in ANYWHERE else directory

    def is_here(self, partition: TopicPartition) -> bool:
        assignment = self.assignments.get(partition)
        return assignment is not None and self.node_id in assignment.replicas


def obstacles_of_directories(
    log_dir: Location, folders: Sequence[Location], metadata: ClusterMetadata | None
) -> tuple[Obstacle, ...]:
    """The obstacles in some directories of a log dir, without a look at the others: ids and assignments."""
    properties = accepted_properties(log_dir)
    if metadata is None or not isinstance(properties, MetaProperties) or properties.node_id is None:
        return tuple(obstacles_without_metadata(log_dir, folders))
    of_node = [DirectoriesInLogDir(log_dir, properties.directory_id, folders)]
    return tuple(obstacles_by_metadata(of_node, properties.node_id, metadata, are_all=False))


def obstacles_by_metadata(
    log_dirs: Sequence[DirectoriesInLogDir], node_id: int, metadata: ClusterMetadata, *, are_all: bool
) -> Iterator[Obstacle]:
    """What a node sets aside, does not serve or drops of its log dirs, by the cluster's metadata. That is read to its
    end: the node's copy had by then what the node has a directory of. `are_all`: the node has no other log dirs.
    """
    known = _NodeMetadata(
        node_id, metadata.topics, metadata.topic_names, metadata.assignments, metadata.log_dirs.get(node_id, ())
    )
    current: dict[TopicPartition, _PartitionFolder] = {}
    futures: list[_PartitionFolder] = []
    for folder in _partition_folders(log_dirs):
        stray = _why_stray(folder, known)
        if stray is not None:
            yield _stray_obstacle(folder, known, *stray)
        elif folder.is_future:
            futures.append(folder)
        else:
            current.setdefault(folder.named, folder)
            yield from _obstacles_of_other_topic(folder, log_dirs, known)
    yield from _obstacles_of_futures(futures, current, log_dirs, known, are_all=are_all)
    yield from _obstacles_of_directory_ids(log_dirs, current, known)


def _partition_folders(log_dirs: Sequence[DirectoriesInLogDir]) -> Iterator[_PartitionFolder]:
    """The directories that are loaded as partitions or as their copies. A file that cannot be read has an obstacle
    elsewhere.
    """
    for log_dir in log_dirs:
        for directory in log_dir.directories:
            named = topic_partition.loaded_as(directory.name)
            is_gone = topic_partition.is_moved(directory.name) and not directory.name.endswith(_FUTURE)
            if named is None or named.topic == topic_partition.METADATA_TOPIC or is_gone:
                continue
            try:
                yield _PartitionFolder(directory, log_dir, named, accepted_topic_id(directory / PARTITION_METADATA))
            except FileNotFoundError:
                yield _PartitionFolder(directory, log_dir, named, None)
            except (KafkaThrows, OSError):
                continue


def _why_stray(folder: _PartitionFolder, metadata: _NodeMetadata) -> tuple[Location, str] | None:
    """Why a broker takes a directory for another node's (`LogManager.isStrayReplica`), and which file says so."""
    path = folder.path / PARTITION_METADATA
    if folder.topic_id is None:
        return folder.path, f"no {PARTITION_METADATA}"
    name = metadata.names.get(folder.topic_id)
    if name is None:
        now = metadata.topics.get(folder.named.topic)
        has = f"has {now} for this topic" if now is not None else "has no topic of that id or name"
        return path, f"topic id {folder.topic_id}, and the cluster's metadata {has}"
    partition = TopicPartition(name, folder.named.partition)
    if partition not in metadata.assignments:
        return path, f"topic id {folder.topic_id}, of {name}, which has no partition {partition.partition}"
    if not metadata.is_here(partition):
        replicas = ", ".join(map(str, metadata.assignments[partition].replicas))
        return (
            folder.path,
            f"{partition.directory} has its replicas on nodes {replicas}, and this is node {metadata.node_id}",
        )
    return None


def _stray_obstacle(folder: _PartitionFolder, metadata: _NodeMetadata, where: Location, found: str) -> Obstacle:
    takes_its_place = metadata.is_here(folder.named) and not folder.is_future
    remedy = _KEEP_RECORDS_REMEDY.format(folder.named.directory)
    if folder.topic_id is None and folder.named.topic in metadata.topics:
        topic_id = metadata.topics[folder.named.topic]
        remedy = (
            f"if the log in it is of the topic {folder.named.topic} as it is now, write two lines into "
            f"{PARTITION_METADATA}: 'version: 0' and 'topic_id: {topic_id}'"
            if any(parse_segment_log(name) is not None for name in files_in(folder.path))
            else "no log is in it: look for its logs on other disks and copies, or remove the directory"
        )
    return Obstacle(where, found, Effect.HIDES, STRAY if takes_its_place else SET_ASIDE, remedy)


def _obstacles_of_other_topic(
    folder: _PartitionFolder, log_dirs: Sequence[DirectoriesInLogDir], metadata: _NodeMetadata
) -> Iterator[Obstacle]:
    """A directory with one topic's name and another one's id. The id decides whether it is loaded, the name as what."""
    name = metadata.names[folder.topic_id or ""]
    if name == folder.named.topic:
        return
    other = TopicPartition(name, folder.named.partition)
    if metadata.is_here(folder.named):
        does = (
            f"a broker that starts does not serve {folder.named.directory}, nor the partitions that it would take over "
            "after it (InconsistentTopicIdException)"
        )
        remedy = _remedy_by_log_end(folder, other, log_dirs, metadata.topics[folder.named.topic])
    else:
        does = "a broker that starts loads it, and serves nothing of it"
        is_there = any(each.name == other.directory for log_dir in log_dirs for each in log_dir.directories)
        remedy = (
            f"move the directory away: it is a copy of {name}"
            if is_there or not metadata.is_here(other)
            else f"rename it to {other.directory}, of which no directory is there, if the log in it is {name}'s"
        )
    yield Obstacle(
        folder.path / PARTITION_METADATA, f"topic id {folder.topic_id}, which is {name}'s", Effect.HIDES, does, remedy
    )


def _remedy_by_log_end(
    folder: _PartitionFolder, other: TopicPartition, log_dirs: Sequence[DirectoriesInLogDir], topic_id: str
) -> str:
    """What to do about a partition's directory with another topic's id: it may be a copy of that topic, or have the log
    of the partition and a wrong file. The end of its log, compared with the checkpoints, tells. `topic_id` is of the
    topic of its name.
    """
    end, own = _log_end(folder.path), folder.log_dir.known_ends.get(folder.named)
    of_other = {log_dir.known_ends.get(other) for log_dir in log_dirs}
    write = f"write 'topic_id: {topic_id}' into the file in place of that"
    begins = "the broker then begins an empty partition"
    if end is not None and end == own and end not in of_other:
        return f"the log in it is that of {folder.named.directory}: it ends at {end}, as the checkpoints say; {write}"
    if end is not None and end != own and end in of_other:
        return f"move the directory away: it is a copy of {other.directory}, which ends at {end}, too; {begins}"
    return (
        f"if the log in it is that of {folder.named.directory}, {write}; if it is a copy of {other.directory}, move "
        f"the directory away: {begins}"
    )


def _obstacles_of_futures(
    futures: Sequence[_PartitionFolder],
    current: Mapping[TopicPartition, _PartitionFolder],
    log_dirs: Sequence[DirectoriesInLogDir],
    metadata: _NodeMetadata,
    *,
    are_all: bool,
) -> Iterator[Obstacle]:
    """Copies of partitions that were being moved from one log dir to another."""
    known = {log_dir.directory_id for log_dir in log_dirs}
    first: dict[TopicPartition, _PartitionFolder] = {}
    for folder in futures:
        if (other := first.setdefault(folder.named, folder)) is not folder:
            yield Obstacle(
                folder.path,
                f"a second copy of {folder.named.directory} on its way to another log dir, besides {other.path}",
                Effect.ENDS,
                str(Thrown.OTHER),
                "move one of them out of the log dir: the partition itself is not among them",
            )
            continue
        assigned, own = metadata.assigned(folder.named), folder.log_dir.directory_id
        source = current.get(folder.named)
        if source is not None and source.log_dir is folder.log_dir:
            yield _obstacle_beside_source(folder, source, is_promoted=assigned == own)
        elif assigned is not None and assigned == own:
            yield from _obstacles_of_promoted(folder, source)
        elif source is None and (are_all or assigned in known):
            yield Obstacle(
                folder.path,
                f"a copy of {folder.named.directory} on its way to this log dir; the metadata has the partition in "
                "another one, and it is not there",
                Effect.HIDES,
                "a broker that starts begins an empty partition, and truncates the copy to that one's end: all records "
                "are gone",
                f"rename the copy to {folder.named.directory}, or copy it away before the start",
            )


def _obstacle_beside_source(folder: _PartitionFolder, source: _PartitionFolder, *, is_promoted: bool) -> Obstacle:
    """A copy that is to take the place of the partition in the same log dir: no directory can have its name. Where the
    metadata has the partition elsewhere, the broker first tells the controller where it is.
    """
    ends = f"{Thrown.OTHER} (DirectoryNotEmptyException)"
    return Obstacle(
        folder.path,
        f"a copy of {folder.named.directory} on its way to the log dir in which {source.path} is",
        Effect.ENDS if is_promoted else Effect.HIDES,
        ends
        if is_promoted
        else "a broker that starts leaves the copy as it is, and the start after that ends with an error",
        "look which of the two has more, and move the other one out of the log dir",
    )


def _obstacles_of_promoted(folder: _PartitionFolder, source: _PartitionFolder | None) -> Iterator[Obstacle]:
    """A copy that takes the partition's place, as the metadata has the partition there. It may not have all of it."""
    if source is None:
        yield from _obstacle_of_short_copy(folder)
        return
    copied, whole = bytes_of_logs(folder.path), bytes_of_logs(source.path)
    if copied < whole:
        yield Obstacle(
            folder.path,
            f"a copy of {folder.named.directory} with {copied:,} bytes of logs, and {source.path} has {whole:,}",
            Effect.HIDES,
            "a broker that starts takes the copy for the partition, as the metadata has it there, and deletes the "
            "other one a minute later (-delete)",
            f"copy {source.path} away before the start; no other replica may have its end",
        )


def _obstacle_of_short_copy(folder: _PartitionFolder) -> Iterator[Obstacle]:
    """A copy that a broker takes for the partition, which no other directory has, and that ends below what the log
    dir's checkpoints say. They hold for it: a broker writes the recovery points and high watermarks of copies, too,
    into the checkpoints of the log dir that the copies are in, and loads them by these (`LogManager.loadLog`,
    `LogManager.recoverAbandonedFutureLogs`; KIP-858).
    """
    known = folder.log_dir.known_ends.get(folder.named, 0)
    if not known or (_log_end(folder.path) or 0) >= known:
        return
    end = _end_by_headers(folder.path)
    if end >= known:
        return
    remedy = LogsAside().remedy(folder.path, end, known)
    yield Obstacle(
        folder.path,
        f"a copy of {folder.named.directory} on its way to this log dir; it ends at offset {end}, and checkpoints of "
        f"the log dir say that offsets up to {known - 1} were there",
        Effect.HIDES,
        "a broker that starts takes it for the partition, as the metadata has that here, and goes on without those",
        remedy or "look for its last logs on other disks and copies, and on other replicas, before the start",
        is_loss=remedy is None,
    )


def _obstacles_of_directory_ids(
    log_dirs: Sequence[DirectoriesInLogDir], current: Mapping[TopicPartition, _PartitionFolder], metadata: _NodeMetadata
) -> Iterator[Obstacle]:
    """Log dirs whose id is not the one by which the metadata knows what is in them: those partitions get no leader."""
    if not metadata.log_dirs:
        return
    known = {log_dir.directory_id for log_dir in log_dirs}
    for log_dir in log_dirs:
        if log_dir.directory_id in metadata.log_dirs:
            continue
        elsewhere: defaultdict[str, list[TopicPartition]] = defaultdict(list)
        for partition, folder in current.items():
            assigned = metadata.assigned(partition)
            if folder.log_dir is log_dir and assigned is not None and assigned not in known:
                elsewhere[assigned].append(partition)
        for directory_id, partitions in sorted(elsewhere.items()):
            has = "no directory.id" if log_dir.directory_id is None else f"directory.id={log_dir.directory_id}"
            yield Obstacle(
                log_dir.path / META_PROPERTIES,
                f"{has}, and the metadata has {len(partitions)} of its partitions in {directory_id}, among them "
                f"{min(partitions).directory}",
                Effect.HIDES,
                "a broker that starts does not serve them: to the controller their log dir is offline",
                f"write directory.id={directory_id}, if that was this log dir's",
            )


def _log_end(directory: Location) -> int | None:
    """The offset after the last one of a partition's logs; None where there is no log, or it cannot be read."""
    # It imports numba, which takes a second; a build that finds nothing new does without.
    from kidxlib.log.segment import LogSegment

    try:
        last = _last_base_offset(directory)
        return None if last is None else LogSegment.open(directory, last).next_offset()
    except (CorruptIndexError, IndexSizeError, MalformedRecordsError, LogChangedError, OSError):
        return None


def _end_by_headers(directory: Location) -> int:
    """The offset after the last whole batch of a partition's last log, whatever its index says; 0 where no log is."""
    from kidxlib.records.batch_headers import batches  # imports numba, as above

    end = 0
    with contextlib.suppress(MalformedRecordsError, LogChangedError, OSError):
        end = _last_base_offset(directory) or 0
        with contextlib.closing(LogFile(str(directory / segment_file(end, LOG_SUFFIX)))) as log:
            for batch in batches(log):
                end = batch.last_offset + 1
    return end


def _last_base_offset(directory: Location) -> int | None:
    return max((base for name in files_in(directory) if (base := parse_segment_log(name)) is not None), default=None)


def obstacles_without_metadata(log_dir: Location, folders: Sequence[Location]) -> Iterator[Obstacle]:
    """The obstacles that directories of a log dir show by themselves, where nobody knows the cluster's metadata."""
    served: dict[TopicPartition, Location] = {}
    futures: list[tuple[TopicPartition, Location]] = []
    for folder in folders:
        partition = topic_partition.loaded_as(folder.name)
        if partition is None or partition.topic == topic_partition.METADATA_TOPIC:
            continue
        if folder.name.endswith("-future"):
            futures.append((partition, folder))
        elif not topic_partition.is_moved(folder.name):
            served.setdefault(partition, folder)
    yield from _obstacles_of_topic_ids(served, is_kraft=_is_of_kraft(log_dir))
    for partition, folder in futures:
        yield Obstacle(
            folder,
            f"a copy of {partition.directory} on its way to this log dir",
            Effect.HIDES,
            "where the cluster's metadata has the partition here, a broker that starts takes the copy for it, and "
            "deletes the other one; where it has it elsewhere and it is not there, all records of the copy are dropped",
            "--cluster-metadata DIR tells which",
        )


def _is_of_kraft(log_dir: Location) -> bool:
    try:
        return _OF_KRAFT.search(small_file(log_dir / META_PROPERTIES).decode(errors="replace")) is not None
    except OSError:
        return False


def _obstacles_of_topic_ids(served: Mapping[TopicPartition, Location], *, is_kraft: bool) -> Iterator[Obstacle]:
    """Partitions without a topic id, and topics with several ids, of which at most one can be right. Only the cluster
    knows which; without its metadata, the directories that are fewer are named. A file that does not parse is reported
    with the partition's files.
    """
    by_topic: defaultdict[str, defaultdict[str, list[Location]]] = defaultdict(lambda: defaultdict(list))
    by_id: defaultdict[str, defaultdict[str, list[Location]]] = defaultdict(lambda: defaultdict(list))
    for partition, directory in sorted(served.items()):
        try:
            topic_id = accepted_topic_id(directory / PARTITION_METADATA)
        except FileNotFoundError:
            if is_kraft:
                yield Obstacle(directory, f"no {PARTITION_METADATA}", Effect.HIDES, STRAY, _NO_TOPIC_ID)
            continue
        except (KafkaThrows, OSError):
            continue
        by_topic[partition.topic][topic_id].append(directory)
        by_id[topic_id][partition.topic].append(directory)
    for most, topic_id, directory in _minority_directories(by_topic.values()):
        of_most = accepted_topic_id(most[0] / PARTITION_METADATA)
        has = f"topic id {topic_id}, {most[0].name} has {of_most}: a topic has one"
        does = f"of the directory with the wrong one: {STRAY}"
        yield Obstacle(directory / PARTITION_METADATA, has, Effect.HIDES, does, _ASK_METADATA)
    for most, topic, directory in _minority_directories(by_id.values()):
        if len(by_topic[topic]) == 1:  # otherwise it has an obstacle above
            own = accepted_topic_id(directory / PARTITION_METADATA)
            has = f"topic id {own}, as {most[0].name} has: no two topics have one"
            does = "the partition with the wrong one is not served (InconsistentTopicIdException)"
            yield Obstacle(directory / PARTITION_METADATA, has, Effect.HIDES, does, _ASK_METADATA)


def _minority_directories(
    groups: Iterable[Mapping[str, Sequence[Location]]],
) -> Iterator[tuple[Sequence[Location], str, Location]]:
    """The directories that do not agree with most, where all should: the many, what the few say, and one of these."""
    for group in groups:
        (_, most), *others = sorted(group.items(), key=lambda item: -len(item[1]))
        for value, directories in others:
            for directory in directories:
                yield most, value, directory
