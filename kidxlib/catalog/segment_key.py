"""Which partition or segment a row is about."""

from __future__ import annotations

from typing import Final

from kidxlib.catalog.columns import Int32, column
from kidxlib.catalog.rows import Row, row
from kidxlib.format.topic_partition import PartitionKey

#: What the columns of a key mean, for rows that do not begin with them.
SOURCE: Final = "name of the log dir, backup or volume that holds the segment"
TOPIC: Final = "topic"
PARTITION: Final = "partition number"
BASE_OFFSET: Final = "the segment's base offset, from its file name"


@row
class PartitionOfSource(Row):
    """One partition of a source."""

    source: str = column(SOURCE)
    topic: str = column(TOPIC)
    partition: Int32 = column(PARTITION)

    @property
    def partition_key(self) -> PartitionKey:
        """Source, topic, partition."""
        return self.source, self.topic, self.partition


@row
class SegmentKey(PartitionOfSource):
    """One segment of a source."""

    base_offset: int = column(BASE_OFFSET)


#: The names of these columns, and of those that name its partition.
SEGMENT_KEY: Final = SegmentKey.names()
PARTITION_KEY: Final = PartitionOfSource.names()
