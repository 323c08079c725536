"""What is read of one segment: all that whoever reads it has to know."""

from __future__ import annotations

from dataclasses import dataclass

from kidxlib.reading.aborted import AbortedRanges
from kidxlib.records.bulk.wanted import Wanted
from kidxlib.storage.location import FileVersion


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRead:
    """What is read of one segment, or of a part of a large one. It says all that the reading needs to know, and can be
    pickled.

    Attributes:
        log_path: its log, here or in an object store.
        version: of the log when the plan was made. It may have grown since, as an active one does.
        position: the byte from which batches are read, where one starts.
        end_position: the byte before which it ends: the end of the log, or a batch that holds nothing wanted or is read
            by another.
        last_offset_before: of the batch before the position; below the base offset where there is none.
        end_offset: the first offset of what follows, in this segment or the next, which no offset that is read reaches;
            None of what is last.
        wanted: the records that are asked for, none of which lies beyond the end of what consumers see.
        must_reach: the log has to go on to this offset, as a checkpoint says; None where nobody says it.
        aborted: transactions whose records are left out.
        records, next_offset: how many there are to read, and the offset behind the log's last batch, where a catalog
            tells; None where nobody knows it.
        refused: why nothing of it is read, which is damage; None where it is read.
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

    @property
    def log_bytes(self) -> int:
        """Bytes of the log that are read at most."""
        return self.end_position - self.position
