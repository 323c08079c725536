"""The options of an audit that are for tiered storage, and those that it has no use for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import click

from kidxlib.terminal.options.given import leave_out

#: What only a run has that is recorded.
_OF_CATALOGS: Final = {"settings_file": "--settings"}


def is_tiered(
    context: click.Context,
    options: dict[str, Any],
    of_tiered: Mapping[str, str],
    of_others: Mapping[str, str],
    why: str,
) -> bool:
    """Whether a command is to work on tiered storage. Removes the options that only another kind of run has.

    Args:
        options: all of the command's, by parameter.
        of_tiered: what a user calls those that only such a run has, by parameter, beside `tiered`.
        of_others: those that it has no use for.
        why: what to say where one of these was given; `{option}` stands for it.
    """
    if options["tiered"] is None:
        leave_out(context, options, of_tiered, "{option}: only with --tiered")
        del options["tiered"]
        return False
    leave_out(context, options, of_others, why)
    if options["catalog"] is None and options.get("database") is None:
        leave_out(context, options, _OF_CATALOGS, "{option}: only with --catalog")
    return True
