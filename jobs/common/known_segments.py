"""What the catalog says of segments, for a listing to be compared with."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import reduce
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.common.tables import FACTS_VERSION, PARTITIONS, SEGMENTS
from kidxlib.build import IntervalSource
from kidxlib.plan import KnownSegment, PartitionKey
from kidxlib.recover import RecoverOptions, Status
from kidxlib.storage import FileVersion

_AS_THEY_ARE: Final = (
    *SEGMENTS.key,
    *("log_bytes", "log_mtime_ns", "log_inode", "topic_id", "interval_bytes", "max_index_bytes", "crc_checked"),
    *("interval_source", "status", "active", "log_path", "index_folder"),
    *("offset_index_bytes", "time_index_bytes", "transaction_index_bytes"),
)


class KnownSegments(Mapping[PartitionKey, Mapping[int, KnownSegment]]):
    """The segments by partition. They become objects when a partition is asked for, and not before: of a million
    segments at once these would take a gigabyte of the driver's memory.
    """

    def __init__(self, segments: DataFrame, topics: re.Pattern[str]) -> None:
        """
        Args:
            segments: rows of the table `segments`.
            topics: matches the full names of the topics wanted.
        """
        finished = F.col("producer_state").isNotNull().alias("finished")
        current = (F.col("catalog_version") >= FACTS_VERSION).alias("current")
        rows: pa.Table = segments.select(*_AS_THEY_ARE, finished, current).toArrow()
        self._rows = rows.sort_by([(name, "ascending") for name in PARTITIONS.key])
        starts = _starts(self._rows.select(PARTITIONS.key))
        keys = self._rows.select(PARTITIONS.key).take(pa.array(starts, pa.int64())).to_pylist()
        self._places = {
            (key["source"], key["topic"], key["partition"]): place
            for key, place in zip(keys, pairwise([*starts, len(self._rows)]), strict=True)
            if topics.fullmatch(key["topic"])
        }

    def __iter__(self) -> Iterator[PartitionKey]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, key: PartitionKey) -> Mapping[int, KnownSegment]:
        start, end = self._places[key]
        return {row["base_offset"]: _known(row) for row in self._rows.slice(start, end - start).to_pylist()}


def _starts(keys: pa.Table) -> list[int]:
    """Where another key begins, in rows that are sorted by it."""
    count = len(keys)
    if count == 0:
        return []
    differs = (
        pc.not_equal(column.slice(1), column.slice(0, count - 1)).to_numpy(zero_copy_only=False)
        for column in keys.columns
    )
    return [0, *(np.flatnonzero(reduce(np.logical_or, differs)) + 1).tolist()]


def _known(row: Mapping[str, Any]) -> KnownSegment:
    size, mtime_ns, inode = row["log_bytes"], row["log_mtime_ns"], row["log_inode"]
    return KnownSegment(
        version=None if size is None else FileVersion(size, mtime_ns, inode),
        topic_id=row["topic_id"],
        options=RecoverOptions(
            interval_bytes=row["interval_bytes"], max_index_bytes=row["max_index_bytes"], verify_crc=row["crc_checked"]
        ),
        interval_source=IntervalSource(row["interval_source"]),
        status=Status(row["status"]),
        active=row["active"],
        log_path=row["log_path"],
        index_folder=row["index_folder"],
        offset_index_bytes=row["offset_index_bytes"],
        time_index_bytes=row["time_index_bytes"],
        transaction_index_bytes=row["transaction_index_bytes"],
        finished=row["finished"],
        current=row["current"],
    )
