"""The summary of an audit: what its rows come to, as numbers, and the rows that are reported one by one."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from kidxlib.audit.finding import Verdict
from kidxlib.audit.gaps import GAP, FoundGaps
from kidxlib.audit.startup.simulation import StartupAction
from kidxlib.catalog.findings import FileFinding
from kidxlib.catalog.results import NotReadyRow, StartupPartitionRow, StartupRow
from kidxlib.catalog.rows import SegmentKey
from kidxlib.format.segment_files import LOG_SUFFIX

#: Actions of a broker that lose nothing of a segment.
NOTHING_LOST: Final = (StartupAction.LOAD, StartupAction.REBUILD)
#: Actions that may lose no more than a torn end. The verdict on the log says whether they do.
_ACTIONS_JUDGED_BY_LOG: Final = (*NOTHING_LOST, StartupAction.TRUNCATE)

#: Actions that fail an audit whatever the verdict on the log is.
LOSING: Final = tuple(action.value for action in StartupAction if action not in _ACTIONS_JUDGED_BY_LOG)

#: The fields of a `StartupRow` that are numbers.
COUNTED: Final = ("log_bytes", "read_bytes", "lost_bytes", "lost_records")


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
        """The name of a row's segment in an audit's messages."""
        source = f"{row.source}: " if self.many_sources else ""
        return f"{source}{row.topic}-{row.partition} {row.base_offset}"

    @property
    def read_bytes(self) -> int:
        return sum(counts.read_bytes for counts in self.actions.values())

    @property
    def reported_count(self) -> int:
        """How many files an audit reports one by one."""
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
        """Whether an audit fails: a file has this verdict or a worse one, or the next start loses more than a torn
        end.
        """
        fails = any(
            count and Verdict(verdict).severity >= fail_on.severity for (_, verdict), count in self.files.items()
        )
        loses = any(counts.segments for action, counts in self.actions.items() if action in LOSING)
        return fails or loses or bool(self.failures or self.not_ready_count)
