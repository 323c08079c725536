"""`kidx build`: index a log dir or one partition with all cores of this machine, for someone with one broken disk."""

from __future__ import annotations

from typing import Any

import click

from kidxlib.cli.build_report import exit_code, show_json, show_summary
from kidxlib.cli.build_request import build_request
from kidxlib.cli.build_run import run_build
from kidxlib.recovery.options import MAX_INDEX_BYTES_DEFAULT
from kidxlib.terminal.exit_codes import ExitCode
from kidxlib.terminal.options import shared as shared_options
from kidxlib.terminal.options.integer_range import IntegerRange


@click.command()
@click.argument("directory", metavar="DIR")
@click.option("--index-dir", metavar="DIR", help="Write the index files there, in one directory a partition.")
@click.option("--in-place", is_flag=True, help="Write beside the segments, under the log dir's lock.")
@shared_options.accept_truncated
@shared_options.topics
@shared_options.interval_bytes
@click.option(
    "--max-index-bytes",
    metavar="BYTES",
    type=IntegerRange(12, 2**31 - 1),
    default=MAX_INDEX_BYTES_DEFAULT,
    show_default=True,
    help="Kafka's segment.index.bytes.",
)
@click.option("--verify-crc/--no-verify-crc", default=True, help="Check every batch's checksum, or read headers only.")
@click.option("--snapshots", is_flag=True, help="Write producer snapshots too, as recovery does.")
@click.option("--epochs", is_flag=True, help="Write leader-epoch-checkpoint files too, as recovery does.")
@click.option("--repair", is_flag=True, help="Audit first, as kidx verify does; write what is broken and nothing else.")
@shared_options.processes
@shared_options.as_json
@shared_options.verbose
def build(directory: str, as_json: bool, **options: Any) -> ExitCode:
    """Index the segments in DIR, a Kafka log dir or one partition's directory.

    Exit codes: 0 no problems; 2 wrong options or inputs, nothing done; 3 done, but some segments have problems; 1
    failed. 0 means that recovery accepts each log; kidx verify tells whether something is missing.
    """
    request = build_request(directory, **options)
    built = run_build(request)
    (show_json if as_json else show_summary)(request, built)
    return exit_code(built)
