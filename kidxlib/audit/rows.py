"""The results of an audit as rows for tables and JSON."""

from __future__ import annotations

import enum
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Final

from kidxlib.audit.finding import DAMAGE, IN_USE, Fate, Finding, SegmentFinding, Verdict
from kidxlib.audit.gaps import GAP
from kidxlib.audit.partition import AuditedPartition, PartitionAudit
from kidxlib.audit.segment import AuditedSegment
from kidxlib.audit.startup.simulation import SimulatedSegment, StartupSimulation
from kidxlib.catalog.findings import FileFinding, JudgedFile
from kidxlib.catalog.results import NotReadyRow, StartupPartitionRow, StartupRow
from kidxlib.catalog.rows import Row
from kidxlib.format.checkpoint_files import LEADER_EPOCH_CHECKPOINT
from kidxlib.format.segment_files import LOG_SUFFIX, segment_file
from kidxlib.format.topic_partition import PartitionKey, TopicPartition
from kidxlib.indexing.plan import ScanTask
from kidxlib.storage.location import Location, as_text, location, version_at

_NO_FATE: Final = Fate()
_FATE_COLUMNS: Final = tuple(column.name for column in fields(Fate))


class RowKind(enum.StrEnum):
    """The kinds of rows of an audit. A kind's value is its key in the JSON object, and its field of `AuditRows`."""

    FILE = "files"  # the finding on each file, logs included
    SEGMENT = "startup"  # what a broker would do with each segment
    PARTITION = "partitions"  # what a broker would do with each partition
    NOT_READY = "not_ready"  # segments that are not ready for tiered storage


@dataclass(slots=True)
class AuditRows:
    """The rows of an audit, by kind."""

    files: list[FileFinding] = field(default_factory=list)
    startup: list[StartupRow] = field(default_factory=list)
    partitions: list[StartupPartitionRow] = field(default_factory=list)
    not_ready: list[NotReadyRow] = field(default_factory=list)

    def by_kind(self) -> Mapping[RowKind, Sequence[Row]]:
        return {kind: getattr(self, kind.value) for kind in RowKind}


def rows_of_segment(task: ScanTask, audited: AuditedSegment) -> list[FileFinding]:
    segment, directory = task.segment, location(str(task.index_directory))
    return [
        _file_finding(segment.source, segment.topic_partition, audited.base_offset, finding, directory)
        for finding in audited.findings
    ]


def rows_of_partition(source: str, task: PartitionAudit, audited: AuditedPartition) -> AuditRows:
    topic_partition = task.topic_partition
    not_ready = [
        NotReadyRow(
            source=source,
            topic=topic_partition.topic,
            partition=topic_partition.partition,
            base_offset=segment.base_offset,
            missing=list(segment.missing),
        )
        for segment in audited.not_ready or ()
    ]
    return AuditRows(
        files=[row_of_partition(source, task, finding) for finding in audited.findings],
        startup=[_startup_row(source, task, segment) for segment in audited.simulation.segments],
        partitions=[_partition_row(source, task, audited.simulation)],
        not_ready=not_ready,
    )


def row_of_partition(source: str, task: PartitionAudit, on_file: SegmentFinding) -> FileFinding:
    """The row of a finding by the audit of a partition as a whole."""
    is_beside = on_file.beside_logs or on_file.finding.file == LOG_SUFFIX
    directory = task.directory if is_beside else task.index_directory
    return _file_finding(source, task.topic_partition, on_file.base_offset, on_file.finding, directory)


def _file_finding(
    source: str, topic_partition: TopicPartition, base_offset: int, finding: Finding, directory: Location
) -> FileFinding:
    name = finding.file if finding.file == LEADER_EPOCH_CHECKPOINT else segment_file(base_offset, finding.file)
    path = f"{directory}/{name}"
    fate = finding.fate or _NO_FATE
    # The state of the file with this finding: an acceptance holds for this state alone.
    version = version_at(location(path)) if finding.verdict in DAMAGE or finding.reason == IN_USE else None
    return FileFinding(
        source=source,
        topic=topic_partition.topic,
        partition=topic_partition.partition,
        base_offset=base_offset,
        file=finding.file,
        verdict=finding.verdict.value,
        reason=finding.reason,
        position=finding.position,
        detail=None if finding.detail is None else as_text(finding.detail),
        consequence=finding.consequence,
        **{name: getattr(fate, name) for name in _FATE_COLUMNS},
        path=as_text(path),
        file_bytes=None if version is None else version.size,
        file_mtime_ns=None if version is None else version.mtime_ns,
        file_inode=None if version is None else version.inode,
    )


def _startup_row(source: str, task: PartitionAudit, segment: SimulatedSegment) -> StartupRow:
    return StartupRow(
        source=source,
        topic=task.topic_partition.topic,
        partition=task.topic_partition.partition,
        base_offset=segment.base_offset,
        action=segment.action.value,
        log_bytes=segment.log_bytes,
        read_bytes=segment.read_bytes,
        lost_bytes=segment.lost_bytes,
        lost_batches=segment.lost_batches,
        lost_records=segment.lost_records,
        detail=None if segment.detail is None else as_text(segment.detail),
    )


def _partition_row(source: str, task: PartitionAudit, simulation: StartupSimulation) -> StartupPartitionRow:
    return StartupPartitionRow(
        source=source,
        topic=task.topic_partition.topic,
        partition=task.topic_partition.partition,
        directory=as_text(task.directory),
        clean_shutdown=task.last_stop.clean_shutdown,
        log_start_offset=simulation.log_start_offset,
        log_end_offset=simulation.log_end_offset,
        failure=as_text("\n".join(simulation.failures)) or None,
        removed=[{"file": as_text(name), "why": why.value} for name, why in simulation.removed.items()],
        renamed=[as_text(name) for name in simulation.renamed],
    )


def broken_files(files: Iterable[FileFinding | JudgedFile]) -> dict[PartitionKey, frozenset[str]]:
    """The names of broken index and auxiliary files in rows of findings, by partition. Logs and gaps between them
    cannot be rebuilt, and are left out.
    """
    broken: dict[PartitionKey, set[str]] = defaultdict(set)
    for row in files:
        if row.verdict == Verdict.BROKEN and row.file not in (LOG_SUFFIX, GAP):
            broken[row.partition_key].add(os.path.basename(row.path))
    return {key: frozenset(names) for key, names in broken.items()}
