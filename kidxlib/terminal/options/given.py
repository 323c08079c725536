"""Options that were given, of some that do not go together with others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click
from click.core import ParameterSource

from kidxlib.errors import UsageError


def first_given(context: click.Context, options: Mapping[str, str]) -> str | None:
    """The first option that stands on the command line; None where none does.

    Args:
        options: what a user calls them, by parameter.
    """
    return next(
        (
            option
            for parameter, option in options.items()
            if context.get_parameter_source(parameter) is ParameterSource.COMMANDLINE
        ),
        None,
    )


def leave_out(context: click.Context, options: dict[str, Any], others: Mapping[str, str], why: str) -> None:
    """Remove options that only another kind of run has.

    Args:
        options: all of the command's, by parameter.
        others: what a user calls those to remove, by parameter.
        why: what to say where one was given; `{option}` stands for it.

    Raises:
        UsageError: one was given.
    """
    if (option := first_given(context, others)) is not None:
        raise UsageError(why.format(option=option))
    for parameter in others:
        options.pop(parameter, None)
