"""Options that a command has only where it is given a catalog."""

from __future__ import annotations

from collections.abc import Mapping

import click

from kidxlib.errors import UsageError
from kidxlib.terminal.options.given import first_given


def refuse_without_catalog(context: click.Context, what: str, options: Mapping[str, str]) -> None:
    """Say of an option that was given that it needs a catalog.

    Args:
        what: is asked for, as in "a build".
        options: which these are, by parameter.
    """
    if (option := first_given(context, options)) is not None:
        raise UsageError(f"{option}: only for {what} with a catalog; name it with --catalog DIR")
