"""How a storage plugin names the objects of remote segments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from kidxlib.format.segment_files import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
)
from kidxlib.messages.remote_log_metadata import TopicIdPartition
from kidxlib.storage.location import Location

#: Of the leader epochs that are copied with a segment.
EPOCHS_SUFFIX: Final = ".leader_epoch_checkpoint"
#: What belongs to each segment, and what to some, whichever objects have it.
PARTS: Final = (
    *(LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, SNAPSHOT_SUFFIX, EPOCHS_SUFFIX),
    TRANSACTION_INDEX_SUFFIX,
)


@dataclass(frozen=True, slots=True)
class Layout:
    """How a plugin names objects.

    Attributes:
        name: of the layout.
        required: the suffixes of the objects that each segment has.
        optional: of those that some have.
        list_partitions: the directories of partitions below one, in the order of their names. OSError where it cannot
            be listed.
        partition_path: the path of a partition's directory below that.
    """

    name: str
    required: tuple[str, ...]
    optional: tuple[str, ...]
    list_partitions: Callable[[Location], Mapping[TopicIdPartition, Location]]
    partition_path: Callable[[TopicIdPartition], str]

    @property
    def suffixes(self) -> tuple[str, ...]:
        """The suffixes of all objects."""
        return (*self.required, *self.optional)

    @property
    def has_single_files(self) -> bool:
        """Whether each part of a segment is an object by itself, as a broker had it."""
        return set(PARTS) == set(self.suffixes)
