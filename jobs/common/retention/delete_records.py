"""A plan as what Kafka's own tool takes to delete records."""

from __future__ import annotations

import json
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.common.retention.summary import IS_DELETED
from kidxlib.errors import KidxError, UsageError


def ensure_no_copies(planned: DataFrame) -> None:
    """A request to delete records names a partition once.

    Raises:
        UsageError: several sources hold one partition.
    """
    copies = planned.groupBy("topic", "partition").agg(F.array_sort(F.collect_set("source")).alias("sources"))
    row = copies.where(F.size("sources") > 1).orderBy("topic", "partition").head()
    if row is not None:
        raise UsageError(
            f"--delete-records-json: {row['topic']}-{row['partition']} is in the sources "
            f"{', '.join(row['sources'])}; choose one with --source"
        )


def write_delete_records(planned: DataFrame, path: Path) -> int:
    """Write what `kafka-delete-records --offset-json-file` takes: up to where each partition is to be deleted.

    Returns:
        How many partitions it names.

    Raises:
        KidxError: the file cannot be written.
    """
    rows = planned.where(IS_DELETED).groupBy("topic", "partition").agg(F.max("next_offset").alias("offset"))
    partitions = [row.asDict() for row in rows.orderBy("topic", "partition").collect()]
    try:
        path.write_text(json.dumps({"partitions": partitions, "version": 1}, indent=2) + "\n")
    except OSError as error:
        raise KidxError(
            f"--delete-records-json {path}: cannot be written: {error.strerror}; the plan is recorded"
        ) from error
    return len(partitions)
