"""Options whose names end with Kafka's `.ms`: a plain number is milliseconds, as in Kafka, and a unit may be given."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import click

from kidxlib.errors import UsageError
from kidxlib.terminal.options.integer_range import IntegerRange
from kidxlib.text.times import parse_duration


class Milliseconds(IntegerRange):
    """A number of milliseconds: whole, or a duration with its unit, such as 7d."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, str) and value[-1:].isalpha():
            try:
                value = parse_duration(value) // timedelta(milliseconds=1)
            except UsageError as error:
                self.fail(f"{error}; or a plain number of milliseconds", param, ctx)
        return super().convert(value, param, ctx)
