"""Partitions that a log dir had, and whose directories are not there: a broker that starts makes empty logs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kidxlib.audit.startup.against_metadata import ANYWHERE, log_bytes, read_topic_id
from kidxlib.audit.startup.last_stop import LastStop, last_stops
from kidxlib.audit.startup.obstacles import KafkaThrows
from kidxlib.errors import CheckpointError
from kidxlib.format import checkpoint_files
from kidxlib.format.topic_partition import (
    METADATA_TOPIC,
    TopicPartition,
    is_moved,
    is_other_name,
    loaded_as,
    looks_like,
)
from kidxlib.log.cluster_metadata.image import ClusterMetadata
from kidxlib.storage.location import Location, entries_in, files_in
from kidxlib.storage.log_dir import PARTITION_METADATA, MetaProperties, read_meta_properties
from kidxlib.text.words import counted


@dataclass(frozen=True, slots=True)
class LogDirAtHand:
    """A log dir of a broker.

    Attributes:
        names: of its directories.
        stop: how its broker stopped.
        meta: whose it is.
    """

    path: Location
    names: Collection[str]
    stop: LastStop
    meta: MetaProperties

    @classmethod
    def of(cls, path: Location, stop: LastStop) -> LogDirAtHand:
        """A log dir as it lies there; nothing is known of what cannot be read."""
        try:
            meta = read_meta_properties(path)
        except (CheckpointError, OSError):
            meta = MetaProperties(None, None)
        files = files_in(path)  # one with the name of a partition is no directory of it
        return cls(path, {entry.name for entry in entries_in(path)} - files.keys(), stop, meta)


@dataclass(frozen=True, slots=True)
class AbsentPartition:
    """A partition that a log dir had, and whose directory is in none.

    Attributes:
        log_dir: which had it.
        known_to: what names it.
        aside: folders of it that the broker moves, deletes or has set aside, or that somebody has renamed, those with
            most bytes of logs first.
        is_only_replica: by the cluster's metadata no other node has one.
    """

    log_dir: Location
    partition: TopicPartition
    known_to: str
    aside: tuple[Location, ...] = ()
    is_only_replica: bool = False

    @property
    def directory(self) -> Location:
        """Where it would be."""
        return self.log_dir / self.partition.directory

    @property
    def remedy(self) -> str:
        """What to do about it: a folder that is left may be the only copy."""
        if not self.aside:
            return (
                "look for the directory on other disks and copies, and put it back; or let it come from another replica"
            )
        folder, *others = self.aside
        more = f", and {counted(len(others), 'more folder')} of it" if others else ""
        return (
            f"it is there as {folder}{more}: rename that to {folder.parent / self.partition.directory} before the "
            f"broker starts, which {_becomes(folder.name)}; or move it out of the log dir, where "
            "another replica has the partition"
        )


#: What a broker that starts does with a folder (`LogManager.loadLog`).
_BECOMES: Final = {
    "delete": "deletes it a minute later (file.delete.delay.ms)",
    "stray": "serves nothing of it",
    "future": "cuts it to the end of an empty partition, if that is in another log dir",
}


def _becomes(name: str) -> str:
    if is_moved(name):
        return _BECOMES[name.rpartition("-")[2]]
    return "does not start beside it" if loaded_as(name) is None else "takes it for another partition"


def absent_partitions(
    log_dirs: Sequence[LogDirAtHand], metadata: Sequence[ClusterMetadata]
) -> Iterator[AbsentPartition]:
    """The partitions that checkpoints or the cluster's metadata have in a log dir, and that no log dir has. Those of
    topics that the metadata does not know were deleted; those that it has in another log dir were moved.

    A broker writes its checkpoints anew without what it has deleted or moved away (`LogManager.asyncDelete`,
    `ReplicaManager.checkpointHighWatermarks`, `LogCleanerManager.updateCheckpoints`), before the directory is removed.

    Args:
        log_dirs: all of one broker that are at hand.
        metadata: of its cluster; none where it is not known. It counts to its end.
    """
    metadata = [each.to_end for each in metadata]
    there = {loaded_as(name) for each in log_dirs for name in each.names if _serves(each, name, metadata)}
    others = [each.path / name for each in log_dirs for name in each.names if is_other_name(name)]
    for log_dir in log_dirs:
        for partition, known_to in sorted(_named(log_dir, metadata).items()):
            if partition in there or partition.topic == METADATA_TOPIC:
                continue
            there.add(partition)
            assigned = [each.assignments[partition].replicas for each in metadata if partition in each.assignments]
            is_only = bool(assigned) and all(set(nodes) == {log_dir.meta.node_id} for nodes in assigned)
            yield AbsentPartition(log_dir.path, partition, known_to, _aside(others, partition, metadata), is_only)


def absent_in(
    stops: Mapping[Location, LastStop], metadata: Mapping[Location, ClusterMetadata | None]
) -> Iterator[AbsentPartition]:
    """The partitions that the log dirs of any nodes lack: those of one node are looked at together, as in
    `absent_partitions`.

    Args:
        stops: how the broker of each log dir stopped. A directory's entries are read after that.
        metadata: of the cluster of each log dir; None where it is not known.
    """
    read = list({id(each): each for each in metadata.values() if each is not None}.values())
    for of_node in by_node(sorted(stops, key=str), read):
        known = {id(each): each for log_dir in of_node if (each := metadata[log_dir]) is not None}
        at_hand = [LogDirAtHand.of(log_dir, stops[log_dir]) for log_dir in of_node]
        yield from absent_partitions(at_hand, [*known.values()])


def by_node(log_dirs: Sequence[Location], metadata: Iterable[ClusterMetadata] = ()) -> list[list[Location]]:
    """Log dirs in groups, those of one node together: each has an id of its own (`directory.id`). What a cluster's
    metadata has as a log dir of a node is one, whatever its `meta.properties` says. Where two have the same id, a log
    dir and its copy are there, and each is looked at by itself.

    Args:
        metadata: of any clusters.
    """
    registered: dict[str, tuple[int, int]] = {}
    for number, each in enumerate(metadata):
        ids = {directory_id: node for node, of_node in each.log_dirs.items() for directory_id in of_node}
        cluster = min((registered[known][0] for known in ids.keys() & registered.keys()), default=number)
        registered |= {directory_id: (cluster, node) for directory_id, node in ids.items()}
    said: dict[Location, MetaProperties] = {}
    for log_dir in log_dirs:
        try:
            said[log_dir] = read_meta_properties(log_dir)
        except (CheckpointError, OSError):
            said[log_dir] = MetaProperties()
    # A log dir that the metadata does not know is of the node of those that say the same as it.
    by_name: dict[object, object] = {
        (each.cluster_id, each.node_id): place
        for each in said.values()
        if each.directory_id is not None and (place := registered.get(each.directory_id)) and place[1] == each.node_id
    }
    nodes: defaultdict[object, dict[Location, str | None]] = defaultdict(dict)
    for log_dir, found in said.items():
        named, of_node = (found.cluster_id, found.node_id), registered.get(found.directory_id or "")
        is_known = None not in (*named, found.directory_id)
        key: object = of_node or (by_name.get(named, named) if is_known else log_dir)
        nodes[key][log_dir] = found.directory_id
    groups: list[list[Location]] = []
    for of_one in nodes.values():
        are_distinct = len(set(of_one.values())) == len(of_one)
        groups += [list(of_one)] if are_distinct else [[log_dir] for log_dir in of_one]
    return groups


def has_no_partition(log_dir: Location, metadata: ClusterMetadata) -> bool:
    """Whether a node has a log dir and no partition in it, by the cluster's metadata: as a fresh broker's second one. A
    log dir that the metadata does not know, and partitions of which it does not say where they are, leave that open.
    """
    said, now = LogDirAtHand.of(log_dir, last_stops([log_dir])[log_dir]), metadata.to_end
    node, directory = said.meta.node_id, said.meta.directory_id
    if (
        node is None
        or directory is None
        or directory not in now.log_dirs.get(node, ())
        or any(map(loaded_as, said.names))
    ):
        return False
    of_node = [each for each in now.assignments.values() if node in each.replicas]
    places = [place for each in of_node for at, place in each.places if at == node]
    named_by_checkpoints = (said.stop.recovery_points, said.stop.high_watermarks, said.stop.log_start_offsets)
    return len(places) == len(of_node) and not {directory, *ANYWHERE} & {*places} and not any(named_by_checkpoints)


def _serves(log_dir: LogDirAtHand, name: str, metadata: Sequence[ClusterMetadata]) -> bool:
    """Whether a broker serves a partition from a directory: not from one that it set aside or deletes, and from one
    that was on its way to the log dir if the metadata has the partition there.
    """
    if not is_moved(name):
        return True
    if not name.endswith("-future") or (partition := loaded_as(name)) is None:
        return not metadata and name.endswith("-delete")  # perhaps its topic is deleted: nobody knows
    place = log_dir.meta.node_id, log_dir.meta.directory_id
    assigned = [each.assignments.get(partition) for each in metadata]
    return any(each is not None and place in set(each.places) for each in assigned)


def _aside(
    folders: Iterable[Location], partition: TopicPartition, metadata: Sequence[ClusterMetadata]
) -> tuple[Location, ...]:
    """The folders that are of a partition under other names, as in `AbsentPartition`: not those of a topic of that name
    that was deleted before.

    Args:
        folders: whose names are no partition's.
    """
    ids = {each.topics.get(partition.topic) for each in metadata}
    found = [
        folder
        for folder in folders
        if (looks_like(folder.name, partition) or (is_moved(folder.name) and loaded_as(folder.name) == partition))
        and (not ids or _topic_id(folder) in {*ids, None})
    ]
    return tuple(sorted(found, key=lambda folder: (-log_bytes(folder), str(folder))))


def _topic_id(folder: Location) -> str | None:
    try:
        return read_topic_id(folder / PARTITION_METADATA)
    except (KafkaThrows, OSError):
        return None


def _named(log_dir: LogDirAtHand, metadata: Sequence[ClusterMetadata]) -> dict[TopicPartition, str]:
    """The partitions that a log dir should have, and what says so."""
    place, stop = (log_dir.meta.node_id, log_dir.meta.directory_id), log_dir.stop
    named: dict[TopicPartition, str] = {}
    elsewhere: set[TopicPartition] = set()
    for each in metadata if None not in place else ():
        for partition, assignment in each.assignments.items():
            places = [*assignment.places]
            is_open = any(node == place[0] and directory in ANYWHERE for node, directory in places)
            if place in places:
                named[partition] = f"the cluster's metadata as of {each.as_of}"
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
    topics = {topic for each in metadata for topic in each.topics}
    return {partition: why for partition, why in named.items() if not metadata or partition.topic in topics}
