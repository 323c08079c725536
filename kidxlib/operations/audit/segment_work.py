"""Segments that a worker audits: findings on their index files, and what the audit of their partition needs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kidxlib.audit.rows import Kind, rows_of_segment
from kidxlib.audit.segment import audit_segment
from kidxlib.build.tasks import ScanTask
from kidxlib.catalog.results.audit import AUDITED
from kidxlib.engine.work import ItemRows
from kidxlib.operations.audit.segment_rows import to_segment_row
from kidxlib.operations.events import event_batches


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentAudit(ScanTask):
    """One segment to audit.

    Attributes:
        clean_shutdown: the broker of its log dir stopped cleanly.
    """

    clean_shutdown: bool


def audit_segments(tasks: Iterable[SegmentAudit], use_mmap: bool, *, deep: bool) -> Iterator[ItemRows]:
    """Rows of `AUDITED`. Nothing is written.

    Args:
        deep: look at the records, too.
    """
    for task in tasks:
        audited = audit_segment(task, use_mmap, deep=deep, clean_shutdown=task.clean_shutdown)
        files = [{Kind.FILE.value: row.values()} for row in rows_of_segment(task, audited)]
        yield ItemRows(
            segments=1,
            log_bytes=task.log_bytes,
            batches=event_batches(task.segment, audited.scanned.producer_events, AUDITED),
            rows=[*files, {"segment": to_segment_row(task.segment, audited).values()}],
        )
