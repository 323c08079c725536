"""The rows that tasks of a build, of retention and of compaction give: columns of tables, and what was published."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kidxlib.catalog.columns import Int32, column
from kidxlib.catalog.partitions import PARTITION_STATES
from kidxlib.catalog.retention_plans import RETENTION_PLANS
from kidxlib.catalog.rows import Row, columns_of, kinds_of, row, view_of
from kidxlib.catalog.segment_key import PartitionOfSource, SegmentKey
from kidxlib.catalog.segment_views import SegmentToFinish
from kidxlib.catalog.segments import EndFacts, FinishedFacts, IndexFacts, LogVersion, ScannedSegmentRow, SegmentRow
from kidxlib.catalog.transactions import ABORTED_TRANSACTIONS, PRODUCER_EVENTS, segments_with_events


@row
class PublishedSegmentRow(ScannedSegmentRow):
    """A segment that was read, and what publishing its indexes did in this run."""

    published: str = column("written, unchanged, kept or none")


@view_of(PublishedSegmentRow)
class Publishing(Row):
    """What publishing did."""

    published: str


@row
class SegmentToFold(Row):
    """What follows from a segment's row."""

    problem_free: bool = column("it could be read to the end of its log, and has no problems")


@row
class KeptFile(Row):
    """A file of a partition that was not written."""

    path: str = column("a snapshot or checkpoint that stays as it is")


@row
class FoldedPartition(PartitionOfSource):
    """A partition that was finished: all of its present segments are among the rows, but for those before a kept
    state.
    """

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


#: Of segments that were read: the facts and what publishing did; and what producers did in them.
SCANNED: Final = kinds_of(segment=PublishedSegmentRow.columns(), event=PRODUCER_EVENTS.columns)

#: What partitions are finished from.
TO_FINISH: Final = segments_with_events((*SegmentToFinish.columns(), *SegmentToFold.columns()))

#: Of partitions that were finished. The status and its reason are null where they stay.
FINISHED: Final = kinds_of(
    segment=(*SegmentKey.columns(), *FinishedFacts.columns(), *EndFacts.columns(), *Publishing.columns()),
    aborted=ABORTED_TRANSACTIONS.columns,
    partition=FoldedPartition.columns(),
    state=PARTITION_STATES.columns,
    kept=KeptFile.columns(),
)

#: Of a plan, what all of its rows say alike.
OF_THE_PLAN: Final = ("plan_id", "planned_at", "policy_file", "what_if")

#: Of partitions whose retention was planned: rows of `retention_plans`, as yet of no plan.
PLANNED: Final = kinds_of(
    segment=[column_ for column_ in RETENTION_PLANS.columns if column_.name not in OF_THE_PLAN],
)

#: Of files that were compacted; what is new of a segment is null of a file that is none of its indexes.
COMPACTED: Final = kinds_of(
    compacted=(*CompactedFile.columns(), *columns_of(SegmentRow, (*IndexFacts.names(), *LogVersion.names())))
)
