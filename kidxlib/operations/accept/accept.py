"""Accepts damage that the catalog knows of, or takes that back: what is asked, what options select, what is shown."""

from __future__ import annotations

import getpass
import os
import re
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from kidxlib.audit.gaps import GAP, Directories, Gap, finding_row
from kidxlib.catalog.conditions import Among
from kidxlib.catalog.findings import ACCEPTED, FINDINGS
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.errors import UsageError
from kidxlib.operations.accept.acceptances import Acceptance, Damage, Selected, accept, accepted, version_now, withdraw
from kidxlib.operations.backend import OpenBackend
from kidxlib.operations.catalog import TablesCatalog
from kidxlib.operations.damage.acceptance_rule import (
    ACCEPTABLE,
    SEGMENT_COLUMNS,
    findings_of,
    findings_of_segments,
    held,
)
from kidxlib.operations.damage.damaged_segments import DAMAGED, last_findings
from kidxlib.operations.damage.gaps import asked_of_recorded, known_gaps
from kidxlib.run.context import RunContext
from kidxlib.run.known_topics import MetadataOptions, read_known_topics
from kidxlib.run.recorded_sources import as_sources, source_paths
from kidxlib.run.result import RunResult
from kidxlib.run.settings import read_settings
from kidxlib.run.sources import sources_in_catalog
from kidxlib.tables.protocol import Tables
from kidxlib.terminal.console import print_json, print_line, warn
from kidxlib.terminal.exit_codes import ExitCode
from kidxlib.terminal.options.sources import parse_topics

_SEGMENT: Final = re.compile(r".+-\d+/\d+")
_GAP: Final = re.compile(r".+-\d+/\d+-\d+")

_OF_FINDINGS: Final = FINDINGS.schema(Damage.__dataclass_fields__.keys()).names


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


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptRequest:
    """What to accept.

    Attributes:
        context: its time is recorded.
        selected: what of the sources.
        sources: by name; empty for all.
        reason: why; None where nothing is to be recorded, or acceptances are withdrawn.
        by: who accepts.
        withdraw: remove acceptances instead.
        apply: record it, and not only say what would be recorded.
    """

    context: RunContext
    selected: Selected
    sources: tuple[str, ...]
    reason: str | None
    by: str
    withdraw: bool
    apply: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptOptions:
    """The options as they were given; None, empty or False where they were not."""

    catalog: str | None
    database: str | None
    segments: tuple[str, ...]
    gaps: tuple[str, ...]
    sources: tuple[str, ...]
    topics: str | None
    reason: str | None
    by: str | None
    withdraw: bool
    apply: bool
    settings_file: Path
    now: str | None


def accept_request(options: AcceptOptions) -> AcceptRequest:
    """Put options and settings together."""
    context = RunContext.of(read_settings(options.settings_file), options.catalog, options.database, options.now)
    _ensure_consistent(options)
    pattern = parse_topics(".*" if options.topics is None else options.topics)
    return AcceptRequest(
        context=context.with_catalog(),
        selected=Selected(segments=options.segments, gaps=options.gaps, topics=pattern),
        sources=options.sources,
        reason=options.reason,
        by=options.by or _current_user(),
        withdraw=options.withdraw,
        apply=options.apply,
    )


def _ensure_consistent(options: AcceptOptions) -> None:
    segments, reason = options.segments, options.reason
    for segment in segments:
        if not _SEGMENT.fullmatch(segment):
            raise UsageError(f"--segment {segment}: expected TOPIC-PARTITION/BASE_OFFSET, as orders-3/1048576")
    for gap in options.gaps:
        if not _GAP.fullmatch(gap):
            raise UsageError(f"--gap {gap}: expected TOPIC-PARTITION/FIRST-LAST, as orders-3/100-199")
    if options.withdraw and reason is not None:
        raise UsageError("--withdraw and --reason: give one of them; a withdrawal needs no reason")
    if options.apply and not options.withdraw and not (reason and reason.strip()):
        raise UsageError("--apply: say with --reason why this is accepted")
    if options.apply and not (segments or options.gaps or options.sources or options.topics):
        raise UsageError(
            "--apply: name what is meant with --segment, --gap, --source or --topics; without --apply all is shown"
        )


def _current_user() -> str:
    """The name of the user that this process belongs to, or its number where it has none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def run_accept(request: AcceptRequest, open_backend: OpenBackend, *, as_json: bool) -> RunResult:
    """Record what is accepted, or withdraw it; without `apply` only say what that would be."""
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


def damage_now(
    tables: Tables, sources: Collection[str], selected: Selected, gaps: Sequence[Gap], directories: Directories
) -> list[Damage]:
    """What the catalog knows to be damaged: segments, and files that the last audit of their partition found so; and
    gaps between logs, whether an audit has seen them or not.
    """
    damaged = tables.read(SEGMENTS, SEGMENT_COLUMNS, [Among("source", tuple(sources)), DAMAGED])
    of_segments = [Damage(**row) for row in findings_of_segments(damaged).to_pylist() if selected.has(row)]
    known = {damage.key: damage for damage in of_segments}
    for row in last_findings(tables, sources, Among("verdict", ACCEPTABLE), [*_OF_FINDINGS, "verdict"]).to_pylist():
        if row["file"] == GAP or not selected.has(row):
            continue
        damage = Damage(**{name: row[name] for name in _OF_FINDINGS}, found=row["verdict"])
        if version_now(damage.path) != damage.version:
            warn(f"{damage.path}: it has changed since it was audited: run verify_index again to accept what it is now")
            continue
        # What an audit says of a log that the catalog says too is one finding; the audit's word has more.
        of_build = known.get(damage.key, damage)
        if (of_build.position, of_build.version) == (damage.position, damage.version):
            known[damage.key] = damage
    of_gaps = [_of_gap(gap, directories) for gap in gaps]
    known |= {damage.key: damage for damage in of_gaps if selected.has(asdict(damage))}
    return sorted(known.values(), key=lambda damage: damage.key)


def _of_gap(gap: Gap, directories: Directories) -> Damage:
    """A gap as a finding that may be accepted: whatever the evidence is that it has by now."""
    row = finding_row(gap, directories.places[gap.partition_key]).values()
    values = {name: row[name] for name in _OF_FINDINGS if name in row}
    return Damage(**{**values, "reason": GAP, "found": row["verdict"]})


def _find(catalog: TablesCatalog, request: AcceptRequest) -> _Found:
    """What there is to withdraw or to accept."""
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
