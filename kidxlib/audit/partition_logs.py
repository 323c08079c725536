"""Judges the logs of a partition together: whether they follow one another, which known logs are missing, which end too
early, and what the broker's next start does to each and loses.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kidxlib.audit.finding import DAMAGE, Fate, Finding, Verdict, worse
from kidxlib.audit.segment import AuditedLog
from kidxlib.audit.startup.last_stop import PartitionStop
from kidxlib.audit.startup.simulation import (
    Removal,
    SegmentRecovery,
    SimulatedSegment,
    StartupAction,
    StartupSimulation,
)
from kidxlib.format import checkpoint_files, segment_files
from kidxlib.format.layouts import NO_LEADER_EPOCH
from kidxlib.index.offset import OffsetPosition
from kidxlib.log.overlaps import TELLS_MORE, LogRange, Overlap, overlaps_of
from kidxlib.recovery.outcome import USABLE, ScanEnd, Status
from kidxlib.text.words import counted

_OVERLAPS_BEFORE: Final = "overlaps-segment-before"

#: The reason if a log is missing while its `.index` is there.
MISSING: Final = "missing"


@dataclass(frozen=True, slots=True)
class SwappedLogs:
    """The logs `.swap` that a starting broker puts in the place of others.

    Attributes:
        recoveries: what is in them, by base offset.
        not_read: why the others could not be read, by base offset.
        is_compacted: whether the cleaner may have written them; None: nobody knows.
    """

    recoveries: Mapping[int, SegmentRecovery] = field(default_factory=dict)
    not_read: Mapping[int, ScanEnd] = field(default_factory=dict)
    is_compacted: bool | None = None


_APPENDED_BY_BROKER: Final = (
    "a broker appended it so, as where a topic was made again over its old log: consumers get all records; recovery "
    "after an unclean stop makes other epochs of the log than the broker had"
)
_FROM_TWO_COPIES: Final = (
    "the segments may come from two copies of the partition; followers that ask where an epoch ends get a wrong offset"
)


@dataclass(frozen=True, slots=True)
class PartitionLogEpochs:
    """The leader epochs in the logs of a partition.

    Attributes:
        changes: where the epoch changes from batch to batch, of dtype `scan_state.LEADER_EPOCH`, by base offset; only
            logs with epochs are here.
        by_broker: whether the broker's file of epochs shows that the broker appended the batches in this order.
    """

    changes: Mapping[int, NDArray[np.void]]
    by_broker: bool

    def largest(self, base_offset: int) -> int:
        """The largest leader epoch in a log of the partition; `NO_LEADER_EPOCH` if there is none."""
        return int(self.changes[base_offset]["epoch"].max()) if base_offset in self.changes else NO_LEADER_EPOCH

    def go_back(self, base_offset: int, before: int) -> Finding | None:
        """The finding on a log in which epochs go back; None if they do not. `before` is the largest epoch in the logs
        before it.
        """
        if base_offset not in self.changes:
            return None
        changes = self.changes[base_offset]
        earlier = np.maximum.accumulate(np.concatenate([[before], changes["epoch"]]))[:-1]
        back = np.flatnonzero(changes["epoch"] < earlier)
        if not len(back):
            return None
        at = changes[back[0]]
        # Within one file, only a broker can have written them in this order.
        is_brokers = self.by_broker or back[0] > 0
        return Finding(
            file=segment_files.LOG_SUFFIX,
            verdict=Verdict.SAFE if is_brokers else Verdict.BROKEN,
            reason="leader-epochs-go-back",
            position=int(at["position"]),
            detail=f"leader epoch {at['epoch']} from offset {at['start_offset']} on, after {earlier[back[0]]}",
            consequence=_APPENDED_BY_BROKER if is_brokers else _FROM_TWO_COPIES,
        )


def audit_logs(
    logs: Sequence[AuditedLog],
    epochs: PartitionLogEpochs,
    simulation: StartupSimulation,
    stop: PartitionStop,
    indexed: Collection[int] | None,
    swapped: SwappedLogs,
) -> Iterator[tuple[int, Finding]]:
    """The findings on all logs of a partition, in order, with their base offsets. `indexed` has the base offsets of
    offset indexes that a build wrote into an index directory, without logs that a broker has begun since; None if index
    files are beside the logs. `swapped` is what takes the place of logs as a broker starts.
    """
    of_swaps = _finding_on_swaps(logs, simulation, swapped)
    compacted = any(log.recovery is not None and log.recovery.may_lack_records(log.base_offset) for log in logs)
    intruders = _intruding_logs(logs)
    segments = {segment.base_offset: segment for segment in simulation.segments}
    end_before: int | None = None
    epoch_before = NO_LEADER_EPOCH
    for number, log in enumerate(logs):
        following = logs[number + 1].base_offset if number + 1 < len(logs) else None
        if log.finding is not None:
            finding = log.finding
            if finding.verdict is Verdict.TORN and stop.clean_shutdown:
                finding = _torn_after_clean_stop(finding, log.recovery, segments.get(log.base_offset))
            elif finding.verdict is Verdict.TORN and indexed is None:
                finding = _torn_of_only_replica(finding, log, stop)
            trusts_index = indexed is None or (following is not None and not compacted)
            for other in _findings_on_neighbours(log, end_before, following, stop, trusts_index):
                finding = worse(finding, _with_intruder_named(other, log.base_offset, intruders))
            if (goes_back := epochs.go_back(log.base_offset, epoch_before)) is not None:
                finding = worse(finding, goes_back)
            finding = _with_fate(finding, log, segments.get(log.base_offset), simulation, stop)
            if of_swaps is not None and of_swaps[0] == log.base_offset:
                finding = worse(finding, of_swaps[1])
            yield log.base_offset, finding
        if log.recovery is not None and log.recovery.end.status in USABLE:
            end_before = max(end_before or 0, log.recovery.next_offset)
            epoch_before = max(epoch_before, epochs.largest(log.base_offset))
    yield from _findings_on_swapped_in(logs, simulation)
    if indexed is None:
        yield from _logs_missing_beside_indexes(logs, simulation)
    else:
        yield from _logs_missing_by_index_directory(logs, simulation, indexed, compacted)


def _torn_after_clean_stop(
    finding: Finding, recovery: SegmentRecovery | None, segment: SimulatedSegment | None
) -> Finding:
    """A torn log is broken if the broker stopped cleanly: a clean stop leaves no torn end, and the next start does not
    look for one. But it recovers a segment without an `.index`, and then cuts the torn end off
    (`LogLoader.loadSegmentFiles`).
    """
    size = "its end" if recovery is None else f"byte {recovery.log_bytes:,}"
    is_cut = segment is not None and bool(segment.lost_bytes)
    return replace(
        finding,
        verdict=Verdict.BROKEN,
        detail=f"{finding.detail}; after a clean stop no log may end so",
        consequence="the broker reads the segment after a clean stop, too, as its .index is missing or damaged"
        if is_cut
        else f"a broker that starts after a clean stop does not look, and appends at {size}: what it writes "
        f"from then on cannot be read, as it comes after the damage at byte {finding.position}",
    )


def _torn_of_only_replica(finding: Finding, log: AuditedLog, stop: PartitionStop) -> Finding:
    """A torn log of a partition's only replica is broken if its index shows that whole records were lost: no other
    replica has them.
    """
    lost = range(0) if log.recovery is None else offsets_known_by_index(log.index_end, log.recovery)
    return replace(finding, verdict=Verdict.BROKEN) if lost and stop.is_only_replica else finding


def offsets_known_by_index(index_end: OffsetPosition | None, recovery: SegmentRecovery) -> range:
    """The offsets behind the end of a partition's log that the last entry of its index knows; empty if whole batches
    follow the end.

    A broker writes an index entry after it has appended the batch (`LogSegment.append`). So the log had these offsets.
    A killed process leaves both; a power cut may leave only the index.
    """
    if index_end is None or index_end.position < recovery.end.position or recovery.past.batches != 0:
        return range(0)
    return range(recovery.next_offset, index_end.offset + 1)


def _findings_on_neighbours(
    log: AuditedLog, end_before: int | None, following: int | None, stop: PartitionStop, trusts_index: bool
) -> Iterator[Finding]:
    recovery = log.recovery
    if recovery is None:
        return
    if end_before is not None and log.base_offset < end_before:
        yield Finding(
            file=segment_files.LOG_SUFFIX,
            verdict=Verdict.BROKEN,
            reason=_OVERLAPS_BEFORE,
            position=0,
            detail=f"it begins at offset {log.base_offset}, the log before it ends at {end_before}",
            consequence=f"offsets {log.base_offset} to {end_before - 1} are in two logs: which records consumers get "
            "depends on where they begin",
        )
    if recovery.end.status not in USABLE:
        return
    if following is None:
        yield from _finding_on_log_end(recovery, stop)
    if trusts_index and recovery.end.status is Status.OK:
        yield from _finding_on_index_end(log, recovery, following, stop)


def _finding_on_log_end(recovery: SegmentRecovery, stop: PartitionStop) -> Iterator[Finding]:
    """The finding on a last log that does not end where the checkpoints of its broker say."""
    if (below := stop.finding_below_checkpoints(recovery.next_offset, recovery.end.position)) is not None:
        yield below
        return
    # `LogManager.shutdown` flushes all logs, and then writes the checkpoint and the marker of a clean stop.
    if stop.clean_shutdown and 0 < stop.recovery_point < recovery.next_offset:
        yield Finding(
            file=segment_files.LOG_SUFFIX,
            verdict=Verdict.SAFE,
            reason="ends-above-recovery-point",
            position=recovery.end.position,
            detail=f"the log ends at offset {recovery.next_offset}, {checkpoint_files.RECOVERY_POINT_CHECKPOINT} says "
            f"{stop.recovery_point}",
            consequence="a clean stop leaves both at one offset: the log was changed since, the checkpoint is older, "
            "or the marker is false",
        )


def _finding_on_index_end(
    log: AuditedLog, recovery: SegmentRecovery, following: int | None, stop: PartitionStop
) -> Iterator[Finding]:
    """The finding on a log that was longer when its index was written. After an unclean stop, the index of the last log
    may have been flushed before the log, which is then torn between two batches; if it is the only replica, it is
    broken. If no offset is missing up to the next segment, the index is wrong, and there is no finding here.
    """
    entry = log.index_end
    if entry is None or entry.position < recovery.log_bytes or entry.offset < recovery.next_offset:
        return
    if following is None or entry.offset < following:
        yield finding_on_shorter_log(recovery, entry, stop, is_last=following is None)


def finding_on_shorter_log(
    recovery: SegmentRecovery, entry: OffsetPosition, stop: PartitionStop, *, is_last: bool
) -> Finding:
    """The finding on a partition's log that ends before the last entry of its index. `is_last`: no segment follows."""
    is_unclean = is_last and not stop.clean_shutdown
    is_torn = is_unclean and not stop.is_only_replica
    missing = f"offsets from {recovery.next_offset} up to {entry.offset} or above are missing"
    return Finding(
        file=segment_files.LOG_SUFFIX,
        verdict=Verdict.TORN if is_torn else Verdict.BROKEN,
        reason="shorter-than-its-index",
        position=recovery.log_bytes,
        detail=f"the log has {recovery.log_bytes} bytes and ends at offset {recovery.next_offset}, its .index has "
        f"an entry for offset {entry.offset} at byte {entry.position}",
        consequence=f"{missing}, and a broker that starts goes on without them: {_where_to_look(stop)}"
        if is_unclean
        else missing,
    )


