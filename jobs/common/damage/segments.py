"""Asks the tables how a catalog's segments stand: which are damaged, new to a run or not, and which of these accepted.

A segment that was read once is not read again while it stays as it is, so a run that goes by what it has read itself
would call a source free of problems at the second look.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from functools import reduce
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from jobs.common.catalog.catalog import Catalog
from jobs.common.catalog.create import is_there
from jobs.common.catalog.status import NO_DAMAGE, is_damaged
from jobs.common.spark.local_rows import of_arrow
from jobs.common.spark.schema import spark_schema
from kidxlib.build.summary import PROBLEMS_KEPT
from kidxlib.catalog.findings import ACCEPTED
from kidxlib.catalog.segments import SEGMENTS, LogVersion
from kidxlib.format.segment_files import LOG_SUFFIX
from kidxlib.operations.known_damage import ACCEPTED_STATUS, DamagedSegment, KnownDamage

_ACCEPTANCE: Final = ("accepted_by", "accepted_at", "accepted_reason")


def known_damage(
    catalog: Catalog,
    sources: Collection[str],
    topics: re.Pattern[str],
    gone: pa.Table | None = None,
) -> KnownDamage:
    """How a catalog's segments stand.

    Args:
        sources, topics: what was asked for; topics by their full names.
        gone: keys of segments that a listing did not find, if that is not recorded yet.
    """
    counts = catalog.read(SEGMENTS).groupBy("source", "status").count().collect()
    segments = Counter({(row["source"], row["status"]): int(row["count"]) for row in counts})
    if all(status in NO_DAMAGE for _, status in segments):
        return KnownDamage(segments=segments)
    found = _damaged(catalog)
    if gone is not None and gone.num_rows:
        keys = of_arrow(catalog.spark, gone)
        found = found.join(keys, list(SEGMENTS.key), "left_anti")
    found = found.cache()  # few, and asked for twice
    try:
        is_accepted = F.col("accepted_by").isNotNull().alias("is_accepted")
        by_topic = found.groupBy("source", "topic", "status", is_accepted).count().collect()
        for row in by_topic:
            if row["is_accepted"]:
                segments[row["source"], row["status"]] -= row["count"]
                segments[row["source"], ACCEPTED_STATUS] += row["count"]
        asked = [row for row in by_topic if row["source"] in sources and topics.fullmatch(row["topic"])]
        wanted = F.col("source").isin(*sources) & F.col("topic").isin(*{row["topic"] for row in asked})
        first = found.where(wanted).orderBy(is_accepted, *SEGMENTS.key).limit(PROBLEMS_KEPT).collect() if asked else []
    finally:
        found.unpersist()
    return KnownDamage(
        segments=segments,
        damaged=sum(row["count"] for row in asked if not row["is_accepted"]),
        accepted=sum(row["count"] for row in asked if row["is_accepted"]),
        listed=[DamagedSegment(**row.asDict()) for row in first],
    )


def _damaged(catalog: Catalog) -> DataFrame:
    """The columns of `DamagedSegment`, each segment with who accepted it as it is now."""
    columns = ("status", "reason", "reason_position", "reason_detail", "log_path")
    segments = catalog.read(SEGMENTS).where(is_damaged()).select(*SEGMENTS.key, *columns, *LogVersion.names())
    if not is_there(catalog, ACCEPTED):  # a catalog of an older release, that no build has brought up to date
        nobody = (
            F.lit(None).cast(field.dataType).alias(field.name) for field in spark_schema(ACCEPTED.schema(_ACCEPTANCE))
        )
        return segments.drop(*LogVersion.names()).select("*", *nobody)
    accepted = catalog.read(ACCEPTED).where(F.col("file") == LOG_SUFFIX)
    same = {
        **{name: name for name in (*SEGMENTS.key, "reason")},
        "reason_position": "position",
        **dict(zip(LogVersion.names(), ("file_bytes", "file_mtime_ns", "file_inode"), strict=True)),
    }
    condition = reduce(
        Column.__and__, [F.col(f"found.{name}").eqNullSafe(F.col(f"accepted.{other}")) for name, other in same.items()]
    )
    joined = segments.alias("found").join(F.broadcast(accepted.alias("accepted")), condition, "left")
    return joined.select(*(f"found.{name}" for name in (*SEGMENTS.key, *columns)), *_ACCEPTANCE)
