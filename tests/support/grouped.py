"""Groups of rows of `segments` made in Python, for comparison with those of the tables."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import pyarrow as pa
from hypothesis import strategies as st

from kidxlib.catalog.conditions import Among, Between, Condition, rows_where
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.tables.protocol import FirstAndLast, TablesToRead
from tests.support.catalog import filled_rows

#: The next offset and the status, by topic, partition and base offset.
Segments: TypeAlias = dict[tuple[str, int, int], tuple[int | None, str]]

_ENDS: Final = FirstAndLast("base_offset", "next_offset")
_KEY: Final = st.tuples(st.sampled_from("ab"), st.integers(0, 2), st.integers(0, 5))
_VALUES: Final = st.tuples(st.none() | st.integers(0, 9), st.sampled_from(["ok", "torn"]))
SEGMENTS_OF_GROUPS: Final = st.dictionaries(_KEY, _VALUES, max_size=20)
_CONDITIONS: Final[tuple[tuple[Condition, ...], ...]] = (
    (),
    (Among("topic", ("a",)), Between("base_offset", 1, 3)),
    (Among("status", ("torn",), negated=True),),
)


def rows_of(segments: Segments) -> pa.Table:
    rows = [
        {"source": "s", "topic": topic, "partition": partition, "base_offset": base_offset, "next_offset": following}
        | {"status": status}
        for (topic, partition, base_offset), (following, status) in segments.items()
    ]
    return filled_rows(SEGMENTS, rows)


def assert_grouped(tables: TablesToRead, rows: pa.Table) -> None:
    for where in _CONDITIONS:
        kept = rows_where(rows, where).to_pylist()
        kept.sort(key=lambda row: row["base_offset"])
        counts: dict[tuple[Any, ...], int] = {}
        ends: dict[tuple[Any, ...], tuple[int, int | None]] = {}
        for row in kept:
            kind, partition = (row["source"], row["status"]), (row["topic"], row["partition"])
            counts[kind] = counts.get(kind, 0) + 1
            ends[partition] = (ends.get(partition, (row["base_offset"], None))[0], row["next_offset"])
        counted = tables.counts(SEGMENTS, ["status", "source"], where)
        assert {tuple(row.values())[:2]: row["rows"] for row in counted.to_pylist()} == counts
        ended = tables.first_and_last(SEGMENTS, ["partition", "topic"], _ENDS, where)
        by_partition = {(row["topic"], row["partition"]): (row["first"], row["last"]) for row in ended.to_pylist()}
        assert (by_partition, ended.num_rows) == (ends, len(ends))
