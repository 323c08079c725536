"""A large table, read piece by piece: conditions on topics and partitions, each on as many rows as fit into memory."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from typing import Final

import pyarrow as pa

from kidxlib.catalog.conditions import Among, Between, Condition

#: Rows of a piece: a few hundred bytes each, by the columns that are read.
ROWS_AT_ONCE: Final = 200_000

#: A topic's partition, and how many rows there are of it.
_Counted = tuple[str, int, int]


def pieces(partitions: pa.Table, rows_at_once: int = ROWS_AT_ONCE) -> Iterator[list[Condition]]:
    """Conditions that divide rows, each partition's together, in the order of topics and partitions.

    Args:
        partitions: `topic` and `partition` of each row.
        rows_at_once: about as many are of a piece; more of a partition that has more.
    """
    counts = partitions.group_by(["topic", "partition"]).aggregate([([], "count_all")])
    counts = counts.sort_by([("topic", "ascending"), ("partition", "ascending")])
    topics: list[str] = []
    rows = 0
    for topic, of_topic in groupby(_rows(counts), key=itemgetter(0)):
        counted = list(of_topic)
        count = sum(each[2] for each in counted)
        if rows + count > rows_at_once and topics:
            yield [Among("topic", topics)]
            topics, rows = [], 0
        if count > rows_at_once:
            yield from _pieces_of_topic(counted, rows_at_once)
        else:
            topics, rows = [*topics, topic], rows + count
    if topics:
        yield [Among("topic", topics)]


def _pieces_of_topic(counted: list[_Counted], rows_at_once: int) -> Iterator[list[Condition]]:
    first, rows = 0, 0
    for number, (topic, partition, count) in enumerate(counted):
        rows += count
        is_last = number + 1 == len(counted)
        if is_last or rows + counted[number + 1][2] > rows_at_once:
            yield [Among("topic", (topic,)), Between("partition", counted[first][1], partition)]
            first, rows = number + 1, 0


def _rows(counts: pa.Table) -> Iterator[_Counted]:
    columns = (counts[name].to_pylist() for name in ("topic", "partition", "count_all"))
    yield from zip(*columns, strict=True)
