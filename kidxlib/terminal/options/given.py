"""Options that were renamed: the old name works for one more release, with a warning, and no help shows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click
from click.core import ParameterSource

from kidxlib.errors import UsageError
from kidxlib.terminal.console import warn

_Command = TypeVar("_Command", bound=Callable[..., Any])

#: The key of a context's `meta` for values given by old names: new name -> value.
_GIVEN: Final = f"{__name__}.given"


def renamed_option(
    new: str,
    *,
    old: str,
    old_type: click.ParamType[Any] | None = None,
    read_old: Callable[[Any], Any] = lambda value: value,
    **attributes: Any,
) -> Callable[[_Command], _Command]:
    """An option as `click.option` makes it, which had another name until now. The old option always takes a value, of
    the type `old_type` or else the new one's; `read_old` turns that value into the new option's. The `attributes` are
    the new option's, without a callback.
    """

    def keep(context: click.Context, _: click.Parameter, value: Any) -> None:
        if value is None:
            return
        context.meta.setdefault(_GIVEN, {})[new] = read_old(value)
        if not context.resilient_parsing:  # a shell that completes the line wants no warning
            warn(f"{old} is now {new}; the old name goes with the next release")

    def take(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
        given = context.meta.get(_GIVEN, {})
        if new not in given:
            return value
        if context.get_parameter_source(str(parameter.name)) is ParameterSource.COMMANDLINE:
            raise UsageError(f"{old}: is the old name of {new}; give one of the two")
        return given[new]

    # Click reads eager options first, so `take` finds what `keep` has kept.
    of_old = click.option(
        old,
        type=old_type or attributes.get("type"),
        hidden=True,
        is_eager=True,
        expose_value=False,
        callback=keep,
    )
    of_new = click.option(new, callback=take, **attributes)
    return lambda command: of_new(of_old(command))
