"""Options that are whole numbers. Each has a metavar that says of what: `BYTES`, `MS`, `OFFSET`, else `N`."""

from __future__ import annotations

from typing import Any, Final

import click

_LONG_MIN: Final = -(2**63)
_LONG_MAX: Final = 2**63 - 1


class IntegerRange(click.IntRange):
    """Click's own type, but in words: the range in a command's help, and what was found and expected in an error."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        problem = f"{value}: expected a whole number{self._bounds()}"
        if isinstance(value, str) and not value.isascii():  # int() takes the digits of all scripts
            self.fail(problem, param, ctx)
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            self.fail(problem, param, ctx)

    def _describe_range(self) -> str:
        """What click shows in a command's help; nothing where all of Java's long is allowed."""
        has_min = self.min is not None and self.min > _LONG_MIN
        has_max = self.max is not None and self.max < _LONG_MAX
        if has_max:
            return f"{self.min} to {self.max}"
        return f"{self.min} or more" if has_min else ""

    def _bounds(self) -> str:
        if self.max is not None:
            return f" from {self.min} to {self.max}"
        return "" if self.min is None else f", {self.min} or more"
