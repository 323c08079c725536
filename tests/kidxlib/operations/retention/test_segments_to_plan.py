"""What workers plan from: each partition in one piece, with what the catalog knows of it; topics that look compacted,
topics of several clusters, and partitions that come twice.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from kidxlib.catalog.partitions import PARTITIONS
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.engine.local import LocalEngine, Workers
from kidxlib.errors import UsageError
from kidxlib.operations.retention.segments_to_plan import (
    SegmentsToPlan,
    ensure_one_cluster,
    ensure_one_source_each,
    partitions_to_plan,
    topics_that_look_compacted,
    topics_to_plan,
)
from kidxlib.retention.policy import Policy
from kidxlib.tables.memory_tables import MemoryTables
from kidxlib.tables.protocol import counts_of
from tests.support.catalog import filled_rows

_NAMES: Final = ("source", "topic", "partition", "base_offset", "next_offset", "status", "records", "topic_id")


def _rows(source: str, topic: str, partition: int, *base_offsets: int, **values: Any) -> list[dict[str, Any]]:
    key = {"source": source, "topic": topic, "partition": partition}
    return [{**key, "base_offset": base_offset, "status": "ok", **values} for base_offset in base_offsets]


def test_partitions_come_in_shares_as_the_catalog_has_them(tmp_path: Path) -> None:
    """Each once and in order, whatever order its rows have; without segments that are gone, and without other topics
    and sources.
    """
    tables = MemoryTables("catalog")
    wanted = [
        row
        for source in ("a", "b")
        for topic in ("t", "u")
        for partition in range(5)
        for row in _rows(source, topic, partition, *range(0, 10 * (partition + 1), 10), log_bytes=partition)
    ]
    others = [
        *_rows("a", "t", 0, 500, 510, status="gone"),
        *_rows("a", "u", 7, 0, status="deleted"),
        *_rows("a", "v", 0, 0, 10),
        *_rows("c", "t", 0, 0, 10),
    ]
    rows = [*wanted, *others]
    random.shuffle(rows)
    tables.append(SEGMENTS, filled_rows(SEGMENTS, rows))
    key = {"source": "b", "topic": "t", "partition": 3}
    tables.append(PARTITIONS, filled_rows(PARTITIONS, [{**key, "log_start_offset": 5, "high_watermark": 15}]))
    assert topics_to_plan(tables) == {"a": {"t", "u", "v"}, "b": {"t", "u"}, "c": {"t"}}
    segments = SegmentsToPlan(tables, tables.version(SEGMENTS), ("a", "b"), ["t", "u"])
    configs = {topic: {"it": Policy().of_topic(topic)} for topic in "tu"}
    with Workers(1) as workers:
        partitions_present = counts_of(segments.read_columns([]), PARTITIONS.key)
        shares = list(partitions_to_plan(segments, partitions_present, LocalEngine(workers, tmp_path), configs, {"u"}))
        found = [pa.Table.from_batches(share.rows.batches()).to_pylist() for share in shares]
    names = (*SEGMENTS.key, "log_bytes")
    expected = [tuple(row[name] for name in names) for row in wanted]
    assert [tuple(row[name] for name in names) for share in found for row in share] == expected
    partitions = [{tuple(row[name] for name in PARTITIONS.key) for row in share} for share in found]
    assert len(shares) >= 4 and sum(map(len, partitions)) == len(set().union(*partitions)) == 20
    for share, of_share in zip(shares, found, strict=True):
        topics = {row["topic"] for row in of_share}
        assert share.configs == {topic: configs[topic] for topic in topics}
        assert share.compacted_topics == topics & {"u"}
        for row in of_share:
            is_known = {name: row[name] for name in key} == key
            assert (row["log_start_offset"], row["high_watermark"]) == ((5, 15) if is_known else (None, None))


def _segment_rows(*segments: tuple[Any, ...], source: str = "b1") -> pa.Table:
    rows = [dict(zip(_NAMES, (source, *segment), strict=True)) for segment in segments]
    return pa.Table.from_pylist(rows, SEGMENTS.schema(_NAMES))


def test_a_topic_whose_segments_lack_offsets_may_be_compacted() -> None:
    """Within a segment or between two, in whatever order they come; and where it is not known how many records one
    has.
    """
    rows = _segment_rows(
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
    whole = _segment_rows(*(("t", 0, base, base + 5, "ok", 5, None) for base in (0, 5, 10)))
    with_hole = _segment_rows(*(("t", 0, base, base + 5, "ok", 5, None) for base in (0, 10)), source="copy")
    rows = pa.concat_tables([whole, with_hole])
    assert topics_that_look_compacted(rows, what_if=True) == {}
    assert topics_that_look_compacted(rows, what_if=False) == {"t": "copy: t-0 has no log with offsets 5 to 9"}
    assert topics_that_look_compacted(with_hole, what_if=True).keys() == {"t"}
    thinned = _segment_rows(("t", 0, 15, 20, "ok", 4, None), source="copy")
    assert topics_that_look_compacted(pa.concat_tables([rows, thinned]), what_if=True).keys() == {"t"}


def test_a_listing_of_one_cluster_does_not_decide_for_another() -> None:
    """Of one name are topics of two clusters, or one that was made again; their ids tell."""
    listing = Path("topics.txt")
    same = _segment_rows(*(("orders", partition, 0, 5, "ok", 5, "A" if partition else None) for partition in range(3)))
    ensure_one_cluster(pa.concat_tables([same, _segment_rows(("logs", 0, 0, 5, "ok", 5, "B"))]), listing)
    other = _segment_rows(("orders", 0, 0, 5, "ok", 5, "B"), source="b2")
    with pytest.raises(UsageError, match=r"topics\.txt: .*orders has the topic id A in source b1 and B in source b2"):
        ensure_one_cluster(pa.concat_tables([same, other]), listing)


def test_a_partition_of_two_sources_is_refused() -> None:
    here, there = (_segment_rows(("t", number, 0, 5, "ok", 5, None), source=f"b{number}") for number in (1, 2))
    ensure_one_source_each(pa.concat_tables([here, here]))
    with pytest.raises(UsageError, match=r"--delete-records-json: t-1 is in the sources b0, b1; choose one"):
        ensure_one_source_each(
            pa.concat_tables([here, there, _segment_rows(("t", 1, 0, 5, "ok", 5, None), source="b0")])
        )