def _where_to_look(stop: PartitionStop) -> str:
    if stop.is_only_replica:
        return "by the cluster's metadata no other node has a replica: look for a copy that has them"
    return "look for them on another replica"


def _intruding_logs(logs: Sequence[AuditedLog]) -> dict[int, Overlap]:
    """The logs that overlap others which follow one another without them, by base offset."""
    ranges = [
        LogRange(log.base_offset, log.recovery.next_offset)
        for log in logs
        if log.recovery is not None and log.recovery.end.status in USABLE
    ]
    return {base: overlap for base, overlap in overlaps_of(ranges).items() if overlap.is_between}


def _with_intruder_named(finding: Finding, base_offset: int, intruders: Mapping[int, Overlap]) -> Finding:
    """A finding on an overlap also names the log that does not belong there: this one, or one that overlaps it."""
    if finding.reason != _OVERLAPS_BEFORE:
        return finding
    between = (base for base, overlap in intruders.items() if base < base_offset < overlap.end_offset)
    base = base_offset if base_offset in intruders else next(between, None)
    if base is None:
        return finding
    name = segment_files.segment_file(base, segment_files.LOG_SUFFIX)
    why = intruders[base].why.removesuffix(TELLS_MORE)
    return replace(finding, consequence=f"{finding.consequence}; {name} is the one in between: {why}")


