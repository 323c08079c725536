"""What a run of accept is asked for: options that fit together, and who asks."""

from __future__ import annotations

import getpass
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kidxlib.errors import UsageError
from kidxlib.operations.accept.acceptances import Selected
from kidxlib.run.context import RunContext
from kidxlib.run.settings import read_settings
from kidxlib.terminal.options.sources import parse_topics

_SEGMENT: Final = re.compile(r".+-\d+/\d+")
_GAP: Final = re.compile(r".+-\d+/\d+-\d+")


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
    """Put options and settings together.

    Raises:
        UsageError: the settings file or an option is wrong or missing, or options contradict each other.
    """
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
