"""The rows of tables that are old enough to go, and that nothing needs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.catalog.builds import BUILDS
from kidxlib.catalog.conditions import PRESENT, Among
from kidxlib.catalog.findings import FINDINGS
from kidxlib.catalog.matching import Flags, Positions, Values, positions_in
from kidxlib.catalog.partitions import PARTITION_STATES, PARTITIONS
from kidxlib.catalog.remote_segments import REMOTE_SEGMENTS
from kidxlib.catalog.retention_plans import RETENTION_PLANS
from kidxlib.catalog.rows import Table
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.catalog.transactions import ABORTED_TRANSACTIONS, PRODUCER_EVENTS
from kidxlib.compaction.policy import Expiry
from kidxlib.operations.pieces import pieces
from kidxlib.recovery.outcome import ABSENT
from kidxlib.tables.protocol import Tables
from kidxlib.tables.scope import scope_of

#: Whose rows go with those of segments.
_OF_SEGMENTS: Final = (SEGMENTS, ABORTED_TRANSACTIONS, PRODUCER_EVENTS, PARTITION_STATES)
_ABSENT: Final = Among("status", tuple(status.value for status in ABSENT))


@dataclass(frozen=True, slots=True)
class Expired:
    """Rows of a table that are to go.

    Attributes:
        keys: some columns of the table's key: rows that agree with one of these go.
        rows: how many rows that are.
    """

    keys: pa.Table
    rows: int


def expired(tables: Tables, table: Table, expiry: Expiry, now: datetime) -> Expired | None:
    """The rows that are to go of a table; None where no age is set for any.

    Raises:
        CatalogError: a table cannot be read.
    """
    if table in (RETENTION_PLANS, FINDINGS, REMOTE_SEGMENTS):
        recorded_at, age = (
            ("planned_at", expiry.retention_plans) if table is RETENTION_PLANS else ("audited_at", expiry.findings)
        )
        return None if age is None else _runs(tables, table, recorded_at, now - age)
    if table is BUILDS:
        return None if expiry.builds is None else _builds(tables, now - expiry.builds)
    if table not in _OF_SEGMENTS or expiry.gone_segments is None:
        return None
    gone = _segments(tables, now - expiry.gone_segments)
    return Expired(gone, gone.num_rows) if table is SEGMENTS else _of_no_segment(tables, table, gone)


def _runs(tables: Tables, table: Table, recorded_at: str, before: datetime) -> Expired:
    """Runs that nothing is derived from. All rows of one have its id, and were recorded at once."""
    (run,) = table.sort_by
    rows = tables.read(table, [run, recorded_at])
    rows = rows.filter(_is_before(rows[recorded_at], before))
    return Expired(rows.group_by(run).aggregate([]), rows.num_rows)


def _segments(tables: Tables, before: datetime) -> pa.Table:
    """Keys of segments that are gone since then, and that no transaction of a later one is derived from.

    What retention took from the front of a partition still tells of transactions and producers after it
    (`kidxlib.operations.build.finishing`): it stays for as long as there is a segment after it, of the same topic id.
    """
    absent = tables.read(SEGMENTS, [*SEGMENTS.key, "topic_id", "deleted_at", "build_id"], [_ABSENT])
    builds = tables.read(BUILDS, ["build_id", "started_at"])
    found_at = _beside(builds["started_at"], positions_in(absent, builds, ["build_id"]))
    since: Values = pc.coalesce(absent["deleted_at"], found_at)
    absent = absent.filter(_is_before(since, before))
    if not absent.num_rows:
        return absent.select(SEGMENTS.key)
    scope = scope_of({"absent": absent}, ["source", "topic"])
    present = tables.read(SEGMENTS, [*SEGMENTS.key, "topic_id"], [*scope, PRESENT])
    present = present.sort_by([(name, "ascending") for name in SEGMENTS.key])
    with_nulls = pc.ScalarAggregateOptions(skip_nulls=False)
    first = present.group_by(list(PARTITIONS.key), use_threads=False).aggregate(
        [("base_offset", "first"), ("topic_id", "first", with_nulls)]
    )
    at = positions_in(absent, first, PARTITIONS.key)
    is_before_first = _flags(pc.less(absent["base_offset"], _beside(first["base_offset_first"], at)))
    some, other = absent["topic_id"], _beside(first["topic_id_first"], at)
    is_same_topic = _flags(pc.equal(some, other)) | _flags(pc.and_(some.is_null(), other.is_null()))
    not_needed: Values = pa.array(~(is_before_first & is_same_topic))
    return absent.select(SEGMENTS.key).filter(not_needed)


def _of_no_segment(tables: Tables, table: Table, gone: pa.Table) -> Expired:
    """Rows of segments that are not in the catalog, or go from it now."""
    keys, rows = [gone.select(SEGMENTS.key).slice(0, 0)], 0
    for piece in pieces(tables.read(table, ["topic", "partition"])):
        found = tables.read(table, SEGMENTS.key, piece)
        known = tables.read(SEGMENTS, SEGMENTS.key, piece)
        known = known.filter(positions_in(known, gone, SEGMENTS.key) < 0)
        found = found.filter(positions_in(found, known, SEGMENTS.key) < 0)
        rows += found.num_rows
        keys.append(found.group_by(list(SEGMENTS.key)).aggregate([]))
    return Expired(pa.concat_tables(keys), rows)


def _builds(tables: Tables, before: datetime) -> Expired:
    """Builds of before then, but for those that something refers to: rows of segments and partitions, the path of each
    source (`source_paths`), and the rate of the last that read anything (`TablesCatalog.last_rate`).
    """
    builds = tables.read(BUILDS, ["build_id", "started_at", "sources", "log_bytes", "scan_seconds"])
    builds = builds.sort_by("started_at")
    needed: set[str] = set()
    for table in (SEGMENTS, PARTITIONS):
        needed |= set(map(str, pc.unique(tables.read(table, ["build_id"])["build_id"]).to_pylist()))
    latest: dict[str, str] = {}
    for build in builds.select(["build_id", "sources"]).to_pylist():
        latest |= dict.fromkeys((source for source, _ in build["sources"]), build["build_id"])
    reading = builds.filter((pc.field("log_bytes") > 0) & (pc.field("scan_seconds") > 0))
    needed |= {*latest.values(), *map(str, reading["build_id"].to_pylist()[-1:])}
    is_needed: Values = pc.is_in(builds["build_id"], value_set=pa.array(sorted(needed), pa.string()))
    old = _flags(_is_before(builds["started_at"], before)) & ~_flags(is_needed)
    keys = builds.select(["build_id"]).filter(pa.array(old))
    return Expired(keys, keys.num_rows)


def _is_before(times: Values, before: datetime) -> Values:
    """Whether each is; an unknown one is not."""
    found: Values = pc.less(times, pa.scalar(before, pa.timestamp("us", "UTC")))
    return found.fill_null(False)


def _beside(column: Values, at: Positions) -> Values:
    """The values at some positions; null for −1."""
    places: Values = pa.array(at, mask=at < 0)
    return column.take(places)


def _flags(column: Values) -> Flags:
    """False for null."""
    flags: Flags = column.fill_null(False).to_numpy().astype(np.bool_)
    return flags