def _with_fate(
    finding: Finding,
    log: AuditedLog,
    segment: SimulatedSegment | None,
    simulation: StartupSimulation,
    stop: PartitionStop,
) -> Finding:
    recovery = log.recovery
    fate = Fate() if recovery is None else _fate_at_start(finding, recovery, segment)
    of_start = _consequence_of_start(finding, log, segment, simulation, fate, stop)
    consequence = "; ".join(filter(None, (finding.consequence, of_start)))
    return replace(finding, fate=fate, consequence=consequence or None)


def _fate_at_start(finding: Finding, recovery: SegmentRecovery, segment: SimulatedSegment | None) -> Fate:
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


_CONSEQUENCES: Final = {
    StartupAction.FAIL: "a broker that starts fails on it, and takes its log dir out of use",
    StartupAction.SPLIT: "a broker that starts splits the segment into several",
}


def _consequence_of_start(
    finding: Finding,
    log: AuditedLog,
    segment: SimulatedSegment | None,
    simulation: StartupSimulation,
    fate: Fate,
    stop: PartitionStop,
) -> str | None:
    """What a starting broker does to the log, in words; None if that is not worth a word."""
    is_damaged, recovery = finding.verdict in DAMAGE, log.recovery
    if recovery is None:
        return None
    if segment is None:
        return "a broker that starts does not come to this segment" if is_damaged else None
    if segment.action in _CONSEQUENCES:
        return _CONSEQUENCES[segment.action]
    if segment.action is StartupAction.DELETE:
        return f"a broker that starts deletes the segment: {segment.detail}"
    after = [other for other in simulation.segments if other.base_offset > segment.base_offset]
    if segment.lost_bytes:
        deleted = [other for other in after if other.action is StartupAction.DELETE]
        is_emptied = segment.action is StartupAction.EMPTY
        does = "empties the log" if is_emptied else f"truncates the log to byte {segment.kept_bytes:,}"
        lost = f"{_lost_in_words(recovery, fate, log.index_end, stop)}{_lost_after_in_words(deleted)}"
        return f"a broker that starts {does}{_deletes_in_words(len(deleted))}: {lost}"
    if not is_damaged or finding.consequence is not None:
        return None
    if recovery.end.position < recovery.log_bytes and recovery.end.status is Status.TRUNCATED:
        return (
            f"a broker that starts does not look: consumers and replicas fail at offset {recovery.next_offset}, and "
            f"where it recovers the segment it truncates the log to byte {recovery.end.position:,}"
            f"{_deletes_in_words(len(after))}: {_lost_in_words(recovery, fate, log.index_end, stop)}"
            f"{_bytes_after_in_words(after)}"
        )
    if recovery.end.status is Status.QUARANTINED:
        return "a broker that starts does not look; one that has to recover the segment fails, or empties it"
    return "a broker that starts takes it as it is"


