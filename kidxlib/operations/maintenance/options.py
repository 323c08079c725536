"""The options of the upkeep of tables."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from kidxlib.run import options as shared_options

_Command = TypeVar("_Command", bound=Callable[..., Any])

_OPTIONS: Final = (
    shared_options.catalog,
    click.option(
        "--policy",
        type=click.Path(path_type=Path),
        help="A file (TOML) whose [tables] says how old rows may become; for expire.",
    ),
    shared_options.apply_changes,
    shared_options.settings_file,
    shared_options.as_json,
)


def tables_options(command: _Command) -> _Command:
    """What `TablesOptions` takes, but for what is to be done; and `as_json`."""
    return reduce(lambda decorated, option: option(decorated), reversed(_OPTIONS), command)
