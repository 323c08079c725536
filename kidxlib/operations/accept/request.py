"""What a run of accept is asked for: options that fit together, and who asks."""

from __future__ import annotations

import getpass
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kidxlib.errors import UsageError
from kidxlib.run.context import RunContext
from kidxlib.run.settings import read_settings
from kidxlib.terminal.options.sources import parse_topics

_SEGMENT: Final = re.compile(r".+-\d+/\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptRequest:
    """What to accept.

    Attributes:
        context: its time is recorded.
        segments: by name, as `orders-3/1048576`; empty for all.
        sources: by name; empty for all.
        reason: why; None where nothing is to be recorded, or acceptances are withdrawn.
        by: who accepts.
        withdraw: remove acceptances instead.
        apply: record it, and not only say what would be recorded.
    """

    context: RunContext
    segments: tuple[str, ...]
    sources: tuple[str, ...]
    topics: re.Pattern[str]
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
        segments=options.segments,
        sources=options.sources,
        topics=pattern,
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
    if options.withdraw and reason is not None:
        raise UsageError("--withdraw and --reason: give one of them; a withdrawal needs no reason")
    if options.apply and not options.withdraw and not (reason and reason.strip()):
        raise UsageError("--apply: say with --reason why this is accepted")
    if options.apply and not (segments or options.sources or options.topics):
        raise UsageError(
            "--apply: name what is meant with --segment, --source or --topics; without --apply all is shown"
        )


def _current_user() -> str:
    """The name of the user that this process belongs to, or its number where it has none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"
