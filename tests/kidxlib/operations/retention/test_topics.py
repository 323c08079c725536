"""Topics that look compacted, topics of several clusters, and partitions that come twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from kidxlib.catalog.segments import SEGMENTS
from kidxlib.errors import UsageError
from kidxlib.operations.retention.topics import ensure_no_copies, ensure_one_cluster, topics_that_look_compacted

_NAMES: Final = ("source", "topic", "partition", "base_offset", "next_offset", "status", "records", "topic_id")


def _rows(*segments: tuple[Any, ...], source: str = "b1") -> pa.Table:
    rows = [dict(zip(_NAMES, (source, *segment), strict=True)) for segment in segments]
    return pa.Table.from_pylist(rows, SEGMENTS.schema(_NAMES))


def test_a_topic_whose_segments_lack_offsets_may_be_compacted() -> None:
    """Within a segment or between two, in whatever order they come; and where it is not known how many records one
    has.
    """
    rows = _rows(
        *(("whole", 0, base, base + 5, "ok", 5, None) for base in (10, 0, 5)),
        ("within", 0, 0, 5, "ok", 4, None),
        ("between", 0, 6, 9, "ok", 3, None),
        ("between", 0, 0, 5, "ok", 5, None),
        ("between", 0, 9, None, "unreadable", None, None),
        ("other partition", 1, 9, 12, "ok", 3, None),
        ("other partition", 0, 0, 5, "ok", 5, None),
        ("wrappers", 0, 0, 5, "ok", None, None),
        ("damaged", 0, 0, 5, "truncated", 4, None),
    )
    for what_if in (False, True):
        assert topics_that_look_compacted(rows, what_if=what_if) == {
            "within": "b1: within-0/0 has 4 records of 5 offsets",
            "between": "b1: between-0 has no log with offsets 5 to 5",
            "wrappers": "b1: wrappers-0/0 has an unknown number of records of 5 offsets",
        }
        for few in (rows.slice(0, 1), rows.slice(0, 0)):
            assert topics_that_look_compacted(few, what_if=what_if) == {}


def test_a_hole_in_one_copy_is_no_compaction_to_a_what_if() -> None:
    """Where another source has its offsets; what deletes keeps the topic all the same."""
    whole = _rows(*(("t", 0, base, base + 5, "ok", 5, None) for base in (0, 5, 10)))
    with_hole = _rows(*(("t", 0, base, base + 5, "ok", 5, None) for base in (0, 10)), source="copy")
    rows = pa.concat_tables([whole, with_hole])
    assert topics_that_look_compacted(rows, what_if=True) == {}
    assert topics_that_look_compacted(rows, what_if=False) == {"t": "copy: t-0 has no log with offsets 5 to 9"}
    assert topics_that_look_compacted(with_hole, what_if=True).keys() == {"t"}
    thinned = _rows(("t", 0, 15, 20, "ok", 4, None), source="copy")
    assert topics_that_look_compacted(pa.concat_tables([rows, thinned]), what_if=True).keys() == {"t"}


def test_a_listing_of_one_cluster_does_not_decide_for_another() -> None:
    """Of one name are topics of two clusters, or one that was made again; their ids tell."""
    listing = Path("topics.txt")
    same = _rows(*(("orders", partition, 0, 5, "ok", 5, "A" if partition else None) for partition in range(3)))
    ensure_one_cluster(pa.concat_tables([same, _rows(("logs", 0, 0, 5, "ok", 5, "B"))]), listing)
    other = _rows(("orders", 0, 0, 5, "ok", 5, "B"), source="b2")
    with pytest.raises(UsageError, match=r"topics\.txt: .*orders has the topic id A in source b1 and B in source b2"):
        ensure_one_cluster(pa.concat_tables([same, other]), listing)


def test_a_partition_of_two_sources_is_refused() -> None:
    here, there = (_rows(("t", number, 0, 5, "ok", 5, None), source=f"b{number}") for number in (1, 2))
    ensure_no_copies(pa.concat_tables([here, here]))
    with pytest.raises(UsageError, match=r"--delete-records-json: t-1 is in the sources b0, b1; choose one"):
        ensure_no_copies(pa.concat_tables([here, there, _rows(("t", 1, 0, 5, "ok", 5, None), source="b0")]))
