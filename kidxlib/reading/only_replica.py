"""Whether a partition's directory holds its only replica, and no broker is at work on it: then all in its log counts.

With one replica the high watermark follows each append (`Partition.maybeIncrementLeaderHW`), and what the checkpoint of
some seconds ago says is only late.
"""

from __future__ import annotations

from pathlib import Path

from kidxlib.build.source import PartitionDirectory
from kidxlib.errors import KidxError
from kidxlib.reading.brokers_metadata import BrokersMetadata
from kidxlib.storage.location import Location
from kidxlib.storage.lock import is_locked
from kidxlib.storage.log_dir import read_topic_id


class OnlyReplicas:
    """Looks at log dirs, each once."""

    def __init__(self, brokers: BrokersMetadata) -> None:
        self._brokers = brokers
        self._is_stopped: dict[Location, bool] = {}

    def holds(self, directory: PartitionDirectory) -> bool:
        """Whether a directory is that of the only replica, its log dir stopped. Not where something is unknown."""
        try:
            return self._holds(directory)
        except (OSError, KidxError):
            return False

    def _holds(self, directory: PartitionDirectory) -> bool:
        log_dir, partition = directory.log_dir, directory.topic_partition
        if log_dir not in self._is_stopped:  # of a bucket nobody can tell
            self._is_stopped[log_dir] = isinstance(log_dir, Path) and not is_locked(log_dir)
        of = self._brokers.owner(log_dir)
        if not self._is_stopped[log_dir] or of.node_id is None or of.cluster_id is None:
            return False
        metadata = self._brokers.of_cluster(of.cluster_id)
        if metadata is None or read_topic_id(directory.path) != metadata.topics.get(partition.topic, ""):
            return False
        # Replicas that came or went since the last snapshot count, committed or not.
        assigned = [each.assignments.get(partition) for each in (metadata, metadata.to_end)]
        return all(each is not None and each.replicas == (of.node_id,) for each in assigned)
