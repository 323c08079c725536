"""The part of a plan that is about one segment."""

from __future__ import annotations

from dataclasses import dataclass

from kidxlib.reading.aborted import AbortedRanges
from kidxlib.records.wanted_records import Wanted
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
    wanted: Wanted
    must_reach: int | None
    aborted: AbortedRanges
    records: int | None = None
    next_offset: int | None = None
    refused: str | None = None
    goes_on_at: int | None = None

    @property
    def log_bytes(self) -> int:
        """The largest number of bytes of the log that are read."""
        return self.end_position - self.position
