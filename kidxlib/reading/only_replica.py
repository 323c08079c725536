"""Whether a partition's directory holds its only replica, and no broker is at work on it: then all in its log counts.

With one replica the high watermark follows each append (`Partition.maybeIncrementLeaderHW`), and what the checkpoint of
some seconds ago says is only late.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from kidxlib.build.source import PartitionDirectory
from kidxlib.errors import KidxError
from kidxlib.log.cluster_metadata.read import ClusterMetadata, read_cluster_metadata
from kidxlib.log.cluster_metadata.replica import METADATA_DIRECTORY
from kidxlib.storage.location import Location
from kidxlib.storage.lock import is_locked
from kidxlib.storage.log_dir import MetaProperties, read_meta_properties, read_topic_id


class OnlyReplicas:
    """Looks at log dirs, each once."""

    def __init__(self, log_dirs: Iterable[Location]) -> None:
        """
        Args:
            log_dirs: in which the cluster's metadata may be: of several log dirs of a broker one has it.
        """
        self._log_dirs = list(dict.fromkeys(log_dirs))
        self._stopped: dict[Location, MetaProperties | None] = {}
        self._metadata: dict[str, ClusterMetadata | None] = {}

    def holds(self, directory: PartitionDirectory) -> bool:
        """Whether a directory is that of the only replica, its log dir stopped. Not where something is unknown."""
        try:
            return self._holds(directory)
        except (OSError, KidxError):
            return False

    def _holds(self, directory: PartitionDirectory) -> bool:
        log_dir, partition = directory.log_dir, directory.topic_partition
        if log_dir not in self._stopped:
            self._stopped[log_dir] = _stopped(log_dir)
        of = self._stopped[log_dir]
        if of is None or of.node_id is None or of.cluster_id is None:
            return False
        metadata = self._metadata_of(of.cluster_id)
        if metadata is None or read_topic_id(directory.path) != metadata.topics.get(partition.topic, ""):
            return False
        assignment = metadata.assignments.get(partition)
        return assignment is not None and assignment.replicas == (of.node_id,)

    def _metadata_of(self, cluster_id: str) -> ClusterMetadata | None:
        """What is known of a cluster; None where none of the log dirs has its metadata."""
        if cluster_id not in self._metadata:
            self._metadata[cluster_id] = None
            for log_dir in self._log_dirs:
                if read_meta_properties(log_dir).cluster_id == cluster_id and (log_dir / METADATA_DIRECTORY).exists():
                    self._metadata[cluster_id] = read_cluster_metadata(log_dir / METADATA_DIRECTORY)
                    break
        return self._metadata[cluster_id]


def _stopped(log_dir: Location) -> MetaProperties | None:
    """Whose log dir it is; None where a broker may be at work on it, as nobody can tell of a bucket."""
    if not isinstance(log_dir, Path) or is_locked(log_dir):
        return None
    return read_meta_properties(log_dir)
