"""Merges of rows into the catalog's tables, and which of them commit only what differs."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from kidxlib.catalog.rows import Table


def same_key(table: Table) -> Column:
    return reduce(Column.__and__, [F.col(f"old.{name}") == F.col(f"new.{name}") for name in table.key])


def in_order(rows: DataFrame, table: Table) -> DataFrame:
    """Rows that are to be written, each task's in the order of the table, which its files then have.

    Not all rows in one order: that would compute them twice, once to find the bounds. Compaction does it now and then.
    """
    return rows.sortWithinPartitions(*table.order)
