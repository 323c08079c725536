"""Compact indexes and tables: trim preallocated files, give cold segments sparser indexes, remove leftovers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from jobs.common.compaction.driver import run_compaction
from jobs.common.compaction.request import CliOptions, compaction_request
from kidxlib.run import options as shared_options
from kidxlib.run.result import RunResult
from kidxlib.run.run_report import reports_run
from kidxlib.terminal.command import run
from kidxlib.terminal.options.integer_range import IntegerRange


@click.command(context_settings={"max_content_width": 110})
@shared_options.of_catalog
@click.option(
    "--interval-bytes",
    metavar="BYTES",
    type=IntegerRange(0, 2**31 - 1),
    help="Give segments that are not active this interval.",
)
@click.option(
    "--older-than", metavar="TIME", help="Only segments older than this by their largest timestamp, as 7d. [default: 0]"
)
@click.option(
    "--policy",
    type=click.Path(path_type=Path),
    help="A file (TOML) of rules by topic, age and size, in place of these.",
)
@click.option("--trim", is_flag=True, help="Trim preallocated index files of segments that are not active.")
@click.option(
    "--orphans", is_flag=True, help="Remove index and auxiliary files without a segment, and what killed runs left."
)
@click.option("--delete-delay", metavar="TIME", help="Minimum age of .deleted files. [default: 60s]")
@click.option("--tables", is_flag=True, help="Optimize and vacuum the catalog's tables; expire rows by the policy.")
@click.option("--apply", is_flag=True, help="Apply the changes. [default: dry run]")
@shared_options.settings_file
@click.option(
    "--now",
    metavar="TIME",
    help="The time by which segments are --older-than: ISO 8601 with a zone, or ms since the epoch. What is removed "
    "goes by the clock.",
)
@shared_options.as_json
@reports_run
def compact_index(as_json: bool, **options: Any) -> RunResult:
    """Make what is stored of indexes smaller: index files of segments that are not active are trimmed, or rebuilt
    with larger intervals, exactly as Kafka's recovery would write them; files that nothing needs are removed; tables
    are optimized. Nothing is changed but with --apply.

    Exit codes: 0 no problems; 2 wrong options or inputs, nothing done; 3 done, but some files stay that were to change;
    1 failed.
    """
    return run_compaction(compaction_request(CliOptions(**options)), as_json=as_json)


if __name__ == "__main__":
    run(compact_index, "./spark-submit.sh compact_index")
