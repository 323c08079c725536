"""Checks whether a log is whole, torn or broken: where its scan ends, and whether a broker could have written the valid
part.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kidxlib.audit.finding import Finding, Verdict, worse
from kidxlib.audit.logs.records import audit_records
from kidxlib.audit.startup.recovery import Recovery
from kidxlib.format import layouts as formats
from kidxlib.format import segment_files
from kidxlib.format.batch_header import MAGIC_AT
from kidxlib.index.offset import OffsetPosition
from kidxlib.records import header_sweep
from kidxlib.records.batch_headers import batches
from kidxlib.recovery.outcome import Status
from kidxlib.recovery.past_end import PastEnd
from kidxlib.recovery.segment import RecoveredSegment
from kidxlib.storage.log_bytes import LogBytes


def audit_log(
    log: LogBytes, recovered: RecoveredSegment, past: PastEnd, base_offset: int, *, active: bool, deep: bool
) -> Finding:
    """Judge a log by itself. The fate of the finding is not set yet.

    Args:
        log: the segment's, up to the end of its last valid batch.
        past: what is in the file after that.
        active: the last segment of its partition, whose end alone may be torn.
        deep: look at the records, too.

    Raises:
        OSError, LogChangedError: the log cannot be read.
    """
    found = [*_of_end(recovered, past, active), *_of_odd_batch(log, recovered, base_offset)]
    if deep and recovered.end.status is not Status.QUARANTINED:
        found.append(audit_records(log))
    finding = Finding(file=segment_files.LOG_SUFFIX, verdict=Verdict.WHOLE)
    for each in found:
        finding = worse(finding, each)
    return finding


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedLog:
    """A log that was judged by itself.

    Attributes:
        finding: None of one that was deleted since it was listed.
        recovery: None where it could not be read.
        index_end: the last entry of its `.index` as it was found, before the room that a broker keeps; None where there
            is none.
    """

    base_offset: int
    finding: Finding | None
    recovery: Recovery | None
    index_end: OffsetPosition | None


def _of_end(recovered: RecoveredSegment, past: PastEnd, active: bool) -> Iterator[Finding]:
    end = recovered.end
    if end.reason is None:
        return
    torn = past.unfinished and active
    more = "; only the last segment of a partition may end so" if past.unfinished and not active else ""
    yield Finding(
        file=segment_files.LOG_SUFFIX,
        verdict=Verdict.TORN if torn else Verdict.BROKEN,
        reason=end.reason,
        position=end.position,
        detail=f"{end.detail}{more}",
    )


def _of_odd_batch(log: LogBytes, recovered: RecoveredSegment, base_offset: int) -> Iterator[Finding]:
    """The first batch that no broker writes where it stands, and that recovery takes all the same."""
    position = recovered.odd_position
    if position is None:
        return
    magic = int.from_bytes(log.read(position + MAGIC_AT, 1), signed=True)
    if not 0 <= magic <= formats.MAGIC_V2:
        yield Finding(
            file=segment_files.LOG_SUFFIX,
            verdict=Verdict.BROKEN,
            reason="unknown-magic",
            position=position,
            detail=f"magic {magic}, expected 0, 1 or 2",
            consequence="a broker does not look at it, and consumers refuse the batch",
        )
        return
    batch = next(batches(log, position))
    before = max(int(header_sweep.measure(log, np.array([position]))["last_offset_before"][0]), base_offset - 1)
    yield Finding(
        file=segment_files.LOG_SUFFIX,
        verdict=Verdict.BROKEN,
        reason="offsets-not-increasing",
        position=position,
        detail=f"a batch of offsets {batch.offset_field} to {batch.last_offset}, expected offsets above {before}",
        consequence="consumers get records twice or not at all, and what is said of indexes does not hold for this log",
    )
