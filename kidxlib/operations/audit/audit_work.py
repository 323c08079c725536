"""The work of an audit's workers: they audit segments, turn each into a row, and audit partitions from these rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kidxlib.audit.finding import Finding, Verdict
from kidxlib.audit.logs.log import AuditedLog
from kidxlib.audit.partition import audit_partition
from kidxlib.audit.rows import Kind, rows_of_partition, rows_of_segment
from kidxlib.audit.segment import AuditedSegment, SegmentForPartition, audit_segment, read_together
from kidxlib.audit.startup.simulation import Recovery
from kidxlib.audit.tasks import PartitionAudit
from kidxlib.catalog.partitions import PARTITIONS
from kidxlib.catalog.results import AUDITED, AuditedSegmentRow, IndexEnd, LogFinding, RecoveryColumns
from kidxlib.engine.work import ItemRows, SharedRows
from kidxlib.format.segment_files import LOG_SUFFIX
from kidxlib.format.topic_partition import PartitionKey
from kidxlib.index.offset import OffsetPosition
from kidxlib.indexing.source import SegmentFile
from kidxlib.indexing.tasks import ScanTask
from kidxlib.operations.events import event_batches, from_leader_epochs, to_leader_epochs, with_events
from kidxlib.recovery.outcome import ScanEnd, Status
from kidxlib.recovery.partition_fold import ScannedSegment
from kidxlib.recovery.past_end import PastEnd
from kidxlib.storage.location import as_text
from kidxlib.storage.opened_together import OpenedTogether, new_room, passes


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentAudit(ScanTask):
    """One segment to audit, and whether the broker of its log dir stopped cleanly."""

    clean_shutdown: bool


def to_segment_row(segment: SegmentFile, audited: AuditedSegment) -> AuditedSegmentRow:
    """An audited segment as the row that the audit of its partition reads; its producer events are
    rows of their own.
    """
    needed, end = SegmentForPartition.of(audited), audited.end
    return AuditedSegmentRow(
        source=segment.source,
        topic=segment.topic_partition.topic,
        partition=segment.topic_partition.partition,
        base_offset=segment.base_offset,
        status=end.status,
        reason=end.reason,
        reason_position=end.position,
        reason_detail=None if end.detail is None else as_text(end.detail),
        log_path=as_text(segment.path),
        recovery=None if needed.log.recovery is None else _recovery_columns(needed.log.recovery),
        leader_epochs=from_leader_epochs(needed.scanned.leader_epochs),
        index_end=_index_end(needed.log.index_end),
        log=None if needed.log.finding is None else _log_finding(needed.log.finding),
        broken=[{"file": suffix, "reason": reason} for suffix, reason in needed.broken.items()],
        events=len(needed.scanned.producer_events),
    )


def from_segment_row(row: AuditedSegmentRow, events: NDArray[np.void]) -> SegmentForPartition:
    """An audited segment from its row, and from its producer events, of dtype `scan_state.PRODUCER_EVENT`."""
    recovered = row.recovery
    return SegmentForPartition(
        scanned=ScannedSegment(
            base_offset=row.base_offset,
            problem_free=row.status is Status.OK,
            next_offset=None if recovered is None else recovered["next_offset"],
            map_end_offset=None if recovered is None else recovered["map_end_offset"],
            producer_events=events,
            leader_epochs=to_leader_epochs(row.leader_epochs),
        ),
        log=AuditedLog(
            base_offset=row.base_offset,
            finding=None if row.log is None else _finding(row.log),
            recovery=None if recovered is None else _recovery(row, recovered),
            index_end=None
            if row.index_end is None
            else OffsetPosition(row.index_end["offset"], row.index_end["position"]),
        ),
        broken={each["file"]: each["reason"] for each in row.broken},
    )


def _recovery_columns(recovery: Recovery) -> RecoveryColumns:
    return {
        "log_bytes": recovery.log_bytes,
        "next_offset": recovery.next_offset,
        "map_end_offset": recovery.map_end_offset,
        "batches": recovery.batches,
        "records": recovery.records,
        "past_unfinished": recovery.past.unfinished,
        "past_batches": recovery.past.batches,
        "past_records": recovery.past.records,
    }


def _recovery(row: AuditedSegmentRow, columns: RecoveryColumns) -> Recovery:
    return Recovery(
        log_bytes=columns["log_bytes"],
        end=ScanEnd(row.status, row.reason, row.reason_position, row.reason_detail),
        next_offset=columns["next_offset"],
        map_end_offset=columns["map_end_offset"],
        batches=columns["batches"],
        records=columns["records"],
        past=PastEnd(columns["past_unfinished"], columns["past_batches"], columns["past_records"]),
    )


def _index_end(entry: OffsetPosition | None) -> IndexEnd | None:
    return None if entry is None else {"offset": entry.offset, "position": entry.position}


def _log_finding(finding: Finding) -> LogFinding:
    return {
        "verdict": finding.verdict.value,
        "reason": finding.reason,
        "position": finding.position,
        "detail": None if finding.detail is None else as_text(finding.detail),
        "consequence": finding.consequence,
    }


def _finding(stored: LogFinding) -> Finding:
    return Finding(
        file=LOG_SUFFIX,
        verdict=Verdict(stored["verdict"]),
        reason=stored["reason"],
        position=stored["position"],
        detail=stored["detail"],
        consequence=stored["consequence"],
    )


def audit_segments(tasks: Iterable[SegmentAudit], use_mmap: bool, *, deep: bool) -> Iterator[ItemRows]:
    """Rows of `AUDITED`. Nothing is written. `deep` looks at the records, too."""
    room = new_room()
    for of_pass in passes(tasks):
        with OpenedTogether(room) as opened:
            for task, read in zip(of_pass, read_together(of_pass, use_mmap, opened), strict=True):
                clean_shutdown = task.clean_shutdown
                yield _item_rows(
                    task, audit_segment(task, use_mmap, deep=deep, clean_shutdown=clean_shutdown, read=read)
                )


def _item_rows(task: SegmentAudit, audited: AuditedSegment) -> ItemRows:
    events = audited.scanned.producer_events
    files = [{Kind.FILE.value: row.values()} for row in rows_of_segment(task, audited)]
    return ItemRows(
        segments=1,
        log_bytes=task.log_bytes,
        batches=event_batches([task.segment], [len(events)], events, AUDITED),
        rows=[*files, {"segment": to_segment_row(task.segment, audited).values()}],
    )


@dataclass(frozen=True, slots=True)
class PartitionsToAudit:
    """Some partitions, with or without segments, and the rows of their audited segments.

    Attributes:
        rows: rows of `TO_AUDIT`; those of a partition follow one another, segments in order.
        row_bytes: size of these rows in memory.
    """

    rows: SharedRows
    row_bytes: int
    audits: Mapping[PartitionKey, PartitionAudit]


def audit_partitions(shares: Iterable[PartitionsToAudit]) -> Iterator[ItemRows]:
    """Rows of `FOUND`. Nothing is written."""
    for share in shares:
        left = dict(share.audits)
        for key, rows in groupby(with_events(share.rows.batches()), key=lambda row: _partition_key(row[0])):
            segments = (from_segment_row(AuditedSegmentRow.of_dict(head["segment"]), events) for head, events in rows)
            yield _audited(key, left.pop(key), segments)
        for key, audit in left.items():
            yield _audited(key, audit, ())


def _audited(key: PartitionKey, audit: PartitionAudit, segments: Iterable[SegmentForPartition]) -> ItemRows:
    rows = rows_of_partition(key[0], audit, audit_partition(audit, segments))
    return ItemRows(rows=[{kind.value: row.values()} for kind, of_kind in rows.by_kind().items() for row in of_kind])


def _partition_key(head: Mapping[str, Any]) -> PartitionKey:
    source, topic, partition = (head[name] for name in PARTITIONS.key)
    return source, topic, partition
