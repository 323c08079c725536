"""What a compaction is asked for: options, settings and the policy file, put together and checked."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from kidxlib.compaction.orphans import Delays
from kidxlib.compaction.policy import CompactionPolicy, Expiry, Rule
from kidxlib.compaction.policy_file import read_compaction_policy
from kidxlib.compaction.task import CompactionOptions
from kidxlib.errors import UsageError
from kidxlib.operations.maintenance.request import ensure_vacuum_spares_runs
from kidxlib.run.context import RunContext
from kidxlib.run.options import DELETE_DELAY, parse_option
from kidxlib.run.settings import read_settings
from kidxlib.terminal.options.sources import parse_topics
from kidxlib.text.times import parse_duration, to_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactIndexOptions:
    """The options as they were given; None, empty or False where they were not."""

    catalog: str | None
    database: str | None
    sources: tuple[str, ...]
    topics: str | None
    policy: Path | None
    interval_bytes: int | None
    older_than: str | None
    trim: bool
    orphans: bool
    delete_delay: str | None
    tables: bool
    apply: bool
    settings_file: Path
    now: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionRequest:
    """What to do.

    Attributes:
        sources: by name; empty for all.
        files: None where index files are left alone.
        tables: which rows of tables are to go; None where tables are left alone.
        apply: do it, and not only say what would be done.
    """

    context: RunContext
    sources: tuple[str, ...]
    topics: re.Pattern[str]
    files: CompactionOptions | None
    tables: Expiry | None
    apply: bool


def compaction_request(options: CompactIndexOptions) -> CompactionRequest:
    """Put options, settings and the policy together.

    Raises:
        UsageError: a file or an option is wrong, options contradict each other, or there is nothing to do.
    """
    settings = read_settings(options.settings_file)
    context = RunContext.of(settings, options.catalog, options.database, options.now)
    policy = _policy(options)
    longest_run = timedelta(hours=settings.build.longest_run_hours)
    on_files = bool(policy.rules) or options.trim or options.orphans
    if not on_files and not options.tables:
        raise UsageError(
            "nothing to do; give --trim, --orphans, --tables, --interval-bytes, or a --policy with a [[rule]]"
        )
    if options.tables:
        ensure_vacuum_spares_runs("--tables", settings)
    files = CompactionOptions(
        policy=policy,
        trim=options.trim,
        orphans=options.orphans,
        now_ms=to_ms(context.now),
        clock_ms=to_ms(datetime.now(UTC)),
        delays=Delays(
            staged=_ns(longest_run),
            deleted=_ns(parse_option("--delete-delay", parse_duration, options.delete_delay or DELETE_DELAY)),
        ),
    )
    return CompactionRequest(
        context=context.with_catalog(),
        sources=options.sources,
        topics=parse_topics(options.topics or ".*"),
        files=files if on_files else None,
        tables=policy.expiry if options.tables else None,
        apply=options.apply,
    )


def _policy(options: CompactIndexOptions) -> CompactionPolicy:
    for wrong, message in (
        (
            options.policy is not None and options.interval_bytes is not None,
            "--policy and --interval-bytes: put the interval into the file, as a [[rule]]",
        ),
        (
            options.older_than is not None and options.interval_bytes is None,
            "--older-than: give --interval-bytes too, the interval that older segments get",
        ),
        (options.delete_delay is not None and not options.orphans, "--delete-delay: only --orphans uses it"),
    ):
        if wrong:
            raise UsageError(message)
    if options.policy is not None:
        return read_compaction_policy(options.policy)
    if options.interval_bytes is None:
        return CompactionPolicy()
    older_than = (
        timedelta(0)
        if options.older_than in (None, "0")
        else parse_option("--older-than", parse_duration, str(options.older_than))
    )
    return CompactionPolicy((Rule(older_than=older_than, interval_bytes=options.interval_bytes),))


def _ns(time: timedelta) -> int:
    return time // timedelta(microseconds=1) * 1000
