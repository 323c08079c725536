"""What applying a plan came to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kidxlib.build.summary import PROBLEMS_KEPT
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.format.topic_partition import PartitionKey
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
    DeletionOutcome.EPOCHS_NOT_CUT: "renamed, and not removed, as leader epochs cannot be cut; run again",
    DeletionOutcome.AFTER_KEPT: "kept, after one that is kept",
    DeletionOutcome.GONE: "already missing",
}


@dataclass(frozen=True, slots=True)
class AppliedPlan:
    """What applying a plan came to.

    Attributes:
        other_log_dirs: as `ConfiguredTopics` has them.
        deleted_before: segments that the catalog knew as deleted by an applied plan, with their base offsets.
    """

    plan_id: str
    results: Sequence[SegmentResult]
    other_log_dirs: Sequence[str] = ()
    deleted_before: Collection[tuple[PartitionKey, int]] = ()

    @property
    def is_problem_free(self) -> bool:
        return not self.other_log_dirs and not any(found.outcome in PROBLEMS for found in self.results)

    @property
    def by_outcome(self) -> Counter[str]:
        return Counter(found.outcome.value for found in self.results)

    @property
    def deleted_bytes(self) -> int:
        return _bytes(self.results, DeletionOutcome.DELETED)

    def _is_again(self, found: SegmentResult) -> bool:
        return found.outcome is DeletionOutcome.GONE and (found.key, found.segment.base_offset) in self.deleted_before

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
        again = [found for found in self.results if self._is_again(found)]
        others = [found for found in self.results if not self._is_again(found)]
        for outcome, what in _WHAT.items():
            _print_outcome([found for found in others if found.outcome is outcome], what)
        _print_outcome(again, "deleted before, by this plan or another")
        if not self.results:
            print_line("the plan names no segment to delete")
        reported = [found for found in self.results if found.outcome in PROBLEMS and found.detail is not None]
        for found in reported[:PROBLEMS_SHOWN]:
            print_line(f"{found.outcome.value}: {found.detail}")
        print_more(len(reported) - PROBLEMS_SHOWN)
        for line in self.other_log_dirs:
            print_line(f"problem: {line}")


def _print_outcome(results: Sequence[SegmentResult], what: str) -> None:
    if results:
        log_bytes = sum(found.segment.log_bytes for found in results)
        print_line(f"{counted(len(results), 'segment')}, {log_bytes:,} bytes: {what}")


def _bytes(results: Iterable[SegmentResult], outcome: DeletionOutcome) -> int:
    return sum(found.segment.log_bytes for found in results if found.outcome is outcome)
