"""What a broker keeps of a log at its next start, and what is lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from kidxlib.audit.finding import DAMAGE, Fate, Finding, Verdict
from kidxlib.audit.logs.log import AuditedLog
from kidxlib.audit.startup.recovery import Recovery
from kidxlib.audit.startup.simulation import SimulatedSegment, StartupAction, StartupSimulation
from kidxlib.index.offset import OffsetPosition
from kidxlib.recovery.outcome import Status
from kidxlib.text.counted import counted


def with_fate(
    finding: Finding, log: AuditedLog, segment: SimulatedSegment | None, simulation: StartupSimulation
) -> Finding:
    recovery = log.recovery
    fate = Fate() if recovery is None else _fate(finding, recovery, segment)
    of_start = None if recovery is None else _consequence(finding, recovery, log.index_end, segment, simulation, fate)
    consequence = "; ".join(each for each in (finding.consequence, of_start) if each)
    return replace(finding, fate=fate, consequence=consequence or None)


def _fate(finding: Finding, recovery: Recovery, segment: SimulatedSegment | None) -> Fate:
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


def _consequence(
    finding: Finding,
    recovery: Recovery,
    index_end: OffsetPosition | None,
    segment: SimulatedSegment | None,
    simulation: StartupSimulation,
    fate: Fate,
) -> str | None:
    """What a broker that starts does with the log; None where that is nothing to speak of."""
    is_damaged = finding.verdict in DAMAGE
    if segment is None:
        return "a broker that starts does not come to this segment" if is_damaged else None
    if segment.action in _CONSEQUENCES:
        return _CONSEQUENCES[segment.action]
    if segment.action is StartupAction.DELETE:
        return f"a broker that starts deletes the segment: {segment.detail}"
    after = [each for each in simulation.segments if each.base_offset > segment.base_offset]
    if segment.lost_bytes:
        deleted = [each for each in after if each.action is StartupAction.DELETE]
        emptied = segment.action is StartupAction.EMPTY
        does = "empties the log" if emptied else f"truncates the log to byte {segment.kept_bytes:,}"
        lost = f"{_lost(recovery, fate, index_end)}{_lost_after(deleted)}"
        return f"a broker that starts {does}{_deletes(len(deleted))}: {lost}"
    if not is_damaged or finding.consequence is not None:
        return None
    if recovery.end.position < recovery.log_bytes and recovery.end.status is Status.TRUNCATED:
        return (
            f"a broker that starts does not look: consumers and replicas fail at offset {recovery.next_offset}, and "
            f"where it recovers the segment it truncates the log to byte {recovery.end.position:,}"
            f"{_deletes(len(after))}: {_lost(recovery, fate, index_end)}{_of_logs_after(after)}"
        )
    if recovery.end.status is Status.QUARANTINED:
        return "a broker that starts does not look; one that has to recover the segment fails, or empties it"
    return "a broker that starts takes it as it is"


_CONSEQUENCES: Final = {
    StartupAction.FAIL: "a broker that starts fails on it, and takes its log dir out of use",
    StartupAction.SPLIT: "a broker that starts splits the segment into several",
}


def _deletes(segments: int) -> str:
    """What recovery does with the segments after one that it truncates (`LogLoader.recoverLog`)."""
    return f" and deletes {counted(segments, 'segment')} after it" if segments else ""


def _lost(recovery: Recovery, fate: Fate, index_end: OffsetPosition | None) -> str:
    """What is behind the valid end of a log. A batch that is not whole now may have been: a broker makes an entry of
    its index after it has appended the batch, and the index may reach the disk before the log (`LogSegment.append`).
    """
    if recovery.past.unfinished:
        bytes_ = f"{fate.lost_bytes:,} bytes that are no whole batch"
        end = recovery.end.position
        if index_end is None or index_end.position < end or index_end.offset < recovery.next_offset:
            return bytes_
        offsets = f"offsets {recovery.next_offset:,} to {index_end.offset:,}"
        return f"{bytes_}; its .index says that {offsets} were appended there: look for them on another replica"
    of_batches = _many(fate.lost_batches, "batch", "batches")
    return f"{fate.lost_bytes:,} bytes are lost, {of_batches} with {_many(fate.lost_records, 'record', 'records')}"


def _lost_after(deleted: Sequence[SimulatedSegment]) -> str:
    """What the segments deleted after a truncated one come to."""
    if not deleted:
        return ""
    counts = [each.lost_records for each in deleted]
    known = [count for count in counts if count is not None]
    records = _many(sum(known) if len(known) == len(counts) else None, "record", "records")
    return f"; after it {sum(each.lost_bytes for each in deleted):,} bytes with {records}"


def _of_logs_after(deleted: Sequence[SimulatedSegment]) -> str:
    return f"; after it {sum(each.log_bytes for each in deleted):,} bytes" if deleted else ""


def _many(count: int | None, one: str, more: str) -> str:
    return f"an unknown number of {more}" if count is None else counted(count, one, more)
