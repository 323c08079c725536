"""`kidx report`, `./spark-submit.sh report`: a page of what a catalog knows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kidxlib.commands.command import NOW, OnCatalog, kidx_command, option, parameter
from kidxlib.errors import UsageError
from kidxlib.terminal.exit_codes import ExitCode
from kidxlib.terminal.options import IntegerRange, MetadataOptions, ensure_parent_exists, metadata_options
from kidxlib.terminal.outcome import Outcome

if TYPE_CHECKING:
    from kidxlib.operations.backend import Backend
    from kidxlib.retention.policy import Policy


@dataclass(frozen=True, kw_only=True)
class ReportCommand(OnCatalog):
    """What to report.

    Attributes:
        output: the HTML file; None: only JSON is wanted.
        sample: how many batches of each topic to read, to measure what other producer settings would save; None for
            none.
    """

    output: Path | None = option(
        "--output",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="The HTML file to write. One that is there is replaced.",
    )
    policy: Path | None = option(
        "--policy",
        type=click.Path(path_type=Path),
        help="What kafka-configs --describe --all prints of topics, or a file with one policy (TOML).",
    )
    sample: int | None = option(
        "--sample",
        metavar="N",
        type=IntegerRange(1, 10_000),
        help="Read N batches of each topic, and say what larger batches and other codecs would save.",
    )
    metadata: MetadataOptions = parameter(metadata_options)
    now: str | None = parameter(
        click.option(
            "--now", metavar="TIME", help="Report for this time: ISO 8601 with a zone, or ms since the epoch."
        ),
        at=NOW,
    )

    def __post_init__(self) -> None:
        if self.output is None and not self.as_json:
            raise UsageError("nothing to write: name the page with --output FILE.html, or ask for --json")
        if self.output is not None:
            ensure_parent_exists("--output", self.output)
        _ = self.configured  # a wrong policy is refused before anything is done

    @property
    def writes(self) -> bool:
        return self.output is not None

    @cached_property
    def configured(self) -> Policy:
        """The configuration of topics for which no metadata has one."""
        from kidxlib.retention.policy import Policy
        from kidxlib.retention.policy_file import read_retention_policies

        policies = (Policy(),) if self.policy is None else read_retention_policies(self.policy)
        if len(policies) > 1:
            raise UsageError(f"--policy {self.policy}: it has {len(policies)} policies; expected one")
        return policies[0]


def run_report(request: ReportCommand, backend: Backend) -> Outcome:
    """Write one HTML page of what a catalog knows: how much there is, what is wrong, the segments of each partition,
    what retention would do with other limits, the shape of batches, growth, replicas and builds. The page needs no
    network. Nothing is recorded in the catalog. With --sample some batches of logs are read, too, and where replicas
    differ some headers.

    Exit codes: 0 made; 3 made, and it says of offsets that they are missing (a gap between logs, a log that is missing
    or ends early, what a replica lacks), or of a file that builds or audits found it damaged or broken, and nobody has
    accepted that; or a source cannot be listed here; 2 wrong options or inputs, nothing done; 1 failed.
    """
    from kidxlib.operations.report.attention import Severity
    from kidxlib.operations.report.document import make_report, write_page
    from kidxlib.terminal.console import begin_phase

    report = make_report(
        backend, request.context.now, policy=request.configured, metadata=request.metadata, sample=request.sample or 0
    )
    overview, attention = report.sections["overview"], report.head["attention"]
    missing = sum(row["is_missing"] for row in attention)
    is_damaged = any(row["is_damage"] for row in attention)
    has_problems = missing or is_damaged or report.sections["health"]["not_reached"]
    outcome = Outcome(
        code=ExitCode.PROBLEMS_FOUND if has_problems else ExitCode.OK,
        counts={
            "segments": overview["segments"],
            "missing": missing,
            "not_reached": len(report.sections["health"]["not_reached"]),
            **{severity.value: sum(row["severity"] == severity for row in attention) for severity in Severity},
        },
        bytes=overview["log_bytes"],
    )
    if request.output is not None:
        begin_phase("writing the page")
        size = write_page(report, request.output)
        outcome.line(f"report: {request.output} ({size:,} bytes): open it in a browser")
    outcome.line(*(f"{row['severity']}: {row['title']}: {row['detail']}" for row in attention))
    if not attention:
        outcome.line("nothing to look at: no damage, no finding, and every source was audited")
    outcome.values.update(report.as_json())
    return outcome


report = kidx_command("report", ReportCommand, run_report, reports_as="report")
