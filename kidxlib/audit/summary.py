"""What an audit found, in numbers."""

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
from kidxlib.catalog.results.audit import NotReadyRow, StartupPartitionRow, StartupRow
from kidxlib.catalog.segment_key import SegmentKey
from kidxlib.format.segment_files import LOG_SUFFIX

#: What becomes of segments without anything being lost.
NOTHING_LOST: Final = (StartupAction.LOAD, StartupAction.REBUILD)
#: What becomes of those of which no more may be lost than a torn end; the verdict on the log says whether it is.
_JUDGED_BY_LOG: Final = (*NOTHING_LOST, StartupAction.TRUNCATE)

#: What fails an audit whatever the verdict on the log says.
LOSING: Final = tuple(action.value for action in StartupAction if action not in _JUDGED_BY_LOG)

#: The numbers in a `StartupRow`.
COUNTED: Final = ("log_bytes", "read_bytes", "lost_bytes", "lost_records")


@dataclass(slots=True)
class ActionCounts:
    """The segments that a broker would treat in one way.

    Attributes:
        lost_records: of the segments for which the number is known.
    """

    segments: int = 0
    log_bytes: int = 0
    read_bytes: int = 0
    lost_bytes: int = 0
    lost_records: int = 0


@dataclass(frozen=True, slots=True)
class MissingIndexes:
    """Segments without an `.index`, too many to report each: an archive may have none at all.

    Attributes:
        files: those that are missing: each `.index`, and each `.timeindex` that is rebuilt together with it.
        first: the finding on the first `.index`.
    """

    segments: int
    files: int
    first: FileFinding


@dataclass(frozen=True, slots=True)
class FileKind:
    """Files with one verdict for one reason, too many to report each: a killed broker leaves thousands.

    Attributes:
        files: how many, by suffix.
        first: the finding on the first.
    """

    reason: str
    files: dict[str, int]
    first: FileFinding

    @property
    def count(self) -> int:
        return sum(self.files.values())


@dataclass(frozen=True, slots=True)
class StartFailure:
    """What keeps a broker from starting, or what it would lose.

    Attributes:
        place: the partition's directory, or a file in it.
        why: it may begin with a place of its own in the log dir.
    """

    place: str
    why: str

    @property
    def in_words(self) -> str:
        log_dir = os.path.dirname(self.place)
        return self.why if self.why.startswith((f"{log_dir}/", f"{log_dir}: ")) else f"{self.place}: {self.why}"


@dataclass(slots=True)
class AuditSummary:
    """What an audit found. Of what is reported one by one it has the first.

    Attributes:
        many_sources: rows are reported with the names of their sources.
        coverage: what was read, and what was left out, in words; none where there is no catalog.
        not_simulated: partitions that were left out.
        not_looked_at: which index files were left out, in words; nothing where none were.
        gaps: between logs; those that are lost are among `files`, and are reported by topic.
        in_use: logs to which a broker wrote, and their bytes that were not judged.
        files: how many index and auxiliary files and logs, by suffix and verdict.
        reported: the files that are reported, the worst first, and logs before index and auxiliary files.
        rebuilt: paths of reported index files that a broker's next start makes anew from the log.
        missing: those that are reported together; None where each is reported.
        together: kinds of files that are reported together.
        actions: segments, by what a broker would do with them.
        lost: those of which something is lost.
        starts: partitions, by whether their broker stopped cleanly.
        failures: what keeps a broker from starting, besides segments; a failure of a whole log dir is named once.
        removed: files that a broker would remove, by reason.
        not_ready: segments that are not ready for tiering; None where nobody asked.
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
    together: tuple[FileKind, ...] = ()
    actions: dict[str, ActionCounts] = field(default_factory=dict)
    lost: list[StartupRow] = field(default_factory=list)
    starts: Counter[bool] = field(default_factory=Counter)
    failures: dict[str, None] = field(default_factory=dict)
    removed: Counter[str] = field(default_factory=Counter)
    not_ready: list[NotReadyRow] | None = None
    not_ready_count: int = 0

    def add_action(
        self, action: str, segments: int, log_bytes: int, read_bytes: int, lost_bytes: int, lost_records: int
    ) -> None:
        counts = self.actions.setdefault(action, ActionCounts())
        counts.segments += segments
        counts.log_bytes += log_bytes
        counts.read_bytes += read_bytes
        counts.lost_bytes += lost_bytes
        counts.lost_records += lost_records

    def add_start(self, partition: StartupPartitionRow) -> None:
        """Add what a broker would make of a partition."""
        self.starts[partition.clean_shutdown] += 1
        self.removed.update(each["why"] for each in partition.removed)
        failures = partition.failure.split("\n") if partition.failure else ()
        self.add_failures(StartFailure(partition.directory, failure) for failure in failures)

    def add_failures(self, failures: Iterable[StartFailure]) -> None:
        """Add what keeps a broker from starting. One of a whole log dir is the same for each of its partitions."""
        self.failures.update(dict.fromkeys(failure.in_words for failure in failures))

    def name(self, row: SegmentKey) -> str:
        """How a message names the segment of a row."""
        source = f"{row.source}: " if self.many_sources else ""
        return f"{source}{row.topic}-{row.partition} {row.base_offset}"

    @property
    def read_bytes(self) -> int:
        """How many bytes a broker would read to recover segments."""
        return sum(counts.read_bytes for counts in self.actions.values())

    @property
    def reported_count(self) -> int:
        """How many files are reported one by one."""
        found = sum(
            count
            for (file, verdict), count in self.files.items()
            if file != GAP and not Verdict(verdict).is_problem_free
        )
        together = sum(kind.count for kind in self.together)
        return found - together - (0 if self.missing is None else self.missing.files)

    @property
    def lost_count(self) -> int:
        return sum(counts.segments for action, counts in self.actions.items() if action not in NOTHING_LOST)

    def logs(self, verdict: Verdict) -> int:
        """How many logs have a verdict."""
        return self.files[LOG_SUFFIX, verdict.value]

    def fails(self, fail_on: Verdict) -> bool:
        """Whether a file has this verdict or a worse one, or the next start loses something other than a torn end."""
        fails = any(
            count and Verdict(verdict).severity >= fail_on.severity for (_, verdict), count in self.files.items()
        )
        loses = any(counts.segments for action, counts in self.actions.items() if action in LOSING)
        return fails or loses or bool(self.failures or self.not_ready_count)
