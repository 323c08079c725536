"""Timelines of all partitions: of some each segment, of others pieces of several."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.catalog.segment_key import PARTITION_KEY
from kidxlib.operations.report.timeline.lanes import LANE, lane_starts
from kidxlib.operations.report.timeline.marks import MARKS, Mark
from kidxlib.retention.partition import Longs

#: Segments that are shown one by one, in all partitions together. The browser draws only those of one partition.
SEGMENTS_SHOWN: Final = 100_000
#: A partition that is not among these has so many pieces at most.
PIECES_MOST: Final = 12

PartitionName = tuple[str, int]


def expired(rows: pa.Table, deleted: Mapping[tuple[str, str, int], int]) -> pa.Table:
    """The rows, with the mark of segments that go by their topic's own policy.

    Args:
        rows: as `ordered_lanes`.
        deleted: how many segments go, from the first that is present on; by source, topic and partition.
    """
    if not deleted:
        return rows
    marks: Longs = rows["marks"].to_numpy().copy()
    starts = np.flatnonzero(lane_starts(rows)).tolist()
    keys = [
        rows[name].take(np.array(starts, np.int64)).to_pylist()
        for name in ("source", "topic", "partition", "is_remote")
    ]
    for start, end, source, topic, number, is_remote in zip(starts, [*starts[1:], rows.num_rows], *keys, strict=True):
        count = 0 if is_remote else deleted.get((source, topic, number), 0)
        if count:
            present = np.flatnonzero((marks[start:end] & (Mark.GONE | Mark.DELETED)) == 0)
            marks[start + present[:count]] |= Mark.EXPIRED
    return rows.set_column(rows.schema.get_field_index("marks"), "marks", pa.array(marks))


def differing(rows: pa.Table, offsets: Mapping[tuple[str, str, int], int]) -> pa.Table:
    """The rows, with the mark of segments in which a replica begins to differ from others.

    Args:
        rows: as `ordered_lanes`.
        offsets: the first that differs, by source, topic and partition.
    """
    marks: Longs = rows["marks"].to_numpy().copy()
    base, end = rows["base_offset"].to_numpy(), rows["next_offset"].fill_null(pa.scalar(-1, pa.int64())).to_numpy()
    for (source, topic, partition), offset in offsets.items():
        is_of_lane = (
            (pc.field("source") == source) & (pc.field("topic") == topic) & (pc.field("partition") == partition)
        )
        numbers = (
            rows.append_column("number", pa.array(np.arange(rows.num_rows))).filter(is_of_lane)["number"].to_numpy()
        )
        marks[numbers[(base[numbers] <= offset) & (offset < end[numbers])]] |= Mark.DIFFERS
    return rows.set_column(rows.schema.get_field_index("marks"), "marks", pa.array(marks))


def timelines(
    rows: pa.Table, bounds: pa.Table, first: Collection[PartitionName], shown: int = SEGMENTS_SHOWN
) -> dict[PartitionName, list[dict[str, Any]]]:
    """The lanes of each partition.

    Args:
        rows: as `ordered_lanes`.
        bounds: of partitions of log dirs: their keys, and where they begin and end, as checkpoints say.
        first: partitions that are shown segment by segment before others, which follow by their size.
        shown: segments that are shown so.

    Returns:
        Of each lane its bounds, None where they are not known, and columns of its pieces, which are segments where
        `segments` says 1.
    """
    if not rows.num_rows:
        return {}
    starts = np.flatnonzero(lane_starts(rows))
    counts = np.diff(np.append(starts, rows.num_rows))
    lanes = rows.select(list(LANE)).take(starts).to_pylist()
    names = [(lane["topic"], lane["partition"]) for lane in lanes]
    is_whole = np.array(_whole(names, counts.tolist(), first, shown))
    sizes = np.where(is_whole, 1, -(-counts // PIECES_MOST))
    pieces = np.repeat(starts, counts) + _within(starts, counts) // np.repeat(sizes, counts) * np.repeat(sizes, counts)
    piece_starts = np.unique(pieces)
    columns = _merged(rows, piece_starts)
    lane_ends = np.searchsorted(piece_starts, [*starts[1:].tolist(), rows.num_rows]).tolist()
    names_of_bounds = [name for name in bounds.column_names if name not in PARTITION_KEY]
    known = {tuple(row[name] for name in PARTITION_KEY): row for row in bounds.to_pylist()}
    found: dict[PartitionName, list[dict[str, Any]]] = {}
    start = 0
    for lane, name, end in zip(lanes, names, lane_ends, strict=True):
        here = {column: values[start:end] for column, values in columns.items()}
        of_partition = {} if lane["is_remote"] else known.get((lane["source"], *name), {})
        ends = {column: of_partition.get(column) for column in names_of_bounds}
        found.setdefault(name, []).append({"source": lane["source"], "is_remote": lane["is_remote"], **ends, **here})
        start = end
    return found


def timeline_index(found: Mapping[PartitionName, list[dict[str, Any]]]) -> dict[str, Any]:
    """The partitions that there are timelines of, and the words for marks, by their bits."""
    partitions = [
        {
            "topic": topic,
            "partition": partition,
            "sources": [lane["source"] for lane in lanes],
            "segments": sum(sum(lane["segments"]) for lane in lanes),
            "marks": int(np.bitwise_or.reduce([mark for lane in lanes for mark in lane["marks"]])),
        }
        for (topic, partition), lanes in found.items()
    ]
    return {"marks": list(MARKS), "partitions": partitions}


def _whole(names: list[PartitionName], counts: list[int], first: Collection[PartitionName], shown: int) -> list[bool]:
    """Whether each lane is shown segment by segment: all lanes of a partition are, or none."""
    sizes: dict[PartitionName, int] = {}
    for name, count in zip(names, counts, strict=True):
        sizes[name] = sizes.get(name, 0) + count
    chosen = set()
    for name in sorted(sizes, key=lambda name: (name not in first, -sizes[name], name)):
        if sizes[name] <= shown:
            chosen.add(name)
            shown -= sizes[name]
    return [name in chosen for name in names]


def _within(starts: Longs, counts: Longs) -> Longs:
    """The place of each segment in its lane."""
    places: Longs = np.arange(int(counts.sum())) - np.repeat(starts, counts)
    return places


def _merged(rows: pa.Table, starts: Longs) -> dict[str, list[int]]:
    """Columns of pieces that begin at some rows. A piece ends where its last segment does."""

    def longs(name: str) -> Longs:
        values: Longs = rows[name].fill_null(pa.scalar(-1, pa.int64())).to_numpy()
        return values

    lasts = np.append(starts[1:], rows.num_rows) - 1
    return {
        "base_offset": longs("base_offset")[starts].tolist(),
        "next_offset": longs("next_offset")[lasts].tolist(),
        "log_bytes": np.add.reduceat(np.maximum(longs("log_bytes"), 0), starts).tolist(),
        "max_timestamp_ms": np.maximum.reduceat(longs("max_timestamp_ms"), starts).tolist(),
        "marks": np.bitwise_or.reduceat(longs("marks"), starts).tolist(),
        "segments": (lasts - starts + 1).tolist(),
    }
