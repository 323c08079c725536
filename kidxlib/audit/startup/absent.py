"""Partitions that a log dir had, and whose directories are not there: a broker that starts makes empty logs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kidxlib.audit.startup.directories import ANYWHERE
from kidxlib.audit.startup.last_stop import LastStop, last_stops
from kidxlib.audit.startup.meta_properties import log_dirs_by_node
from kidxlib.audit.startup.obstacles import KafkaThrows, accepted_topic_id
from kidxlib.format import checkpoint_files
from kidxlib.format.topic_partition import (
    METADATA_TOPIC,
    TopicPartition,
    is_moved,
    is_other_name,
    loaded_as,
    may_be_renamed,
)
from kidxlib.log.metadata_image import ClusterMetadata
from kidxlib.storage.location import Location, entries_in, files_in
from kidxlib.storage.log_dir import PARTITION_METADATA, MetaProperties, bytes_of_logs, usable_meta_properties
from kidxlib.text.words import counted


@dataclass(frozen=True, slots=True)
class ListedLogDir:
    """A log dir of a broker, how the broker stopped there, and the names of the directories in it."""

    path: Location
    names: Collection[str]
    stop: LastStop
    meta: MetaProperties

    @classmethod
    def of(cls, path: Location, stop: LastStop) -> ListedLogDir:
        """The log dir as it lies there; a file that cannot be read says nothing."""
        files = files_in(path)  # one with the name of a partition is no directory of it
        names = {entry.name for entry in entries_in(path)} - files.keys()
        return cls(path, names, stop, usable_meta_properties(path))


@dataclass(frozen=True, slots=True)
class AbsentPartition:
    """A partition that a log dir had, and whose directory is in no log dir.

    Attributes:
        known_to: what names it.
        aside: directories of it that the broker moves, deletes or has set aside, or that somebody has renamed; the one
            with most bytes of logs first.
        is_only_replica: by the cluster's metadata no other node has one.
    """

    log_dir: Location
    partition: TopicPartition
    known_to: str
    aside: tuple[Location, ...] = ()
    is_only_replica: bool = False

    @property
    def directory(self) -> Location:
        return self.log_dir / self.partition.directory

    @property
    def remedy(self) -> str:
        """What to do; a directory that is left may be the only copy."""
        if not self.aside:
            return (
                "look for the directory on other disks and copies, and put it back; or let it come from another replica"
            )
        folder, *others = self.aside
        more = f", and {counted(len(others), 'more directory', 'more directories')} of it" if others else ""
        return (
            f"it is there as {folder}{more}: rename that to {folder.parent / self.partition.directory} before the "
            f"broker starts, which {_what_start_does(folder.name)}; or move it out of the log dir, where "
            "another replica has the partition"
        )


#: What a broker that starts does with a directory (`LogManager.loadLog`).
_WHAT_STARTS_DO: Final = {
    "delete": "deletes it a minute later (file.delete.delay.ms)",
    "stray": "serves nothing of it",
    "future": "cuts it to the end of an empty partition, if that is in another log dir",
}


def _what_start_does(name: str) -> str:
    """What a broker that starts does with a directory of this name, in words."""
    if is_moved(name):
        return _WHAT_STARTS_DO[name.rpartition("-")[2]]
    return "does not start beside it" if loaded_as(name) is None else "takes it for another partition"


def absent_partitions(
    log_dirs: Sequence[ListedLogDir], metadata: Sequence[ClusterMetadata]
) -> Iterator[AbsentPartition]:
    """The partitions that checkpoints or the cluster's metadata have in a log dir, and that no log dir has. `log_dirs`
    are all that can be read of one broker, `metadata` are copies of its cluster's, which count to their ends. If the
    metadata does not know a topic, its partitions were deleted; if it has a partition in another log dir, that was
    moved.

    A broker writes its checkpoints anew without what it has deleted or moved away (`LogManager.asyncDelete`,
    `ReplicaManager.checkpointHighWatermarks`, `LogCleanerManager.updateCheckpoints`), before the directory is removed.
    """
    copies = [copy.to_end for copy in metadata]
    there = {loaded_as(name) for log_dir in log_dirs for name in log_dir.names if _is_served(log_dir, name, copies)}
    others = [log_dir.path / name for log_dir in log_dirs for name in log_dir.names if is_other_name(name)]
    for log_dir in log_dirs:
        for partition, known_to in sorted(_expected_partitions(log_dir, copies).items()):
            if partition in there or partition.topic == METADATA_TOPIC:
                continue
            there.add(partition)
            assigned = [copy.assignments[partition].replicas for copy in copies if partition in copy.assignments]
            is_only = bool(assigned) and all(set(nodes) == {log_dir.meta.node_id} for nodes in assigned)
            yield AbsentPartition(
                log_dir.path, partition, known_to, _folders_set_aside(others, partition, copies), is_only
            )


def absent_partitions_of_nodes(
    stops: Mapping[Location, LastStop], metadata: Mapping[Location, ClusterMetadata | None]
) -> Iterator[AbsentPartition]:
    """The partitions that the log dirs of any nodes lack: those of one node are looked at together, as in
    `absent_partitions`. A directory's entries are read after its `stops`.
    """
    copies = list({id(copy): copy for copy in metadata.values() if copy is not None}.values())
    for node_log_dirs in log_dirs_by_node(sorted(stops, key=str), copies):
        node_copies = {id(copy): copy for log_dir in node_log_dirs if (copy := metadata[log_dir]) is not None}
        listed = [ListedLogDir.of(log_dir, stops[log_dir]) for log_dir in node_log_dirs]
        yield from absent_partitions(listed, [*node_copies.values()])


def has_no_partition(log_dir: Location, metadata: ClusterMetadata) -> bool:
    """Whether a node has a log dir and no partition in it, by the cluster's metadata: as a fresh broker's second one.
    The question stays open, and the answer is no, if the metadata does not know the log dir, or does not say in which
    log dirs the node's partitions are.
    """
    listed, now = ListedLogDir.of(log_dir, last_stops([log_dir])[log_dir]), metadata.to_end
    node, directory_id = listed.meta.node_id, listed.meta.directory_id
    if (
        node is None
        or directory_id is None
        or directory_id not in now.log_dirs.get(node, ())
        or any(map(loaded_as, listed.names))
    ):
        return False
    assignments = [assignment for assignment in now.assignments.values() if node in assignment.replicas]
    places = [place for assignment in assignments for replica, place in assignment.places if replica == node]
    stop = listed.stop
    is_named = any((stop.recovery_points, stop.high_watermarks, stop.log_start_offsets))
    return len(places) == len(assignments) and not {directory_id, *ANYWHERE} & {*places} and not is_named


def _is_served(log_dir: ListedLogDir, name: str, metadata: Sequence[ClusterMetadata]) -> bool:
    """Whether a broker serves a partition from a directory: not from one that it set aside or deletes, and from one
    that was on its way to the log dir only if the metadata has the partition there.
    """
    if not is_moved(name):
        return True
    if not name.endswith("-future") or (partition := loaded_as(name)) is None:
        return not metadata and name.endswith("-delete")  # perhaps its topic is deleted: nobody knows
    place = log_dir.meta.node_id, log_dir.meta.directory_id
    assignments = (copy.assignments.get(partition) for copy in metadata)
    return any(assignment is not None and place in set(assignment.places) for assignment in assignments)


def _folders_set_aside(
    folders: Iterable[Location], partition: TopicPartition, metadata: Sequence[ClusterMetadata]
) -> tuple[Location, ...]:
    """The directories of a partition among those whose names are no partition's, for `AbsentPartition.aside`. Those of
    a topic of the same name that was deleted before do not count.
    """
    ids = {copy.topics.get(partition.topic) for copy in metadata}
    of_partition = [
        folder
        for folder in folders
        if (may_be_renamed(folder.name, partition) or (is_moved(folder.name) and loaded_as(folder.name) == partition))
        and (not ids or _topic_id_or_none(folder) in {*ids, None})
    ]
    return tuple(sorted(of_partition, key=lambda folder: (-bytes_of_logs(folder), str(folder))))


def _topic_id_or_none(folder: Location) -> str | None:
    try:
        return accepted_topic_id(folder / PARTITION_METADATA)
    except (KafkaThrows, OSError):
        return None


def _expected_partitions(log_dir: ListedLogDir, metadata: Sequence[ClusterMetadata]) -> dict[TopicPartition, str]:
    """The partitions that a log dir should have, and what says so."""
    place, stop = (log_dir.meta.node_id, log_dir.meta.directory_id), log_dir.stop
    named: dict[TopicPartition, str] = {}
    elsewhere: set[TopicPartition] = set()
    for copy in metadata if None not in place else ():
        for partition, assignment in copy.assignments.items():
            places = [*assignment.places]
            is_open = any(node == place[0] and directory in ANYWHERE for node, directory in places)
            if place in places:
                named[partition] = f"the cluster's metadata as of {copy.as_of}"
            elif len(places) == len(assignment.replicas) and not is_open:
                elsewhere.add(partition)
    by_checkpoint: Mapping[str, Mapping[TopicPartition, int]] = {
        checkpoint_files.CLEANER_CHECKPOINT: stop.cleaner_offsets,
        checkpoint_files.LOG_START_OFFSET_CHECKPOINT: stop.log_start_offsets,
        checkpoint_files.HIGH_WATERMARK_CHECKPOINT: stop.high_watermarks,
        checkpoint_files.RECOVERY_POINT_CHECKPOINT: stop.recovery_points,
    }
    on_their_way = {loaded_as(name) for name in log_dir.names if name.endswith("-future")}
    for checkpoint, offsets in by_checkpoint.items():
        # The other checkpoints of a log dir name copies on their way to it like the partitions that it has
        # (`LogManager.logsByDir`, `ReplicaManager.checkpointHighWatermarks`); nobody cleans these copies.
        explained = elsewhere if checkpoint == checkpoint_files.CLEANER_CHECKPOINT else elsewhere | on_their_way
        named |= {partition: checkpoint for partition in offsets if partition not in explained}
    topics = {topic for copy in metadata for topic in copy.topics}
    return {partition: why for partition, why in named.items() if not metadata or partition.topic in topics}
