"""The table `partitions`."""

from __future__ import annotations

from typing import Final

from kidxlib.catalog.columns import Formerly, Int32, column
from kidxlib.catalog.rows import Row, Table, row, view_of
from kidxlib.catalog.segment_key import PARTITION_KEY, PartitionOfSource


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
    log_start_offset: int | None
    log_end_offset: int | None
    directory: str
