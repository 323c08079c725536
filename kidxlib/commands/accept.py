"""`kidx accept`, `./spark-submit.sh accept`: record that known damage may stay as it is."""

from __future__ import annotations

import getpass
import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from kidxlib.commands.command import OnSources, kidx_command, option
from kidxlib.errors import UsageError
from kidxlib.terminal.outcome import Outcome

if TYPE_CHECKING:
    from kidxlib.operations.backend import Backend
    from kidxlib.operations.damage.acceptances import Acceptance
    from kidxlib.operations.damage.known_damage import NewDamage

_SEGMENT: Final = re.compile(r".+-\d+/\d+")
_GAP: Final = re.compile(r".+-\d+/\d+-\d+")


@dataclass(frozen=True, kw_only=True)
class AcceptCommand(OnSources):
    """What to accept."""

    segments: tuple[str, ...] = option(
        "--segment",
        "segments",
        multiple=True,
        metavar="TOPIC-PARTITION/BASE_OFFSET",
        help="Only this segment, as orders-3/1048576; repeatable. [default: all]",
    )
    gaps: tuple[str, ...] = option(
        "--gap",
        "gaps",
        multiple=True,
        metavar="TOPIC-PARTITION/FIRST-LAST",
        help="Only this gap between logs, as orders-3/100-199 where offsets 100 to 199 are in none; repeatable.",
    )
    reason: str | None = option("--reason", metavar="TEXT", help="Why it is accepted, for whoever asks next year.")
    by: str | None = option("--by", metavar="NAME", help="Who accepts it. [default: the user that runs this]")
    withdraw: bool = option("--withdraw", is_flag=True, help="Remove acceptances instead: the damage counts again.")
    apply: bool = option("--apply", is_flag=True, help="Record it. [default: dry run]")
    processes: int = 1

    def __post_init__(self) -> None:
        for segment in self.segments:
            if not _SEGMENT.fullmatch(segment):
                raise UsageError(f"--segment {segment}: expected TOPIC-PARTITION/BASE_OFFSET, as orders-3/1048576")
        for gap in self.gaps:
            if not _GAP.fullmatch(gap):
                raise UsageError(f"--gap {gap}: expected TOPIC-PARTITION/FIRST-LAST, as orders-3/100-199")
        if self.withdraw and self.reason is not None:
            raise UsageError("--withdraw and --reason: give one of them; a withdrawal needs no reason")
        if self.apply and not self.withdraw and not (self.reason and self.reason.strip()):
            raise UsageError("--apply: say with --reason why this is accepted")
        if self.apply and not (self.segments or self.gaps or self.sources or self.topics):
            raise UsageError(
                "--apply: name what is meant with --segment, --gap, --source or --topics; without --apply all is shown"
            )
        super().__post_init__()

    @property
    def writes(self) -> bool:
        return self.apply


def run_accept(request: AcceptCommand, backend: Backend) -> Outcome:
    """Accept damage that the catalog knows of: segments that a build found truncated, quarantined or unreadable, and
    files that the last audit found torn or broken. Nothing is mended. Accepted damage stays listed, with who
    accepted it, when and why, and is counted separately. When the file or the finding changes, it is damage again.
    Without --apply nothing is recorded. kidx accept and ./spark-submit.sh accept are the same, with the same table.

    Exit codes: 0 no problems; 2 wrong options or inputs, nothing done; 1 failed.
    """
    from kidxlib.operations.damage.acceptances import (
        Selected,
        record_acceptances,
        recorded_acceptances,
        withdraw_acceptances,
    )
    from kidxlib.operations.damage.known_damage import new_damage
    from kidxlib.run.sources import sources_in_catalog

    catalog, apply = backend.catalog, request.apply
    if apply:
        catalog.make_tables()
    sources = sources_in_catalog(request.sources, catalog.sources())
    selected = Selected(segments=request.segments, gaps=request.gaps, topics=request.pattern)
    if request.withdraw:
        recorded = recorded_acceptances(catalog.tables, sources, selected)
        _ensure_any(recorded, request, "accepted")
        if apply and recorded:
            withdraw_acceptances(catalog.tables, recorded)
        return _withdrawn(request, catalog.path, recorded)
    damage = new_damage(catalog.tables, sources, selected)
    _ensure_any(damage.all, request, "known to the catalog as damage")
    if apply and damage.new:
        record_acceptances(
            catalog.tables, damage.new, request.by or _current_user(), request.context.now, str(request.reason)
        )
    return _accepted(request, catalog.path, damage)


def _withdrawn(request: AcceptCommand, catalog: str, acceptances: Sequence[Acceptance]) -> Outcome:
    outcome = Outcome(counts={"accepted_before": 0, "changed": len(acceptances) * request.apply})
    what = "withdrawn" if request.apply else "would withdraw"
    outcome.line(*(f"{what}: {acceptance.line}" for acceptance in acceptances))
    return _recorded(outcome, request, catalog, any_change=bool(acceptances), withdrawn=_rows(acceptances))


def _accepted(request: AcceptCommand, catalog: str, known: NewDamage) -> Outcome:
    before, new = known.accepted, known.new
    outcome = Outcome(counts={"accepted_before": len(before), "changed": len(new) * request.apply})
    what = "accepted" if request.apply else "would accept"
    outcome.line(*(f"accepted before: {acceptance.line}" for acceptance in before))
    outcome.line(*(f"{what}: {known.line(damage)}" for damage in new))
    rows = {"accepted_before": _rows(before), "accepted": [asdict(damage) for damage in new]}
    return _recorded(outcome, request, catalog, any_change=bool(new), **rows)


def _recorded(outcome: Outcome, request: AcceptCommand, catalog: str, *, any_change: bool, **rows: Any) -> Outcome:
    from kidxlib.catalog.findings import ACCEPTED

    if not any_change:
        outcome.line("nothing to record")
    elif not request.apply:
        outcome.line("nothing is recorded: dry run; --apply records it")
    outcome.line(f"catalog: {catalog}, table {ACCEPTED.name}")
    outcome.values.update(applied=request.apply, **rows, catalog=catalog)
    return outcome


def _rows(acceptances: Sequence[Acceptance]) -> list[Mapping[str, Any]]:
    return [{**asdict(acceptance), "accepted_at": acceptance.accepted_at.isoformat()} for acceptance in acceptances]


def _ensure_any(damages: Collection[object], request: AcceptCommand, what: str) -> None:
    if damages:
        return
    for name in request.segments:
        raise UsageError(f"--segment {name}: no file of it is {what}; leave --segment out to see all")
    for name in request.gaps:
        raise UsageError(f"--gap {name}: no gap of these offsets is {what}; leave --gap out to see all")


def _current_user() -> str:
    """The name of this process's user, or the number of a user without a name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


accept = kidx_command("accept", AcceptCommand, run_accept, reports_as="accept")
