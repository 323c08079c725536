"""What the catalog says of segments, for a listing to be compared with."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from kidxlib.build.known_segments import KNOWN
from kidxlib.catalog.partitions import PARTITIONS
from kidxlib.format.topic_partition import PartitionKey

#: Rows that are on their way at a time: 0.4 kB each in the driver's JVM. Of all rows the driver's Python keeps 0.2 kB.
_ROWS_AT_ONCE: Final = 100_000


def known_segments(segments: DataFrame, topics: re.Pattern[str], rows_at_once: int = _ROWS_AT_ONCE) -> pa.Table:
    """Rows of `KNOWN`, in any order. Texts that many rows share are kept once, in dictionaries.

    Args:
        segments: rows of the table `segments`.
        topics: matches the full names of the topics wanted.
        rows_at_once: about as many are asked for at a time; more of a partition that has more.
    """
    counts = sorted(segments.groupBy(*PARTITIONS.key).count().toArrow().to_pylist(), key=_key)
    wanted = [row for row in counts if topics.fullmatch(row["topic"])]
    if len(wanted) < len(counts):  # between them lie others
        segments = segments.where(F.col("topic").isin(*{row["topic"] for row in wanted}))
    rows = segments.select(*KNOWN.names)
    parts = [_encoded(rows.where(each.condition).toArrow()) for each in _key_ranges(wanted, rows_at_once)]
    return pa.concat_tables(parts).unify_dictionaries() if parts else KNOWN.empty_table()


def _encoded(rows: pa.Table) -> pa.Table:
    """The rows with dictionaries of the texts that are not a path of each."""
    for number, column in enumerate(KNOWN):
        if column.type == pa.string() and column.name != "log_path":
            rows = rows.set_column(number, column.name, rows[column.name].dictionary_encode())
    return rows


def _key_ranges(counts: Sequence[Mapping[str, Any]], rows_at_once: int) -> Iterator[_KeyRange]:
    """
    Args:
        counts: partitions in the order of their keys, each with the number of its rows.
    """
    ends = zip(counts, accumulate(row["count"] for row in counts), strict=True)
    for _, group in groupby(ends, lambda row_and_end: (row_and_end[1] - 1) // rows_at_once):
        keys = [_key(row) for row, _ in group]
        yield _KeyRange(keys[0], keys[-1])


@dataclass(frozen=True, slots=True)
class _KeyRange:
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


def _key(row: Mapping[str, Any]) -> PartitionKey:
    return row["source"], row["topic"], row["partition"]


def _struct(key: PartitionKey) -> Column:
    return F.struct(*(F.lit(value).alias(name) for name, value in zip(PARTITIONS.key, key, strict=True)))
