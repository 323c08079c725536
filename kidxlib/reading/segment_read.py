"""What is read of one segment: the part of a plan that reading it needs (`SegmentRead`), and how far its log was read
(`LogRead`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from kidxlib.format.layouts import NO_TIMESTAMP
from kidxlib.reading.aborted_ranges import AbortedRanges
from kidxlib.records.wanted_records import WantedRecords
from kidxlib.storage.location import FileVersion


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRead:
    """What to read of one segment, or of a part of a large one. It has all that reading needs, and can be pickled.

    Attributes:
        log_path: the segment's log, here or in an object store.
        version: the log's version when the plan was made; an active log may have grown since.
        position: the byte from which batches are read; a batch starts there.
        end_position: the byte before which reading ends: the end of the log, or the start of a batch that has nothing
            wanted or belongs to another read.
        last_offset_before: the last offset of the batch before `position`; below the base offset if there is none.
        end_offset: the first offset behind the read, in this segment or the next one; every offset that is read is
            below it. None at the end of a partition.
        wanted: the records that are asked for, within what consumers see.
        must_reach: the offset up to which the log must reach by a checkpoint; None if no checkpoint says it.
        aborted: transactions whose records are left out.
        records, next_offset: how many records are read, and the offset behind the log's last batch, by a catalog; None
            if no catalog tells.
        refused: why nothing of the log is read, which counts as damage; None if it is read.
        goes_on_at: the offset from which on consumers get another segment, though the log goes on; None where it is
            the last one, or `end_offset` says it.
    """

    topic: str
    partition: int
    base_offset: int
    log_path: str
    version: FileVersion
    position: int
    end_position: int
    last_offset_before: int
    end_offset: int | None
    wanted: WantedRecords
    must_reach: int | None = None
    aborted: AbortedRanges = field(default_factory=AbortedRanges)
    records: int | None = None
    next_offset: int | None = None
    refused: str | None = None
    goes_on_at: int | None = None

    @property
    def log_bytes(self) -> int:
        """The largest number of bytes of the log that are read."""
        return self.end_position - self.position

    def as_cataloged(self) -> LogRead | None:
        """The segment's log as if it were read, by what a catalog knows of it; None if none knows how many records it
        has, and where it ends.
        """
        if self.records is None or self.next_offset is None:
            return None
        end_offset = self.next_offset if self.end_offset is None else max(self.end_offset, self.next_offset)
        goes_on = self.next_offset <= self.wanted.last_offset
        return LogRead(
            topic=self.topic,
            partition=self.partition,
            log_path=self.log_path,
            next_offset=self.next_offset,
            end_offset=end_offset if goes_on else self.next_offset,
            lacks_records=self.records < self.next_offset - self.base_offset,
            first_ms=self.wanted.first_ms,
            last_ms=self.wanted.last_ms,
        )


@dataclass(frozen=True, slots=True)
class LogRead:
    """A log, or a part of one, that was read to its end.

    Attributes:
        next_offset: behind its last batch, or the first wanted offset, if that is later.
        end_offset: the base offset of the next log; `next_offset` if there is none, or nothing from there on is wanted.
        lacks_records: offsets are missing within it.
        ends_ms: the largest timestamp of its last batch, in ms since the epoch; −1 if it is not known.
        first_ms, last_ms: the wanted times.
    """

    topic: str
    partition: int
    log_path: str
    next_offset: int
    end_offset: int
    lacks_records: bool
    ends_ms: int = NO_TIMESTAMP
    first_ms: int = WantedRecords().first_ms
    last_ms: int = WantedRecords().last_ms


#: Is called with each log, or part of one, that was read to its end.
TakeLog: TypeAlias = Callable[[LogRead], object]
