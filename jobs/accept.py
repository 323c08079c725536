"""Accept known damage: record who looked at it, when and why; it stays listed, and fails builds and audits no more."""

from __future__ import annotations

import getpass
import os
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import click

from jobs.common import acceptances, shared_options
from jobs.common.acceptances import Acceptance, Damage
from jobs.common.catalog import Catalog
from jobs.common.observed import Ended, observed
from jobs.common.open_catalog import existing_catalog, refuse_no_catalog
from jobs.common.request import Where
from jobs.common.session import session
from jobs.common.settings import read_settings
from jobs.common.tables import ACCEPTED
from kidxlib.command import ExitCode, run
from kidxlib.console import print_json, print_line
from kidxlib.errors import UsageError
from kidxlib.plan import parse_topics

_SEGMENT: Final = re.compile(r".+-\d+/\d+")


@click.command(context_settings={"max_content_width": 110})
@shared_options.catalog
@shared_options.database
@shared_options.cataloged_sources
@shared_options.cataloged_topics
@click.option(
    "--segment",
    "segments",
    multiple=True,
    metavar="TOPIC-PARTITION/BASE_OFFSET",
    help="Only this segment, as orders-3/1048576; repeatable. [default: all]",
)
@click.option("--reason", metavar="TEXT", help="Why it is accepted, for whoever asks next year.")
@click.option("--by", metavar="NAME", help="Who accepts it. [default: the user that runs this]")
@click.option("--withdraw", is_flag=True, help="Remove acceptances instead: the damage counts again.")
@click.option("--apply", is_flag=True, help="Record it (default: dry run).")
@shared_options.settings_file
@shared_options.time_to_record
@shared_options.as_json
@observed
def accept(
    segments: tuple[str, ...],
    sources: tuple[str, ...],
    topics: str | None,
    reason: str | None,
    by: str | None,
    withdraw: bool,
    apply: bool,
    as_json: bool,
    **options: Any,
) -> Ended:
    """Accept damage that the catalog knows of: segments that build_index found truncated, quarantined or unreadable,
    and files that the last audit of verify_index found broken. Nothing is mended. It stays listed, with who accepted
    it, when and why, and counts apart; when the file changes, or what is found in it, it is damage again. Nothing is
    recorded but with --apply.

    Exit codes: 0 all well; 2 wrong options or inputs, nothing done; 1 failed.
    """
    where = _where(**options)
    _refuse(segments, sources, topics, reason, withdraw=withdraw, apply=apply)
    selects = acceptances.selected_segments(segments, parse_topics(".*" if topics is None else topics))
    if where.catalog is not None:
        refuse_no_catalog(where.catalog)
    with session("accept", where.event_log_dir) as spark:
        catalog = existing_catalog(spark, where.catalog, where.database, bring_up_to_date=apply)
        chosen = _known_sources(catalog, sources)
        recorded = acceptances.accepted(catalog, chosen, selects)
        damages = [] if withdraw else acceptances.damage_now(catalog, chosen, selects)
        if segments and not (recorded if withdraw else damages):
            what = "accepted" if withdraw else "damaged, as far as the catalog knows"
            raise UsageError(f"--segment {segments[0]}: nothing of it is {what}")
        accepted_now = {each.damage.identity for each in recorded}
        new = [damage for damage in damages if damage.identity not in accepted_now]
        if apply and withdraw and recorded:
            acceptances.withdraw(catalog, recorded)
        elif apply and new:
            acceptances.accept(catalog, new, by or _user(), where.now, str(reason))
    held = [each for each in recorded if each.damage.identity in {damage.identity for damage in damages}]
    if as_json:
        print_json(_as_json(catalog, recorded if withdraw else held, new, withdraw=withdraw, apply=apply))
    elif withdraw:
        _show("withdrawn" if apply else "would withdraw", [each.line for each in recorded])
    else:
        _show("accepted before", [each.line for each in held])
        _show("accepted" if apply else "would accept", [_line(damage) for damage in new])
    if not as_json:
        _say_what_next(catalog, bool(recorded if withdraw else new), apply=apply)
    changed = len(recorded) if withdraw else len(new)
    return Ended(code=ExitCode.OK, counts={"accepted_before": len(held), "changed": changed * apply}, bytes=0)


def _where(settings_file: Path, catalog: str | None, database: str | None, now: str | None) -> Where:
    return Where.of(read_settings(settings_file), catalog, database, now)


def _refuse(
    segments: tuple[str, ...],
    sources: tuple[str, ...],
    topics: str | None,
    reason: str | None,
    *,
    withdraw: bool,
    apply: bool,
) -> None:
    """Refuse options that contradict each other, before Spark is started.

    Raises:
        UsageError: they do, or one that is needed is missing.
    """
    for segment in segments:
        if not _SEGMENT.fullmatch(segment):
            raise UsageError(f"--segment {segment}: expected TOPIC-PARTITION/BASE_OFFSET, as orders-3/1048576")
    if withdraw and reason is not None:
        raise UsageError("--withdraw and --reason: give one of them; an acceptance goes without a reason")
    if apply and not withdraw and not (reason and reason.strip()):
        raise UsageError("--apply: say with --reason why this is accepted")
    if apply and not (segments or sources or topics):
        raise UsageError(
            "--apply: name what is meant with --segment, --source or --topics; without --apply all is shown"
        )


def _known_sources(catalog: Catalog, sources: tuple[str, ...]) -> tuple[str, ...]:
    known = catalog.topics(gone_too=True)
    for source in sources:
        if source not in known:
            raise UsageError(f"--source {source}: no segment in the catalog; there are: {', '.join(sorted(known))}")
    return sources or tuple(sorted(known))


def _user() -> str:
    """The name of the user that this process belongs to, or its number where it has none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def _line(damage: Damage) -> str:
    at = "" if damage.position is None else f" at byte {damage.position:,}"
    return f"{damage.name}{at}: {damage.detail or damage.path}"


def _show(what: str, lines: list[str]) -> None:
    for line in lines:
        print_line(f"{what}: {line}")


def _say_what_next(catalog: Catalog, any_change: bool, *, apply: bool) -> None:
    if not any_change:
        print_line("nothing to record")
    elif not apply:
        print_line("nothing is recorded: dry run; --apply records it")
    print_line(f"catalog: {catalog.path}, table {ACCEPTED.name}")


def _as_json(
    catalog: Catalog, recorded: list[Acceptance], new: list[Damage], *, withdraw: bool, apply: bool
) -> dict[str, Any]:
    shown = [{**asdict(each), "accepted_at": each.accepted_at.isoformat()} for each in recorded]
    what = {"withdrawn": shown} if withdraw else {"accepted_before": shown, "accepted": [asdict(each) for each in new]}
    return {"applied": apply, **what, "catalog": catalog.path}


if __name__ == "__main__":
    run(accept, "./spark-submit.sh accept")
