"""The tables `partitions` and `partition_states`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypedDict

from kidxlib.catalog.columns import Formerly, Int32, column
from kidxlib.catalog.rows import Row, Table, row, view_of
from kidxlib.catalog.segment_key import PARTITION_KEY, SEGMENT_KEY, PartitionOfSource, SegmentKey


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


@view_of(PartitionRow)
class PartitionToSearch(Row):
    """What a lookup goes by."""

    source: str
    topic: str
    partition: Int32
    first_base_offset: int | None
    log_start_offset: int | None
    log_end_offset: int | None
    high_watermark: int | None
    directory: str


class BegunEpoch(TypedDict):
    """A leader epoch, and the offset at which it began."""

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
    """The segments that led to a state. Where one of them has become another since, these figures differ."""

    segments: int
    problem_free_segments: int
    log_versions: int


PARTITION_STATES: Final = Table(
    name="partition_states",
    row=PartitionStateRow,
    key=SEGMENT_KEY,
    sort_by=("topic", "partition", "base_offset"),
)
