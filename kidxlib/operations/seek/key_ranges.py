"""Questions in the order of their answers, cut into ranges of equal length, and which partitions each range asks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kidxlib.catalog.arrow_arrays import numpy_of
from kidxlib.catalog.matching import Values
from kidxlib.catalog.partitions import PARTITIONS

_Longs = NDArray[np.int64]

#: What is asked: a partition, or one source of it, and how many questions do.
ASKED: Final = pa.schema(
    [
        *PARTITIONS.schema(("topic", "partition")),
        pa.field("source", pa.string()),
        pa.field("queries", pa.int64(), nullable=False),
    ]
)

#: Questions that are worth a unit of work of their own.
_QUERIES_PER_RANGE: Final = 50_000
_RANGES_PER_CORE: Final = 4
#: A worker holds the questions of a range for some seconds, not minutes.
_QUERIES_PER_RANGE_MAX: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Questions that one worker answers.

    Attributes:
        questions: rows of `QUESTIONS`, in order.
        partitions: the topics and numbers that they ask, each once.
    """

    questions: pa.Table
    partitions: pa.Table


def in_order(questions: pa.Table) -> pa.Table:
    """Rows of `QUESTIONS` in the order of topic, partition, kind of question and target."""
    key = _keys(questions)
    order = np.lexsort((numpy_of(questions["target"]), numpy_of(questions["by_time"]), key))
    return questions.take(order).combine_chunks()


def asked_partitions(questions: pa.Table) -> pa.Table:
    """Rows of `ASKED`.

    Args:
        questions: in order.
    """
    starts = _starts(_keys(questions))
    numbers = np.zeros(questions.num_rows, np.int64)
    numbers[starts[1:]] = 1
    group = np.cumsum(numbers)
    sources: Values = questions["source"].combine_chunks()
    of_source = np.from_dlpack(sources.indices.cast(pa.int64()).fill_null(-1))
    width = len(sources.dictionary) + 1
    pairs, counts = np.unique(group * width + of_source + 1, return_counts=True)
    first = questions.take(starts[pairs // width])
    of_pair: Values = pa.array(pairs % width - 1, mask=pairs % width == 0)
    source = sources.dictionary.take(of_pair)
    columns = [first["topic"].cast(pa.string()), first["partition"], source, pa.array(counts, pa.int64())]
    return pa.table(columns, schema=ASKED)


def key_ranges(questions: pa.Table, cores: int) -> Iterator[KeyRange]:
    """The questions in ranges of one length, so that it does not matter how many of them ask one segment, or one and
    the same thing.

    Args:
        questions: in order.
        cores: that answer.
    """
    count = questions.num_rows
    ranges = min(-(-count // _QUERIES_PER_RANGE), cores * _RANGES_PER_CORE)
    ranges = max(ranges, -(-count // _QUERIES_PER_RANGE_MAX))
    for number in range(ranges):
        start, end = count * number // ranges, count * (number + 1) // ranges
        part = questions.take(np.arange(start, end))  # a slice would take the whole table along, where rows are pickled
        first = part.take(_starts(_keys(part))).select(["topic", "partition"])
        yield KeyRange(part, first.cast(PARTITIONS.schema(("topic", "partition"))))


def _keys(questions: pa.Table) -> _Longs:
    """A number for each partition, in the order of topic and partition."""
    topics: Values = questions["topic"].combine_chunks()
    ranks = np.empty(len(topics.dictionary), np.int64)
    ranks[np.from_dlpack(pc.sort_indices(topics.dictionary))] = np.arange(len(ranks))
    of_topic: _Longs = ranks[np.from_dlpack(topics.indices)]
    keys: _Longs = (of_topic << 32) | numpy_of(questions["partition"])
    return keys


def _starts(keys: _Longs) -> _Longs:
    """Where in sorted keys each begins."""
    return np.concatenate([[0], np.flatnonzero(keys[1:] != keys[:-1]) + 1])
