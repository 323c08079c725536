"""Conditions on rows, as Spark asks them."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from kidxlib.catalog.conditions import Among, Condition


def as_column(condition: Condition) -> Column:
    """Whether it is true of a row; never null."""
    column = F.col(condition.column)
    if isinstance(condition, Among):
        found = F.coalesce(column.isin(*condition.values), F.lit(False))
        return ~found if condition.negated else found
    return F.coalesce(column.between(condition.least, condition.most), F.lit(False))
