"""An audited segment as a row, on its way to the audit of its partition and back."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kidxlib.audit.finding import Finding, Verdict
from kidxlib.audit.logs.log import AuditedLog
from kidxlib.audit.segment import AuditedSegment, SegmentForPartition
from kidxlib.audit.startup.recovery import Recovery
from kidxlib.build.source import SegmentFile
from kidxlib.catalog.results.audit import AuditedSegmentRow, IndexEnd, LogFinding, RecoveryColumns
from kidxlib.format.segment_files import LOG_SUFFIX
from kidxlib.index.offset import OffsetPosition
from kidxlib.operations.events import from_leader_epochs, to_leader_epochs
from kidxlib.recovery.outcome import ScanEnd, Status
from kidxlib.recovery.partition import ScannedSegment
from kidxlib.recovery.past_end import PastEnd
from kidxlib.storage.location import as_text


def to_segment_row(segment: SegmentFile, audited: AuditedSegment) -> AuditedSegmentRow:
    """What a partition's audit needs of a segment, less what producers did in it."""
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
        index_end=None if needed.log.index_end is None else _index_end(needed.log.index_end),
        log=None if needed.log.finding is None else _log_finding(needed.log.finding),
        broken=[{"file": suffix, "reason": reason} for suffix, reason in needed.broken.items()],
        events=len(needed.scanned.producer_events),
    )


def from_segment_row(row: AuditedSegmentRow, events: NDArray[np.void]) -> SegmentForPartition:
    """What a partition's audit needs of a segment.

    Args:
        events: what producers did in it, of dtype `scan_events.PRODUCER_EVENT`.
    """
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


def _index_end(entry: OffsetPosition) -> IndexEnd:
    return {"offset": entry.offset, "position": entry.position}


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
