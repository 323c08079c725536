"""The options of accepting damage, whoever does it."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any, Final, TypeVar

import click

from kidxlib.run import options as shared_options

_Command = TypeVar("_Command", bound=Callable[..., Any])

_OPTIONS: Final = (
    shared_options.in_catalog,
    click.option(
        "--segment",
        "segments",
        multiple=True,
        metavar="TOPIC-PARTITION/BASE_OFFSET",
        help="Only this segment, as orders-3/1048576; repeatable. [default: all]",
    ),
    click.option(
        "--gap",
        "gaps",
        multiple=True,
        metavar="TOPIC-PARTITION/FIRST-LAST",
        help="Only this gap between logs, as orders-3/100-199 where offsets 100 to 199 are in none; repeatable.",
    ),
    click.option("--reason", metavar="TEXT", help="Why it is accepted, for whoever asks next year."),
    click.option("--by", metavar="NAME", help="Who accepts it. [default: the user that runs this]"),
    click.option("--withdraw", is_flag=True, help="Remove acceptances instead: the damage counts again."),
    click.option("--apply", is_flag=True, help="Record it. [default: dry run]"),
    shared_options.settings_file,
    shared_options.time_to_record,
    shared_options.as_json,
)


def accept_options(command: _Command) -> _Command:
    """What `AcceptOptions` takes, but for the database; and `as_json`."""
    return reduce(lambda decorated, option: option(decorated), reversed(_OPTIONS), command)
