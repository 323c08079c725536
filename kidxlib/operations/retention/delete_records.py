"""A plan as what Kafka's own tool takes to delete records."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.compute as pc

from kidxlib.engine.staged import Staged
from kidxlib.errors import KidxError
from kidxlib.retention.reasons import Decision


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
