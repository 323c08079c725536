"""The rows that workers return, before a run records them.

A build, retention and compaction return columns of tables, and what was published. An audit returns findings, the facts
of segments that the audit of their partition needs, and the simulated start. A comparison returns logs and other files
of both sides, and ranges of offsets of replicas; `one` is the original, `other` is compared with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypedDict

from kidxlib.catalog.findings import FileFinding
from kidxlib.catalog.index_bytes import INDEX_BYTES
from kidxlib.catalog.partitions import ABORTED_TRANSACTIONS, PARTITION_STATES, PRODUCER_EVENTS, segments_with_events
from kidxlib.catalog.retention_plans import RETENTION_PLANS
from kidxlib.catalog.rows import Int32, PartitionOfSource, Row, SegmentKey, column, columns_of, kinds_of, row, view_of
from kidxlib.catalog.segments import (
    EndFacts,
    FinishedFacts,
    IndexFacts,
    LeaderEpochEntry,
    LogVersion,
    ScannedSegmentRow,
    SegmentRow,
    SegmentToFinish,
)
from kidxlib.recovery.outcome import Status


@row
class PublishedSegmentRow(ScannedSegmentRow):
    """A segment that was read, and what publishing its indexes did in this run."""

    published: str = column("written, unchanged, kept or none")


@view_of(PublishedSegmentRow)
class Publishing(Row):
    published: str


@row
class _SegmentToFold(Row):
    """A column that follows from others of a segment's row."""

    problem_free: bool = column("it could be read to the end of its log, and has no problems")


@row
class KeptFile(Row):
    """A file of a partition that was not written."""

    path: str = column("a snapshot or checkpoint that stays as it is")


@row
class FoldedPartition(PartitionOfSource):
    """A finished partition: all of its present segments are among the rows, except those before a kept state."""

    unfolded: Sequence[int] = column("base offsets of the present segments that were not folded again")


@row
class CompactedFile(PartitionOfSource):
    """What compaction changes, or would: a row for each file, or for both indexes of a segment."""

    base_offset: int | None = column("the segment's base offset; null of a file of a partition that is of no segment")
    action: str = column("trim, coarsen, densify or remove")
    outcome: str = column("planned, written, unchanged, removed or kept")
    reason: str | None = column("why it goes, or stays")
    path: str = column("the file; of both indexes the .index")
    log_dir: str | None = column("the Kafka log dir, where it stands beside logs")
    bytes_before: int = column("of the file, or of both")
    bytes_after: int | None = column("of the file, or of both, once it is changed")
    interval_before: Int32 | None = column("the interval that the indexes have")
    mean_scan_bytes_before: int | None = column("bytes of log that a lookup walks through, on average")
    max_scan_bytes_before: int | None = column("bytes of log that a lookup walks through at most")
    mean_scan_bytes_after: int | None = column("the same average, by the new index")
    max_scan_bytes_after: int | None = column("the same maximum, by the new index")


#: The kinds of rows for scanned segments: facts and publishing, producer events, and index files that are packed.
SCANNED: Final = kinds_of(
    segment=PublishedSegmentRow.columns(), event=PRODUCER_EVENTS.columns, packed=INDEX_BYTES.columns
)

#: The rows that partitions are finished from.
TO_FINISH: Final = segments_with_events((*SegmentToFinish.columns(), *_SegmentToFold.columns()))

#: The kinds of rows for finished partitions. Status and reason are null if they stay. A packed file that is removed has
#: its key alone.
FINISHED: Final = kinds_of(
    segment=(*SegmentKey.columns(), *FinishedFacts.columns(), *EndFacts.columns(), *Publishing.columns()),
    aborted=ABORTED_TRANSACTIONS.columns,
    partition=FoldedPartition.columns(),
    state=PARTITION_STATES.columns,
    kept=KeptFile.columns(),
    packed=INDEX_BYTES.columns,
)

#: The columns that are the same in all rows of a plan.
_PLAN_COLUMNS: Final = ("plan_id", "planned_at", "policy_file", "what_if")

#: The kinds of rows for planned partitions: rows of `retention_plans`, without the plan's columns.
PLANNED: Final = kinds_of(
    segment=[column_ for column_ in RETENTION_PLANS.columns if column_.name not in _PLAN_COLUMNS],
)

#: The kinds of rows for compacted files. A segment's new facts are null for a file that is not one of its indexes.
COMPACTED: Final = kinds_of(
    compacted=(*CompactedFile.columns(), *columns_of(SegmentRow, (*IndexFacts.names(), *LogVersion.names()))),
    packed=INDEX_BYTES.columns,
)


@row
class UnpackedPartition(PartitionOfSource):
    """What was done with a partition's packed index files."""

    written: int = column("files that were written")
    unchanged: int = column("files that were there already")
    file_bytes: int = column("bytes of all of them")
    broken: Sequence[str] = column("files that were not written, and why")