def _deletes_in_words(segments: int) -> str:
    """Recovery deletes the segments after one that it truncates (`LogLoader.recoverLog`)."""
    return f" and deletes {counted(segments, 'segment')} after it" if segments else ""


def _lost_in_words(recovery: SegmentRecovery, fate: Fate, index_end: OffsetPosition | None, stop: PartitionStop) -> str:
    """What follows the valid end of a log, in words. A batch that is incomplete now may have been whole: a broker
    writes the index entry after it has appended the batch, and the index may reach the disk before the log
    (`LogSegment.append`).
    """
    if recovery.past.unfinished:
        bytes_ = f"{fate.lost_bytes:,} bytes that are no whole batch"
        if not (known := offsets_known_by_index(index_end, recovery)):
            return bytes_
        offsets = f"offsets {known.start:,} to {known.stop - 1:,}"
        return f"{bytes_}; its .index says that {offsets} were appended there: {_where_to_look(stop)}"
    batches = _count_in_words(fate.lost_batches, "batch", "batches")
    records = _count_in_words(fate.lost_records, "record", "records")
    return f"{fate.lost_bytes:,} bytes are lost, {batches} with {records}"


def _lost_after_in_words(deleted: Sequence[SimulatedSegment]) -> str:
    if not deleted:
        return ""
    known = [segment.lost_records for segment in deleted if segment.lost_records is not None]
    records = _count_in_words(sum(known) if len(known) == len(deleted) else None, "record", "records")
    return f"; after it {sum(segment.lost_bytes for segment in deleted):,} bytes with {records}"


