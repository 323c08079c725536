"""The changes that a run makes to the catalog: pure functions of a table's known rows and the found rows, by kind.

Each is a `Change` once its further arguments are bound. Unchanged rows are left out, so that a run that finds nothing
new commits nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.catalog.change import Found, TableChange
from kidxlib.catalog.findings import FINDINGS, REMOTE_SEGMENTS
from kidxlib.catalog.index_bytes import INDEX_BYTES
from kidxlib.catalog.matching import Values, differing, flags_of, positions_in, taken_at
from kidxlib.catalog.partitions import ABORTED_TRANSACTIONS, PARTITION_STATES, PARTITIONS, PRODUCER_EVENTS
from kidxlib.catalog.rows import Table
from kidxlib.catalog.segments import (
    LATER_NAMES,
    SEGMENTS,
    FinishedFacts,
    IndexFacts,
    IntervalSource,
    LogVersion,
    ReadCost,
)
from kidxlib.catalog.tables import BUILDS
from kidxlib.recovery.outcome import Status

#: The years that every reader of a SQL timestamp can show (1 to 9999), in milliseconds since the epoch.
_SQL_TIMESTAMP_MS: Final = (-62_135_596_800_000, 253_402_300_799_999)
#: The facts of a scan, without its cost.
_SCAN_FACTS: Final = tuple(
    name
    for name in SEGMENTS.column_names
    if name not in (*SEGMENTS.key, *LATER_NAMES, *ReadCost.names(), "build_id", "max_timestamp", "log_mtime")
)
#: The columns that become null when finishing quarantines a segment, as its index files are withdrawn.
_INDEX_COLUMNS: Final = tuple(
    name for name in SEGMENTS.column_names if name.startswith(("offset_index_", "time_index_"))
)
_OUTCOME: Final = ("status", "reason", "reason_position", "reason_detail")


def scanned(known: pa.Table, found: Found, *, build_id: str) -> TableChange:
    """The update of `segments` by scanned ones (`segment` of `SCANNED`) that are new, or whose facts differ. The
    columns that finishing adds become null: the partition is to be finished again.
    """
    # The next listing marks a log that vanished before it was read, and keeps its facts.
    segments = found["segment"].filter(pc.field("status") != Status.GONE.value)
    later = {**_timestamps(segments), "build_id": build_id, **dict.fromkeys(LATER_NAMES)}
    return _rows_change(SEGMENTS, known, _columns(SEGMENTS, segments, later), _SCAN_FACTS)


def events(known: pa.Table, found: Found) -> TableChange:
    """The update of producer events (`segment` and `event` of `SCANNED`), which replace all earlier events of these
    segments.
    """
    return _replaced(PRODUCER_EVENTS, known, found["segment"].select(SEGMENTS.key), found["event"])


def packed(known: pa.Table, found: Found) -> TableChange:
    """The update of `index_bytes` by index files (`packed` of `SCANNED`, `FINISHED` or `COMPACTED`) that are new or
    differ, and removed ones.
    """
    rows = found["packed"]
    is_kept = rows["content"].is_valid()
    change = _rows_change(
        INDEX_BYTES, known, rows.filter(is_kept).cast(INDEX_BYTES.schema()), ("size_bytes", "content")
    )
    removed_keys = rows.filter(pc.invert(is_kept)).select(INDEX_BYTES.key)
    gone = known.select(INDEX_BYTES.key)
    gone = gone.filter(pa.array(positions_in(gone, removed_keys, INDEX_BYTES.key) >= 0))
    return TableChange(change.inserts, change.updates, gone, change.counted + gone.num_rows)


def finished(known: pa.Table, found: Found, *, build_id: str) -> TableChange:
    """The update of `segments` by those of finished partitions (`segment` of `FINISHED`), if finishing changes their
    rows. Rows that this build has changed before are not counted again.
    """
    segments, rows = _with_known_rows(found["segment"], known)
    failed = segments["status"].is_valid()
    values: dict[str, Any] = {name: segments[name] for name in FinishedFacts.names()}
    values |= {name: pc.if_else(failed, segments[name], rows[name]) for name in _OUTCOME}
    values |= {name: pc.if_else(failed, pa.scalar(None, rows[name].type), rows[name]) for name in _INDEX_COLUMNS}
    new = _columns(SEGMENTS, rows, {**values, "build_id": build_id})
    changed = differing(new, rows, FinishedFacts.names()) | (flags_of(failed) & differing(new, rows, ("status",)))
    counted = changed & flags_of(pc.not_equal(rows["build_id"], pa.scalar(build_id)))
    return _segment_updates(new.filter(changed), int(counted.sum()))


def aborted(known: pa.Table, found: Found) -> TableChange:
    """The update of aborted transactions by those of finished partitions (`partition` and `aborted` of `FINISHED`),
    which replace all earlier rows of these partitions, except those of segments that were not folded again.

    The segments that were not folded are named one by one. A log may have vanished between the last of them and the
    first folded one: Kafka deletes its `.txnindex` as an orphan (`LogLoader.loadSegmentFiles`), and its rows are
    removed.
    """
    partitions = found["partition"].select(PARTITIONS.key)
    base_offsets: Values = found["partition"]["unfolded"].combine_chunks()
    of_partition: Values = pc.list_parent_indices(base_offsets)
    unfolded = partitions.take(of_partition).append_column("base_offset", base_offsets.flatten())
    asked = known.filter(pa.array(positions_in(known, unfolded, SEGMENTS.key) < 0))
    return _replaced(ABORTED_TRANSACTIONS, asked, partitions, found["aborted"])


def states(known: pa.Table, found: Found) -> TableChange:
    """The update of producers' states (`partition` and `state` of `FINISHED`), which replace all earlier states of
    these partitions.
    """
    return _replaced(PARTITION_STATES, known, found["partition"].select(PARTITIONS.key), found["state"])


def marked(known: pa.Table, found: Found, *, build_id: str) -> TableChange:
    """The update of `segments` by those that a listing shows to be missing, moved, active or no longer active: `mark`
    has their keys and `active`, `log_path` and `status`; null: the value stays.
    """
    marks, rows = _with_known_rows(found["mark"], known)
    values = {name: pc.coalesce(marks[name], rows[name]) for name in ("active", "log_path", "status")}
    return _segment_updates(_columns(SEGMENTS, rows, {**values, "build_id": build_id}))


def coarsened(known: pa.Table, found: Found) -> TableChange:
    """The update of `segments` by those whose indexes compaction has replaced (`COMPACTED`), if their logs are
    unchanged.
    """
    changes, rows = _with_known_rows(found["compacted"], known)
    values: dict[str, Any] = {name: changes[name] for name in IndexFacts.names()}
    new = _columns(SEGMENTS, rows, {**values, "interval_source": IntervalSource.COMPACTION.value})
    return _segment_updates(new.filter(~differing(changes, rows, LogVersion.names())))


def deleted(known: pa.Table, found: Found, *, now: datetime) -> TableChange:
    """The update of `segments` by those that retention has deleted (keys as `segment`), unless they are marked so
    already.
    """
    _, rows = _with_known_rows(found["segment"], known)
    rows = rows.filter(pc.field("status") != Status.DELETED.value)
    values = {"status": Status.DELETED.value, "active": False, "deleted_at": pa.scalar(now, pa.timestamp("us", "UTC"))}
    return _segment_updates(_columns(SEGMENTS, rows, values))


def audited(known: pa.Table, found: Found) -> TableChange:
    """The update of findings by those of an audit (its id as `audit`), which replace all its earlier rows if it is run
    again.
    """
    return _replaced(FINDINGS, known, found["audit"], found["finding"])


def audited_remote(known: pa.Table, found: Found) -> TableChange:
    """The update of remote segments by those of an audit (its id as `audit`), which replace all its earlier rows."""
    return _replaced(REMOTE_SEGMENTS, known, found["audit"], found["segment"])


def removed(known: pa.Table, found: Found, *, table: Table) -> TableChange:
    """The update that removes rows from any table: those with the keys in `key`."""
    keys = known.select(table.key)
    keys = keys.filter(pa.array(positions_in(keys, found["key"], table.key) >= 0))
    none = table.schema().empty_table()
    return TableChange(none, none, keys, keys.num_rows)


def forgotten(known: pa.Table, found: Found, *, source: str) -> TableChange:
    """The update of `builds` as a source is forgotten: builds (keys as `key`) without that source. Builds that have
    read no other source are removed.
    """
    rows = known.filter(pa.array(positions_in(known, found["key"], BUILDS.key) >= 0))
    sources_of_builds: list[Any] = rows["sources"].to_pylist()
    others = [[other for other in sources if other[0] != source] for sources in sources_of_builds]
    has_others = pa.array(map(bool, others), pa.bool_())
    kept = _columns(BUILDS, rows, {"sources": pa.array(others, BUILDS.schema().field("sources").type)})
    gone = rows.filter(pc.invert(has_others)).select(BUILDS.key)
    return TableChange(BUILDS.schema().empty_table(), kept.filter(has_others), gone, rows.num_rows)


def written(known: pa.Table, found: Found, *, table: Table) -> TableChange:
    """The update of any table by whole rows (`row`), which replace the rows with their keys."""
    compared = [name for name in table.column_names if name not in table.key]
    return _rows_change(table, known, found["row"].select(table.column_names).cast(table.schema()), compared)


def not_overtaken(found: Found, before: pa.Table, now: pa.Table, build_id: str) -> Found:
    """The found rows (`SCANNED`), without segments for which another run has recorded a later state of the log
    meanwhile. `before` are rows of `segments` at the version that the run compared its listing with, and `now` the same
    rows at the version to be changed.
    """
    segments = found["segment"]
    recorded_by = taken_at(before["build_id"], positions_in(now, before, SEGMENTS.key))
    changed = flags_of(pc.not_equal(now["build_id"], pa.scalar(build_id)))
    changed &= ~flags_of(pc.equal(now["build_id"], recorded_by).fill_null(False))
    others = now.filter(changed)
    theirs = taken_at(others["log_mtime_ns"], positions_in(segments, others, SEGMENTS.key))
    later = flags_of(pc.greater(theirs, segments["log_mtime_ns"]).fill_null(False))
    overtaken = segments.filter(later).select(SEGMENTS.key)
    return {kind: rows.filter(positions_in(rows, overtaken, SEGMENTS.key) < 0) for kind, rows in found.items()}


def _with_known_rows(found: pa.Table, known: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The found segments whose keys are known, and the known rows with these keys, in the same order."""
    at = positions_in(found, known, SEGMENTS.key)
    return found.filter(at >= 0), known.take(at[at >= 0])


