"""Seeks over executors: questions spread and sorted, each stretch of them answered through `kidxlib.seek`."""

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

from jobs.common.runs import runs
from kidxlib.answers import ANSWER, RESULT_COLUMNS
from kidxlib.cataloged import CatalogedPartition
from kidxlib.seek import Seeker, answer_all, unanswered

#: Rows of a result: the question, the answer, and whether its note is about a file that is not as it should be.
_ASKED: Final[dict[str, pa.DataType]] = {
    "topic": pa.string(),
    "partition": pa.int32(),
    "query": pa.string(),
    "target": pa.int64(),
    "source": pa.string(),
}
_TYPES: Final = _ASKED | {field.name: field.type for field in ANSWER}
ARROW_RESULT: Final = pa.schema([pa.field(name, _TYPES[name]) for name in (*RESULT_COLUMNS, "trouble")])
RESULT: Final = from_arrow_schema(ARROW_RESULT)

#: Questions that are worth a Spark task of their own.
_QUERIES_PER_TASK: Final = 50_000
_TASKS_PER_CORE: Final = 4

_NO_PARTITION: Final = "no such partition in the catalog"

Partitions: TypeAlias = Mapping[tuple[str, int], Sequence[CatalogedPartition]]
#: What is said of a partition of a source, or of any, that the catalog does not have.
Unknown: TypeAlias = Mapping[tuple[str, int, str | None], str]


@dataclass(frozen=True, slots=True)
class _Stretch:
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

    The questions are cut into stretches of that order that are as long as each other, so that it does not matter how
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
        # A partition's segments are set up once for all stretches of a task that ask it.
        partitions, unknown = shared.value
        seekers: dict[tuple[str, int], dict[str, Seeker | str]] = {}
        for stretch in itertools.chain.from_iterable(map(_stretches, batches)):
            key = stretch.topic, stretch.partition
            if key not in seekers:
                seekers = {key: {held.facts["source"]: held.seeker() for held in partitions.get(key, ())}}
            targets = stretch.targets.to_numpy()
            asked = {name: it for name, it in seekers[key].items() if stretch.source in (None, name)}
            for source, seeker in asked.items():
                yield _result(stretch, source, answer_all(seeker, stretch.query, targets))
            if not asked:
                note = unknown.get((*key, stretch.source), _NO_PARTITION)
                yield _result(stretch, stretch.source, unanswered(len(targets), note))

    return answer


def _stretches(batch: pa.RecordBatch) -> Iterator[_Stretch]:
    keys = [batch.column(name) for name in ("topic", "partition", "query", "source")]
    for start, end in runs(keys):
        topic, partition, query, source = (column[start].as_py() for column in keys)
        yield _Stretch(topic, partition, query, source, batch.column("target").slice(start, end - start))


def _result(stretch: _Stretch, source: str | None, answers: pa.RecordBatch) -> pa.RecordBatch:
    values: dict[str, Any] = {
        "topic": stretch.topic,
        "partition": stretch.partition,
        "query": stretch.query,
        "source": source,
    }
    columns = {name: pa.repeat(value, len(answers)).cast(_ASKED[name]) for name, value in values.items()}
    columns["target"] = stretch.targets
    columns |= {name: answers.column(name) for name in ANSWER.names}
    return pa.RecordBatch.from_arrays([columns[name] for name in ARROW_RESULT.names], schema=ARROW_RESULT)
