"""Timelines of all partitions in log dirs and buckets. Some are shown segment by segment, others in pieces of several
segments. Steps in order: `local_lanes` and `remote_lanes`, `ordered_lanes`, `mark_expired`, `mark_differing`,
`timelines`.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.catalog.findings import REMOTE_SEGMENTS
from kidxlib.catalog.matching import Values, flags_of, positions_in
from kidxlib.catalog.rows import PARTITION_KEY
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.recovery.outcome import Status
from kidxlib.retention.decide import Flags, Longs
from kidxlib.tables.protocol import TablesToRead


class Mark(enum.IntFlag):
    ACTIVE = 1
    EXPIRED = 2  # the topic's own policy deletes it
    TRUNCATED = 4
    QUARANTINED = 8
    UNREADABLE = 16
    GONE = 32
    DELETED = 64
    FUTURE = 128  # its largest timestamp is more than an hour ahead
    BACKWARDS = 256  # an earlier segment has a larger timestamp
    GAP = 512  # it begins above the end of the segment before it
    OVERLAP = 1024  # it begins below the end of the segment before it
    UNREAD = 2048  # a remote segment that brokers do not read
    BROKEN = 4096  # an audit found a file of it torn or broken
    DIFFERS = 8192  # it holds the first offset at which this replica differs from others


#: Segments that are shown one by one, in all partitions together. The browser draws only those of one partition.
SEGMENTS_SHOWN: Final = 100_000
#: The most pieces of a lane that is not shown segment by segment.
PIECES_MAX: Final = 12

PartitionName = tuple[str, int]

#: The columns that identify a lane, which is one partition in one source. `is_remote`: the source is a bucket.
_LANE_KEY: Final = ("topic", "partition", "is_remote", "source")
_INT64_COLUMNS: Final = ("base_offset", "next_offset", "log_bytes", "max_timestamp_ms", "marks")
_LANE_SCHEMA: Final[dict[str, pa.DataType]] = {
    **dict.fromkeys(("topic", "source"), pa.string()),
    "partition": pa.int32(),
    "is_remote": pa.bool_(),
}
#: The schema of the segments of lanes.
LANES: Final = pa.schema({**_LANE_SCHEMA, **dict.fromkeys(_INT64_COLUMNS, pa.int64())})

#: How far a timestamp may be ahead of the report's time: a broker's default of `message.timestamp.after.max.ms`.
FUTURE_MS: Final = 3_600_000
_MARKS_BY_STATUS: Final = {
    Status.TRUNCATED: Mark.TRUNCATED,
    Status.QUARANTINED: Mark.QUARANTINED,
    Status.CHANGED: Mark.UNREADABLE,
    Status.UNREADABLE: Mark.UNREADABLE,
    Status.GONE: Mark.GONE,
    Status.DELETED: Mark.DELETED,
}


def _marks_by_status(status: Values) -> Longs:
    """The mark of each segment's status; 0 if the status is ok."""
    indices: Values = pc.index_in(status, value_set=pa.array([known.value for known in _MARKS_BY_STATUS]))
    numbers = indices.fill_null(len(_MARKS_BY_STATUS)).to_numpy()
    marks: Longs = np.array([*_MARKS_BY_STATUS.values(), 0], np.int64)[numbers]
    return marks


def _marks_by_neighbours(
    starts: Flags, base_offsets: Longs, next_offsets: Longs, timestamps: Longs, now_ms: int
) -> Longs:
    """The marks of gaps, overlaps and timestamps that go back. Segments are in order; `starts` flags the first one of
    each lane. An unknown next offset is −1. Each timestamp is the largest of a segment, in ms since the epoch; below 0:
    there is none. Segments after a timestamp of the future are not compared with it.
    """
    marks = np.zeros(len(starts), np.int64)
    previous_ends = np.append(-1, next_offsets[:-1])
    is_known = ~starts & (previous_ends >= 0)
    marks[is_known & (base_offsets > previous_ends)] |= Mark.GAP
    marks[is_known & (base_offsets < previous_ends)] |= Mark.OVERLAP
    firsts = np.flatnonzero(starts)
    for start, end in zip(firsts.tolist(), [*firsts[1:].tolist(), len(starts)], strict=True):
        of_lane = timestamps[start:end]
        largest = np.maximum.accumulate(np.where(of_lane > now_ms + FUTURE_MS, -1, of_lane))
        is_back = (of_lane >= 0) & (of_lane < largest)
        marks[start:end][is_back] |= Mark.BACKWARDS
    return marks


