"""Audits a partition as a whole: what depends on the segments before and after, and on its directory.

It runs after all segments were read (`kidxlib.audit.segment`). It opens a log again only if the start-up simulation
needs it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from kidxlib.audit.finding import SegmentFinding, Verdict
from kidxlib.audit.index_files.partition import (
    ReadSegment,
    audit_leader_epochs,
    audit_snapshots,
    audit_transaction_indexes,
    read_epochs,
)
from kidxlib.audit.index_files.reading import read_snapshot_file, snapshot_files
from kidxlib.audit.index_files.transaction_index import markers_in
from kidxlib.audit.logs.log import AuditedLog
from kidxlib.audit.logs.partition import audit_logs
from kidxlib.audit.plan import PartitionAudit
from kidxlib.audit.segment import SegmentForPartition
from kidxlib.audit.startup import partition_files
from kidxlib.audit.startup.loader import simulate_startup
from kidxlib.audit.startup.recovery import Recovery
from kidxlib.audit.startup.simulation import StartupSimulation
from kidxlib.audit.tiering import NotReady, not_ready_for_tiering
from kidxlib.build.listing import offset_indexes
from kidxlib.errors import CheckpointError, LogChangedError, describe_error
from kidxlib.format import segment_files
from kidxlib.recovery.outcome import Status
from kidxlib.recovery.partition import PartitionFold


@dataclass(slots=True)
class AuditedPartition:
    """What an audit says of a partition, besides the findings on its segments.

    Attributes:
        not_ready: None where nobody asked.
    """

    simulation: StartupSimulation
    findings: list[SegmentFinding] = field(default_factory=list)
    not_ready: list[NotReady] | None = None


def audit_partition(task: PartitionAudit, segments: Iterable[SegmentForPartition]) -> AuditedPartition:
    """Audit a partition whose segments were all read.

    Args:
        segments: by base offset.

    Raises:
        OSError: its directories cannot be listed.
    """
    fold = PartitionFold(
        lambda offset: read_snapshot_file(
            task.directory / segment_files.segment_file(offset, segment_files.SNAPSHOT_SUFFIX)
        )
    )
    read: list[ReadSegment] = []
    broken: dict[tuple[int, str], str | None] = {}
    base_offsets: list[int] = []
    logs: list[AuditedLog] = []
    recoveries: dict[int, Recovery] = {}
    epochs_of_logs: dict[int, tuple[int, int]] = {}
    for segment in segments:
        folded = fold.add(segment.scanned)
        base_offset, recovery = segment.scanned.base_offset, segment.log.recovery
        base_offsets.append(base_offset)
        logs.append(segment.log)
        if len(in_log := segment.scanned.leader_epochs["epoch"]):  # of a scan they increase
            epochs_of_logs[base_offset] = int(in_log[0]), int(in_log[-1])
        broken |= {(base_offset, suffix): reason for suffix, reason in segment.broken.items()}
        if recovery is not None:
            recoveries[base_offset] = recovery
            if recovery.end.status is not Status.QUARANTINED:
                read.append(ReadSegment(base_offset, folded, markers_in(segment.scanned.producer_events)))
    in_place = task.index_directory == task.directory
    found = AuditedPartition(_simulate(task, recoveries, is_empty=not logs))
    indexed = None if in_place else _indexed(task, base_offsets)
    of_logs = dict(audit_logs(logs, epochs_of_logs, found.simulation, task.last_stop, indexed))
    found.findings += [SegmentFinding(base_offset, finding) for base_offset, finding in of_logs.items()]
    found.findings += audit_transaction_indexes(read, fold, task.index_directory)
    found.findings += audit_snapshots(read, fold, task.index_directory)
    epochs = read_epochs(task.index_directory)
    found.findings += audit_leader_epochs(read, fold, epochs, in_place=in_place)
    if task.tiering:
        broken |= {
            (each.base_offset, each.finding.file): each.finding.reason
            for each in found.findings
            if each.finding.verdict is Verdict.BROKEN
        }
        known_epochs = None if isinstance(epochs, CheckpointError) else epochs
        found.not_ready = list(
            not_ready_for_tiering(
                sorted({*base_offsets, *(offset for offset, log in of_logs.items() if log.verdict is Verdict.BROKEN)}),
                of_logs,
                broken,
                set(_snapshot_offsets(task)),
                known_epochs,
                min(fold.ongoing, default=None),
            )
        )
    return found


def _simulate(task: PartitionAudit, recoveries: dict[int, Recovery], *, is_empty: bool) -> StartupSimulation:
    if not task.is_brokers:
        return StartupSimulation()
    found = _simulate_empty(task) if is_empty else _simulate_segments(task, recoveries)
    found.failures[:0] = task.last_stop.failures
    return found


def _simulate_empty(task: PartitionAudit) -> StartupSimulation:
    failures = [task.last_stop.why_empty, *partition_files.failures_in_directory(task.directory)]
    return StartupSimulation(failures=failures)


def _simulate_segments(task: PartitionAudit, recoveries: dict[int, Recovery]) -> StartupSimulation:
    stop = task.last_stop
    try:
        return simulate_startup(
            task.directory,
            task.options,
            clean_shutdown=stop.clean_shutdown,
            recovery_point=stop.recovery_point,
            log_start_offset=stop.log_start_offset,
            recoveries=recoveries,
        )
    except (LogChangedError, OSError) as error:
        return StartupSimulation(failures=[describe_error(error)])


def _snapshot_offsets(task: PartitionAudit) -> Iterator[int]:
    for path in snapshot_files(task.index_directory):
        offset = segment_files.parse_snapshot(path.name)
        if offset is not None:
            yield offset


def _indexed(task: PartitionAudit, base_offsets: Sequence[int]) -> set[int]:
    """The base offsets of the offset indexes in an index directory, but for those of logs begun since the directory of
    the logs was listed, and that a build has indexed by now.

    Args:
        base_offsets: of the logs that were listed.
    """
    last = max(base_offsets, default=-1)

    def was_begun(offset: int) -> bool:
        return (
            offset > last and (task.directory / segment_files.segment_file(offset, segment_files.LOG_SUFFIX)).exists()
        )

    return {offset for offset in offset_indexes(task.index_directory) if not was_begun(offset)}
