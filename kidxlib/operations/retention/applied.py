"""What applying a plan came to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kidxlib.build.summary import PROBLEMS_KEPT
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.retention.apply import SegmentResult
from kidxlib.retention.outcomes import PROBLEMS, DeletionOutcome
from kidxlib.terminal.build import PROBLEMS_SHOWN
from kidxlib.terminal.console import print_line, print_more
from kidxlib.text.counted import counted

_WHAT: Final = {
    DeletionOutcome.DELETED: "deleted",
    DeletionOutcome.LAST: "kept, as the last of its partition",
    DeletionOutcome.CHANGED: "kept, as it is not what was planned",
    DeletionOutcome.LEFT: "kept, as another of its partition is not what was planned",
    DeletionOutcome.NOT_DUE: "kept: the policy would no longer delete them",
    DeletionOutcome.NOT_RENAMED: "kept, as it cannot be renamed",
    DeletionOutcome.AFTER_KEPT: "kept, after one that is kept",
    DeletionOutcome.GONE: "already missing",
}


@dataclass(frozen=True, slots=True)
class AppliedPlan:
    """What applying a plan came to.

    Attributes:
        other_log_dirs: as `ConfiguredTopics` has them.
    """

    plan_id: str
    results: Sequence[SegmentResult]
    other_log_dirs: Sequence[str] = ()

    @property
    def is_problem_free(self) -> bool:
        return not self.other_log_dirs and not any(found.outcome in PROBLEMS for found in self.results)

    @property
    def by_outcome(self) -> Counter[str]:
        return Counter(found.outcome.value for found in self.results)

    @property
    def deleted_bytes(self) -> int:
        return _bytes(self.results, DeletionOutcome.DELETED)

    def as_json(self) -> dict[str, Any]:
        problems = [found for found in self.results if found.outcome in PROBLEMS]
        return {
            "plan_id": self.plan_id,
            "by_outcome": self.by_outcome,
            "deleted_bytes": self.deleted_bytes,
            "other_log_dirs": list(self.other_log_dirs),
            "not_well_count": len(problems),
            "not_well": [
                {
                    **dict(zip(SEGMENTS.key, (*found.key, found.segment.base_offset), strict=True)),
                    "outcome": found.outcome.value,
                    "detail": found.detail,
                }
                for found in problems[:PROBLEMS_KEPT]
            ],
        }

    def show(self) -> None:
        counts = Counter(found.outcome for found in self.results)
        for outcome, what in _WHAT.items():
            if counts[outcome]:
                print_line(f"{counted(counts[outcome], 'segment')}, {_bytes(self.results, outcome):,} bytes: {what}")
        if not counts:
            print_line("the plan names no segment to delete")
        reported = [found for found in self.results if found.outcome in PROBLEMS and found.detail is not None]
        for found in reported[:PROBLEMS_SHOWN]:
            print_line(f"{found.outcome.value}: {found.detail}")
        print_more(len(reported) - PROBLEMS_SHOWN)
        for line in self.other_log_dirs:
            print_line(f"problem: {line}")


def _bytes(results: Iterable[SegmentResult], outcome: DeletionOutcome) -> int:
    return sum(found.segment.log_bytes for found in results if found.outcome is outcome)
