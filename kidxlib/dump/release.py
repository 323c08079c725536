"""The release of Kafka as which a file is shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from kidxlib.dump.decoders import Decoded, Decoder
from kidxlib.errors import MalformedError, UnknownVersionError
from kidxlib.format.kafka_release import NEWEST, OLDEST, KafkaRelease, NodeRelease
from kidxlib.log.metadata_image import release_of_node
from kidxlib.records.reader import Record

_Read = TypeVar("_Read")


@dataclass(slots=True)
class DumpRelease:
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
    _of_node: NodeRelease = field(default_factory=NodeRelease, init=False)

    @property
    def is_assumed(self) -> bool:
        """Whether the release counts, and nothing says which one it is."""
        return self.counts and self._of_node.is_assumed

    def release(self) -> KafkaRelease:
        """The release that counts (`NodeRelease`). What the node has registered is read where nobody has named one."""
        if not self.counts:
            self.counts = True
            self._of_node = release_of_node(self.path.absolute(), self.given)
        return self._of_node.release

    def decoded(self, record: Record, decode: Decoder) -> Decoded:
        """A record as the release decodes it, which is looked for where releases differ."""
        if self.counts:
            return decode(record, self.release())
        newest = decode(record, NEWEST)
        if newest.may_differ and decode(record, OLDEST) != newest:
            return decode(record, self.release())
        return newest

    def as_released(self, read: Callable[[KafkaRelease], _Read]) -> _Read:
        """The result of a reading that the newest release may refuse and older ones take."""
        try:
            return read(NEWEST)
        except (MalformedError, UnknownVersionError):
            read(OLDEST)  # else releases do not differ
            return read(self.release())
