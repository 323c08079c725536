"""Numba's compiler, which keeps what it has compiled where `kidxlib.jit.locators` say."""

from __future__ import annotations

import functools
import logging
from types import FunctionType
from typing import Any, Final

import numba
from numba.core import event

from kidxlib.jit import compiling, locators

_log: Final = logging.getLogger(__name__)

locators.register()


class _Teller(event.Listener):
    """Tells of compiling as numba does, of a function within another, too; not of code that was kept."""

    _depth = 0

    def on_start(self, event: event.Event) -> None:
        self._depth += 1
        compiling.say(True)

    def on_end(self, event: event.Event) -> None:
        self._depth -= 1
        compiling.say(self._depth > 0)


event.register("numba:compile", _Teller())  # type: ignore[no-untyped-call]


def _njit(*arguments: Any, **options: Any) -> Any:
    """`numba.njit`; where no directory can be written what it compiles is not kept, for which numba would fail."""
    if len(arguments) == 1 and isinstance(arguments[0], FunctionType):  # @njit alone, which keeps nothing
        return numba.njit(arguments[0])
    compile_ = numba.njit(*arguments, **options)

    def compiled(function: FunctionType) -> Any:
        try:
            return compile_(function)
        except RuntimeError as error:
            if not options.get("cache") or "no locator available" not in str(error):
                raise
        _warn_once("no directory to keep compiled code in, so that each start takes half a minute; set TMPDIR to one")
        return numba.njit(*arguments, **{**options, "cache": False})(function)

    return compiled


njit: Final[Any] = _njit  # of what it compiles nobody knows the types


@functools.cache
def _warn_once(message: str) -> None:
    _log.warning(message)
