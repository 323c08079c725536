"""Types of options: whole numbers, numbers of bytes with a unit, and milliseconds (Kafka's `.ms`, a plain number or a
duration with its unit). The option's metavar says of what: `BYTES`, `MS`, `OFFSET`, else `N`.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any, Final

import click

from kidxlib.errors import UsageError
from kidxlib.text.times import parse_duration

_LONG_MIN: Final = -(2**63)
_LONG_MAX: Final = 2**63 - 1

_UNITS: Final = {
    "": 1,
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmgtp", start=1)},
    **{f"{letter}ib": 1024**power for power, letter in enumerate("kmgtp", start=1)},
}
_SIZE: Final = re.compile(r"([0-9]+) ?([a-z]*)", re.IGNORECASE)


class IntegerRange(click.IntRange):
    """Click's own type, with the range in words in a command's help, and with the value and the range in an error."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        problem = f"{value}: expected a whole number{self._bounds()}"
        if isinstance(value, str) and not value.isascii():  # int() takes the digits of all scripts
            self.fail(problem, param, ctx)
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            self.fail(problem, param, ctx)

    def _describe_range(self) -> str:
        """The range in a command's help; empty if all of Java's long is allowed."""
        has_min = self.min is not None and self.min > _LONG_MIN
        has_max = self.max is not None and self.max < _LONG_MAX
        if has_max:
            return f"{self.min} to {self.max}"
        return f"{self.min} or more" if has_min else ""

    def _bounds(self) -> str:
        if self.max is not None:
            return f" from {self.min} to {self.max}"
        return "" if self.min is None else f", {self.min} or more"


class ByteSize(click.ParamType[int]):
    """A number of bytes: whole, and with a unit (kB, MB, GB, TB, PB, or KiB and so on, in any case) or none."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        match = _SIZE.fullmatch(value.strip())
        unit = None if match is None else _UNITS.get(match[2].lower())
        size = -1 if match is None or unit is None else int(match[1]) * unit
        if not 0 <= size <= _LONG_MAX:
            self.fail(f"{value}: expected a number of bytes below 2⁶³, such as 1000000, 500MB or 20GiB", param, ctx)
        return size


class Milliseconds(IntegerRange):
    """A number of milliseconds: whole, or a duration with its unit, such as 7d."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, str) and value[-1:].isalpha():
            try:
                value = parse_duration(value) // timedelta(milliseconds=1)
            except UsageError as error:
                self.fail(f"{error}; or a plain number of milliseconds", param, ctx)
        return super().convert(value, param, ctx)
