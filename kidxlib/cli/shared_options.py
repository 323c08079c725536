"""Options that several commands have."""

from __future__ import annotations

from typing import Final

import click

from kidxlib.cli.whole_number import WholeNumber
from kidxlib.console import show_details
from kidxlib.progress import end_phases
from kidxlib.recover import INTERVAL_BYTES_DEFAULT

topics: Final = click.option("--topics", metavar="REGEX", default=".*", help="Only topics whose full name matches.")
interval_bytes: Final = click.option(
    "--interval-bytes",
    type=WholeNumber(0, 2**31 - 1),
    default=INTERVAL_BYTES_DEFAULT,
    show_default=True,
    help="Kafka's index.interval.bytes.",
)
processes: Final = click.option(
    "--processes", type=WholeNumber(1), help="How many processes read. [default: one a core]"
)


def _begin(context: click.Context, _: click.Parameter, verbose: bool) -> None:
    show_details(verbose)
    context.call_on_close(end_phases)


#: For a command that begins phases: they end with it, however it ends.
verbose: Final = click.option(
    "-v",
    "--verbose",
    is_flag=True,
    expose_value=False,
    callback=_begin,
    help="Say what was skipped too, and how long each phase took.",
)
as_json: Final = click.option("--json", "as_json", is_flag=True, help="Print one JSON object on standard output.")