def _bytes_after_in_words(segments: Sequence[SimulatedSegment]) -> str:
    return f"; after it {sum(segment.log_bytes for segment in segments):,} bytes" if segments else ""


def _count_in_words(count: int | None, one: str, more: str) -> str:
    return f"an unknown number of {more}" if count is None else counted(count, one, more)


def is_missing(finding: Finding) -> bool:
    """Whether a finding on a partition's logs is that one of them is missing, and means a loss."""
    return (finding.file, finding.reason, finding.verdict) == (segment_files.LOG_SUFFIX, MISSING, Verdict.BROKEN)


def _logs_missing_beside_indexes(
    logs: Sequence[AuditedLog], simulation: StartupSimulation
) -> Iterator[tuple[int, Finding]]:
    """The findings on logs that are missing while their indexes are there, and that were not renamed. A broker and a
    build remove the log last, so neither has deleted these.
    """
    judged = {log.base_offset for log in logs}
    for name, why in sorted(simulation.removed.items()):
        offset, suffix = segment_files.parse_segment_file(name) or (0, "")
        if why is not Removal.ORPHAN or suffix != segment_files.OFFSET_INDEX_SUFFIX or offset in judged:
            continue
        log = segment_files.segment_file(offset, segment_files.LOG_SUFFIX)
        is_renamed = f"{log}{segment_files.DELETED_SUFFIX}" in simulation.removed
        if not is_renamed and not _is_in_a_log(offset, logs):
            yield (
                offset,
                replace(
                    _MISSING_BETWEEN,
                    detail=f"{name} is there, its log is not",
                    consequence="a broker that starts removes the segment's index files, and knows nothing of its "
                    f"records; {_missing_offsets_in_words(offset, logs)}",
                ),
            )


