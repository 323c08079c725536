"""Options that are whole numbers."""

from __future__ import annotations

from typing import Any

import click


class WholeNumber(click.IntRange):
    """As click's own type; but what is wrong with a value is said as all else is: what was found, what was expected."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            self.fail(f"{value}: expected a whole number{self._bounds()}", param, ctx)

    def _bounds(self) -> str:
        if self.max is not None:
            return f" from {self.min} to {self.max}"
        return "" if self.min is None else f", {self.min} or more"
