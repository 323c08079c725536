"""Timelines: pieces of several segments say what these say together."""

from __future__ import annotations

from collections import defaultdict

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from kidxlib.operations.report.timeline import (
    LANES,
    Mark,
    mark_differing,
    mark_expired,
    ordered_lanes,
    timeline_index,
    timelines,
)

_NOW = 1_790_000_000_000
_NAMES = (
    *("topic", "partition", "is_remote", "source"),
    *("base_offset", "next_offset", "log_bytes", "max_timestamp_ms", "marks"),
)

_BOUNDS = pa.table({"source": ["x"], "topic": ["a"], "partition": [0], "high_watermark": [5]})


def _rows(*rows: tuple[object, ...]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(_NAMES, row, strict=True)) for row in rows], LANES)


_LANES = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 1), st.booleans(), st.sampled_from("xy"), st.integers(1, 60)),
    unique_by=lambda lane: lane[:4],
    max_size=6,
)


@given(_LANES, st.integers(0, 120), st.sets(st.tuples(st.sampled_from("ab"), st.integers(0, 1))))
def test_pieces_say_what_their_segments_say(
    lanes: list[tuple[str, int, bool, str, int]], shown: int, first: set[tuple[str, int]]
) -> None:
    rows = [
        (*lane[:4], number * 10, number * 10 + 10, 100 + number, number, 1 << (number % 5))
        for lane in lanes
        for number in range(lane[4])
    ]
    found = timelines(ordered_lanes([_rows(*rows)], _NOW), _BOUNDS, first, shown)
    whole = 0
    sizes: dict[tuple[str, int], int] = defaultdict(int)
    for topic, partition, is_remote, source, count in lanes:
        sizes[topic, partition] += count
        of_lane = [row for row in rows if row[:4] == (topic, partition, is_remote, source)]
        (lane,) = (
            each for each in found[topic, partition] if (each["source"], each["is_remote"]) == (source, is_remote)
        )
        assert sum(lane["segments"]) == count and sum(lane["log_bytes"]) == sum(row[6] for row in of_lane)
        assert (lane["base_offset"][0], lane["next_offset"][-1]) == (0, 10 * count)
        assert lane["max_timestamp_ms"][-1] == count - 1
        is_known = (topic, partition, is_remote, source) == ("a", 0, False, "x")
        assert lane["high_watermark"] == (5 if is_known else None)
        together = 0
        for mark in lane["marks"]:
            together |= mark
        for row in of_lane:
            assert together & row[8] == row[8]
        if set(lane["segments"]) == {1}:
            whole += count
        else:
            assert len(lane["segments"]) <= 12
    few = sum(count for *_, count in lanes if count <= 12)
    assert whole <= shown + few
    fitting = {name for name in first & sizes.keys() if sum(sizes[each] for each in first & sizes.keys()) <= shown}
    assert all(set(lane["segments"]) == {1} for name in fitting for lane in found[name])
    index = {(row["topic"], row["partition"]): row["segments"] for row in timeline_index(found)["partitions"]}
    assert index == sizes


def test_marks() -> None:
    """A gap, an overlap, timestamps that go back and that are ahead, deletions by policy and replicas that differ."""
    lane = ("t", 0, False, "s")
    rows = ordered_lanes(
        [
            _rows(
                (*lane, 0, 10, 5, _NOW, 0),
                (*lane, 12, 20, 5, _NOW - 1, Mark.GONE),
                (*lane, 19, 30, 5, _NOW + 3_600_001, 0),
                (*lane, 30, None, 5, -1, Mark.ACTIVE),
                ("t", 0, True, "bucket", 0, 10, 5, _NOW + 3_600_000, 0),
            )
        ],
        _NOW,
    )
    rows = mark_differing(mark_expired(rows, {("s", "t", 0): 2}), {("s", "t", 0): 25})
    assert rows["marks"].to_pylist() == [
        Mark.EXPIRED,
        Mark.GONE | Mark.GAP | Mark.BACKWARDS,
        Mark.OVERLAP | Mark.FUTURE | Mark.EXPIRED | Mark.DIFFERS,
        Mark.ACTIVE,
        0,
    ]
