"""The options of forgetting a source, whoever does it."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any, Final, TypeVar

import click

from kidxlib.run import options as shared_options

_Command = TypeVar("_Command", bound=Callable[..., Any])

_OPTIONS: Final = (
    click.argument("source", metavar="SOURCE"),
    shared_options.catalog,
    click.option("--apply", is_flag=True, help="Remove the rows. [default: dry run, which counts them]"),
    shared_options.settings_file,
    shared_options.as_json,
)


def forget_options(command: _Command) -> _Command:
    """What `ForgetOptions` takes, but for the database; and `as_json`."""
    return reduce(lambda decorated, option: option(decorated), reversed(_OPTIONS), command)
