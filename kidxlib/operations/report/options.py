"""The options of `report`, whoever makes it."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from kidxlib.run import options as shared_options
from kidxlib.run.known_topics import metadata_options
from kidxlib.terminal.options.numbers import IntegerRange

_Command = TypeVar("_Command", bound=Callable[..., Any])

_OPTIONS: Final = (
    shared_options.catalog,
    click.option(
        "--output",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="The HTML file to write. One that is there is replaced.",
    ),
    click.option(
        "--policy",
        type=click.Path(path_type=Path),
        help="What kafka-configs --describe --all prints of topics, or a file with one policy (TOML).",
    ),
    click.option(
        "--sample",
        metavar="N",
        type=IntegerRange(1, 10_000),
        help="Read N batches of each topic, and say what larger batches and other codecs would save.",
    ),
    metadata_options,
    shared_options.settings_file,
    click.option("--now", metavar="TIME", help="Report for this time: ISO 8601 with a zone, or ms since the epoch."),
    shared_options.as_json,
)


def report_options(command: _Command) -> _Command:
    """What `ReportOptions` takes, but for the database; and `as_json`."""
    return reduce(lambda decorated, option: option(decorated), reversed(_OPTIONS), command)
