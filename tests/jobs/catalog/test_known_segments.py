"""What the catalog says of segments, of however many at a time it is asked."""

from __future__ import annotations

import random
import re
from typing import Any

from pyspark.sql.types import StructType

from jobs.common.catalog.known_segments import known_segments
from jobs.common.spark.schema import spark_schema
from jobs.common.spark.session import session
from kidxlib.build.known_segments import KNOWN
from kidxlib.catalog.segments import SEGMENTS, IntervalSource
from kidxlib.catalog.tables import CATALOG_VERSION
from kidxlib.format.topic_partition import PartitionKey
from kidxlib.recovery.outcome import Status
from tests.support.spark.jobs import use_pips_spark


def test_segments_are_the_same_however_many_are_held(rng: random.Random) -> None:
    """Goal: the rows of each topic wanted, whether one partition at a time is asked for, or several, or all.

    Method: partitions of random sizes in two sources, with names that are sorted otherwise than they are listed.
    """
    sizes: dict[PartitionKey, int] = {
        (source, topic, partition): rng.randrange(1, 30)
        for source in ("a/b", "a")
        for topic in ("orders", "Orders", "order-s", "ordersü", "other")
        for partition in rng.sample(range(1000), 4)
    }
    rows = [_row(key, base_offset) for key, size in sizes.items() for base_offset in range(size)]
    rng.shuffle(rows)
    expected = sorted((row for row in rows if row["topic"] != "other"), key=_key)
    use_pips_spark()
    with session("test") as spark:
        schema = StructType([field for field in spark_schema(SEGMENTS.schema()) if field.name in rows[0]])
        segments = spark.createDataFrame([tuple(row[name] for name in schema.names) for row in rows], schema)
        for rows_at_once in (1, 40, 100, len(rows)):
            known = known_segments(segments, re.compile("(?i)order.*"), rows_at_once)
            assert known.schema.names == KNOWN.names
            assert sorted(known.to_pylist(), key=_key) == expected, rows_at_once
        none = known_segments(segments, re.compile("none"))
        assert none.num_rows == 0 and none.schema == KNOWN


def _key(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in SEGMENTS.key)


def _row(key: PartitionKey, base_offset: int) -> dict[str, Any]:
    return {
        **dict(zip(("source", "topic", "partition"), key, strict=True)),
        "base_offset": base_offset,
        "log_bytes": 1,
        "log_mtime_ns": 2,
        "log_inode": 3,
        "topic_id": None,
        "interval_bytes": 4096,
        "max_index_bytes": 10485760,
        "crc_checked": True,
        "interval_source": IntervalSource.SETTINGS.value,
        "status": Status.OK.value,
        "active": False,
        "log_path": f"{key}/{base_offset}",
        "index_directory": "index",
        "offset_index_bytes": 0,
        "time_index_bytes": 12,
        "transaction_index_bytes": None,
        "producer_state": None,
        "catalog_version": CATALOG_VERSION,
    }
