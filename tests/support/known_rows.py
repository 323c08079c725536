"""The catalog's rows of the segments of a plan."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from kidxlib.catalog.rows import SEGMENT_KEY
from kidxlib.catalog.segments import FillableFacts, IntervalSource
from kidxlib.catalog.tables import CATALOG_VERSION
from kidxlib.indexing.known_segments import KNOWN
from kidxlib.indexing.plan import BuildTask, Plan
from kidxlib.recovery.outcome import Status


def known_row(task: BuildTask) -> dict[str, Any]:
    """The row of a sound segment that was read, and without a published index file."""
    segment, version = task.segment, task.segment.version
    return {
        **dict(zip(SEGMENT_KEY, (*segment.partition_key, segment.base_offset), strict=True)),
        "status": Status.OK,
        "active": segment.active,
        "log_bytes": None if version is None else version.size,
        "log_mtime_ns": None if version is None else version.mtime_ns,
        "log_inode": None if version is None else version.inode,
        "interval_bytes": task.options.interval_bytes,
        "max_index_bytes": task.options.max_index_bytes,
        "crc_checked": task.options.verify_crc,
        "producer_state": "log-start",
        "log_path": segment.path,
        "index_directory": str(task.index_directory),
        "topic_id": task.topic_id,
        "interval_source": IntervalSource.SETTINGS,
        "offset_index_bytes": None,
        "time_index_bytes": None,
        "transaction_index_bytes": None,
        **dict.fromkeys(FillableFacts.names()),
        "catalog_version": CATALOG_VERSION,
    }


def known_table(rows: Iterable[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), KNOWN)


def known_rows(plan: Plan) -> pa.Table:
    return known_table(map(known_row, plan.build_tasks(publish_truncated=True)))
