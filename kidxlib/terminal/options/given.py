"""Options that were given, of some that do not go together with others."""

from __future__ import annotations

from collections.abc import Mapping

import click
from click.core import ParameterSource


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