def _replaced(table: Table, known: pa.Table, scope: pa.Table, found: pa.Table) -> TableChange:
    """Replace all rows of a table within `scope`, which has some columns of the key, by `found`."""
    compared = [name for name in table.column_names if name not in table.key]
    change = _rows_change(table, known, found.select(table.column_names).cast(table.schema()), compared)
    within = positions_in(known, scope, scope.column_names) >= 0
    gone = known.filter(within & (positions_in(known, found, table.key) < 0)).select(table.key)
    return TableChange(change.inserts, change.updates, gone, change.counted + gone.num_rows)


def _rows_change(table: Table, known: pa.Table, rows: pa.Table, compared: Sequence[str]) -> TableChange:
    """Rows with new keys, and rows that differ in some columns from the known row with their key."""
    at = positions_in(rows, known, table.key)
    old, before = rows.filter(at >= 0), known.take(at[at >= 0])
    inserts, updates = rows.filter(at < 0), old.filter(differing(old, before, compared))
    return TableChange(inserts, updates, _no_keys(table), inserts.num_rows + updates.num_rows)


def _segment_updates(rows: pa.Table, counted: int | None = None) -> TableChange:
    none = SEGMENTS.schema().empty_table()
    return TableChange(none, rows, _no_keys(SEGMENTS), rows.num_rows if counted is None else counted)


