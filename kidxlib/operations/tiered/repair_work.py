"""The work of workers in a repair of tiered storage: they read segments, write new side objects into a mirror, and give
a row for each object.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from kidxlib.audit.tiered.remote_segment import RemoteSegmentToRead, SegmentsToRemake
from kidxlib.catalog.rows import Int32, Row, column, kinds_of, row
from kidxlib.engine.work import ItemRows
from kidxlib.format.checksums import crc32c
from kidxlib.log.remote.layout import object_name, objects_directory
from kidxlib.storage.location import Location
from kidxlib.storage.publisher import Publisher

if TYPE_CHECKING:
    from kidxlib.audit.tiered.segment_logs import RemadeObject


@row
class RemadeRow(Row):
    """An object of a remote segment, as its log says that it should be."""

    topic: str = column("the topic")
    partition: Int32 = column("number of the partition")
    topic_id: str = column("the topic's id, as Kafka shows it")
    start_offset: int = column("the first offset of the segment")
    segment_id: str = column("the segment's id, as Kafka shows it")
    log_bytes: int = column("size of its log")
    is_local: bool = column("its log was read in a log dir, and not in the bucket")
    file: str = column("suffix of the object")
    name: str = column("its name in the directory of the partition")
    object: str = column("the object")
    reason: str | None = column("a short word for what is wrong with it; null: nothing is")
    detail: str | None = column("what was found, and what was expected")
    consequence: str | None = column("what comes of it")
    made_bytes: int | None = column("bytes of what was made, in the mirror; null: nothing was")
    made_crc32c: int | None = column("CRC-32C of that")
    found_bytes: int | None = column("bytes of what is there; null: nothing is")
    found_crc32c: int | None = column("CRC-32C of that")
    why_not: str | None = column("why nothing was made")

    @classmethod
    def remade(cls, segment: RemoteSegmentToRead, made: RemadeObject) -> RemadeRow:
        name = object_name(segment.start_offset, segment.segment_id, made.suffix)
        finding = made.finding
        return cls(
            topic=segment.partition.topic,
            partition=segment.partition.partition,
            topic_id=segment.partition.topic_id,
            start_offset=segment.start_offset,
            segment_id=segment.segment_id,
            log_bytes=segment.log_bytes,
            is_local=made.is_local,
            file=made.suffix,
            name=name,
            object=str(segment.directory / name),
            reason=None if finding is None else finding.reason,
            detail=None if finding is None else finding.detail,
            consequence=None if finding is None else finding.consequence,
            made_bytes=None if made.content is None else len(made.content),
            made_crc32c=None if made.content is None else crc32c(made.content),
            found_bytes=None if made.found is None else len(made.found),
            found_crc32c=None if made.found is None else crc32c(made.found),
            why_not=made.why_not,
        )

    def is_as_seen(self, content: bytes | None) -> bool:
        """Whether an object's content is still what was found."""
        if content is None or self.found_bytes is None:
            return content is None and self.found_bytes is None
        return len(content) == self.found_bytes and crc32c(content) == self.found_crc32c


REMADE: Final = kinds_of(remade=RemadeRow.columns())


def remake_in_worker(shares: Iterable[SegmentsToRemake], use_mmap: bool, *, mirror: Location) -> Iterator[ItemRows]:
    """Rows of `REMADE`, one for each object that a segment could have besides its log."""
    # It loads compiled loops, which are not needed where all is well.
    from kidxlib.audit.tiered.segment_logs import remake_objects

    for share in shares:
        rows = []
        with Publisher() as publisher:
            for segment, objects in remake_objects(share, use_mmap):
                directory = objects_directory(mirror, segment.layout, segment.partition)
                for made in objects:
                    row = RemadeRow.remade(segment, made)
                    if made.content is not None:
                        publisher.stage(directory, row.name, made.content)
                    rows.append({"remade": row.values()})
            publisher.commit()
        yield ItemRows(segments=len(share.segments), log_bytes=share.bytes, rows=rows)
