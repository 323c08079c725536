"""The tables of what audits find: `findings`, `accepted`, and of tiered storage `remote_segments`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, TypedDict

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
    """A finding on a file, with only the columns by which a repair decides."""

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


class RemoteEpoch(TypedDict):
    """A leader epoch of a segment, and the first offset of the epoch in it."""

    epoch: Int32
    start_offset: int


class RemoteObject(TypedDict):
    """An object of a remote segment."""

    suffix: str
    name: str
    bytes: int
    written_ms: int | None
    etag: str | None


class RemoteFinding(TypedDict):
    """What is wrong with a remote segment, or with one of its objects. If it is no single object, `file` is `metadata`
    or `objects`.
    """

    file: str
    verdict: str
    reason: str
    position: int | None
    detail: str | None
    consequence: str | None


class RemoteRepair(TypedDict):
    """The outcome of the repair of a missing or broken object."""

    suffix: str
    reason: str | None
    outcome: str
    why: str | None
    bytes: int | None


@row
class _RemoteSegmentRow(Row):
    """One row per remote segment in each audit or repair of tiered storage: what its metadata says, which objects it
    has, and what is wrong with it.
    """

    audit_id: str = column("id of the run")
    source: str = column("name of the bucket, folder or prefix")
    topic: str = column(TOPIC)
    partition: Int32 = column(PARTITION)
    topic_id: str = column("topic id, as Kafka shows it")
    start_offset: int = column("its first offset; by its objects' names where the metadata does not know it")
    segment_id: str = column("its id, as Kafka shows it")
    state: str | None = column(
        "as Kafka calls it, by the metadata; null: the metadata does not know it, as all columns up to "
        "transaction_index_empty. One that is deleted and has left no object has no row"
    )
    state_since_ms: int | None = column("when that was written, ms since the epoch")
    end_offset: int | None = column("its last offset")
    broker_id: Int32 | None = column("the broker that has copied it")
    copied_at_ms: int | None = column("when copying began, ms since the epoch")
    max_timestamp_ms: int | None = column("largest timestamp of its records, ms since the epoch")
    log_bytes: int | None = column("size of its log")
    leader_epochs: Sequence[RemoteEpoch] | None = column("leader epochs of its records, with their first offsets")
    transaction_index_empty: bool | None = column("it has no transaction index, as nothing was aborted in it")
    is_read: bool = column("brokers find it by one of its epochs; false: another has replaced it, or it is not copied")
    objects: Sequence[RemoteObject] = column(
        "those that are there, by name: size, when it was written, ms since the epoch, and in S3 the ETag, without its "
        "quotes; files have none, and of an object that the run has put neither is known"
    )
    findings: Sequence[RemoteFinding] = column(
        "what is wrong after the run; what is said of a topic stands with its first segment"
    )
    repairs: Sequence[RemoteRepair] = column(
        "what kidx repair-tiered did about its objects, or would: what was wrong, and bytes of what was made"
    )
    level: str = column("how much the run read: listing, indexes or full")
    metadata_ms: int = column("time of the metadata's last record, or the --now of the run, ms since the epoch")
    audited_at: datetime = column("when the run started (its --now)")


@view_of(_RemoteSegmentRow)
class ListedSegmentRow(Row):
    """A remote segment by a listing and the metadata, without the columns of the run that records it."""

    topic: str
    partition: Int32
    topic_id: str
    start_offset: int
    segment_id: str
    state: str | None
    state_since_ms: int | None
    end_offset: int | None
    broker_id: Int32 | None
    copied_at_ms: int | None
    max_timestamp_ms: int | None
    log_bytes: int | None
    leader_epochs: Sequence[RemoteEpoch] | None
    transaction_index_empty: bool | None
    is_read: bool
    objects: Sequence[RemoteObject]


REMOTE_SEGMENTS: Final = Table(
    name="remote_segments",
    row=_RemoteSegmentRow,
    key=("audit_id", "topic", "partition", "topic_id", "start_offset", "segment_id"),
    sort_by=("audit_id",),
    asked_by=("source", "state", "audited_at"),
)
