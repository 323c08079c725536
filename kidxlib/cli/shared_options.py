"""Options that several commands have."""

from __future__ import annotations

from typing import Final

import click

from kidxlib.recover import INTERVAL_BYTES_DEFAULT

topics: Final = click.option("--topics", metavar="REGEX", default=".*", help="Only topics whose full name matches.")
interval_bytes: Final = click.option(
    "--interval-bytes",
    type=click.IntRange(0, 2**31 - 1),
    default=INTERVAL_BYTES_DEFAULT,
    show_default=True,
    help="Kafka's index.interval.bytes.",
)
processes: Final = click.option(
    "--processes", type=click.IntRange(1), help="How many processes read. [default: one a core]"
)
as_json: Final = click.option("--json", "as_json", is_flag=True, help="Print one JSON object on standard output.")
