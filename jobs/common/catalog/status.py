"""Conditions on rows of `segments` by their status."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from kidxlib.recovery.outcome import ABSENT


def is_present() -> Column:
    """Whether the segment of a row was in its source when that was last listed, and was not deleted since."""
    return ~F.col("status").isin(*(status.value for status in ABSENT))
