"""The state of a partition, as the fold has it and as the catalog keeps it."""

from __future__ import annotations

from kidxlib.catalog.partitions import FoldedLogs, PartitionStateRow
from kidxlib.format.checkpoint_files import EpochEntry
from kidxlib.format.topic_partition import PartitionKey
from kidxlib.recovery.partition import FoldState, StateSource


def state_row(key: PartitionKey, state: FoldState, logs: FoldedLogs) -> PartitionStateRow:
    """A state as it is kept.

    Args:
        logs: the segments that led to it.
    """
    source, topic, partition = key
    return PartitionStateRow(
        source=source,
        topic=topic,
        partition=partition,
        base_offset=state.base_offset,
        **logs.values(),
        state_source=state.source.value,
        expected_offset=state.expected_offset,
        map_end_offset=state.map_end_offset,
        epochs_are_known=state.epochs_are_known,
        producer_snapshot=state.snapshot,
        leader_epochs=[{"epoch": each.epoch, "start_offset": each.start_offset} for each in state.leader_epochs],
    )


def state_of(row: PartitionStateRow) -> FoldState:
    """A state that was kept."""
    return FoldState(
        base_offset=row.base_offset,
        source=StateSource(row.state_source),
        expected_offset=row.expected_offset,
        map_end_offset=row.map_end_offset,
        epochs_are_known=row.epochs_are_known,
        snapshot=row.producer_snapshot,
        leader_epochs=tuple(EpochEntry(**each) for each in row.leader_epochs),
    )
