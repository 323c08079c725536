"""The tables of partitions and their producers: `partitions`, `partition_states`, `producer_events` and
`aborted_transactions`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final, TypedDict

import pyarrow as pa

from kidxlib.catalog.rows import (
    PARTITION_KEY,
    SEGMENT_KEY,
    Column,
    Formerly,
    Int32,
    PartitionOfSource,
    Row,
    SegmentKey,
    Table,
    column,
    kinds_of,
    row,
    view_of,
)
from kidxlib.format.topic_partition import PartitionKey
from kidxlib.recovery.scan.scan_state import EventKind

#: The words of the column `kind`, by number of the `EventKind`.
EVENT_KINDS: Final = pa.array([kind.name.lower().replace("_", "-") for kind in sorted(EventKind)])


@row
class PartitionRow(PartitionOfSource):
    """One row per partition of each source, as its log dir's checkpoint files and its segments had it last."""

    source: str = column("name of the log dir, backup or volume that holds the partition")
    topic_id: str | None = column("topic id from partition.metadata; null where that file is absent")
    first_base_offset: int | None = column("base offset of the first segment; null where there is none")
    log_end_offset: int | None = column("next offset of the last segment; null where that is not known")
    log_start_offset: int | None = column("from log-start-offset-checkpoint; null: not there, so the first base offset")
    high_watermark: int | None = column("from replication-offset-checkpoint; null: not there, take the log end offset")
    recovery_point: int | None = column("from recovery-point-offset-checkpoint; null: not there")
    cleaner_offset: int | None = column("from cleaner-offset-checkpoint; null: not there")
    clean_shutdown: bool = column("the log dir says that its broker stopped cleanly")
    present: bool = column("the directory was there when its source was last listed")
    directory: str = column("the partition's directory", Formerly("folder", before=7))
    build_id: str = column("the build that found this row's facts")


PARTITIONS: Final = Table(
    name="partitions",
    row=PartitionRow,
    key=PARTITION_KEY,
    sort_by=("topic", "partition"),
)


def partition_keys(rows: pa.Table) -> list[PartitionKey]:
    """The keys of partitions, from the columns of rows."""
    columns: Any = [rows[name].to_pylist() for name in PARTITIONS.key]
    return list(zip(*columns, strict=True))


def named_key(key: PartitionKey) -> dict[str, Any]:
    """The columns of a partition's key by name."""
    return dict(zip(PARTITIONS.key, key, strict=True))


def rows_of_keys(keys: Collection[PartitionKey]) -> pa.Table:
    """The keys of partitions as rows, with the columns of a partition's key."""
    columns = zip(*keys, strict=True) if keys else ((), (), ())
    return pa.table([list(column) for column in columns], schema=PARTITIONS.schema(PARTITIONS.key))


@view_of(PartitionRow)
class PartitionToSearch(Row):
    """The columns for a lookup."""

    source: str
    topic: str
    partition: Int32
    first_base_offset: int | None
    log_start_offset: int | None
    log_end_offset: int | None
    high_watermark: int | None
    directory: str


class BegunEpoch(TypedDict):
    """A leader epoch, and the offset at which it begins."""

    epoch: Int32
    start_offset: int


@row
class PartitionStateRow(SegmentKey):
    """What a partition's segments up to one of them led to: its producers and leader epochs. The next build goes on
    from there, and needs the producer events of later segments alone. Each partition has the state before its last
    segment and the one after it. Without a row all segments are folded again, with the same result.
    """

    segments: int = column("how many segments led to it")
    problem_free_segments: int = column("how many of them could be read to the end")
    log_versions: int = column("a digest of their base offsets, next offsets, log bytes and modification times")
    state_source: str = column("where the producers' state comes from: log-start, snapshot or unknown")
    expected_offset: int | None = column("at which the next segment begins if no offset is missing; null: not known")
    map_end_offset: int = column("the offset that names a .snapshot of this state (ProducerStateManager.mapEndOffset)")
    epochs_are_known: bool = column("no segment is missing from the start of the log, so these epochs are all")
    producer_snapshot: bytes = column("the content of a .snapshot of this state, as Kafka writes it")
    leader_epochs: Sequence[BegunEpoch] = column("what a leader-epoch-checkpoint would hold")


@view_of(PartitionStateRow)
class FoldedLogs(Row):
    """Figures of the segments that led to a state. They differ if a segment has changed since."""

    segments: int
    problem_free_segments: int
    log_versions: int


PARTITION_STATES: Final = Table(
    name="partition_states",
    row=PartitionStateRow,
    key=SEGMENT_KEY,
    sort_by=("topic", "partition", "base_offset"),
)


@row
class ProducerEventRow(SegmentKey):
    """What producers did in each segment: a row for each marker, and one for data batches of a producer with none
    of its markers between them. Later builds derive transactions from it without reading old logs.
    """

    position: int = column("byte of the log at which the (first) batch starts")
    producer_id: int = column("the producer")
    kind: str = column("data, transactional-data, commit, abort or empty-control (a compacted marker)")
    producer_epoch: Int32 = column("the producer's epoch in the last batch, as all that follows")
    first_offset: int = column("base offset of the first batch")
    last_offset: int = column("last offset")
    offset_delta: Int32 = column("last offset less base offset; -1 for a marker")
    last_sequence: Int32 = column("last sequence number; -1: none")
    timestamp_ms: int = column("largest timestamp of the batch, or a marker's own, ms since the epoch")
    coordinator_epoch: Int32 = column("a marker's transaction coordinator epoch; -1: none")


PRODUCER_EVENTS: Final = Table(
    name="producer_events",
    row=ProducerEventRow,
    key=(*SEGMENT_KEY, "position"),
    sort_by=("topic", "partition", "base_offset"),
)


@row
class AbortedTransactionRow(SegmentKey):
    """One row per aborted transaction, with the segment that holds its abort marker: what .txnindex files hold."""

    producer_id: int = column("the producer")
    first_offset: int = column("base offset of the transaction's first batch")
    last_offset: int = column("offset of the abort marker")
    last_stable_offset: int = column("last stable offset when the marker was applied")


ABORTED_TRANSACTIONS: Final = Table(
    name="aborted_transactions",
    row=AbortedTransactionRow,
    key=(*SEGMENT_KEY, "last_offset"),
    sort_by=("topic", "partition", "base_offset"),
)


def segments_with_events(segment: Sequence[Column]) -> pa.Schema:
    """The schema of rows of segments with the events of their producers, from which a partition is folded: a row for
    each segment, with position −1, and after it a row for each of the segment's events. `segment` are the columns of a
    segment's row besides its key.
    """
    event = [column_ for column_ in PRODUCER_EVENTS.columns if column_.name not in SEGMENT_KEY]
    key = (column_.field for column_ in SegmentKey.columns())
    position = pa.field("position", pa.int64(), nullable=False)
    return pa.schema([*key, position, *kinds_of(segment=segment, event=event)])
