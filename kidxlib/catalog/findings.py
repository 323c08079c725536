"""The tables `findings` and `accepted`."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from kidxlib.catalog.rows import (
    PARTITION,
    SEGMENT_KEY,
    SOURCE,
    TOPIC,
    Int32,
    PartitionOfSource,
    Row,
    SegmentKey,
    Table,
    column,
    row,
    view_of,
)

_FILE_OFFSET: Final = (
    "the offset in the file's name; of the leader epochs the first segment's, of a gap the first that is missing"
)


@row
class _FindingRow(Row):
    """What each audit found (`kidx verify`, `verify_index`): a row for each log, index file and auxiliary file that it
    checked, and for each gap between logs that no compaction explains.
    """

    audit_id: str = column("id of the run")
    source: str = column(SOURCE)
    topic: str = column(TOPIC)
    partition: Int32 = column(PARTITION)
    base_offset: int = column(_FILE_OFFSET)
    file: str = column("its suffix, or leader-epoch-checkpoint; gap: offsets between two logs that are in none")
    verdict: str = column("identical, safe or broken; of a log whole, safe, torn or broken")
    reason: str | None = column("a short word for why; null where it is identical or whole")
    position: int | None = column("the first byte of the file that is wrong or different; null: missing, or none is")
    detail: str | None = column("what was found there, and what recovery would have written")
    consequence: str | None = column("what that does, or why it does nothing")
    action: str | None = column(
        "of a log: what a broker does with the segment at its next start; null of other files, as all up to path"
    )
    kept_bytes: int | None = column("how many bytes of the log are left then")
    lost_bytes: int | None = column(
        "how many bytes it drops; where it drops none, how many recovery would. null: not known"
    )
    lost_batches: int | None = column("batches in these bytes; null: cannot be counted for certain")
    lost_records: int | None = column("records in these bytes; null: cannot be counted for certain")
    path: str = column("the file")
    file_bytes: int | None = column(
        "of a log, and of a file that is torn, broken or in use: its size; null: not there, or not known"
    )
    file_mtime_ns: int | None = column("its modification time, ns since the epoch; null as file_bytes")
    file_inode: int | None = column("its inode number; null as file_bytes, and of an object, which has none")
    audited_at: datetime = column("when the run started (its --now)")


FINDINGS: Final = Table(
    name="findings",
    row=_FindingRow,
    key=("audit_id", *SEGMENT_KEY, "file"),
    sort_by=("audit_id",),
    asked_by=("audited_at", "verdict"),
)


@view_of(_FindingRow)
class FileFinding(SegmentKey):
    """A finding as an audit makes it, without the columns of the run that records it."""

    file: str
    verdict: str
    reason: str | None
    position: int | None
    detail: str | None
    consequence: str | None
    action: str | None
    kept_bytes: int | None
    lost_bytes: int | None
    lost_batches: int | None
    lost_records: int | None
    path: str
    file_bytes: int | None
    file_mtime_ns: int | None
    file_inode: int | None


@view_of(_FindingRow)
class JudgedFile(SegmentKey):
    """The columns by which a repair decides."""

    file: str
    verdict: str
    reason: str | None
    detail: str | None
    path: str


@row
class _AcceptedRow(PartitionOfSource):
    """Damage that somebody has looked at and accepted: a row for each finding. It holds until the file, or what is
    found in it, is another.
    """

    base_offset: int = column(_FILE_OFFSET)
    file: str = column("suffix of the damaged file, leader-epoch-checkpoint, or gap; .log: the segment")
    reason: str = column("the reason, as in segments or findings; of a gap always gap")
    position: int | None = column("the byte at which it was found; null: none in particular")
    found: str = column("the segment's status, or the audit's verdict on the file")
    detail: str | None = column("what was found there, and what was expected")
    consequence: str | None = column("as in findings; null where a build has found it")
    file_bytes: int | None = column("size of the file; null: it was not there, or could not be looked at")
    file_mtime_ns: int | None = column("its modification time, ns since the epoch")
    file_inode: int | None = column("its inode number; null of an object, which has none")
    path: str = column("the file")
    accepted_by: str = column("who accepted it")
    accepted_at: datetime = column("when (the --now of accept)")
    accepted_reason: str = column("why")


ACCEPTED: Final = Table(
    name="accepted",
    row=_AcceptedRow,
    key=(*SEGMENT_KEY, "file", "reason"),
    sort_by=(),
)
