"""What workers plan from: each partition in one piece, with what the catalog knows of it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa

from kidxlib.catalog.partitions import PARTITIONS
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.engine.local import LocalEngine
from kidxlib.engine.processes import Workers
from kidxlib.operations.retention.recorded import PresentSegments, present_topics
from kidxlib.operations.retention.to_plan import partitions_to_plan
from kidxlib.retention.policy import Policy
from kidxlib.tables.memory_tables import MemoryTables
from tests.support.catalog import filled


def _rows(source: str, topic: str, partition: int, *base_offsets: int, **values: Any) -> list[dict[str, Any]]:
    key = {"source": source, "topic": topic, "partition": partition}
    return [
        filled(SEGMENTS.schema(), {**key, "base_offset": base_offset, "status": "ok", **values})
        for base_offset in base_offsets
    ]


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
    tables.append(SEGMENTS, pa.Table.from_pylist(rows, SEGMENTS.schema()))
    key = {"source": "b", "topic": "t", "partition": 3}
    known = filled(PARTITIONS.schema(), {**key, "log_start_offset": 5, "high_watermark": 15})
    tables.append(PARTITIONS, pa.Table.from_pylist([known], PARTITIONS.schema()))
    assert present_topics(tables) == {"a": {"t", "u", "v"}, "b": {"t", "u"}, "c": {"t"}}
    segments = PresentSegments(tables, tables.version(SEGMENTS), ("a", "b"), ["t", "u"])
    configs = {topic: {"it": Policy().of_topic(topic)} for topic in "tu"}
    with Workers(1) as workers:
        keys = segments.read(["base_offset"])
        shares = list(partitions_to_plan(segments, keys, LocalEngine(workers, tmp_path), configs, {"u"}))
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
