"""Options that are a number of bytes, perhaps in a larger unit."""

from __future__ import annotations

import re
from typing import Any, Final

import click

_UNITS: Final = {
    "": 1,
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmgtp", start=1)},
    **{f"{letter}ib": 1024**power for power, letter in enumerate("kmgtp", start=1)},
}
_SIZE: Final = re.compile(r"([0-9]+) ?([a-z]*)", re.IGNORECASE)
_LONG_MAX: Final = 2**63 - 1


class ByteSize(click.ParamType[int]):
    """A number of bytes: whole, and with a unit (kB, MB, GB, TB, PB, or KiB and so on, in any case) or none."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        found = _SIZE.fullmatch(value.strip())
        unit = None if found is None else _UNITS.get(found[2].lower())
        size = -1 if found is None or unit is None else int(found[1]) * unit
        if not 0 <= size <= _LONG_MAX:
            self.fail(f"{value}: expected a number of bytes below 2⁶³, such as 1000000, 500MB or 20GiB", param, ctx)
        return size