def _logs_missing_by_index_directory(
    logs: Sequence[AuditedLog], simulation: StartupSimulation, indexed: Collection[int], compacted: bool
) -> Iterator[tuple[int, Finding]]:
    """The findings on logs that are missing while their indexes are in an index directory, by their place among the
    existing logs. The simulation reports a partition that has no log at all.
    """
    if not logs:
        return
    first, last = logs[0].base_offset, logs[-1].base_offset
    judged = {log.base_offset for log in logs} | {offset for offset, _ in _findings_on_swapped_in(logs, simulation)}
    for offset in sorted(set(indexed) - judged):
        if _is_in_a_log(offset, logs):
            continue
        if offset < first:
            yield offset, _MISSING_AT_BEGINNING
            continue
        finding = _MISSING_AT_END if offset > last else _MISSING_BY_COMPACTION if compacted else _MISSING_BETWEEN
        yield offset, replace(finding, consequence=f"{finding.consequence}; {_missing_offsets_in_words(offset, logs)}")


def missing_at_end(last: int, end: int | None, indexed: Collection[int]) -> Iterator[tuple[int, Finding]]:
    """The findings on logs that are missing after the last one, for a partition whose logs were not read. The last log
    begins at `last` and ends at `end`, None if that is not known; `indexed` are the base offsets of offset indexes.
    """
    for offset in sorted(indexed):
        if offset > last:
            lacking = f"offsets from {offset if end is None else end} on are in no log"
            yield offset, replace(_MISSING_AT_END, consequence=f"{_MISSING_AT_END.consequence}; {lacking}")


def _is_in_a_log(offset: int, logs: Sequence[AuditedLog]) -> bool:
    return any(log.recovery is not None and log.base_offset <= offset < log.recovery.next_offset for log in logs)


def _missing_offsets_in_words(offset: int, logs: Sequence[AuditedLog]) -> str:
    """Which offsets are missing with a log, in words."""
    ends = [log.recovery.next_offset for log in logs if log.base_offset < offset and log.recovery is not None]
    first = max(ends, default=offset)
    following = min((log.base_offset for log in logs if log.base_offset > offset), default=None)
    return f"offsets {f'from {first} on' if following is None else f'{first} to {following - 1}'} are in no log"


_MISSING_BETWEEN: Final = Finding(
    file=segment_files.LOG_SUFFIX,
    verdict=Verdict.BROKEN,
    reason=MISSING,
    detail="its .index is there, its log is not, and others before and after it are",
    consequence="its records are missing: retention deletes at the beginning, and compaction has not merged it",
    fate=Fate(),
)
_MISSING_BY_COMPACTION: Final = replace(
    _MISSING_BETWEEN, verdict=Verdict.SAFE, consequence="compaction may have merged it into the log before"
)
_MISSING_AT_END: Final = replace(
    _MISSING_BETWEEN,
    detail="its .index is there, its log is not, and the logs before it are",
    consequence="its records are missing, if no broker has truncated the log: neither retention nor compaction removes "
    "the last segment",
)
_MISSING_AT_BEGINNING: Final = replace(
    _MISSING_BETWEEN,
    verdict=Verdict.SAFE,
    reason="gone",
    detail="its .index is there, its log is not, nor any before it",
    consequence="the log was deleted by retention, or is lost: leader-epoch-checkpoint beside the logs tells which, if "
    "it begins there",
)


def _findings_on_swapped_in(logs: Sequence[AuditedLog], simulation: StartupSimulation) -> Iterator[tuple[int, Finding]]:
    """The findings on logs that a starting broker will rename from `.swap`, and that the scan has not read."""
    judged = {log.base_offset for log in logs}
    for segment in simulation.segments:
        swapped = _swap_file(segment.base_offset)
        if segment.base_offset not in judged and swapped in simulation.renamed:
            yield (
                segment.base_offset,
                Finding(
                    file=segment_files.LOG_SUFFIX,
                    verdict=Verdict.BROKEN,
                    reason="not-checked",
                    detail=f"{swapped} takes its place when a broker starts, and was not read",
                    consequence="whether its records are whole is not known; audit it again once it has its name",
                    fate=Fate(),
                ),
            )


