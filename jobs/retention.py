"""Plan retention: which segments Kafka would delete, and why each of the others stays; apply a plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click

from jobs.common.retention.driver import run_retention
from jobs.common.retention.request import RetentionOptions, retention_request
from kidxlib.run import options as shared_options
from kidxlib.run.result import RunResult
from kidxlib.run.run_report import reports_run
from kidxlib.terminal.command import run
from kidxlib.terminal.options.integer_range import IntegerRange

_LIMIT: Final = IntegerRange(-1, 2**63 - 1)


@click.command(context_settings={"max_content_width": 110})
@shared_options.of_catalog
@click.option(
    "--policy",
    type=click.Path(path_type=Path),
    help="What kafka-configs --describe --all prints of topics, or a file of policies (TOML); several are compared.",
)
@click.option("--retention-ms", metavar="MS", type=_LIMIT, help="retention.ms of all topics; -1: no limit.")
@click.option("--retention-bytes", metavar="BYTES", type=_LIMIT, help="retention.bytes of all topics; -1: no limit.")
@click.option("--from-files", is_flag=True, help="Look at each time index too, as a broker does; say where it differs.")
@click.option("--include-internal", is_flag=True, help="Plan Kafka's own topics too, as a broker configures them.")
@click.option(
    "--what-if", is_flag=True, help="Take Kafka's own defaults for what nobody said; --apply refuses such a plan."
)
@click.option(
    "--delete-records-json",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the plan for kafka-delete-records --offset-json-file.",
)
@click.option("--apply", is_flag=True, help="Apply a plan to an archive, in its log dir and its index directory.")
@click.option("--plan", "plan_id", metavar="ID", help="The plan to apply.")
@click.option("--delete-delay", metavar="TIME", help="Time from renaming files to removing them. [default: 60s]")
@click.option("--max-plan-age", metavar="TIME", help="Refuse a plan that is older. [default: 1h]")
@shared_options.settings_file
@click.option(
    "--now",
    metavar="TIME",
    help="Decide for this time: ISO 8601 with a zone, or ms since the epoch; the plan is a --what-if.",
)
@shared_options.as_json
@reports_run
def retention(as_json: bool, **options: Any) -> RunResult:
    """Plan which segments Kafka's retention would delete, with a reason for each, and record that in the catalog's
    table retention_plans. Nothing is deleted but with --apply.

    Exit codes: 0 no problems; 2 wrong options or inputs, nothing done; 3 done, but some segments have problems, or
    their time indexes lead to other decisions; 1 failed.
    """
    return run_retention(retention_request(RetentionOptions(**options)), as_json=as_json)


if __name__ == "__main__":
    run(retention, "./spark-submit.sh retention")
