"""What the catalog says of segments, for a listing to be compared with."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate, groupby
from typing import Any, Final, Self

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from jobs.common.runs import runs
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

#: Rows that the driver holds at a time: 0.4 kB each in its Python, and as much on their way through its JVM.
ROWS_AT_ONCE: Final = 100_000


class KnownSegments(Mapping[PartitionKey, Mapping[int, KnownSegment]]):
    """The segments by partition. They are asked of the catalog when a partition is, together with those of partitions
    that follow in the order of their keys, and they become objects one partition at a time: of a million segments at
    once these would take more than a gigabyte of the driver's memory.
    """

    def __init__(self, segments: DataFrame, topics: re.Pattern[str], rows_at_once: int = ROWS_AT_ONCE) -> None:
        """
        Args:
            segments: rows of the table `segments`.
            topics: matches the full names of the topics wanted.
            rows_at_once: about as many are held; more of a partition that has more.
        """
        counts = segments.groupBy(*PARTITIONS.key).count().toArrow().to_pylist()
        counts.sort(key=_key)
        ends = zip(counts, accumulate(row["count"] for row in counts), strict=True)
        self._stretches: dict[PartitionKey, _Stretch] = {}
        for _, group in groupby(ends, lambda row_and_end: (row_and_end[1] - 1) // rows_at_once):
            keys = [_key(row) for row, _ in group]
            stretch = _Stretch(keys[0], keys[-1])
            self._stretches |= {key: stretch for key in keys if topics.fullmatch(key[1])}
        finished = F.col("producer_state").isNotNull().alias("finished")
        current = (F.col("catalog_version") >= FACTS_VERSION).alias("current")
        self._segments = segments.select(*_AS_THEY_ARE, finished, current)
        self._held: _Held | None = None

    def __iter__(self) -> Iterator[PartitionKey]:
        """In the order of their keys, in which each row is asked for once."""
        return iter(self._stretches)

    def __len__(self) -> int:
        return len(self._stretches)

    def __getitem__(self, key: PartitionKey) -> Mapping[int, KnownSegment]:
        stretch = self._stretches[key]
        if self._held is None or self._held.stretch != stretch:
            self._held = None  # before the next: not both at once
            self._held = _Held.read(self._segments, stretch)
        return {row["base_offset"]: _known(row) for row in self._held.of_partition(key)}


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Partitions that follow each other in the order of their keys."""

    first: PartitionKey
    last: PartitionKey

    @property
    def condition(self) -> Column:
        key = F.struct(*PARTITIONS.key)
        inside = (key >= _struct(self.first)) & (key <= _struct(self.last))
        # Follows from it; said once more, as Delta skips files by conditions on columns and not by those on structs.
        for name, first, last in zip(PARTITIONS.key, self.first, self.last, strict=True):
            inside &= F.col(name).between(F.lit(first), F.lit(last))
            if first != last:
                break
        return inside


@dataclass(frozen=True, slots=True)
class _Held:
    """The rows of a stretch, and where those of each partition lie among them."""

    stretch: _Stretch
    rows: pa.Table
    places: Mapping[PartitionKey, tuple[int, int]]

    @classmethod
    def read(cls, segments: DataFrame, stretch: _Stretch) -> Self:
        rows = segments.where(stretch.condition).toArrow()
        rows = rows.sort_by([(name, "ascending") for name in PARTITIONS.key])
        keys = rows.select(PARTITIONS.key)
        places = runs([column.combine_chunks() for column in keys.columns])
        return cls(stretch, rows, {_key(keys.slice(start, 1).to_pylist()[0]): (start, end) for start, end in places})

    def of_partition(self, key: PartitionKey) -> list[dict[str, Any]]:
        start, end = self.places.get(key, (0, 0))  # none where they were withdrawn since partitions were counted
        rows: list[dict[str, Any]] = self.rows.slice(start, end - start).to_pylist()
        return rows


def _key(row: Mapping[str, Any]) -> PartitionKey:
    return row["source"], row["topic"], row["partition"]


def _struct(key: PartitionKey) -> Column:
    return F.struct(*(F.lit(value).alias(name) for name, value in zip(PARTITIONS.key, key, strict=True)))


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
