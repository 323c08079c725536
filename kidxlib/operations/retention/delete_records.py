"""A plan as what Kafka's own tool takes to delete records."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.catalog.matching import Values
from kidxlib.catalog.partitions import PARTITIONS
from kidxlib.engine.staged import Staged
from kidxlib.errors import KidxError
from kidxlib.format.topic_partition import PartitionKey
from kidxlib.retention.plan import Written
from kidxlib.retention.reasons import Decision
from kidxlib.text.times import NS_PER_MS


def partitions_to_delete_from(staged: Staged) -> dict[PartitionKey, Written]:
    """The partitions that such a file names, and until when each was written.

    Args:
        staged: rows of `PLANNED`.
    """
    names = ["decision", "largest_timestamp_ms", "age_from_mtime", "log_mtime_ns"]
    rows = staged.rows("segment", [*PARTITIONS.key, *names])
    goes: Values = pc.equal(rows["decision"], pa.scalar(Decision.DELETE.value))
    last: Values = pc.if_else(rows["age_from_mtime"], pa.scalar(-1, pa.int64()), rows["largest_timestamp_ms"])
    rows = rows.append_column("goes", goes).append_column("last", last)
    found = rows.group_by(list(PARTITIONS.key)).aggregate([("goes", "any"), ("last", "max"), ("log_mtime_ns", "max")])
    written = {}
    for row in found.filter(found["goes_any"]).to_pylist():
        written_ms = (row["log_mtime_ns_max"] or 0) // NS_PER_MS
        last_ms = row["last_max"] if row["last_max"] >= 0 else written_ms
        written[row["source"], row["topic"], row["partition"]] = Written(written_ms, last_ms)
    return written


def write_delete_records(staged: Staged, path: Path) -> int:
    """Write what `kafka-delete-records --offset-json-file` takes: up to where each partition is to be deleted.

    Args:
        staged: rows of `PLANNED`.

    Returns:
        How many partitions it names.

    Raises:
        KidxError: the file cannot be written.
    """
    key = ["topic", "partition"]
    rows = staged.rows("segment", [*key, "decision", "next_offset"])
    rows = rows.filter(pc.field("decision") == Decision.DELETE.value)
    offsets = rows.group_by(key).aggregate([("next_offset", "max")]).sort_by([(name, "ascending") for name in key])
    partitions = offsets.rename_columns([*key, "offset"]).to_pylist()
    try:
        path.write_text(json.dumps({"partitions": partitions, "version": 1}, indent=2) + "\n")
    except OSError as error:
        raise KidxError(
            f"--delete-records-json {path}: cannot be written: {error.strerror}; the plan is recorded"
        ) from error
    return len(partitions)
