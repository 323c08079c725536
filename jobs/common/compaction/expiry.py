"""The rows of tables that are old enough to go, and that nothing needs."""

from __future__ import annotations

from datetime import datetime
from functools import reduce
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.common.catalog.catalog import Catalog
from kidxlib.catalog.builds import BUILDS
from kidxlib.catalog.partitions import PARTITIONS
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.catalog.tables import TABLES
from kidxlib.catalog.transactions import ABORTED_TRANSACTIONS, PRODUCER_EVENTS
from kidxlib.compaction.policy import Expiry
from kidxlib.recovery.outcome import ABSENT

#: Tables that nothing is derived from, and the column that says when a row was made. Their names are those in `Expiry`.
_RECORDED_AT: Final = {"retention_plans": "planned_at", "findings": "audited_at"}


def rows_to_expire(catalog: Catalog, expiry: Expiry, now: datetime) -> dict[str, DataFrame]:
    """Keys of the rows that are to go, by table."""
    expired: dict[str, DataFrame] = {}
    if expiry.gone_segments is not None:
        gone = _not_needed(catalog, now - expiry.gone_segments)
        expired[SEGMENTS.name] = gone
        left = catalog.read(SEGMENTS).select(*SEGMENTS.key).join(gone, list(SEGMENTS.key), "left_anti")
        for table in (ABORTED_TRANSACTIONS, PRODUCER_EVENTS):
            keys = catalog.read(table).select(*table.key)
            expired[table.name] = keys.join(left, list(SEGMENTS.key), "left_anti")
    if expiry.builds is not None:
        expired[BUILDS.name] = _builds_of_the_past(catalog, now - expiry.builds)
    for table in TABLES:
        age = getattr(expiry, table.name) if table.name in _RECORDED_AT else None
        if age is not None:
            old = catalog.read(table).where(F.col(_RECORDED_AT[table.name]) < F.lit(now - age))
            expired[table.name] = old.select(*table.key)
    return expired


def _not_needed(catalog: Catalog, before: datetime) -> DataFrame:
    """Segments that are gone since then, and that no transaction of a later one is derived from.

    What retention took from the front of a partition still tells of transactions and producers after it
    (`Catalog.to_finish`): it stays for as long as there is a segment after it, of the same topic id.
    """
    segments = catalog.read(SEGMENTS)
    is_absent = F.col("status").isin(*(status.value for status in ABSENT))
    first = F.min(F.struct("base_offset", "topic_id"))
    present = segments.where(~is_absent).groupBy(*PARTITIONS.key).agg(first.alias("first"))
    builds = catalog.read(BUILDS).select("build_id", "started_at")
    gone = segments.where(is_absent).join(builds, "build_id", "left").join(present, list(PARTITIONS.key), "left")
    is_of_use = (F.col("base_offset") < F.col("first.base_offset")) & F.col("topic_id").eqNullSafe(
        F.col("first.topic_id")
    )
    old = F.coalesce("deleted_at", "started_at") < F.lit(before)
    return gone.where(old & ~F.coalesce(is_of_use, F.lit(False))).select(*SEGMENTS.key)


def _builds_of_the_past(catalog: Catalog, before: datetime) -> DataFrame:
    """Builds of before then, but for those that something refers to: rows of segments and partitions, the path of each
    source (`Catalog.source_paths`), and the rate of the last that read anything (`Catalog.last_rate`).
    """
    builds = catalog.read(BUILDS)
    latest = builds.select("build_id", "started_at", F.explode("sources").alias("source", "path"))
    latest = latest.groupBy("source").agg(F.max_by("build_id", "started_at").alias("build_id"))
    reading = builds.where("log_bytes > 0 AND scan_seconds > 0").orderBy(F.desc("started_at")).limit(1)
    needed = [rows.select("build_id") for rows in (latest, reading, catalog.read(SEGMENTS), catalog.read(PARTITIONS))]
    old = builds.where(F.col("started_at") < F.lit(before)).select("build_id")
    return old.join(reduce(DataFrame.union, needed), "build_id", "left_anti")
