"""Whose `kafka-dump-log` shows a file: the release of Kafka that counts where releases print something else."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from kidxlib.dump.decoders import Decoded, Decoder
from kidxlib.errors import CheckpointError, ClusterMetadataError, MalformedError, UnknownVersionError
from kidxlib.format.kafka_release import NEWEST, OLDEST, KafkaRelease
from kidxlib.log.cluster_metadata.image import read_despite_damage
from kidxlib.log.cluster_metadata.replica import METADATA_DIRECTORY
from kidxlib.records.reader import Record
from kidxlib.storage.log_dir import read_meta_properties

_Read = TypeVar("_Read")


@dataclass(slots=True)
class ShownAs:
    """The release that one file is shown as. It is not frozen: the release is looked for once something differs by it,
    which may take a read of the cluster's metadata.

    Attributes:
        path: the file.
        given: the release that the user has named; None without one.
        counts: whether something has differed.
    """

    path: Path
    given: KafkaRelease | None
    counts: bool = field(default=False, init=False)
    _registered: KafkaRelease | None = field(default=None, init=False)

    @property
    def is_assumed(self) -> bool:
        """Whether the release counts, and nothing says which one it is."""
        return self.counts and self.given is None and self._registered is None

    def release(self) -> KafkaRelease:
        """The release that the user has named; else that of the node, if it is known; else the newest."""
        if not self.counts:
            self.counts = True
            self._registered = _registered_release(self.path) if self.given is None else None
        return self.given or self._registered or NEWEST

    def decoded(self, record: Record, decode: Decoder) -> Decoded:
        if self.counts:
            return decode(record, self.release())
        newest = decode(record, NEWEST)
        if newest.may_differ and decode(record, OLDEST) != newest:
            return decode(record, self.release())
        return newest

    def read(self, read: Callable[[KafkaRelease], _Read]) -> _Read:
        """What is read of bytes that the newest release may refuse and older ones take."""
        try:
            return read(NEWEST)
        except (MalformedError, UnknownVersionError):
            read(OLDEST)  # else releases do not differ
            return read(self.release())


def _registered_release(path: Path) -> KafkaRelease | None:
    """The release of the node whose log dir the file is in, by what it has registered; None where that is not known."""
    for log_dir in path.absolute().parents[:2]:
        with contextlib.suppress(CheckpointError, ClusterMetadataError, OSError):
            node_id = read_meta_properties(log_dir).node_id
            if node_id is not None:
                return read_despite_damage(log_dir / METADATA_DIRECTORY).to_end.releases.get(node_id)
    return None
