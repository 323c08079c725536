"""`kidx compact`, `./spark-submit.sh compact_index`: make index files smaller and fewer, and a catalog's tables."""

from __future__ import annotations

import contextlib
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from kidxlib.commands.command import NOW, OnSources, kidx_command, option, parameter
from kidxlib.commands.tables import ensure_vacuum_spares_runs, tell_tables
from kidxlib.errors import UsageError
from kidxlib.terminal import options as shared_options
from kidxlib.terminal.exit_codes import ExitCode
from kidxlib.terminal.options import IntegerRange
from kidxlib.terminal.outcome import Outcome
from kidxlib.text.times import parse_duration, to_ms
from kidxlib.text.words import counted

if TYPE_CHECKING:
    from kidxlib.compaction.compact_partition import CompactionOptions
    from kidxlib.compaction.policy import CompactionPolicy
    from kidxlib.operations.backend import Backend
    from kidxlib.operations.compaction import CompactionReport

#: Columns of the table on screen. A lookup's scan is given in bytes of log.
_TOPIC_COLUMNS: Final = (
    *("topic", "action", "changes", "bytes before", "bytes after"),
    *("mean scan before", "mean scan after", "longest scan before", "longest scan after"),
)


@dataclass(frozen=True, kw_only=True)
class CompactCommand(OnSources):
    """What to compact."""

    interval_bytes: int | None = option(
        "--interval-bytes",
        metavar="BYTES",
        type=IntegerRange(0, 2**31 - 1),
        help="Give segments that are not active this interval.",
    )
    older_than: str | None = option(
        "--older-than",
        metavar="TIME",
        help="Only segments older than this by their largest timestamp, as 7d. [default: 0]",
    )
    policy: Path | None = option(
        "--policy",
        type=click.Path(path_type=Path),
        help="A file (TOML) of rules by topic, age and size, in place of the two options above.",
    )
    trim: bool = option("--trim", is_flag=True, help="Trim preallocated index files of segments that are not active.")
    orphans: bool = option(
        "--orphans", is_flag=True, help="Remove index and auxiliary files without a segment, and what killed runs left."
    )
    delete_delay: str | None = option(
        "--delete-delay", metavar="TIME", help="Minimum age of .deleted files. [default: 60s]"
    )
    tables: bool = option(
        "--tables", is_flag=True, help="Optimize and vacuum the catalog's tables; expire rows by the policy."
    )
    apply: bool = parameter(shared_options.apply_changes)
    now: str | None = parameter(
        click.option(
            "--now",
            metavar="TIME",
            help="The time by which segments are --older-than: ISO 8601 with a zone, or ms since the epoch. What is "
            "removed goes by the clock.",
        ),
        at=NOW,
    )

    def __post_init__(self) -> None:
        if self.policy is not None and self.interval_bytes is not None:
            raise UsageError("--policy and --interval-bytes: put the interval into the file, as a [[rule]]")
        if self.older_than is not None and self.interval_bytes is None:
            raise UsageError("--older-than: give --interval-bytes too, the interval that older segments get")
        if self.delete_delay is not None and not self.orphans:
            raise UsageError("--delete-delay: only --orphans uses it")
        if self.files is None and not self.tables:
            raise UsageError(
                "nothing to do; give --trim, --orphans, --tables, --interval-bytes, or a --policy with a [[rule]]"
            )
        if self.tables:
            ensure_vacuum_spares_runs("--tables", self.settings)
        super().__post_init__()

    @property
    def writes(self) -> bool:
        return self.apply

    @cached_property
    def rules(self) -> CompactionPolicy:
        """The rules of the policy file, or the one that the options make."""
        from kidxlib.compaction.policy import CompactionPolicy, Rule
        from kidxlib.compaction.policy_file import read_compaction_policy

        if self.policy is not None:
            return read_compaction_policy(self.policy)
        if self.interval_bytes is None:
            return CompactionPolicy()
        older_than = (
            timedelta(0)
            if self.older_than in (None, "0")
            else shared_options.parse_option("--older-than", parse_duration, str(self.older_than))
        )
        return CompactionPolicy((Rule(older_than=older_than, interval_bytes=self.interval_bytes),))

    @cached_property
    def files(self) -> CompactionOptions | None:
        """What to do with index files; None: leave them alone."""
        from kidxlib.compaction.compact_partition import CompactionOptions

        if not (self.rules.rules or self.trim or self.orphans):
            return None
        delete_delay = self.delete_delay or shared_options.DELETE_DELAY
        return CompactionOptions(
            policy=self.rules,
            trim=self.trim,
            orphans=self.orphans,
            now_ms=to_ms(self.context.now),
            clock_ms=to_ms(datetime.now(UTC)),
            staged_delay_ns=_ns(timedelta(hours=self.settings.build.longest_run_hours)),
            delete_delay_ns=_ns(shared_options.parse_option("--delete-delay", parse_duration, delete_delay)),
        )


