"""What the catalog says of segments, of however many at a time it is asked."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest
from pyspark.sql.types import StructType

from jobs.common.known_segments import KnownSegments
from jobs.common.session import session
from jobs.common.tables import CATALOG_VERSION, SEGMENTS, spark_schema
from kidxlib.build import IntervalSource
from kidxlib.plan import PartitionKey
from kidxlib.recover import Status
from tests.support.build_job import use_pips_spark


def test_segments_are_the_same_however_many_are_held(rng: random.Random) -> None:
    """Goal: the rows of each partition wanted, whether one partition at a time is asked for, or several, or all.

    Method: partitions of random sizes in two sources, with names that are sorted otherwise than they are listed; asked
    for in any order, and ones that are not there.
    """
    sizes: dict[PartitionKey, int] = {
        (source, topic, partition): rng.randrange(1, 30)
        for source in ("a/b", "a")
        for topic in ("orders", "Orders", "order-s", "ordersü", "other")
        for partition in rng.sample(range(1000), 4)
    }
    rows = [_row(key, base_offset) for key, size in sizes.items() for base_offset in range(size)]
    rng.shuffle(rows)
    wanted = {key: set(range(size)) for key, size in sizes.items() if key[1] != "other"}
    use_pips_spark()
    with session("test") as spark:
        schema = StructType([field for field in spark_schema(SEGMENTS.columns) if field.name in rows[0]])
        segments = spark.createDataFrame([tuple(row[name] for name in schema.names) for row in rows], schema)
        for rows_at_once in (1, 40, 100, len(rows)):
            known = KnownSegments(segments, re.compile("(?i)order.*"), rows_at_once)
            assert list(known) == sorted(wanted), rows_at_once
            for key in rng.sample(sorted(wanted), 8):
                found = known[key]
                assert found.keys() == wanted[key], (rows_at_once, key)
                assert {segment.log_path for segment in found.values()} == {f"{key}/{number}" for number in wanted[key]}
            for absent in (("a", "other", 0), ("a", "orders", 1000)):
                with pytest.raises(KeyError):
                    known[absent]


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
        "index_folder": "index",
        "offset_index_bytes": 0,
        "time_index_bytes": 12,
        "transaction_index_bytes": None,
        "producer_state": None,
        "catalog_version": CATALOG_VERSION,
    }
