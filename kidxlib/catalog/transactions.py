"""The tables `producer_events` and `aborted_transactions`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from kidxlib.catalog.columns import Column, Int32, column
from kidxlib.catalog.rows import Table, kinds_of, row
from kidxlib.catalog.segment_key import SEGMENT_KEY, SegmentKey
from kidxlib.recovery.scan.scan_events import EventKind

#: What the column `kind` says of each `EventKind`, by its number.
EVENT_KINDS: Final = pa.array([kind.name.lower().replace("_", "-") for kind in sorted(EventKind)])


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
    """The schema of what a partition is folded from: a row for each segment, whose position is −1, and after it one for
    each of its events.

    Args:
        segment: what a row of a segment has besides its key.
    """
    event = [column_ for column_ in PRODUCER_EVENTS.columns if column_.name not in SEGMENT_KEY]
    key = (column_.field for column_ in SegmentKey.columns())
    position = pa.field("position", pa.int64(), nullable=False)
    return pa.schema([*key, position, *kinds_of(segment=segment, event=event)])