def logs_replaced_by_swaps(logs: Sequence[AuditedLog], simulation: StartupSimulation) -> list[AuditedLog]:
    """The logs of a partition in whose place a starting broker puts others, which are called `.swap`: it removes them,
    or, where the other has no offset that it can find, renames it over the log (`LogLoader.load`).
    """
    return [
        log
        for log in logs
        if simulation.removed.get(segment_files.segment_file(log.base_offset, segment_files.LOG_SUFFIX))
        is Removal.SWAPPED
        or _swap_file(log.base_offset) in simulation.renamed
    ]


def _swap_file(base_offset: int) -> str:
    return f"{segment_files.segment_file(base_offset, segment_files.LOG_SUFFIX)}{segment_files.SWAP_SUFFIX}"


def _finding_on_swaps(
    logs: Sequence[AuditedLog], simulation: StartupSimulation, swapped: SwappedLogs
) -> tuple[int, Finding] | None:
    """The finding on the first of the logs that are replaced, with its base offset; None if nothing is lost with them.
    The cleaner leaves fewer records, and where a broker was killed there, both are to be seen.
    """
    replaced = logs_replaced_by_swaps(logs, simulation)
    ends = {**swapped.not_read, **{offset: recovery.end for offset, recovery in swapped.recoveries.items()}}
    if not replaced or not ends:
        return None
    first, swaps = min(ends), list(swapped.recoveries.values())
    found = Finding(
        file=segment_files.LOG_SUFFIX,
        verdict=Verdict.BROKEN,
        reason="swap-lacks-records",
        detail="",
        consequence="records are lost as a broker starts: move the files .swap elsewhere first, and look at them",
        fate=Fate(),
    )
    takes = f"{_swap_file(first)} takes its place when a broker starts"
    for base_offset, end in ends.items():
        swap = _swap_file(base_offset)
        if base_offset in swapped.not_read:
            consequence = f"if it lacks records, {found.consequence}"
            found = replace(found, reason=end.reason, consequence=consequence)
            return replaced[0].base_offset, replace(found, detail=f"{takes}, and {swap} was not read: {end.detail}")
        if end.status is not Status.OK:
            what = f"{swap} is damaged: {end.reason} at byte {end.position}"
            return replaced[0].base_offset, replace(found, detail=f"{takes}, and {what}")
    recoveries = [log.recovery for log in replaced if log.recovery is not None]
    before, after = (_records_and_end(each) for each in (recoveries, swaps))
    if after[1] >= before[1] and (None in (before[0], after[0]) or (after[0] or 0) >= (before[0] or 0)):
        return None
    detail = f"{takes}, and has {_records_in_words(after)}; what it replaces has {_records_in_words(before)}"
    if None in (before[0], after[0]):
        detail += "; records were not compared: compressed messages of magic 0 and 1 hide how many there are"
    lacking = [*swapped.recoveries.items(), *((log.base_offset, log.recovery) for log in logs)]
    was_cleaned = any(
        log is not None and log.records is not None and log.may_lack_records(base_offset)
        for base_offset, log in lacking
    )
    if swapped.is_compacted or (swapped.is_compacted is None and was_cleaned):
        consequence = "compaction leaves fewer records, and the broker was killed as it put them in place"
        found = replace(found, verdict=Verdict.SAFE, reason="swapped-in", consequence=consequence)
    elif swapped.is_compacted is None:
        found = replace(found, consequence=f"unless the topic is compacted, {found.consequence}")
    return replaced[0].base_offset, replace(found, detail=detail)


def _records_and_end(recoveries: Sequence[SegmentRecovery]) -> tuple[int | None, int]:
    """The number of records in some logs, None if some do not tell, and the offset after the last one."""
    records = [recovery.records for recovery in recoveries]
    total = None if None in records else sum(count or 0 for count in records)
    return total, max((recovery.next_offset for recovery in recoveries), default=0)


def _records_in_words(counted_to: tuple[int | None, int]) -> str:
    records, end = counted_to
    if records == 0:
        return "no records"
    return f"{'records' if records is None else counted(records, 'record')} up to offset {end - 1}"
