"""Timelines of all partitions: of some each segment, of others pieces of several."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa

from kidxlib.catalog.segment_key import PARTITION_KEY
from kidxlib.operations.report.timeline.lanes import LANE, lane_starts, longs, with_marks
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
    marks: Longs = rows["marks"].to_numpy().copy()
    for lane, start, end in _lanes(rows):
        count = 0 if lane["is_remote"] else deleted.get((lane["source"], lane["topic"], lane["partition"]), 0)
        if count:
            present = np.flatnonzero((marks[start:end] & (Mark.GONE | Mark.DELETED)) == 0)
            marks[start + present[:count]] |= Mark.EXPIRED
    return with_marks(rows, marks)


def differing(rows: pa.Table, offsets: Mapping[tuple[str, str, int], int]) -> pa.Table:
    """The rows, with the mark of segments in which a replica begins to differ from others.

    Args:
        rows: as `ordered_lanes`.
        offsets: the first that differs, by source, topic and partition.
    """
    marks: Longs = rows["marks"].to_numpy().copy()
    bases, ends = longs(rows["base_offset"]), longs(rows["next_offset"])
    for lane, start, end in _lanes(rows) if offsets else ():
        offset = offsets.get((lane["source"], lane["topic"], lane["partition"]))
        if offset is not None:
            marks[start:end][(bases[start:end] <= offset) & (offset < ends[start:end])] |= Mark.DIFFERS
    return with_marks(rows, marks)


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
    lanes = _lanes(rows)
    starts = np.array([start for _, start, _ in lanes])
    counts = np.array([end - start for _, start, end in lanes])
    names = [(lane["topic"], lane["partition"]) for lane, _, _ in lanes]
    is_whole = np.array(_whole(names, counts.tolist(), first, shown))
    sizes = np.where(is_whole, 1, -(-counts // PIECES_MOST))
    pieces = np.repeat(starts, counts) + _within(starts, counts) // np.repeat(sizes, counts) * np.repeat(sizes, counts)
    piece_starts = np.unique(pieces)
    columns = _merged(rows, piece_starts)
    lane_ends = np.searchsorted(piece_starts, [end for _, _, end in lanes]).tolist()
    names_of_bounds = [name for name in bounds.column_names if name not in PARTITION_KEY]
    known = {tuple(row[name] for name in PARTITION_KEY): row for row in bounds.to_pylist()}
    found: dict[PartitionName, list[dict[str, Any]]] = {}
    start = 0
    for (lane, _, _), name, end in zip(lanes, names, lane_ends, strict=True):
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


def _lanes(rows: pa.Table) -> list[tuple[dict[str, Any], int, int]]:
    """Each lane by the columns of `LANE`, and where its segments begin and end."""
    if not rows.num_rows:
        return []
    starts = np.flatnonzero(lane_starts(rows))
    ends = [*starts[1:].tolist(), rows.num_rows]
    return list(zip(rows.select(list(LANE)).take(starts).to_pylist(), starts.tolist(), ends, strict=True))


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

    lasts = np.append(starts[1:], rows.num_rows) - 1
    return {
        "base_offset": longs(rows["base_offset"])[starts].tolist(),
        "next_offset": longs(rows["next_offset"])[lasts].tolist(),
        "log_bytes": np.add.reduceat(np.maximum(longs(rows["log_bytes"]), 0), starts).tolist(),
        "max_timestamp_ms": np.maximum.reduceat(longs(rows["max_timestamp_ms"]), starts).tolist(),
        "marks": np.bitwise_or.reduceat(longs(rows["marks"]), starts).tolist(),
        "segments": (lasts - starts + 1).tolist(),
    }
