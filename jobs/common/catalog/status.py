"""Conditions on rows of `segments` by their status."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from kidxlib.recovery.outcome import ABSENT, Status


def is_present() -> Column:
    """Whether the segment of a row was in its source when that was last listed, and was not deleted since."""
    return ~F.col("status").isin(*(status.value for status in ABSENT))


NO_DAMAGE: Final = (Status.OK, *ABSENT)


def is_damaged() -> Column:
    """Whether the log of a row of `segments` is in its source, and is not `ok` from end to end."""
    return ~F.col("status").isin(*(status.value for status in NO_DAMAGE))
