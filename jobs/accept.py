"""Accept known damage: record who looked at it, when and why; it stays listed, and fails builds and audits no more."""

from __future__ import annotations

from typing import Any

import click

from jobs.common.damage.driver import run_accept
from jobs.common.damage.request import accept_request
from kidxlib.run import options as shared_options
from kidxlib.run.result import RunResult
from kidxlib.run.run_report import reports_run
from kidxlib.terminal.command import run


@click.command(context_settings={"max_content_width": 110})
@shared_options.of_catalog
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
@click.option("--apply", is_flag=True, help="Record it. [default: dry run]")
@shared_options.settings_file
@shared_options.time_to_record
@shared_options.as_json
@reports_run
def accept(as_json: bool, **options: Any) -> RunResult:
    """Accept damage that the catalog knows of: segments that build_index found truncated, quarantined or unreadable,
    and files that the last audit of verify_index found torn or broken. Nothing is mended. It stays listed, with who
    accepted it, when and why, and counts apart; when the file changes, or what is found in it, it is damage again.
    Nothing is recorded but with --apply.

    Exit codes: 0 no problems; 2 wrong options or inputs, nothing done; 1 failed.
    """
    return run_accept(accept_request(**options), as_json=as_json)


if __name__ == "__main__":
    run(accept, "./spark-submit.sh accept")