def _no_keys(table: Table) -> pa.Table:
    return table.schema(table.key).empty_table()


def _columns(table: Table, rows: pa.Table, values: Mapping[str, Any]) -> pa.Table:
    """All columns of a table: some replaced, by a column or by one value for all rows; the rest as in `rows`."""
    columns = []
    for field in table.schema():
        value: Values = values.get(field.name, rows[field.name] if field.name not in values else None)
        if not isinstance(value, pa.Array | pa.ChunkedArray):
            scalar: Any = value if isinstance(value, pa.Scalar) else pa.scalar(value, field.type)
            value = pa.repeat(scalar, rows.num_rows)
        columns.append(value.cast(field.type))
    return pa.table(columns, schema=table.schema())


def _timestamps(found: pa.Table) -> dict[str, Values]:
    """Kafka's milliseconds and the file system's nanoseconds as SQL timestamps; null if no calendar has them."""
    milliseconds, utc = found["max_timestamp_ms"], pa.timestamp("us", "UTC")
    least, most = (pa.scalar(bound, pa.int64()) for bound in _SQL_TIMESTAMP_MS)
    is_shown = pc.and_(pc.greater_equal(milliseconds, least), pc.less_equal(milliseconds, most))
    is_shown = pc.and_(is_shown, pc.not_equal(milliseconds, pa.scalar(-1, pa.int64())))  # Kafka's "none"
    shown = pc.if_else(is_shown, milliseconds, pa.scalar(None, pa.int64()))
    return {
        "max_timestamp": pc.multiply(shown, pa.scalar(1000, pa.int64())).cast(utc),
        "log_mtime": pc.divide(found["log_mtime_ns"], pa.scalar(1000, pa.int64())).cast(utc),
    }
