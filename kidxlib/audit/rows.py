"""The results of an audit as rows for tables and JSON, and as numbers."""

from __future__ import annotations

import enum
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Final

from kidxlib.audit.finding import DAMAGE, IN_USE, Fate, Finding, SegmentFinding, Verdict
from kidxlib.audit.gaps import GAP, FoundGaps
from kidxlib.audit.partition import AuditedPartition, PartitionAudit
from kidxlib.audit.segment import AuditedSegment
from kidxlib.audit.startup.simulation import SimulatedSegment, StartupAction, StartupSimulation
from kidxlib.catalog.findings import FileFinding, JudgedFile
from kidxlib.catalog.results import NotReadyRow, StartupPartitionRow, StartupRow
from kidxlib.catalog.rows import Row, SegmentKey
from kidxlib.format.checkpoint_files import LEADER_EPOCH_CHECKPOINT
from kidxlib.format.segment_files import LOG_SUFFIX, segment_file
from kidxlib.format.topic_partition import PartitionKey, TopicPartition
from kidxlib.indexing.plan import ScanTask
from kidxlib.storage.location import Location, as_text, location, version_at

#: Actions of a broker that lose nothing of a segment.
NOTHING_LOST: Final = (StartupAction.LOAD, StartupAction.REBUILD)
#: Actions that may lose no more than a torn end. The verdict on the log says whether they do.
_ACTIONS_JUDGED_BY_LOG: Final = (*NOTHING_LOST, StartupAction.TRUNCATE)

#: Actions that fail an audit whatever the verdict on the log is.
LOSING: Final = tuple(action.value for action in StartupAction if action not in _ACTIONS_JUDGED_BY_LOG)

_NO_FATE: Final = Fate()
_FATE_COLUMNS: Final = tuple(column.name for column in fields(Fate))
#: The fields of a `StartupRow` that are numbers.
COUNTED: Final = ("log_bytes", "read_bytes", "lost_bytes", "lost_records")


class RowKind(enum.StrEnum):
    """The kinds of rows of an audit. A kind's value is its key in the JSON object, and its field of `AuditRows`."""

    FILE = "files"  # the finding on each file, logs included
    SEGMENT = "startup"  # what a broker would do with each segment
    PARTITION = "partitions"  # what a broker would do with each partition
    NOT_READY = "not_ready"  # segments that are not ready for tiered storage


@dataclass(slots=True)
class AuditRows:
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
    """The names of broken index and auxiliary files. Logs and gaps between them cannot be rebuilt, and are left out."""
    broken: dict[PartitionKey, set[str]] = defaultdict(set)
    for row in files:
        if row.verdict == Verdict.BROKEN and row.file not in (LOG_SUFFIX, GAP):
            broken[row.partition_key].add(os.path.basename(row.path))
    return {key: frozenset(names) for key, names in broken.items()}


@dataclass(slots=True)
class ActionCounts:
    """Segments that a broker would treat in the same way. `lost_records` is the sum of those that are known."""

    segments: int = 0
    log_bytes: int = 0
    read_bytes: int = 0
    lost_bytes: int = 0
    lost_records: int = 0


@dataclass(frozen=True, slots=True)
class MissingIndexes:
    """Segments without an `.index`, which are reported together if they are many: an archive may have none at all.

    Attributes:
        files: how many are missing: each `.index`, and each `.timeindex` that is rebuilt together with it.
        first: the finding on the first `.index`.
    """

    segments: int
    files: int
    first: FileFinding


@dataclass(frozen=True, slots=True)
class FilesAlike:
    """Files with the same verdict and reason, which are reported together if they are many: a killed broker leaves
    thousands.

    Attributes:
        files: how many, by suffix.
    """

    reason: str
    files: dict[str, int]
    first: FileFinding

    @property
    def count(self) -> int:
        return sum(self.files.values())


@dataclass(frozen=True, slots=True)
class StartFailure:
    """Something that keeps a broker from starting, or that it would lose at a start.

    Attributes:
        place: the partition's directory, or a file in it.
        why: the reason; it may begin with another path in the log dir.
    """

    place: str
    why: str

    @property
    def in_words(self) -> str:
        log_dir = os.path.dirname(self.place)
        return self.why if self.why.startswith((f"{log_dir}/", f"{log_dir}: ")) else f"{self.place}: {self.why}"


