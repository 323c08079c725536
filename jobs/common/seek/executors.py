"""Seeks on executors: questions spread and sorted, each key range of them answered through `kidxlib.lookup.seeker`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import pyarrow as pa
from pyspark import Broadcast
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from jobs.common.spark.run_lengths import runs
from kidxlib.lookup.columns import ANSWER, RESULT_COLUMNS
from kidxlib.lookup.partition import CatalogedPartition
from kidxlib.lookup.seeker import Seeker, answer_all, unanswered

#: Rows of a result: the question, the answer, and whether its note is about a file that is not as it should be.
_ASKED: Final[dict[str, pa.DataType]] = {
    "topic": pa.string(),
    "partition": pa.int32(),
    "query": pa.string(),
    "target": pa.int64(),
    "source": pa.string(),
}
_TYPES: Final = _ASKED | {field.name: field.type for field in ANSWER}
ARROW_RESULT: Final = pa.schema([pa.field(name, _TYPES[name]) for name in (*RESULT_COLUMNS, "file_error")])
RESULT: Final = from_arrow_schema(ARROW_RESULT)

#: Questions that are worth a Spark task of their own.
_QUERIES_PER_TASK: Final = 50_000
_TASKS_PER_CORE: Final = 4

_NO_PARTITION: Final = "no such partition in the catalog"

Partitions: TypeAlias = Mapping[tuple[str, int], Sequence[CatalogedPartition]]
#: What is said of a partition of a source, or of any, that the catalog does not have.
Unknown: TypeAlias = Mapping[tuple[str, int, str | None], str]


@dataclass(frozen=True, slots=True)
class _KeyRange:
    """Rows of a batch that ask one partition for one kind of thing."""

    topic: str
    partition: int
    query: str
    source: str | None
    targets: pa.Array[Any]


def answer_on_executors(
    queries: DataFrame, count: int, partitions: Partitions, unknown: Unknown = MappingProxyType({})
) -> DataFrame:
    """Rows of `RESULT`, in the order of topic, partition, kind of question and target: one for each question and each
    source that holds the partition, or without a source where none does.

    The questions are divided into key ranges of that order, all of the same length, so that it does not matter how
    many of them ask one segment, or one and the same thing.

    Args:
        queries: of `queries.QUERIES`.
        count: how many they are.
        partitions: what the catalog knows of those that are asked.
        unknown: what to say of those that it does not know; it may lack some.
    """
    spark = queries.sparkSession
    cores = spark.sparkContext.defaultParallelism
    tasks = min(-(-count // _QUERIES_PER_TASK), cores * _TASKS_PER_CORE)
    order = ("topic", "partition", "query", "target")
    if tasks > 1:
        numbered = queries.withColumn("number", F.monotonically_increasing_id())  # tells those of one target apart
        spread = numbered.repartitionByRange(tasks, *order, "number").drop("number")
    else:
        spread = queries.coalesce(1)
    known: tuple[Partitions, Unknown] = partitions, dict(unknown)
    shared = spark.sparkContext.broadcast(known)
    return spread.sortWithinPartitions(*order).mapInArrow(_answering(shared), RESULT)


def _answering(
    shared: Broadcast[tuple[Partitions, Unknown]],
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def answer(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # A partition's segments are set up once for all key ranges of a task that ask it.
        partitions, unknown = shared.value
        seekers: dict[tuple[str, int], dict[str, Seeker | str]] = {}
        for key_range in itertools.chain.from_iterable(map(_key_ranges, batches)):
            key = key_range.topic, key_range.partition
            if key not in seekers:
                seekers = {key: {held.facts.source: held.seeker() for held in partitions.get(key, ())}}
            targets = key_range.targets.to_numpy()
            asked = {name: it for name, it in seekers[key].items() if key_range.source in (None, name)}
            for source, seeker in asked.items():
                yield _result(key_range, source, answer_all(seeker, key_range.query, targets))
            if not asked:
                note = unknown.get((*key, key_range.source), _NO_PARTITION)
                yield _result(key_range, key_range.source, unanswered(len(targets), note))

    return answer


def _key_ranges(batch: pa.RecordBatch) -> Iterator[_KeyRange]:
    keys = [batch.column(name) for name in ("topic", "partition", "query", "source")]
    for start, end in runs(keys):
        topic, partition, query, source = (column[start].as_py() for column in keys)
        yield _KeyRange(topic, partition, query, source, batch.column("target").slice(start, end - start))


def _result(key_range: _KeyRange, source: str | None, answers: pa.RecordBatch) -> pa.RecordBatch:
    values: dict[str, Any] = {
        "topic": key_range.topic,
        "partition": key_range.partition,
        "query": key_range.query,
        "source": source,
    }
    columns = {name: pa.repeat(value, len(answers)).cast(_ASKED[name]) for name, value in values.items()}
    columns["target"] = key_range.targets
    columns |= {name: answers.column(name) for name in ANSWER.names}
    return pa.RecordBatch.from_arrays([columns[name] for name in ARROW_RESULT.names], schema=ARROW_RESULT)
