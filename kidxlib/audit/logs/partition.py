"""The logs of a partition together: how they follow one another, and what becomes of each when the broker starts."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from kidxlib.audit.finding import Finding, Verdict, worse
from kidxlib.audit.logs.log import AuditedLog
from kidxlib.audit.logs.log_end import of_index_end, of_log_end
from kidxlib.audit.logs.losses import with_fate
from kidxlib.audit.logs.missing import may_be_compacted, missing_by_index_directory, missing_logs, swapped_in
from kidxlib.audit.startup.last_stop import PartitionStop
from kidxlib.audit.startup.recovery import Recovery
from kidxlib.audit.startup.simulation import StartupSimulation
from kidxlib.format import layouts as formats
from kidxlib.format import segment_files
from kidxlib.recovery.outcome import USABLE, Status


def audit_logs(
    logs: Sequence[AuditedLog],
    epochs: Mapping[int, tuple[int, int]],
    simulation: StartupSimulation,
    stop: PartitionStop,
    indexed: Collection[int] | None,
) -> Iterator[tuple[int, Finding]]:
    """The findings on all logs of a partition, with the base offset of each.

    Args:
        logs: by base offset.
        epochs: the first and the largest leader epoch in each, by base offset; of those that have some.
        simulation: what a broker does when it starts.
        indexed: base offsets of the offset indexes that a build wrote into an index directory, without those of logs
            that a broker has begun since; None if index files stand beside the logs.
    """
    compacted = may_be_compacted(logs)
    segments = {segment.base_offset: segment for segment in simulation.segments}
    end_before: int | None = None
    epoch_before = formats.NO_LEADER_EPOCH
    for number, log in enumerate(logs):
        following = logs[number + 1].base_offset if number + 1 < len(logs) else None
        if log.finding is not None:
            finding = log.finding
            if finding.verdict is Verdict.TORN and stop.clean_shutdown:
                finding = _torn_after_clean_stop(finding, log.recovery)
            trusts_index = indexed is None or (following is not None and not compacted)
            for more in _of_neighbours(log, end_before, following, stop, trusts_index):
                finding = worse(finding, more)
            if log.base_offset in epochs and (first := epochs[log.base_offset][0]) < epoch_before:
                finding = worse(finding, _epochs_go_back(first, epoch_before))
            yield log.base_offset, with_fate(finding, log, segments.get(log.base_offset), simulation)
        if log.recovery is not None and log.recovery.end.status in USABLE:
            end_before = max(end_before or 0, log.recovery.next_offset)
            epoch_before = max((epoch_before, *epochs.get(log.base_offset, ())))
    yield from swapped_in(logs, simulation)
    if indexed is None:
        yield from missing_logs(logs, simulation)
    else:
        yield from missing_by_index_directory(logs, simulation, indexed, compacted)


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
            file=segment_files.LOG_SUFFIX,
            verdict=Verdict.BROKEN,
            reason="overlaps-segment-before",
            position=0,
            detail=f"it begins at offset {log.base_offset}, the log before it ends at {end_before}",
            consequence=f"offsets {log.base_offset} to {end_before - 1} are in two logs: which records consumers get "
            "depends on where they begin",
        )
    if recovery.end.status not in USABLE:
        return
    if following is None:
        yield from of_log_end(recovery, stop)
    if trusts_index and recovery.end.status is Status.OK:
        yield from of_index_end(log, recovery, following, stop)


def _epochs_go_back(epoch: int, before: int) -> Finding:
    return Finding(
        file=segment_files.LOG_SUFFIX,
        verdict=Verdict.BROKEN,
        reason="leader-epochs-go-back",
        position=0,
        detail=f"it begins with leader epoch {epoch}, a segment before it has {before}",
        consequence="no broker writes that: the segments may come from two copies of the partition; followers that ask "
        "where an epoch ends get a wrong offset",
    )
