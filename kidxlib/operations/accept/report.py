"""What a run of accept says: a line for each finding, or a JSON object."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from kidxlib.catalog.findings import ACCEPTED
from kidxlib.operations.accept.acceptances import Acceptance
from kidxlib.operations.accept.damage import Damage
from kidxlib.terminal.console import print_line


def damage_line(damage: Damage) -> str:
    at = "" if damage.position is None else f" at byte {damage.position:,}"
    return f"{damage.name}{at}: {damage.detail or damage.path}"


def print_lines(what: str, lines: list[str]) -> None:
    for line in lines:
        print_line(f"{what}: {line}")


def print_next_step(catalog: str, any_change: bool, *, apply: bool) -> None:
    if not any_change:
        print_line("nothing to record")
    elif not apply:
        print_line("nothing is recorded: dry run; --apply records it")
    print_line(f"catalog: {catalog}, table {ACCEPTED.name}")


def report_as_json(
    catalog: str, recorded: list[Acceptance], new: list[Damage], *, withdraw: bool, apply: bool
) -> dict[str, Any]:
    shown = [{**asdict(each), "accepted_at": each.accepted_at.isoformat()} for each in recorded]
    what = {"withdrawn": shown} if withdraw else {"accepted_before": shown, "accepted": [asdict(each) for each in new]}
    return {"applied": apply, **what, "catalog": catalog}
