"""What the log dirs that are read know of their brokers: whose they are, and the cluster's metadata, which one of a
broker's log dirs has.
"""

from __future__ import annotations

from collections.abc import Iterable

from kidxlib.log.cluster_metadata.read import ClusterMetadata, read_despite_damage
from kidxlib.log.cluster_metadata.replica import METADATA_DIRECTORY
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
