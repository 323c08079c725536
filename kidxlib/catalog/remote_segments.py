"""The table `remote_segments`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, TypedDict

from kidxlib.catalog.rows import PARTITION, TOPIC, Int32, Row, Table, column, row, view_of


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
