"""What the catalog's rows say of topics as a whole: whether they look compacted, and of how many clusters they are."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from kidxlib.catalog.partitions import PARTITIONS
from kidxlib.errors import UsageError
from kidxlib.recovery.outcome import Status


def topics_that_look_compacted(rows: DataFrame) -> frozenset[str]:
    """Topics with segments that lack offsets, which nothing but compaction takes out of a log.

    A broker gives offsets without a gap, markers of transactions included; so a segment has as many records as
    offsets, and one begins where the one before it ends. Segments that are `ok` tell. Where messages of magic 0 or 1
    are compressed, how many there are is not known: such a topic may be compacted, and counts as if it were. A segment
    that is missing looks like compaction, too.

    Args:
        rows: of `Catalog.to_plan`.
    """
    following = F.lead("base_offset").over(Window.partitionBy(*PARTITIONS.key).orderBy("base_offset"))
    records, end = F.col("records"), F.col("next_offset")
    lacks = records.isNull() | (records < end - F.col("base_offset")) | F.coalesce(following > end, F.lit(False))
    looks_so = rows.withColumn("lacks", (F.col("status") == Status.OK.value) & lacks).where("lacks")
    return frozenset(row["topic"] for row in looks_so.select("topic").distinct().collect())


def ensure_one_cluster(rows: DataFrame, policy_file: Path) -> None:
    """What Kafka's tools print of a topic holds for the cluster that they asked. A topic that was made again has
    another id, too.

    Args:
        rows: of `Catalog.to_plan`.
        policy_file: what they printed.

    Raises:
        UsageError: a topic has several topic ids in the sources; one without an id could be any.
    """
    ids = (
        rows.where("topic_id IS NOT NULL")
        .groupBy("topic")
        .agg(
            F.count_distinct("topic_id").alias("ids"),
            F.min("topic_id").alias("one"),
            F.min_by("source", "topic_id").alias("of_one"),
            F.max("topic_id").alias("other"),
            F.max_by("source", "topic_id").alias("of_other"),
        )
    )
    row = ids.where("ids > 1").orderBy("topic").head()
    if row is not None:
        of = f"{row['one']} in source {row['of_one']} and {row['other']} in source {row['of_other']}"
        raise UsageError(
            f"--policy {policy_file}: it tells of one cluster's topics, and {row['topic']} has the topic id {of}; "
            "choose the sources of that cluster with --source"
        )