def _ns(time: timedelta) -> int:
    return time // timedelta(microseconds=1) * 1000


def run_compact(request: CompactCommand, backend: Backend) -> Outcome:
    """Make what is stored of indexes smaller: index files of segments that are not active are trimmed, or rebuilt
    with larger intervals, exactly as Kafka's recovery would write them; files that nothing needs are removed; tables
    are optimized. Without --apply nothing is changed. kidx compact and ./spark-submit.sh compact_index are the same.

    Exit codes: 0 no problems; 2 wrong options or inputs, nothing done; 3 done, but some files stay that were to change;
    1 failed.
    """
    from kidxlib.operations.compaction import CompactionReport, compact_files, compaction_as_json, compaction_report
    from kidxlib.operations.maintenance import ALL, maintain_tables
    from kidxlib.terminal import interrupts

    compacted, maintained = CompactionReport(topics=[], changed=(0, []), unchanged=0, kept=(0, []), problems=0), []
    with contextlib.ExitStack() as stack:
        done = interrupts.RECORDED_STAYS if request.apply else interrupts.NOTHING_DONE
        stack.enter_context(interrupts.telling(lambda: done))
        if request.files is not None:
            changes = compact_files(
                backend, request.sources, request.pattern, request.files, apply=request.apply, stack=stack
            )
            compacted = compaction_report(changes)
        if request.tables:
            catalog = backend.catalog.tables
            maintained = maintain_tables(catalog, backend.maintenance, request.rules.expiry, ALL, apply=request.apply)
    outcome = Outcome(
        code=ExitCode.PROBLEMS_FOUND if compacted.problems else ExitCode.OK,
        counts={
            "changed": compacted.changed[0],
            "kept": compacted.kept[0],
            "not_well": compacted.problems,
            "tables": len(maintained),
        },
        bytes=sum(topic.bytes_before - topic.bytes_after for topic in compacted.topics),
    )
    outcome.values.update(applied=request.apply, now=request.context.now.isoformat(), tables=[])
    if request.files is not None:
        tell_files(outcome, compacted, applied=request.apply)
        outcome.values["changes"] = lambda: compaction_as_json(changes)
    if maintained:
        tell_tables(outcome, maintained, applied=request.apply)
    outcome.line(f"catalog: {backend.catalog.path}")
    return outcome


def tell_files(outcome: Outcome, compacted: CompactionReport, *, applied: bool) -> None:
    """Show what `kidx compact` does with index files: a row for each topic and action, and a line for each of a few
    files.
    """
    from rich.filesize import decimal

    from kidxlib.terminal.run_summary import TOPICS_SHOWN

    shown = compacted.topics[:TOPICS_SHOWN]
    outcome.table(
        "changed" if applied else "would change; nothing was written: --apply does it",
        _TOPIC_COLUMNS,
        [
            (
                topic.topic,
                topic.action,
                topic.changes,
                topic.bytes_before,
                topic.bytes_after,
                *(
                    "-" if cost is None else cost
                    for cost in (
                        topic.mean_scan_bytes_before,
                        topic.mean_scan_bytes_after,
                        topic.max_scan_bytes_before,
                        topic.max_scan_bytes_after,
                    )
                ),
            )
            for topic in shown
        ],
        text_columns=2,
    )
    outcome.add_more_line(len(compacted.topics) - len(shown), " rows")
    for count, lines in (compacted.changed, compacted.kept):
        outcome.line(*lines)
        outcome.add_more_line(count - len(lines), "; --json has all")
    before = sum(topic.bytes_before for topic in compacted.topics)
    after = sum(topic.bytes_after for topic in compacted.topics)
    same = f"; same bytes at the new interval: {compacted.unchanged:,}" if compacted.unchanged else ""
    changes = counted(compacted.changed[0], "change")
    outcome.line(f"{decimal(before)} → {decimal(after)}, {changes}; {compacted.kept[0]:,} kept{same}")
    outcome.values.update(
        topics=[asdict(topic) for topic in compacted.topics],
        changed_count=compacted.changed[0],
        unchanged_count=compacted.unchanged,
        kept_count=compacted.kept[0],
        not_well_count=compacted.problems,
    )


compact = kidx_command("compact", CompactCommand, run_compact, reports_as="compact_index")