@dataclass(slots=True)
class AuditSummary:
    """The summary of an audit, with the first rows of those that are reported one by one.

    Attributes:
        many_sources: whether rows are reported with the names of their sources.
        coverage: which logs were read and which were left out, in words; empty without a catalog.
        not_simulated: how many partitions were left out.
        not_looked_at: which index files were left out, in words; empty if none were.
        gaps: the gaps between logs; lost ones are counted in `files`, too, and are reported by topic.
        in_use: how many logs a broker was writing to, and how many of their bytes were not judged.
        files: the number of index files, auxiliary files and logs, by suffix and verdict.
        reported: the files that are reported, the worst first, and logs before index and auxiliary files.
        rebuilt: paths of reported index files that a broker's next start makes anew from the log.
        missing: the missing indexes that are reported together; None if each is reported.
        together: other kinds of files that are reported together.
        actions: the number and sizes of segments, by a broker's action.
        lost: the first segments that lose something.
        starts: the number of partitions, by whether their broker stopped cleanly.
        failures: what keeps a broker from starting, besides segments.
        removed: the number of files that a broker would remove, by reason.
        not_ready: the first segments that are not ready for tiering; None if nobody asked.
    """

    many_sources: bool = False
    coverage: str = ""
    not_simulated: int = 0
    not_looked_at: str = ""
    gaps: FoundGaps = field(default_factory=FoundGaps)
    in_use: tuple[int, int] = (0, 0)
    files: Counter[tuple[str, str]] = field(default_factory=Counter)
    reported: list[FileFinding] = field(default_factory=list)
    rebuilt: frozenset[str] = frozenset()
    missing: MissingIndexes | None = None
    together: tuple[FilesAlike, ...] = ()
    actions: dict[str, ActionCounts] = field(default_factory=dict)
    lost: list[StartupRow] = field(default_factory=list)
    starts: Counter[bool] = field(default_factory=Counter)
    failures: dict[str, None] = field(default_factory=dict)
    removed: Counter[str] = field(default_factory=Counter)
    not_ready: list[NotReadyRow] | None = None
    not_ready_count: int = 0

    def add_start(self, partition: StartupPartitionRow) -> None:
        self.starts[partition.clean_shutdown] += 1
        self.removed.update(file["why"] for file in partition.removed)
        failures = partition.failure.split("\n") if partition.failure else ()
        self.add_failures(StartFailure(partition.directory, failure) for failure in failures)

    def add_failures(self, failures: Iterable[StartFailure]) -> None:
        self.failures.update(dict.fromkeys(failure.in_words for failure in failures))

    def name(self, row: SegmentKey) -> str:
        """What messages call a row's segment."""
        source = f"{row.source}: " if self.many_sources else ""
        return f"{source}{row.topic}-{row.partition} {row.base_offset}"

    @property
    def read_bytes(self) -> int:
        return sum(counts.read_bytes for counts in self.actions.values())

    @property
    def reported_count(self) -> int:
        """How many files are reported one by one."""
        wrong = sum(
            count
            for (file, verdict), count in self.files.items()
            if file != GAP and not Verdict(verdict).is_problem_free
        )
        together = sum(kind.count for kind in self.together)
        return wrong - together - (0 if self.missing is None else self.missing.files)

    @property
    def lost_count(self) -> int:
        return sum(counts.segments for action, counts in self.actions.items() if action not in NOTHING_LOST)

    def logs(self, verdict: Verdict) -> int:
        return self.files[LOG_SUFFIX, verdict.value]

    def fails(self, fail_on: Verdict) -> bool:
        """Whether a file has this verdict or a worse one, or the next start loses more than a torn end."""
        fails = any(
            count and Verdict(verdict).severity >= fail_on.severity for (_, verdict), count in self.files.items()
        )
        loses = any(counts.segments for action, counts in self.actions.items() if action in LOSING)
        return fails or loses or bool(self.failures or self.not_ready_count)
