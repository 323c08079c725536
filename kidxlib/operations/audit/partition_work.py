"""Partitions that a worker audits, each from what was found in its segments."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from kidxlib.audit.partition import audit_partition
from kidxlib.audit.plan import PartitionAudit
from kidxlib.audit.rows import rows_of_partition
from kidxlib.audit.segment import SegmentForPartition
from kidxlib.catalog.partitions import PARTITIONS
from kidxlib.catalog.results.audit import AuditedSegmentRow
from kidxlib.engine.shared_rows import SharedRows
from kidxlib.engine.work import ItemRows
from kidxlib.format.topic_partition import PartitionKey
from kidxlib.operations.audit.segment_rows import from_segment_row
from kidxlib.operations.events import with_events


@dataclass(frozen=True, slots=True)
class PartitionsToAudit:
    """Some partitions, and what was found in their segments.

    Attributes:
        rows: of `TO_AUDIT`, each partition's in one piece and segments in order.
        row_bytes: in memory.
        audits: what there is to audit of each, with or without segments.
    """

    rows: SharedRows
    row_bytes: int
    audits: Mapping[PartitionKey, PartitionAudit]


def audit_partitions(shares: Iterable[PartitionsToAudit], use_mmap: bool) -> Iterator[ItemRows]:
    """Rows of `FOUND`. Nothing is written.

    Args:
        use_mmap: no log is mapped.
    """
    for share in shares:
        left = dict(share.audits)
        for key, rows in groupby(with_events(share.rows.batches()), key=lambda row: _partition_key(row[0])):
            segments = (from_segment_row(AuditedSegmentRow.of_dict(head["segment"]), events) for head, events in rows)
            yield _audited(key, left.pop(key), segments)
        for key, audit in left.items():
            yield _audited(key, audit, ())


def _audited(key: PartitionKey, audit: PartitionAudit, segments: Iterable[SegmentForPartition]) -> ItemRows:
    found = rows_of_partition(key[0], audit, audit_partition(audit, segments))
    return ItemRows(rows=[{kind.value: row.values()} for kind, of_kind in found.by_kind().items() for row in of_kind])


def _partition_key(head: Mapping[str, Any]) -> PartitionKey:
    source, topic, partition = (head[name] for name in PARTITIONS.key)
    return source, topic, partition
