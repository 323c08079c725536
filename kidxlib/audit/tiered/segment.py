"""A remote segment whose objects are to be read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kidxlib.audit.tiered.finding import RemoteSegmentKey
from kidxlib.format.checkpoint_files import EpochEntry
from kidxlib.format.segment_files import (
    OFFSET_INDEX_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
)
from kidxlib.log.remote.layout import EPOCHS_SUFFIX, Layout
from kidxlib.messages.remote_log_metadata import TopicIdPartition
from kidxlib.recovery.options import RecoverOptions
from kidxlib.storage.location import Location

#: What can be made of a log, in the order in which it is put in place.
SIDE_OBJECTS: Final = (
    *(OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX, SNAPSHOT_SUFFIX),
    EPOCHS_SUFFIX,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteSegmentToRead:
    """A segment whose copying has ended.

    Attributes:
        layout: of its bucket.
        directory: that of its objects.
        names: of its objects, by suffix; those that are there.
        start_offset, end_offset, log_bytes, max_timestamp_ms, leader_epochs: as the metadata says.
        has_aborted: whether transactions were aborted in it, as the metadata says; None where that does not say it.
        before: the segment that ends where it begins, whose snapshot has the state of producers there; None where
            there is none, or several end there. What is known of that one goes as far back once more.
        options: what its indexes should be like.
        local_log: a log of the same offsets and size in a log dir, which is read in the place of the object if it
            proves to be the same; None where there is none.
    """

    partition: TopicIdPartition
    layout: Layout
    directory: Location
    names: Mapping[str, str]
    segment_id: str
    start_offset: int
    end_offset: int
    log_bytes: int
    max_timestamp_ms: int
    leader_epochs: tuple[EpochEntry, ...]
    has_aborted: bool | None
    before: RemoteSegmentToRead | None
    options: RecoverOptions
    local_log: Location | None = None

    @property
    def key(self) -> RemoteSegmentKey:
        return RemoteSegmentKey(start_offset=self.start_offset, segment_id=self.segment_id)

    def path(self, suffix: str) -> Location | None:
        """An object; None where there is none."""
        return self.directory / self.names[suffix] if suffix in self.names else None

    def object(self, file: str) -> str | None:
        """The object that a finding is about; None where it is about none or several."""
        path = self.path(file)
        return None if path is None else str(path)

    def in_words(self, text: str) -> str:
        """A text with the segment's offsets."""
        return text.format(start=self.start_offset, end=self.end_offset)


@dataclass(frozen=True, slots=True)
class SegmentsToRemake:
    """Segments of one partition that follow one another.

    Attributes:
        epochs: of each, the leader epochs up to its end as the metadata has them; None where that does not know all.
    """

    segments: Sequence[RemoteSegmentToRead]
    epochs: Sequence[tuple[EpochEntry, ...] | None]

    @property
    def bytes(self) -> int:
        """Bytes of logs that are read."""
        return sum(each.log_bytes for each in self.segments)
