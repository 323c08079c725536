"""Rows of segments in Spark tasks, each partition's together."""

from __future__ import annotations

from pyspark.sql import DataFrame

from kidxlib.catalog.partitions import PARTITIONS
from kidxlib.catalog.transactions import PRODUCER_EVENTS


def by_partition(rows: DataFrame, shares: int) -> DataFrame:
    """The rows in `shares` Spark tasks, each partition's in one piece, segments in order, each before its events."""
    return rows.repartition(shares, *PARTITIONS.key).sortWithinPartitions(*PRODUCER_EVENTS.key)