#: The kind of rows for partitions whose packed files were written as files.
UNPACKED: Final = kinds_of(partition=UnpackedPartition.columns())


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
    """The result of recovering a segment, in the columns of `segments`, and what is after the end of its scan:
    `past_unfinished` says whether that is an append that was not finished, and `past_…` how many batches and records.
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
    """The facts of a segment that the audit of its partition needs, without what its producers did."""

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
    """A segment's copy in an object store that differs from the catalog, or cannot be compared with it."""

    verdict: str = column("what is said of the copy")
    object: str = column("URL of the object")
    detail: str = column("why")


@row
class CopiesRow(Row):
    """The number of copies with a verdict."""

    verdict: str = column("what is said of them")
    segments: int = column("how many there are")
    log_bytes: int = column("bytes of their logs, as the catalog has them")


#: The kinds of rows for compared copies: each problem, each copy that is not comparable, and the counts of all.
COMPARED: Final = kinds_of(problem=CopyRow.columns(), unknown=CopyRow.columns(), count=CopiesRow.columns())

#: The kinds of rows for audited segments: findings on their files, facts for their partitions, producer events.
AUDITED: Final = kinds_of(
    files=FileFinding.columns(), segment=AuditedSegmentRow.columns(), event=PRODUCER_EVENTS.columns
)

#: The rows of segments that the audit of partitions needs.
TO_AUDIT: Final = segments_with_events(AuditedSegmentRow.columns())

#: The kinds of rows for audited partitions: findings on logs and on the partition's files; the simulated start.
FOUND: Final = kinds_of(
    files=FileFinding.columns(),
    startup=StartupRow.columns(),
    partitions=StartupPartitionRow.columns(),
    not_ready=NotReadyRow.columns(),
)


@row
class LogPairRow(Row):
    """A segment's log on both sides."""

    directory: str = column("the partition's")
    base_offset: int = column("of the segment")
    one_bytes: int | None = column("size of the log; null: there is none")
    other_bytes: int | None = column("the same of the other side")
    is_same_file: bool = column("both names are of one file")
    same_bytes: int | None = column("up to where both have the same whole batches")
    same_end_offset: int | None = column("the offset after these; null: none")
    same_records: int | None = column("records in these; null where headers do not tell")
    differing_bytes: int | None = column("of the bytes that both have")
    first_difference: int | None = column("the first of these")
    batch_end_offset: int | None = column("the offset after the first batch that the other side has not as it is")
    one_end_offset: int | None = column("the offset after the last whole batch; null: none")
    other_end_offset: int | None = column("the same of the other side")
    one_valid_bytes: int | None = column("the byte after the last whole batch")
    other_valid_bytes: int | None = column("the same of the other side")
    one_beyond_records: int | None = column("records behind `same_bytes`; null where headers do not tell")
    other_beyond_records: int | None = column("the same of the other side")
    one_zeros: bool | None = column("all that follows its whole batches is zeros")
    other_zeros: bool | None = column("the same of the other side")
    one_damaged: int | None = column(
        "behind `same_bytes`, the first batch with a wrong checksum or an impossible header"
    )
    other_damaged: int | None = column("the same of the other side")
    one_repeated: int | None = column("behind `same_bytes`, the first batch with offsets of an earlier one")
    other_repeated: int | None = column("the same of the other side")
    one_zeros_there: int | None = column("how many zeros stand at the first difference")
    other_zeros_there: int | None = column("the same of the other side")
    one_grew: int | None = column("bytes that have come since it was listed, and were not compared")
    other_grew: int | None = column("the same of the other side")
    problem: str | None = column("why it was not compared, or not to its end")


@row
class FilePairRow(Row):
    """A file other than a log in a partition's directory."""

    directory: str = column("the partition's")
    name: str = column("of the file")
    verdict: str = column("what is said of it")
    detail: str = column("why")
    same_to_offset: int | None = column(
        "of leader epochs and aborted transactions: what both say of offsets below it is the same; null: not looked for"
    )


#: The kinds of rows for a compared copy.
COMPARED_COPY: Final = kinds_of(log=LogPairRow.columns(), file=FilePairRow.columns())


@row
class ReplicaRangeRow(Row):
    """A range of offsets, compared in two replicas."""

    directory: str = column("the partition's")
    first_offset: int = column("of the range")
    same_batches: int = column("batches that both have above `cleaned_to`")
    cleaned_to: int = column("below it a cleaner has worked on one of them")
    has_inner_gaps: bool = column("offsets are missing within a log, as a cleaner leaves it")
    a_end_offset: int | None = column("the offset after its last batch in the range; null: none")
    b_end_offset: int | None = column("the same of the other side")


@row
class BatchRangeRow(Row):
    """A range of offsets in which two replicas have different batches, or that cannot be read in one."""

    directory: str = column("the partition's")
    kind: str = column("only-a, only-b, differs, neither, damaged-a, damaged-b")
    first_offset: int = column("of the range")
    last_offset: int = column("of the range")
    records: int | None = column("records in it; null where nobody can tell")
    detail: str | None = column("why it cannot be read")


#: The kinds of rows for compared replicas.
COMPARED_REPLICAS: Final = kinds_of(range=ReplicaRangeRow.columns(), batches=BatchRangeRow.columns())
