"""The damage that a catalog knows, and how it is shown."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Final

from kidxlib.indexing.summary import PROBLEMS_KEPT, SegmentProblem
from kidxlib.operations.damage.gaps import KnownGaps
from kidxlib.operations.damage.lost import Lost
from kidxlib.recovery.outcome import ABSENT, Status

#: The status under which damaged segments are counted that somebody has accepted.
ACCEPTED_STATUS: Final = "accepted"


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedSegment(SegmentProblem):
    """A damaged segment, and who has accepted it, if anybody."""

    accepted_by: str | None
    accepted_at: datetime | None
    accepted_reason: str | None

    @property
    def is_accepted(self) -> bool:
        return self.accepted_by is not None

    @property
    def line(self) -> str:
        return f"{self.status}: {self.log_path}: byte {self.reason_position or 0}: {self.reason}: {self.reason_detail}"

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "accepted_at": self.accepted_at and self.accepted_at.isoformat()}


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownDamage:
    """The damage that a catalog knows.

    Attributes:
        segments: the number of segments of the whole catalog, by source and status; accepted ones count as
            `ACCEPTED_STATUS`.
        damaged: the number of segments of the wanted sources and topics that are damaged and not accepted.
        accepted: the number of these that are damaged and accepted.
        listed: the first of both, those that are not accepted first; at most `PROBLEMS_KEPT`.
        gaps: the gaps between the logs of these sources and topics.
        lost: partitions, starts and ends of logs that their log dirs have lost.
        by_audits: logs that builds found whole and that the last audit found broken, as they still are; in the order of
            keys, without accepted ones. Their status is the audit's verdict.
    """

    segments: Mapping[tuple[str, str], int] = field(default_factory=dict)
    damaged: int = 0
    accepted: int = 0
    listed: Sequence[DamagedSegment] = ()
    gaps: KnownGaps = field(default_factory=KnownGaps)
    lost: Lost = field(default_factory=Lost)
    by_audits: Sequence[DamagedSegment] = ()

    def present(self, source: str) -> int:
        """The number of a source's segments that are present by the catalog."""
        return sum(count for (name, status), count in self.segments.items() if name == source and status not in ABSENT)

    @property
    def figures(self) -> dict[tuple[str, str], int]:
        """`segments` with zeros for metrics: a metric that disappears would look as if nobody had measured it."""
        statuses = (*(status.value for status in Status), ACCEPTED_STATUS)
        sources = sorted({source for source, _ in self.segments})
        return {(source, status): self.segments.get((source, status), 0) for source in sources for status in statuses}

    @property
    def counts(self) -> dict[str, int]:
        return {
            "damaged": self.damaged,
            "accepted": self.accepted,
            **self.gaps.counts,
            **self.lost.counts,
            "broken_by_audits": len(self.by_audits),
        }

    def as_json(self) -> dict[str, Any]:
        segments = [segment.as_json() for segment in self.listed]
        of_segments = {"damaged": self.damaged, "accepted": self.accepted, "segments": segments}
        by_audits = [segment.as_json() for segment in self.by_audits[:PROBLEMS_KEPT]]
        return {**of_segments, **self.gaps.as_json(), **self.lost.as_json(), "broken_by_audits": by_audits}

    @property
    def is_loss(self) -> bool:
        """Whether something is damaged or missing that nobody has accepted."""
        return bool(self.damaged or self.by_audits or self.gaps.found.lost or self.lost.is_loss)

    def lines(self, *, many_sources: bool, named: Collection[str] = ()) -> Iterator[str]:
        """The lines on screen; none without damage. `named` are logs that the run has named already."""
        yield from self.lost.lines(many_sources=many_sources)
        yield from self.gaps.lines(many_sources=many_sources)
        if self.damaged:
            more = f", and {self.accepted:,} accepted" if self.accepted else ""
            first = self.listed[0]
            which = "the first is named above" if first.log_path in named else f"the first is {first.line}"
            yield f"damaged: {_segments(self.damaged)} of the catalog{more}; {which}"
            yield (
                "  all of them: --json, or in the catalog SELECT * FROM segments WHERE status NOT IN "
                "('ok', 'gone', 'deleted'); kidx accept records that one may stay as it is"
            )
        elif self.accepted:
            first = self.listed[0]
            yield (
                f"accepted: {_segments(self.accepted)} of the catalog, damaged; the first is {first.line} "
                f"(by {first.accepted_by}: {first.accepted_reason})"
            )
        if self.by_audits:
            broken = _segments(len(self.by_audits))
            yield (
                f"broken: {broken} by the last audit, and not read again, as no log has changed; the first is "
                f"{self.by_audits[0].line}; kidx verify says what comes of it"
            )


def _segments(count: int) -> str:
    return f"{count:,} segment{'s' if count != 1 else ''}"
