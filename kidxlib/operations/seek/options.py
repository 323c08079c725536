"""The options of seeks, whoever answers them."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from kidxlib.format.topic_partition import PARTITION_MAX
from kidxlib.run import options as shared_options
from kidxlib.terminal.options.numbers import IntegerRange

_Command = TypeVar("_Command", bound=Callable[..., Any])

_OPTIONS: Final = (
    shared_options.catalog,
    click.option("--source", metavar="NAME", help="Only this source. [default: each that holds the partition]"),
    click.option(
        "--topic",
        help="The topic. [default: that of DIR, if it is one partition's directory; for a --timestamp all topics]",
    ),
    click.option(
        "--partition",
        metavar="N",
        type=IntegerRange(0, PARTITION_MAX),
        help="The partition's number. [default: for a --timestamp all of the topic]",
    ),
    click.option(
        "--offset", metavar="OFFSET", type=IntegerRange(-(2**63), 2**63 - 1), help="Which batch holds this offset?"
    ),
    click.option(
        "--timestamp",
        metavar="TIME",
        help="Which is the first record of this time or later? ISO 8601 with a zone, or ms.",
    ),
    click.option(
        "--queries",
        metavar="FILE",
        help="Many questions instead: .csv, .json, .parquet or a Delta table, with columns topic, partition, and "
        "offset or timestamp, and perhaps source.",
    ),
    click.option("--output", metavar="FILE", help="Where their answers go: .csv, .json, .parquet, else a Delta table."),
    click.option(
        "--consumer-group-csv",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="Write what kafka-consumer-groups --reset-offsets --from-file takes; one question a partition.",
    ),
    shared_options.settings_file,
    shared_options.as_json,
)


def seek_options(command: _Command) -> _Command:
    """What `seek_request` takes; and `catalog`, `settings_file` and `as_json`."""
    return reduce(lambda decorated, option: option(decorated), reversed(_OPTIONS), command)
