"""The counts of a build, from the rows that executors send back."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from kidxlib.build.summary import PROBLEMS_KEPT, Counts, SegmentProblem
from kidxlib.build.topic_counts import PROBLEM_FREE


def count_scanned(results: DataFrame, counts: Counts) -> None:
    """Add a wave's results to the counts."""
    sums = {
        "log_bytes": F.sum("log_bytes"),
        "batches": F.sum("batches"),
        "entries": F.sum(F.col("offset_index_entries") + F.col("time_index_entries")),
    }
    grouped = results.groupBy("topic", "status", "published").agg(
        F.count("*").alias("segments"), *(F.coalesce(value, F.lit(0)).alias(name) for name, value in sums.items())
    )
    for row in grouped.collect():
        values = row.asDict()
        counts.topic(values.pop("topic")).add(**values)
    room = PROBLEMS_KEPT - len(counts.problems)
    if counts.problem_count > len(counts.problems) and room > 0:
        columns = list(SegmentProblem.__dataclass_fields__)
        problems = (
            results.where(~F.col("status").isin(*PROBLEM_FREE)).select(*columns).orderBy(*columns[:4]).limit(room)
        )
        counts.problems.extend(SegmentProblem(**row.asDict()) for row in problems.collect())


def count_finished(finished: DataFrame, counts: Counts) -> None:
    """Add what finishing partitions came to."""
    grouped = finished.groupBy("topic", "published").agg(
        F.count("*").alias("segments"), F.sum("aborted_transactions").alias("aborted")
    )
    for row in grouped.collect():
        topic = counts.topic(row["topic"])
        topic.aborted_transactions += row["aborted"]
        topic.by_transaction_index[row["published"]] += row["segments"]


def count_withdrawn(withdrawn: DataFrame, counts: Counts) -> None:
    """Count the segments that turned out as quarantined when their partition was finished."""
    for row in withdrawn.groupBy("topic", "status_before").count().collect():
        counts.topic(row["topic"]).withdraw(row["status_before"], row["count"])
    columns = list(SegmentProblem.__dataclass_fields__)
    room = max(0, PROBLEMS_KEPT - len(counts.problems))
    rows = withdrawn.select(*columns).orderBy(*columns[:4]).limit(room).collect()
    counts.problems.extend(SegmentProblem(**row.asDict()) for row in rows)
