"""The rows that tasks of an audit give: findings, what a partition needs of its segments, the simulated start."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypedDict

from kidxlib.catalog.columns import column
from kidxlib.catalog.findings import FileFinding
from kidxlib.catalog.rows import Row, kinds_of, row
from kidxlib.catalog.segment_key import PartitionOfSource, SegmentKey
from kidxlib.catalog.segments import LeaderEpochEntry
from kidxlib.catalog.transactions import PRODUCER_EVENTS, segments_with_events
from kidxlib.recovery.outcome import Status


class LogFinding(TypedDict):
    """What a log shows by itself, in the columns of `findings`."""

    verdict: str
    reason: str | None
    position: int | None
    detail: str | None
    consequence: str | None


class BrokenFile(TypedDict):
    """A file of a segment that is broken."""

    file: str
    reason: str | None


class RecoveryColumns(TypedDict):
    """What recovering a segment comes to, in the columns of `segments`, and what stands after the end of its scan.

    Of that `past_unfinished` says whether it is an append that was not finished, and the others what can be counted.
    """

    log_bytes: int
    next_offset: int
    map_end_offset: int
    batches: int
    records: int | None
    past_unfinished: bool
    past_batches: int | None
    past_records: int | None


class IndexEnd(TypedDict):
    """The last entry of an `.index`."""

    offset: int
    position: int


class RemovedFile(TypedDict):
    """A file that a broker would remove at its next start."""

    file: str
    why: str


@row
class AuditedSegmentRow(SegmentKey):
    """What the audit of a partition needs of one of its segments, less what its producers did."""

    status: Status = column("as in segments")
    reason: str | None = column("as in segments")
    reason_position: int = column("the byte of the log at which its scan ended")
    reason_detail: str | None = column("as in segments")
    log_path: str = column("as in segments")
    recovery: RecoveryColumns | None = column("what recovering it comes to; null: its log could not be read")
    leader_epochs: Sequence[LeaderEpochEntry] = column("where the leader epoch changes from batch to batch")
    index_end: IndexEnd | None = column("the last entry of its .index; null: none")
    log: LogFinding | None = column("what its log shows by itself; null: it is missing")
    broken: Sequence[BrokenFile] = column("its files that are broken")
    events: int = column("how many events of producers were found in it")


@row
class StartupRow(SegmentKey):
    """What a broker's next start would do with a segment."""

    action: str = column("what it would do")
    log_bytes: int = column("size of the .log")
    read_bytes: int = column("what it would read of it")
    lost_bytes: int = column("what would be lost")
    lost_batches: int | None = column("batches in that; null where they cannot be counted for certain")
    lost_records: int | None = column("records in that; null where they cannot be counted for certain")
    detail: str | None = column("why")


@row
class StartupPartitionRow(PartitionOfSource):
    """What a broker's next start would make of a partition."""

    directory: str = column("its directory")
    clean_shutdown: bool = column("the broker of its log dir stopped cleanly")
    log_start_offset: int | None = column("where its log would start")
    log_end_offset: int | None = column("where it would end")
    failure: str | None = column("why loading fails before a segment is looked at")
    removed: Sequence[RemovedFile] = column("files that a broker would remove")
    renamed: Sequence[str] = column("files that would lose their .swap")


@row
class NotReadyRow(SegmentKey):
    """What a segment lacks for tiered storage."""

    missing: Sequence[str] = column("what it lacks")


@row
class CopyRow(SegmentKey):
    """What an object store says of a segment's copy, where that is not as the catalog has it, or cannot be compared."""

    verdict: str = column("what is said of the copy")
    object: str = column("URL of the object")
    detail: str = column("why")


@row
class CopiesRow(Row):
    """How many copies have a verdict."""

    verdict: str = column("what is said of them")
    segments: int = column("how many there are")
    log_bytes: int = column("bytes of their logs, as the catalog has them")


#: Of segments whose copies were looked at: problems and what is not comparable one by one, and all of them counted.
COMPARED: Final = kinds_of(problem=CopyRow.columns(), unknown=CopyRow.columns(), count=CopiesRow.columns())

#: Of segments that were audited: findings on their own files, what their partitions need, what their producers did.
AUDITED: Final = kinds_of(
    files=FileFinding.columns(), segment=AuditedSegmentRow.columns(), event=PRODUCER_EVENTS.columns
)

#: What the audit of partitions needs of segments.
TO_AUDIT: Final = segments_with_events(AuditedSegmentRow.columns())

#: Of partitions that were audited: findings on their logs, and on files of a partition as a whole; the simulated start.
FOUND: Final = kinds_of(
    files=FileFinding.columns(),
    startup=StartupRow.columns(),
    partitions=StartupPartitionRow.columns(),
    not_ready=NotReadyRow.columns(),
)
