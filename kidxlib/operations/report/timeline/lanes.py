"""The rows of timelines: what log dirs have of each partition, and what buckets have."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.catalog.matching import Values, positions_in
from kidxlib.catalog.remote_segments import REMOTE_SEGMENTS
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.operations.report.timeline.marks import FUTURE_MS, Mark, marks_of_neighbours, marks_of_status
from kidxlib.retention.partition import Longs
from kidxlib.tables.protocol import TablesToRead

#: A lane: one partition in one source. `is_remote`: that is a bucket.
LANE: Final = ("topic", "partition", "is_remote", "source")
_LONGS: Final = ("base_offset", "next_offset", "log_bytes", "max_timestamp_ms", "marks")
_OF_LANE: Final[dict[str, pa.DataType]] = {
    **dict.fromkeys(("topic", "source"), pa.string()),
    "partition": pa.int32(),
    "is_remote": pa.bool_(),
}
#: Segments of lanes.
LANES: Final = pa.schema({**_OF_LANE, **dict.fromkeys(_LONGS, pa.int64())})


def local_lanes(tables: TablesToRead, broken: pa.Table) -> pa.Table:
    """All segments of log dirs, with the marks of their status; in any order.

    Args:
        broken: keys of segments of which an audit found a file torn or broken.
    """
    names = [*SEGMENTS.key, "next_offset", "log_bytes", "max_timestamp_ms", "status", "active"]
    rows = tables.read(SEGMENTS, names)
    marks = marks_of_status(rows["status"])
    marks |= np.where(_flags(rows["active"]), Mark.ACTIVE, 0)
    if broken.num_rows:
        marks |= np.where(positions_in(rows, broken, SEGMENTS.key) >= 0, Mark.BROKEN, 0)
    return _rows(rows, marks, is_remote=False)


def remote_lanes(tables: TablesToRead, audits: Collection[str]) -> pa.Table:
    """The remote segments of some audits, with marks for those that are not read or that are broken."""
    names = ["audit_id", "source", "topic", "partition", "start_offset", "end_offset", "log_bytes", "max_timestamp_ms"]
    rows = tables.read(REMOTE_SEGMENTS, [*names, "is_read", "findings"])
    rows = rows.filter(pc.is_in(rows["audit_id"], value_set=pa.array(list(audits), pa.string())))
    counts: Values = pc.list_value_length(rows["findings"]).fill_null(0)
    marks: Longs = np.where(_flags(rows["is_read"]), 0, np.int64(Mark.UNREAD))
    marks |= np.where(counts.to_numpy() > 0, Mark.BROKEN, 0)
    rows = rows.append_column("next_offset", pc.add(rows["end_offset"], pa.scalar(1, pa.int64())))
    rows = rows.append_column("base_offset", rows["start_offset"])
    return _rows(rows, marks, is_remote=True)


def ordered_lanes(found: Sequence[pa.Table], now_ms: int) -> pa.Table:
    """Segments in the order of their lanes, with all marks but that of expiry."""
    rows = pa.concat_tables([LANES.empty_table(), *found])
    rows = rows.sort_by([(name, "ascending") for name in (*LANE, "base_offset")]).combine_chunks()
    if not rows.num_rows:
        return rows
    timestamps = longs(rows["max_timestamp_ms"])
    marks = longs(rows["marks"]) | marks_of_neighbours(
        lane_starts(rows), longs(rows["base_offset"]), longs(rows["next_offset"]), timestamps, now_ms
    )
    marks |= np.where(timestamps > now_ms + FUTURE_MS, Mark.FUTURE, 0)
    return with_marks(rows, marks)


def with_marks(rows: pa.Table, marks: Longs) -> pa.Table:
    """The segments with other marks."""
    return rows.set_column(rows.schema.get_field_index("marks"), "marks", pa.array(marks))


def lane_starts(rows: pa.Table) -> Any:
    """Whether each segment is the first of its lane."""
    starts = np.ones(rows.num_rows, np.bool_)
    for number, name in enumerate(LANE):
        column = rows[name]
        differ: Values = pc.not_equal(column.slice(1), column.slice(0, rows.num_rows - 1))
        starts[1:] = _flags(differ) | (starts[1:] if number else False)
    return starts


def _rows(rows: pa.Table, marks: Longs, *, is_remote: bool) -> pa.Table:
    columns = {**{name: rows[name] for name in rows.column_names}, "marks": pa.array(marks)}
    columns["is_remote"] = pa.array(np.full(rows.num_rows, is_remote))
    return pa.table([columns[name] for name in LANES.names], names=LANES.names).cast(LANES)


def _flags(column: Values) -> Any:
    return column.to_numpy().astype(np.bool_)


def longs(column: Values) -> Longs:
    """A column of numbers, −1 where they are not known."""
    values: Longs = column.fill_null(pa.scalar(-1, pa.int64())).to_numpy()
    return values
