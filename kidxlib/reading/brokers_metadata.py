"""What the log dirs that are read know of their brokers: whose they are, the cluster's metadata, which one of a
broker's log dirs has, and whether they are of one time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Container, Iterable, Iterator, Mapping

from kidxlib.audit.startup.absent import by_node
from kidxlib.audit.startup.log_dir_entries import directories_in
from kidxlib.audit.startup.markers import of_another_time, stopped_apart
from kidxlib.errors import KidxError
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.log.cluster_metadata.read import ClusterMetadata, read_despite_damage
from kidxlib.log.cluster_metadata.replica import METADATA_DIRECTORY
from kidxlib.reading.left_out import LeftOut, Why
from kidxlib.storage.location import Location
from kidxlib.storage.log_dir import MetaProperties, read_meta_properties


class BrokersMetadata:
    """Reads files of log dirs, each once.

    Attributes:
        log_dirs: those that are looked at.
    """

    def __init__(self, log_dirs: Iterable[Location]) -> None:
        self.log_dirs = list(dict.fromkeys(log_dirs))
        self._owners: dict[Location, MetaProperties] = {}
        self._metadata: dict[str, ClusterMetadata | None] = {}

    def owner(self, log_dir: Location) -> MetaProperties:
        """Whose a log dir is.

        Raises:
            CheckpointError, OSError: `meta.properties` is malformed, or cannot be read.
        """
        if log_dir not in self._owners:
            self._owners[log_dir] = read_meta_properties(log_dir)
        return self._owners[log_dir]

    def of_cluster(self, cluster_id: str) -> ClusterMetadata | None:
        """What is known of a cluster; None where none of the log dirs has its metadata.

        Raises:
            CheckpointError, ClusterMetadataError, OSError: it cannot be read.
        """
        if cluster_id not in self._metadata:
            self._metadata[cluster_id] = None
            for log_dir in self.log_dirs:
                if self.owner(log_dir).cluster_id == cluster_id and (log_dir / METADATA_DIRECTORY).exists():
                    self._metadata[cluster_id] = read_despite_damage(log_dir / METADATA_DIRECTORY)
                    break
        return self._metadata[cluster_id]

    def older(self) -> Mapping[Location, str]:
        """Log dirs that stopped before another one of their broker, and so may lack what was written since; and what
        `kidx verify` says of each.
        """
        return {each.where.parent: str(each) for of_node in self._of_nodes() for each in stopped_apart(of_node)}

    def maybe_older(self, older: Container[Location]) -> Iterator[str]:
        """What else tells that log dirs of a broker are not as old as the metadata that one of them has.

        Args:
            older: log dirs of which nothing more is to be told.
        """
        for log_dir in (each for of_node in self._of_nodes() for each in of_node):
            with contextlib.suppress(OSError, KidxError):  # of a log dir of which nothing is known nothing is told
                owner = self.owner(log_dir)
                metadata = None if owner.cluster_id is None else self.of_cluster(owner.cluster_id)
                if metadata is None or owner.node_id is None:
                    continue
                if log_dir in older or metadata.directory.parent in older:
                    continue
                said = of_another_time(log_dir, directories_in(log_dir), owner.node_id, metadata.to_end)
                if said is not None:
                    yield said

    def _of_nodes(self) -> list[list[Location]]:
        """The log dirs of which another one of the same broker is there, by broker."""
        groups = by_node(self.log_dirs) if len(self.log_dirs) > 1 else []
        return [of_node for of_node in groups if len(of_node) > 1]


def not_of_one_time(
    brokers: BrokersMetadata, there: Iterable[tuple[TopicPartition, Location]]
) -> tuple[list[LeftOut], list[str]]:
    """What was written since to partitions in log dirs that are older than others of their broker; and what tells of
    log dirs that none of the partitions is in, or that they may be older.

    Args:
        there: partitions that are read, with their log dirs.
    """
    older = brokers.older()
    left_out = [
        LeftOut(
            partition=partition,
            why=Why.OLDER_LOG_DIR,
            first_offset=0,
            end_offset=None,
            edge=0,
            told_by=older[log_dir],
        )
        for partition, log_dir in there
        if log_dir in older
    ]
    told = {each.told_by for each in left_out}
    return left_out, [*(line for line in older.values() if line not in told), *brokers.maybe_older(older)]
