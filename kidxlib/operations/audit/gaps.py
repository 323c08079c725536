"""Gaps between the logs that an audit has read, and who knows the offsets."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.audit.finding import Verdict
from kidxlib.audit.gaps import FACTS, Directories, finding_row, gaps_in
from kidxlib.audit.logs.missing import MISSING
from kidxlib.audit.rows import Kind
from kidxlib.build.plan import Plan
from kidxlib.catalog.conditions import Among
from kidxlib.catalog.matching import Values
from kidxlib.catalog.segment_key import SEGMENT_KEY
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.format.segment_files import LOG_SUFFIX
from kidxlib.format.topic_partition import PartitionKey
from kidxlib.operations.audit.found import Found
from kidxlib.recovery.outcome import Status
from kidxlib.run.known_topics import KnownTopics
from kidxlib.tables.protocol import TablesToRead


def with_gaps(
    found: Found, plan: Plan, known: KnownTopics, tables: TablesToRead | None, unread: pa.Table | None = None
) -> Found:
    """What an audit found, and the gaps between the logs that it read. A log that is missing though its `.index` is
    there has a finding of its own, and is no gap.

    Args:
        tables: of the catalog, which may know the offsets; None where there is none.
        unread: `FACTS` of segments that were left out, as the catalog knows them.

    Raises:
        CatalogError: it cannot be read.
    """
    rows = _facts(found, plan)
    if unread is not None:
        rows = pa.concat_tables([rows, unread])
    places = {partition.key: partition.directory.path for partition in plan.partitions}
    gaps = gaps_in(
        rows,
        known.policy_of((*partition.key[:2], partition.topic_id) for partition in plan.partitions),
        Directories(places),
    )
    gaps = gaps.without_logs_at(_missing(found)).with_known(rows)
    if tables is not None and gaps.lost:
        topics = sorted({gap.topic for gap in gaps.lost})
        gaps = gaps.with_known(tables.read(SEGMENTS, FACTS, [Among("topic", topics)]))
    return found.with_gaps(gaps, [finding_row(gap, places[gap.partition_key]) for gap in gaps.lost])


def _facts(found: Found, plan: Plan) -> pa.Table:
    """`FACTS` of the segments that were read. One that was deleted since it was listed is there, of an unknown end."""
    rows = found.of_segments.rows("segment", [*SEGMENT_KEY, "status", "recovery"])
    recovery: Values = rows["recovery"].combine_chunks()
    parts = {name: recovery.field(name) for name in ("next_offset", "records", "log_bytes")}
    ids = {partition.key: partition.topic_id for partition in plan.partitions}
    columns: dict[str, Any] = {name: rows[name] for name in SEGMENT_KEY}
    keys = zip(*(rows[name].to_pylist() for name in SEGMENT_KEY[:-1]), strict=True)
    columns["topic_id"] = pa.array([ids.get(key) for key in keys], pa.string())
    columns["status"] = pc.if_else(recovery.is_valid(), rows["status"], Status.UNREADABLE.value)
    # What `field` gives is null where the struct is not always.
    columns |= {name: pc.if_else(recovery.is_valid(), part, None) for name, part in parts.items()}
    schema = SEGMENTS.schema(FACTS)
    return pa.table([columns[name] for name in schema.names], names=schema.names).cast(schema)


def _missing(found: Found) -> dict[PartitionKey, list[int]]:
    """The base offsets of logs that are missing though their `.index` is there, by partition."""
    conditions = [Among("file", (LOG_SUFFIX,)), Among("reason", (MISSING,)), Among("verdict", (Verdict.BROKEN.value,))]
    at: defaultdict[PartitionKey, list[int]] = defaultdict(list)
    for row in found.rows(Kind.FILE, SEGMENT_KEY, conditions).to_pylist():
        at[row["source"], row["topic"], row["partition"]].append(row["base_offset"])
    return at