def local_lanes(tables: TablesToRead, broken: pa.Table) -> pa.Table:
    """The segments of all log dirs for the report's timelines, in any order, with the marks of their status. Those
    whose keys are in `broken` are also marked: an audit found a file of them torn or broken.
    """
    names = [*SEGMENTS.key, "next_offset", "log_bytes", "max_timestamp_ms", "status", "active"]
    rows = tables.read(SEGMENTS, names)
    marks = _marks_by_status(rows["status"])
    marks |= np.where(flags_of(rows["active"]), Mark.ACTIVE, 0)
    if broken.num_rows:
        marks |= np.where(positions_in(rows, broken, SEGMENTS.key) >= 0, Mark.BROKEN, 0)
    return _as_lane_rows(rows, marks, is_remote=False)


def remote_lanes(tables: TablesToRead, audits: Collection[str]) -> pa.Table:
    """The remote segments of some audits, marked if brokers do not read them, or if they are broken."""
    names = ["audit_id", "source", "topic", "partition", "start_offset", "end_offset", "log_bytes", "max_timestamp_ms"]
    rows = tables.read(REMOTE_SEGMENTS, [*names, "is_read", "findings"])
    rows = rows.filter(pc.is_in(rows["audit_id"], value_set=pa.array(list(audits), pa.string())))
    counts: Values = pc.list_value_length(rows["findings"]).fill_null(0)
    marks: Longs = np.where(flags_of(rows["is_read"]), 0, np.int64(Mark.UNREAD))
    marks |= np.where(counts.to_numpy() > 0, Mark.BROKEN, 0)
    rows = rows.append_column("next_offset", pc.add(rows["end_offset"], pa.scalar(1, pa.int64())))
    rows = rows.append_column("base_offset", rows["start_offset"])
    return _as_lane_rows(rows, marks, is_remote=True)


def ordered_lanes(lanes: Sequence[pa.Table], now_ms: int) -> pa.Table:
    """Segments in the order of their lanes, with the marks that follow from their neighbours and the report's time."""
    rows = pa.concat_tables([LANES.empty_table(), *lanes])
    rows = rows.sort_by([(name, "ascending") for name in (*_LANE_KEY, "base_offset")]).combine_chunks()
    if not rows.num_rows:
        return rows
    timestamps = _int64_values(rows["max_timestamp_ms"])
    marks = _int64_values(rows["marks"]) | _marks_by_neighbours(
        _lane_starts(rows), _int64_values(rows["base_offset"]), _int64_values(rows["next_offset"]), timestamps, now_ms
    )
    marks |= np.where(timestamps > now_ms + FUTURE_MS, Mark.FUTURE, 0)
    return _with_marks(rows, marks)


def _with_marks(rows: pa.Table, marks: Longs) -> pa.Table:
    return rows.set_column(rows.schema.get_field_index("marks"), "marks", pa.array(marks))


def _lane_starts(rows: pa.Table) -> Any:
    starts = np.ones(rows.num_rows, np.bool_)
    for number, name in enumerate(_LANE_KEY):
        column = rows[name]
        differ: Values = pc.not_equal(column.slice(1), column.slice(0, rows.num_rows - 1))
        starts[1:] = flags_of(differ) | (starts[1:] if number else False)
    return starts


def _as_lane_rows(rows: pa.Table, marks: Longs, *, is_remote: bool) -> pa.Table:
    columns = {**{name: rows[name] for name in rows.column_names}, "marks": pa.array(marks)}
    columns["is_remote"] = pa.array(np.full(rows.num_rows, is_remote))
    return pa.table([columns[name] for name in LANES.names], names=LANES.names).cast(LANES)


def _int64_values(column: Values) -> Longs:
    """The values of a column; −1 for null."""
    values: Longs = column.fill_null(pa.scalar(-1, pa.int64())).to_numpy()
    return values


def mark_expired(rows: pa.Table, deleted: Mapping[tuple[str, str, int], int]) -> pa.Table:
    """`ordered_lanes`, in which segments are marked that their topic's own policy deletes: `deleted` has their number
    for each partition (source, topic, number). The first present ones are deleted.
    """
    marks: Longs = rows["marks"].to_numpy().copy()
    for lane, start, end in _lane_ranges(rows):
        count = 0 if lane["is_remote"] else deleted.get((lane["source"], lane["topic"], lane["partition"]), 0)
        if count:
            present = np.flatnonzero((marks[start:end] & (Mark.GONE | Mark.DELETED)) == 0)
            marks[start + present[:count]] |= Mark.EXPIRED
    return _with_marks(rows, marks)


def mark_differing(rows: pa.Table, offsets: Mapping[tuple[str, str, int], int]) -> pa.Table:
    """`ordered_lanes`, in which segments are marked where a replica begins to differ from others: `offsets` has the
    first offset that differs, for each partition (source, topic, number).
    """
    marks: Longs = rows["marks"].to_numpy().copy()
    bases, ends = _int64_values(rows["base_offset"]), _int64_values(rows["next_offset"])
    for lane, start, end in _lane_ranges(rows) if offsets else ():
        offset = offsets.get((lane["source"], lane["topic"], lane["partition"]))
        if offset is not None:
            marks[start:end][(bases[start:end] <= offset) & (offset < ends[start:end])] |= Mark.DIFFERS
    return _with_marks(rows, marks)


