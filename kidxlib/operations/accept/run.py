"""Accepts damage, or takes that back, and says what came of it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Any

from kidxlib.errors import UsageError
from kidxlib.operations.accept.acceptable import damage_now
from kidxlib.operations.accept.acceptances import Acceptance, accept, accepted, withdraw
from kidxlib.operations.accept.damage import Damage
from kidxlib.operations.accept.report import damage_line, print_lines, print_next_step, report_as_json
from kidxlib.operations.accept.request import AcceptRequest
from kidxlib.operations.backend import OpenBackend
from kidxlib.operations.catalog import TablesCatalog
from kidxlib.operations.damage.acceptance_rule import findings_of, held
from kidxlib.operations.damage.gaps import asked_of_recorded, known_gaps
from kidxlib.run.known_topics import MetadataOptions, read_known_topics
from kidxlib.run.recorded_sources import as_sources, source_paths
from kidxlib.run.result import RunResult
from kidxlib.run.sources import sources_in_catalog
from kidxlib.terminal.console import print_json
from kidxlib.terminal.exit_codes import ExitCode


@dataclass(frozen=True, slots=True)
class _Found:
    """What a run is about.

    Attributes:
        before: acceptances that are withdrawn, or that damage of now has already.
        new: damage that is accepted: nobody has accepted it, or not what it leads to by now.
        again: the keys of the latter.
    """

    before: list[Acceptance]
    new: list[Damage]
    again: frozenset[tuple[Any, ...]] = frozenset()


def run_accept(request: AcceptRequest, open_backend: OpenBackend, *, as_json: bool) -> RunResult:
    """Record what is accepted, or withdraw it; without `apply` only say what that would be.

    Raises:
        CatalogError: the catalog cannot be read or written.
        UsageError: there is none; or nothing of the sources or segments that were named.
    """
    with open_backend() as backend:
        catalog = backend.catalog
        if request.apply:
            catalog.make_tables()
        found = _find(catalog, request)
        if request.apply and request.withdraw and found.before:
            withdraw(catalog.tables, found.before)
        elif request.apply and found.new:
            accept(catalog.tables, found.new, request.by, request.context.now, str(request.reason))
        _show(catalog.path, request, found, as_json=as_json)
    changed = len(found.before) if request.withdraw else len(found.new)
    counts = {"accepted_before": 0 if request.withdraw else len(found.before), "changed": changed * request.apply}
    return RunResult(code=ExitCode.OK, counts=counts, bytes=0)


def _find(catalog: TablesCatalog, request: AcceptRequest) -> _Found:
    """What there is to withdraw or to accept.

    Raises:
        UsageError: nothing of the segments that were named.
    """
    selected = request.selected
    sources = sources_in_catalog(request.sources, catalog.sources())
    recorded = accepted(catalog.tables, sources, selected)
    if request.withdraw:
        _ensure_any(recorded, request, "accepted")
        return _Found(recorded, [])
    paths = {name: path for name, path in source_paths(catalog.tables).items() if name in sources}
    known = read_known_topics(MetadataOptions(), as_sources(paths))
    policy_of, directories = asked_of_recorded(catalog.tables, sources, known)
    gaps = known_gaps(catalog.tables, sources, selected.topics, policy_of, directories).all_lost
    damages = damage_now(catalog.tables, sources, selected, gaps, directories)
    _ensure_any(damages, request, "known to the catalog as damage")
    found = held(findings_of(map(asdict, damages)), findings_of(asdict(each.damage) for each in recorded))
    is_known = found.knows_consequence
    before = [recorded[at] for at in sorted(found.at[is_known])]
    new = [damage for damage, known in zip(damages, is_known, strict=True) if not known]
    again = (damage.key for damage, is_held in zip(damages, found.is_accepted, strict=True) if is_held)
    return _Found(before, new, frozenset(again))


def _ensure_any(found: Collection[object], request: AcceptRequest, what: str) -> None:
    if found:
        return
    for name in request.selected.segments:
        raise UsageError(f"--segment {name}: no file of it is {what}; leave --segment out to see all")
    for name in request.selected.gaps:
        raise UsageError(f"--gap {name}: no gap of these offsets is {what}; leave --gap out to see all")


def _show(catalog: str, request: AcceptRequest, found: _Found, *, as_json: bool) -> None:
    apply = request.apply
    if as_json:
        print_json(report_as_json(catalog, found.before, found.new, withdraw=request.withdraw, apply=apply))
        return
    lines = [each.line for each in found.before]
    if request.withdraw:
        print_lines("withdrawn" if apply else "would withdraw", lines)
    else:
        print_lines("accepted before", lines)
        print_lines("accepted" if apply else "would accept", [_line(found, damage) for damage in found.new])
    print_next_step(catalog, bool(found.before if request.withdraw else found.new), apply=apply)


def _line(found: _Found, damage: Damage) -> str:
    again = "; accepted before, when something else was known of what it leads to" if damage.key in found.again else ""
    return f"{damage_line(damage)}{again}"
