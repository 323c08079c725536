"""What an audit found, as rows for tables and JSON."""

from __future__ import annotations

import enum
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from kidxlib.audit.finding import DAMAGE, IN_USE, Fate, Finding, SegmentFinding, Verdict
from kidxlib.audit.gaps import GAP
from kidxlib.audit.partition import AuditedPartition
from kidxlib.audit.plan import PartitionAudit
from kidxlib.audit.segment import AuditedSegment
from kidxlib.audit.startup.simulation import SimulatedSegment, StartupSimulation
from kidxlib.build.tasks import ScanTask
from kidxlib.catalog.findings import FileFinding, JudgedFile
from kidxlib.catalog.results.audit import NotReadyRow, StartupPartitionRow, StartupRow
from kidxlib.catalog.rows import Row
from kidxlib.format.checkpoint_files import LEADER_EPOCH_CHECKPOINT
from kidxlib.format.segment_files import LOG_SUFFIX, segment_file
from kidxlib.format.topic_partition import PartitionKey, TopicPartition
from kidxlib.storage.file_version import version_at
from kidxlib.storage.location import Location, as_text, location


class Kind(enum.StrEnum):
    """The rows that an audit leaves, and where they stand in its JSON object."""

    FILE = "files"  # each file, the logs too: what is to be said of it
    SEGMENT = "startup"  # each segment: what a broker would do with it
    PARTITION = "partitions"  # each partition: what a broker would do with it
    NOT_READY = "not_ready"  # segments that are not ready for tiered storage


@dataclass(slots=True)
class AuditRows:
    """What an audit found: rows of each kind."""

    files: list[FileFinding] = field(default_factory=list)
    startup: list[StartupRow] = field(default_factory=list)
    partitions: list[StartupPartitionRow] = field(default_factory=list)
    not_ready: list[NotReadyRow] = field(default_factory=list)

    def by_kind(self) -> Mapping[Kind, Sequence[Row]]:
        return {
            Kind.FILE: self.files,
            Kind.SEGMENT: self.startup,
            Kind.PARTITION: self.partitions,
            Kind.NOT_READY: self.not_ready,
        }


def rows_of_segment(task: ScanTask, audited: AuditedSegment) -> list[FileFinding]:
    """The rows of a segment's index files, once it was read."""
    segment, directory = task.segment, location(str(task.index_directory))
    return [
        _file(segment.source, segment.topic_partition, audited.base_offset, finding, directory)
        for finding in audited.findings
    ]


def rows_of_partition(source: str, task: PartitionAudit, audited: AuditedPartition) -> AuditRows:
    """The rows of a partition, once all of its segments were read."""
    of = task.topic_partition
    not_ready = [
        NotReadyRow(
            source=source,
            topic=of.topic,
            partition=of.partition,
            base_offset=each.base_offset,
            missing=list(each.missing),
        )
        for each in audited.not_ready or ()
    ]
    return AuditRows(
        files=[row_of_partition(source, task, found) for found in audited.findings],
        startup=[_segment(source, task, segment) for segment in audited.simulation.segments],
        partitions=[_partition(source, task, audited.simulation)],
        not_ready=not_ready,
    )


def row_of_partition(source: str, task: PartitionAudit, found: SegmentFinding) -> FileFinding:
    """The row of a finding on a file of a partition, once it was looked at as a whole."""
    is_beside = found.beside_logs or found.finding.file == LOG_SUFFIX
    directory = task.directory if is_beside else task.index_directory
    return _file(source, task.topic_partition, found.base_offset, found.finding, directory)


def _file(
    source: str, topic_partition: TopicPartition, base_offset: int, finding: Finding, directory: Location
) -> FileFinding:
    name = finding.file if finding.file == LEADER_EPOCH_CHECKPOINT else segment_file(base_offset, finding.file)
    path = directory / name
    # Which state of the file this was found in: whoever accepts it accepts no other.
    version = version_at(path) if finding.verdict in DAMAGE or finding.reason == IN_USE else None
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
        **asdict(finding.fate or Fate()),
        path=as_text(path),
        file_bytes=None if version is None else version.size,
        file_mtime_ns=None if version is None else version.mtime_ns,
        file_inode=None if version is None else version.inode,
    )


def _segment(source: str, task: PartitionAudit, segment: SimulatedSegment) -> StartupRow:
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


def _partition(source: str, task: PartitionAudit, simulation: StartupSimulation) -> StartupPartitionRow:
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
    """Names of the index and auxiliary files that were found broken, by partition. Logs and gaps between them are left
    out: they cannot be rebuilt.
    """
    broken: dict[PartitionKey, set[str]] = defaultdict(set)
    for row in files:
        if row.verdict == Verdict.BROKEN and row.file not in (LOG_SUFFIX, GAP):
            broken[row.partition_key].add(os.path.basename(row.path))
    return {key: frozenset(names) for key, names in broken.items()}