def timelines(
    rows: pa.Table, bounds: pa.Table, first: Collection[PartitionName], shown: int = SEGMENTS_SHOWN
) -> dict[PartitionName, list[dict[str, Any]]]:
    """The lanes of each partition, from `ordered_lanes`. A lane has its bounds by checkpoints, None if they are not
    known, and columns of its pieces; where `segments` is 1, the piece is a single segment. At most `shown` segments are
    shown one by one: first those of the partitions in `first`, then those of the largest partitions.
    """
    if not rows.num_rows:
        return {}
    lanes = _lane_ranges(rows)
    starts = np.array([start for _, start, _ in lanes])
    counts = np.array([end - start for _, start, end in lanes])
    names = [(lane["topic"], lane["partition"]) for lane, _, _ in lanes]
    by_segment = np.array(_lanes_shown_by_segment(names, counts.tolist(), first, shown))
    piece_sizes = np.repeat(np.where(by_segment, 1, -(-counts // PIECES_MAX)), counts)
    lane_starts = np.repeat(starts, counts)
    piece_starts = np.unique(lane_starts + (np.arange(rows.num_rows) - lane_starts) // piece_sizes * piece_sizes)
    columns = _merge_segments(rows, piece_starts)
    lane_ends = np.searchsorted(piece_starts, [end for _, _, end in lanes]).tolist()
    names_of_bounds = [name for name in bounds.column_names if name not in PARTITION_KEY]
    known = {tuple(row[name] for name in PARTITION_KEY): row for row in bounds.to_pylist()}
    by_partition: dict[PartitionName, list[dict[str, Any]]] = {}
    start = 0
    for (lane, _, _), name, end in zip(lanes, names, lane_ends, strict=True):
        of_lane = {"source": lane["source"], "is_remote": lane["is_remote"]}
        of_pieces = {column: values[start:end] for column, values in columns.items()}
        recorded = {} if lane["is_remote"] else known.get((lane["source"], *name), {})
        of_bounds = {column: recorded.get(column) for column in names_of_bounds}
        by_partition.setdefault(name, []).append({**of_lane, **of_bounds, **of_pieces})
        start = end
    return by_partition


def timeline_index(by_partition: Mapping[PartitionName, list[dict[str, Any]]]) -> dict[str, Any]:
    """The partitions with timelines, and the words for marks, by their bits."""
    partitions = [
        {
            "topic": topic,
            "partition": partition,
            "sources": [lane["source"] for lane in lanes],
            "segments": sum(sum(lane["segments"]) for lane in lanes),
            "marks": int(np.bitwise_or.reduce([mark for lane in lanes for mark in lane["marks"]])),
        }
        for (topic, partition), lanes in by_partition.items()
    ]
    return {"marks": [mark.name for mark in Mark], "partitions": partitions}


def _lane_ranges(rows: pa.Table) -> list[tuple[dict[str, Any], int, int]]:
    """Each lane by the columns of `_LANE_KEY`, and where its segments begin and end."""
    if not rows.num_rows:
        return []
    starts = np.flatnonzero(_lane_starts(rows))
    ends = [*starts[1:].tolist(), rows.num_rows]
    return list(zip(rows.select(list(_LANE_KEY)).take(starts).to_pylist(), starts.tolist(), ends, strict=True))


def _lanes_shown_by_segment(
    names: list[PartitionName], counts: list[int], first: Collection[PartitionName], shown: int
) -> list[bool]:
    """Whether each lane is shown segment by segment: all lanes of a partition are, or none."""
    sizes: dict[PartitionName, int] = {}
    for name, count in zip(names, counts, strict=True):
        sizes[name] = sizes.get(name, 0) + count
    chosen, segments_left = set(), shown
    for name in sorted(sizes, key=lambda name: (name not in first, -sizes[name], name)):
        if sizes[name] <= segments_left:
            chosen.add(name)
            segments_left -= sizes[name]
    return [name in chosen for name in names]


def _merge_segments(rows: pa.Table, starts: Longs) -> dict[str, list[int]]:
    """Columns of the pieces that begin at the rows `starts`. A piece ends where its last segment ends."""
    lasts = np.append(starts[1:], rows.num_rows) - 1
    return {
        "base_offset": _int64_values(rows["base_offset"])[starts].tolist(),
        "next_offset": _int64_values(rows["next_offset"])[lasts].tolist(),
        "log_bytes": np.add.reduceat(np.maximum(_int64_values(rows["log_bytes"]), 0), starts).tolist(),
        "max_timestamp_ms": np.maximum.reduceat(_int64_values(rows["max_timestamp_ms"]), starts).tolist(),
        "marks": np.bitwise_or.reduceat(_int64_values(rows["marks"]), starts).tolist(),
        "segments": (lasts - starts + 1).tolist(),
    }
