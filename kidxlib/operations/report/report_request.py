"""What a report is asked for: options and settings, put together and checked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kidxlib.errors import UsageError
from kidxlib.retention.policy import Policy
from kidxlib.retention.policy_file import read_policies
from kidxlib.run.context import RunContext
from kidxlib.run.known_topics import MetadataOptions
from kidxlib.run.options import ensure_parent_exists
from kidxlib.run.settings import read_settings


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOptions:
    """The options as they were given; None where they were not."""

    catalog: str | None
    database: str | None
    output: Path | None
    policy: Path | None
    sample: int | None
    metadata: MetadataOptions
    settings_file: Path
    now: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportRequest:
    """What to report.

    Attributes:
        output: the HTML file; None where only JSON is wanted.
        policy: what topics are configured to, where nobody says it of them.
        sample: how many batches of each topic are read, for what other settings of producers would save; 0 for none.
        metadata: where clusters say it.
    """

    context: RunContext
    output: Path | None
    policy: Policy
    sample: int
    metadata: MetadataOptions


def report_request(options: ReportOptions, *, as_json: bool) -> ReportRequest:
    """Put options and settings together."""
    if options.output is None and not as_json:
        raise UsageError("nothing to write: name the page with --output FILE.html, or ask for --json")
    if options.output is not None:
        ensure_parent_exists("--output", options.output)
    policies = (Policy(),) if options.policy is None else read_policies(options.policy)
    if len(policies) > 1:
        raise UsageError(f"--policy {options.policy}: it has {len(policies)} policies; expected one")
    context = RunContext.of(read_settings(options.settings_file), options.catalog, options.database, options.now)
    return ReportRequest(
        context=context.with_catalog(),
        output=options.output,
        policy=policies[0],
        sample=options.sample or 0,
        metadata=options.metadata,
    )
