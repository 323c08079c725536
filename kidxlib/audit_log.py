"""Is this log whole, torn or broken? What of it a broker keeps at its next start, and what is lost.

Each segment's log is judged by itself when it is read: where its scan ends, and whether a broker could have written the
batches before. The rest shows when all segments of the partition were read: how they follow each other, and whether
the log ends below what the broker's own checkpoints say that it had.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from kidxlib import formats, names, walk
from kidxlib.audit import Fate, Finding, Verdict
from kidxlib.audit_records import audit_records
from kidxlib.offset_index import OffsetPosition
from kidxlib.past_end import PastEnd
from kidxlib.records import batches
from kidxlib.recover import USABLE, RecoveredSegment, Status
from kidxlib.startup import Action, Forecast, PartitionStop, Recovery, Removal, SegmentForecast
from kidxlib.storage import LogBytes

#: In the detail of a finding that stands for several.
ALSO: Final = "; also "

_MAGIC_AT: Final = formats.field_position(formats.BATCH_V2, "magic")


def audit_log(
    log: LogBytes, recovered: RecoveredSegment, past: PastEnd, base_offset: int, *, active: bool, deep: bool
) -> Finding:
    """What a log shows by itself; what becomes of it is not said yet.

    Args:
        log: the segment's, up to the end of its last valid batch.
        past: what stands after that.
        active: the last segment of its partition, whose end alone may be torn.
        deep: look at the records, too.

    Raises:
        OSError, LogChangedError: the log cannot be read.
    """
    found = [*_of_end(recovered, past, active), *_of_odd_batch(log, recovered, base_offset)]
    if deep and recovered.end.status is not Status.QUARANTINED:
        found.append(audit_records(log))
    finding = Finding(file=names.LOG_SUFFIX, verdict=Verdict.WHOLE)
    for each in found:
        finding = _worse(finding, each)
    return finding


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedLog:
    """A log that was judged by itself.

    Attributes:
        finding: None of one that was deleted since it was listed.
        recovery: None where it could not be read.
        index_end: the last entry of its `.index` as it was found; None where there is none.
    """

    base_offset: int
    finding: Finding | None
    recovery: Recovery | None
    index_end: OffsetPosition | None


def audit_logs(
    logs: Sequence[AuditedLog], forecast: Forecast, stop: PartitionStop, mirrored: Collection[int] | None
) -> Iterator[tuple[int, Finding]]:
    """The findings on all logs of a partition, with the base offset of each.

    Args:
        logs: by base offset.
        forecast: what a broker does when it starts.
        mirrored: base offsets of the offset indexes in a directory of their own, where a build wrote them; None where
            index files stand beside the logs, as the broker left them or a build made them.
    """
    compacted = _may_be_compacted(logs)
    segments = {segment.base_offset: segment for segment in forecast.segments}
    end_before: int | None = None
    for number, log in enumerate(logs):
        following = logs[number + 1].base_offset if number + 1 < len(logs) else None
        if log.finding is not None:
            finding = log.finding
            if finding.verdict is Verdict.TORN and stop.clean_shutdown:
                finding = _torn_after_clean_stop(finding, log.recovery)
            trusts_index = mirrored is None or (following is not None and not compacted)
            for more in _of_neighbours(log, end_before, following, stop, trusts_index):
                finding = _worse(finding, more)
            yield log.base_offset, _with_fate(finding, log.recovery, segments.get(log.base_offset), forecast)
        if log.recovery is not None and log.recovery.end.status in USABLE:
            end_before = max(end_before or 0, log.recovery.next_offset)
    yield from _swapped_in(logs, forecast)
    if mirrored is None:
        yield from _missing(logs, forecast)
    else:
        yield from _missing_of_mirror(logs, mirrored, compacted)


# ---- one log ----


def _of_end(recovered: RecoveredSegment, past: PastEnd, active: bool) -> Iterator[Finding]:
    end = recovered.end
    if end.reason is None:
        return
    torn = past.unfinished and active
    more = "; only the last segment of a partition may end so" if past.unfinished and not active else ""
    yield Finding(
        file=names.LOG_SUFFIX,
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
    magic = int.from_bytes(log.read(position + _MAGIC_AT, 1), signed=True)
    if not 0 <= magic <= formats.MAGIC_V2:
        yield Finding(
            file=names.LOG_SUFFIX,
            verdict=Verdict.BROKEN,
            reason="unknown-magic",
            position=position,
            detail=f"magic {magic}, expected 0, 1 or 2",
            consequence="a broker does not look at it, and consumers refuse the batch",
        )
        return
    batch = next(batches(log, position))
    before = max(int(walk.measure(log, np.array([position]))["last_offset_before"][0]), base_offset - 1)
    yield Finding(
        file=names.LOG_SUFFIX,
        verdict=Verdict.BROKEN,
        reason="offsets-not-increasing",
        position=position,
        detail=f"a batch of offsets {batch.first_field} to {batch.last_offset}, expected offsets above {before}",
        consequence="consumers get records twice or not at all, and what is said of indexes does not hold for this log",
    )


def _worse(finding: Finding, other: Finding) -> Finding:
    """The worse of two findings on a log, the first of equals; its detail tells the other one too."""
    if other.verdict.severity > finding.verdict.severity:
        finding, other = other, finding
    if other.reason is None or other.reason == finding.reason:
        return finding
    where = "" if other.position is None else f" at byte {other.position}"
    return replace(finding, detail=f"{finding.detail}{ALSO}{other.reason}{where}: {other.detail}")


# ---- one log among others ----


def _torn_after_clean_stop(finding: Finding, recovery: Recovery | None) -> Finding:
    """A broker that stops cleanly leaves no such tail, and one that starts after that looks for none."""
    size = "its end" if recovery is None else f"byte {recovery.log_bytes:,}"
    return replace(
        finding,
        verdict=Verdict.BROKEN,
        detail=f"{finding.detail}; after a clean stop no log may end so",
        consequence=f"a broker that starts after a clean stop does not look, and appends at {size}: what it writes "
        f"from then on cannot be read, as it stands after byte {finding.position}",
    )


def _of_neighbours(
    log: AuditedLog, end_before: int | None, following: int | None, stop: PartitionStop, trusts_index: bool
) -> Iterator[Finding]:
    recovery = log.recovery
    if recovery is None:
        return
    if end_before is not None and log.base_offset < end_before:
        yield Finding(
            file=names.LOG_SUFFIX,
            verdict=Verdict.BROKEN,
            reason="overlaps-segment-before",
            position=0,
            detail=f"it begins at offset {log.base_offset}, the log before it ends at {end_before}",
            consequence=f"offsets {log.base_offset} to {end_before - 1} stand in two logs: which records consumers get "
            "depends on where they begin",
        )
    if recovery.end.status not in USABLE:
        return
    if following is None:
        yield from _of_log_end(recovery, stop)
    if trusts_index and recovery.end.status is Status.OK:
        yield from _of_index_end(log, recovery, following, stop)


def _of_log_end(recovery: Recovery, stop: PartitionStop) -> Iterator[Finding]:
    """Of the last log: whether the broker knew of more. The first of its checkpoints that says so."""
    for offset, reason, file, consequence in (
        (
            stop.log_start_offset,
            "ends-below-log-start",
            names.LOG_START_OFFSET_CHECKPOINT,
            "a broker that starts deletes all segments, and begins an empty log at {offset}",
        ),
        (
            stop.recovery_point,
            "ends-below-recovery-point",
            names.RECOVERY_POINT_CHECKPOINT,
            "offsets {end} to {last} are missing, which had been flushed to disk",
        ),
        (
            stop.high_watermark,
            "ends-below-high-watermark",
            names.HIGH_WATERMARK_CHECKPOINT,
            "offsets {end} to {last} are missing, which were committed; another replica may have them",
        ),
    ):
        if recovery.next_offset < offset:
            yield Finding(
                file=names.LOG_SUFFIX,
                verdict=Verdict.BROKEN,
                reason=reason,
                position=recovery.end.position,
                detail=f"the log ends at offset {recovery.next_offset}, {file} says {offset}",
                consequence=consequence.format(offset=offset, end=recovery.next_offset, last=offset - 1),
            )
            return


def _of_index_end(log: AuditedLog, recovery: Recovery, following: int | None, stop: PartitionStop) -> Iterator[Finding]:
    """Whether the log was longer when its index was written. It may be so of the last one after an unclean stop, as the
    index may have been flushed before the log; and where nothing is missing up to the next segment it is the index
    that is wrong.
    """
    entry = log.index_end
    if entry is None or entry.position < recovery.log_bytes or entry.offset < recovery.next_offset:
        return
    if stop.clean_shutdown if following is None else entry.offset < following:
        yield Finding(
            file=names.LOG_SUFFIX,
            verdict=Verdict.BROKEN,
            reason="shorter-than-its-index",
            position=recovery.log_bytes,
            detail=f"the log has {recovery.log_bytes} bytes and ends at offset {recovery.next_offset}, its .index has "
            f"an entry for offset {entry.offset} at byte {entry.position}",
            consequence=f"offsets from {recovery.next_offset} up to {entry.offset} or above are missing",
        )


def _missing(logs: Sequence[AuditedLog], forecast: Forecast) -> Iterator[tuple[int, Finding]]:
    """Logs whose indexes are there, and that nothing has renamed: a broker and a build take the log away last."""
    judged = {log.base_offset for log in logs}
    ends = {log.base_offset: log.recovery.next_offset for log in logs if log.recovery is not None}
    for name, why in sorted(forecast.removed.items()):
        offset, suffix = names.parse_segment_file(name) or (0, "")
        if why is not Removal.ORPHAN or suffix != names.OFFSET_INDEX_SUFFIX or offset in judged:
            continue
        renamed = f"{names.segment_file(offset, names.LOG_SUFFIX)}{names.DELETED_SUFFIX}" in forecast.removed
        inside = any(base_offset <= offset < end for base_offset, end in ends.items())
        if not renamed and not inside:
            yield (
                offset,
                Finding(
                    file=names.LOG_SUFFIX,
                    verdict=Verdict.BROKEN,
                    reason="missing",
                    detail=f"{name} is there, its log is not",
                    consequence="a broker that starts removes the segment's index files, and knows nothing of its "
                    "records",
                    fate=Fate(),
                ),
            )


def _missing_of_mirror(
    logs: Sequence[AuditedLog], mirrored: Collection[int], compacted: bool
) -> Iterator[tuple[int, Finding]]:
    """Logs between the first and the last whose indexes are there: retention deletes at the beginning. The cleaner
    merges segments into the one before, and may leave no record of theirs.
    """
    judged = [log.base_offset for log in logs]
    ends = {log.base_offset: log.recovery.next_offset for log in logs if log.recovery is not None}
    for offset in sorted(mirrored):
        between = judged and judged[0] < offset < judged[-1]
        if offset in judged or not between or any(base <= offset < end for base, end in ends.items()):
            continue
        yield (
            offset,
            Finding(
                file=names.LOG_SUFFIX,
                verdict=Verdict.SAFE if compacted else Verdict.BROKEN,
                reason="missing",
                detail="its .index is there, its log is not, and others before and after it are",
                consequence="compaction may have merged it into the log before" if compacted else None,
                fate=Fate(),
            ),
        )


def _may_be_compacted(logs: Sequence[AuditedLog]) -> bool:
    """Whether some log has fewer records than offsets, or wrappers that hide how many it has."""
    recoveries = [(log.base_offset, log.recovery) for log in logs if log.recovery is not None]
    return any(
        found.records is None or found.records < found.next_offset - base_offset for base_offset, found in recoveries
    )


def _swapped_in(logs: Sequence[AuditedLog], forecast: Forecast) -> Iterator[tuple[int, Finding]]:
    """Logs that have their names as soon as a broker starts: no scan has seen them."""
    judged = {log.base_offset for log in logs}
    for segment in forecast.segments:
        swapped = f"{names.segment_file(segment.base_offset, names.LOG_SUFFIX)}.swap"
        if segment.base_offset not in judged and swapped in forecast.renamed:
            yield (
                segment.base_offset,
                Finding(
                    file=names.LOG_SUFFIX,
                    verdict=Verdict.BROKEN,
                    reason="not-checked",
                    detail=f"{swapped} takes its place when a broker starts, and was not read",
                    consequence="whether its records are whole is not known; audit it again once it has its name",
                    fate=Fate(),
                ),
            )


# ---- what becomes of it ----


def _with_fate(
    finding: Finding, recovery: Recovery | None, segment: SegmentForecast | None, forecast: Forecast
) -> Finding:
    fate = Fate() if recovery is None else _fate(finding, recovery, segment)
    told = None if recovery is None else _told(finding, recovery, segment, forecast, fate)
    consequence = "; ".join(each for each in (finding.consequence, told) if each)
    return replace(finding, fate=fate, consequence=consequence or None)


def _fate(finding: Finding, recovery: Recovery, segment: SegmentForecast | None) -> Fate:
    lost: tuple[int | None, int | None, int | None] = (None, None, None)
    if segment is not None and segment.lost_bytes:
        lost = segment.lost_bytes, segment.lost_batches, segment.lost_records
    elif recovery.end.status is Status.TRUNCATED:
        lost = recovery.log_bytes - recovery.end.position, recovery.past.batches, recovery.past.records
    elif finding.verdict.severity < Verdict.TORN.severity:
        lost = 0, 0, 0
    return Fate(
        action=None if segment is None else segment.action.value,
        kept_bytes=None if segment is None else segment.kept_bytes,
        lost_bytes=lost[0],
        lost_batches=lost[1],
        lost_records=lost[2],
    )


def _told(
    finding: Finding, recovery: Recovery, segment: SegmentForecast | None, forecast: Forecast, fate: Fate
) -> str | None:
    """What a broker that starts does with the log; None where that is nothing to speak of."""
    is_well = finding.verdict.severity < Verdict.TORN.severity
    if segment is None:
        return None if is_well else "a broker that starts does not come to this segment"
    if segment.action in _SAID:
        return _SAID[segment.action]
    if segment.action is Action.DELETE:
        return f"a broker that starts deletes the segment: {segment.detail}"
    after = [each for each in forecast.segments if each.base_offset > segment.base_offset]
    if segment.lost_bytes:
        deleted = [each for each in after if each.action is Action.DELETE]
        emptied = segment.action is Action.EMPTY
        does = "empties the log" if emptied else f"truncates the log to byte {segment.kept_bytes:,}"
        return f"a broker that starts {does}{_deletes(len(deleted))}: {_lost(recovery, fate)}{_lost_after(deleted)}"
    if is_well or finding.consequence is not None:
        return None
    if recovery.end.position < recovery.log_bytes and recovery.end.status is Status.TRUNCATED:
        return (
            f"a broker that starts does not look: consumers and replicas fail at offset {recovery.next_offset}, and "
            f"where it recovers the segment it truncates the log to byte {recovery.end.position:,}"
            f"{_deletes(len(after))}: {_lost(recovery, fate)}{_of_logs_after(after)}"
        )
    if recovery.end.status is Status.QUARANTINED:
        return "a broker that starts does not look; one that has to recover the segment fails, or empties it"
    return "a broker that starts takes it as it is"


_SAID: Final = {
    Action.FAIL: "a broker that starts fails on it, and takes its log dir out of use",
    Action.SPLIT: "a broker that starts splits the segment into several",
}


def _deletes(segments: int) -> str:
    """What recovery does with the segments after one that it truncates (`LogLoader.recoverLog`)."""
    return f" and deletes {_many(segments, 'segment', 'segments')} after it" if segments else ""


def _lost(recovery: Recovery, fate: Fate) -> str:
    if recovery.past.unfinished:
        return f"{fate.lost_bytes:,} bytes that were never a whole batch"
    of_batches = _many(fate.lost_batches, "batch", "batches")
    return f"{fate.lost_bytes:,} bytes are lost, {of_batches} with {_many(fate.lost_records, 'record', 'records')}"


def _lost_after(deleted: Sequence[SegmentForecast]) -> str:
    """What the segments come to that are deleted behind a truncated one."""
    if not deleted:
        return ""
    counts = [each.lost_records for each in deleted]
    known = [count for count in counts if count is not None]
    records = _many(sum(known) if len(known) == len(counts) else None, "record", "records")
    return f"; after it {sum(each.lost_bytes for each in deleted):,} bytes with {records}"


def _of_logs_after(deleted: Sequence[SegmentForecast]) -> str:
    return f"; after it {sum(each.log_bytes for each in deleted):,} bytes" if deleted else ""


def _many(count: int | None, one: str, more: str) -> str:
    return f"an unknown number of {more}" if count is None else f"{count:,} {one if count == 1 else more}"
