"""What workers do in a repair of tiered storage: segments are read, and their side objects written into a mirror."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kidxlib.audit.tiered.segment import SegmentsToRemake
from kidxlib.engine.work import ItemRows
from kidxlib.log.remote.layout import Layout
from kidxlib.messages.remote_log_metadata import TopicIdPartition
from kidxlib.operations.build.tiered.rows import RemadeRow
from kidxlib.storage.directory import Directory
from kidxlib.storage.location import Location
from kidxlib.storage.publisher import Publisher


@dataclass(frozen=True, slots=True)
class SegmentsToMend:
    """Segments, and where what is made of them goes."""

    asked: SegmentsToRemake
    mirror: Location


def partition_directory(place: Location, layout: Layout, partition: TopicIdPartition) -> Directory:
    """The directory of a partition's objects in a bucket or a mirror of one."""
    return Directory(str(place), layout.partition_path(partition))


def remake_objects(shares: Iterable[SegmentsToMend], use_mmap: bool) -> Iterator[ItemRows]:
    """Rows of `REMADE`, one for each object that a segment could have besides its log.

    Raises:
        PublishError: the mirror cannot be written.
    """
    from kidxlib.audit.tiered.remade import remake  # compiled loops, which nobody waits for where all is well

    for share in shares:
        rows = []
        with Publisher() as publisher:
            for segment, objects in remake(share.asked, use_mmap):
                directory = partition_directory(share.mirror, segment.layout, segment.partition)
                for each in objects:
                    row = RemadeRow.remade(segment, each)
                    if each.content is not None:
                        publisher.stage(directory, row.name, each.content)
                    rows.append({"remade": row.values()})
            publisher.commit()
        yield ItemRows(segments=len(share.asked.segments), log_bytes=share.asked.bytes, rows=rows)
