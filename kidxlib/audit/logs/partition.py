"""The logs of a partition together: how they follow one another, and what becomes of each when the broker starts."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kidxlib.audit.finding import Finding, Verdict, worse
from kidxlib.audit.logs.log import AuditedLog
from kidxlib.audit.logs.log_end import of_index_end, of_log_end
from kidxlib.audit.logs.losses import with_fate
from kidxlib.audit.logs.missing import may_be_compacted, missing_by_index_directory, missing_logs, swapped_in
from kidxlib.audit.startup.last_stop import PartitionStop
from kidxlib.audit.startup.recovery import Recovery
from kidxlib.audit.startup.simulation import SimulatedSegment, StartupSimulation
from kidxlib.format import segment_files
from kidxlib.format.layouts import NO_LEADER_EPOCH
from kidxlib.recovery.outcome import USABLE, Status


@dataclass(frozen=True, slots=True)
class EpochsOfLogs:
    """The leader epochs in the logs of a partition.

    Attributes:
        changes: where the epoch changes from batch to batch, of dtype `scan_events.LEADER_EPOCH`, by base offset; of
            logs that have epochs.
        by_broker: the broker's file of epochs shows that it has appended them as they stand there.
    """

    changes: Mapping[int, NDArray[np.void]]
    by_broker: bool

    def largest(self, base_offset: int) -> int:
        return int(self.changes[base_offset]["epoch"].max()) if base_offset in self.changes else NO_LEADER_EPOCH

    def go_back(self, base_offset: int, before: int) -> Finding | None:
        """The finding on a log in which epochs go back.

        Args:
            before: the largest epoch in the logs before it.
        """
        if base_offset not in self.changes:
            return None
        changes = self.changes[base_offset]
        earlier = np.maximum.accumulate(np.concatenate([[before], changes["epoch"]]))[:-1]
        back = np.flatnonzero(changes["epoch"] < earlier)
        if not len(back):
            return None
        at = changes[back[0]]
        # Within one file a broker alone can have put them.
        is_brokers = self.by_broker or back[0] > 0
        return Finding(
            file=segment_files.LOG_SUFFIX,
            verdict=Verdict.SAFE if is_brokers else Verdict.BROKEN,
            reason="leader-epochs-go-back",
            position=int(at["position"]),
            detail=f"leader epoch {at['epoch']} from offset {at['start_offset']} on, after {earlier[back[0]]}",
            consequence=_AS_APPENDED if is_brokers else _FROM_TWO_COPIES,
        )


_AS_APPENDED: Final = (
    "a broker appended it so, as where a topic was made again over its old log: consumers get all records; recovery "
    "after an unclean stop makes other epochs of the log than the broker had"
)
_FROM_TWO_COPIES: Final = (
    "the segments may come from two copies of the partition; followers that ask where an epoch ends get a wrong offset"
)


def audit_logs(
    logs: Sequence[AuditedLog],
    epochs: EpochsOfLogs,
    simulation: StartupSimulation,
    stop: PartitionStop,
    indexed: Collection[int] | None,
) -> Iterator[tuple[int, Finding]]:
    """The findings on all logs of a partition, with the base offset of each.

    Args:
        logs: by base offset.
        epochs: the leader epochs in each.
        simulation: what a broker does when it starts.
        indexed: base offsets of the offset indexes that a build wrote into an index directory, without those of logs
            that a broker has begun since; None if index files stand beside the logs.
    """
    compacted = may_be_compacted(logs)
    segments = {segment.base_offset: segment for segment in simulation.segments}
    end_before: int | None = None
    epoch_before = NO_LEADER_EPOCH
    for number, log in enumerate(logs):
        following = logs[number + 1].base_offset if number + 1 < len(logs) else None
        if log.finding is not None:
            finding = log.finding
            if finding.verdict is Verdict.TORN and stop.clean_shutdown:
                finding = _torn_after_clean_stop(finding, log.recovery, segments.get(log.base_offset))
            trusts_index = indexed is None or (following is not None and not compacted)
            for more in _of_neighbours(log, end_before, following, stop, trusts_index):
                finding = worse(finding, more)
            if (went_back := epochs.go_back(log.base_offset, epoch_before)) is not None:
                finding = worse(finding, went_back)
            yield log.base_offset, with_fate(finding, log, segments.get(log.base_offset), simulation)
        if log.recovery is not None and log.recovery.end.status in USABLE:
            end_before = max(end_before or 0, log.recovery.next_offset)
            epoch_before = max(epoch_before, epochs.largest(log.base_offset))
    yield from swapped_in(logs, simulation)
    if indexed is None:
        yield from missing_logs(logs, simulation)
    else:
        yield from missing_by_index_directory(logs, simulation, indexed, compacted)


def _torn_after_clean_stop(finding: Finding, recovery: Recovery | None, segment: SimulatedSegment | None) -> Finding:
    """A broker that stops cleanly leaves no such tail, and one that starts after that looks for none; but a segment
    without an `.index` it recovers all the same, and cuts the tail off (`LogLoader.loadSegmentFiles`).
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
