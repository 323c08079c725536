"""The work of seek's workers: they answer questions by the catalog's rows of the partitions that are asked about."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from kidxlib.catalog.matching import Values, runs
from kidxlib.catalog.partitions import PARTITIONS, PartitionToSearch
from kidxlib.catalog.segments import SEGMENTS, SegmentToSearch
from kidxlib.engine.work import ItemRows, SharedRows
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.lookup.answers import ANSWER, OFFSET, RESULT_COLUMNS, TIMESTAMP, Longs, unanswered
from kidxlib.lookup.searched_partitions import CatalogedPartition
from kidxlib.lookup.seeker import Seeker, seek_all
from kidxlib.reading.brokers_metadata import BrokersEvidence
from kidxlib.storage.location import location

_ASKED: Final[dict[str, pa.DataType]] = {
    "topic": pa.string(),
    "partition": pa.int32(),
    "query": pa.string(),
    "target": pa.int64(),
    "source": pa.string(),
}
_TYPES: Final = _ASKED | {answer.name: answer.type for answer in ANSWER}
#: A row of a result: the question, the answer, and whether the answer's note is about a damaged file.
RESULT: Final = pa.schema([pa.field(name, _TYPES[name]) for name in (*RESULT_COLUMNS, "file_error")])
#: The only kind of rows that workers stage.
KIND: Final = "answer"
ANSWERED: Final = pa.schema([pa.field(KIND, pa.struct(list(RESULT)))])

_NO_PARTITION: Final = "no such partition in the catalog"
_KINDS: Final = (OFFSET, TIMESTAMP)
#: By source: what answers for its replica of a partition, or why nothing does.
_Seekers = Mapping[str, Seeker | str]

#: The notes on partitions that the catalog does not have: by topic, number, and the source that was asked, if one was.
Unknown: TypeAlias = Mapping[tuple[str, int, str | None], str]

PARTITIONS_TO_SEARCH: Final = PARTITIONS.schema(PartitionToSearch.names())
SEGMENTS_TO_SEARCH: Final = SEGMENTS.schema((*PARTITIONS.key, *SegmentToSearch.names()))


@dataclass(frozen=True, slots=True)
class QuestionsToAnswer:
    """A range of questions, and the catalog's rows of the partitions that they ask about.

    Attributes:
        questions: rows of `QUESTIONS`, in order.
        partitions: rows of `PARTITIONS_TO_SEARCH`, in the order of their keys.
        segments: rows of `SEGMENTS_TO_SEARCH`, each partition's in one piece.
        unknown: notes on some of the partitions that the catalog does not have.
    """

    questions: SharedRows
    partitions: SharedRows
    segments: SharedRows
    unknown: Unknown


def answer_questions(ranges: Iterable[QuestionsToAnswer]) -> Iterator[ItemRows]:
    """Answer questions in a worker, as rows of `ANSWERED` in the order of topic, partition, kind of question and
    target: one for each question and each source that has the partition, or without a source where none does.
    """
    for key_range in ranges:
        answerer = _Answerer(_partitions(key_range), key_range.unknown)
        yield ItemRows(batches=(_staged(answerer.answer(batch)) for batch in key_range.questions.batches()))


def _partitions(key_range: QuestionsToAnswer) -> dict[tuple[str, int], list[CatalogedPartition]]:
    """The replicas of all sources, by topic and number of the partition."""
    segments = pa.Table.from_batches(key_range.segments.batches(), SEGMENTS_TO_SEARCH).combine_chunks()
    of_partition = {
        tuple(segments[name][start].as_py() for name in PARTITIONS.key): segments.slice(start, end - start)
        for start, end in runs([segments[name].combine_chunks() for name in PARTITIONS.key])
    }
    none = SEGMENTS_TO_SEARCH.empty_table()
    replicas: dict[tuple[str, int], list[CatalogedPartition]] = {}
    rows = pa.Table.from_batches(key_range.partitions.batches(), PARTITIONS_TO_SEARCH)
    for facts in PartitionToSearch.of_arrow(rows):
        of_replica = of_partition.get((facts.source, facts.topic, facts.partition), none)
        replicas.setdefault((facts.topic, facts.partition), []).append(CatalogedPartition(facts, of_replica))
    return replicas


@dataclass(frozen=True, slots=True)
class _Answerer:
    """Answers questions about some partitions. Their segments are opened once for all questions."""

    replicas: Mapping[tuple[str, int], list[CatalogedPartition]]
    unknown: Unknown
    seekers: dict[tuple[str, int], _Seekers] = field(default_factory=dict)
    evidence_reader: BrokersEvidence = field(default_factory=BrokersEvidence)

    def answer(self, questions: pa.RecordBatch) -> pa.RecordBatch:
        """Rows of `RESULT`."""
        columns = [questions.column(name) for name in ("topic", "partition", "by_time")]
        parts = []
        for start, end in runs(columns):
            topic, partition, by_time = (column[start].as_py() for column in columns)
            if (topic, partition) not in self.seekers:
                replicas = self.replicas.get((topic, partition), ())
                self.seekers[topic, partition] = {replica.facts.source: self._seeker(replica) for replica in replicas}
            parts.append(self._answer(topic, partition, _KINDS[by_time], questions.slice(start, end - start)))
        return pa.Table.from_batches(parts, RESULT).combine_chunks().to_batches()[0]

    def _seeker(self, replica: CatalogedPartition) -> Seeker | str:
        facts = replica.facts
        name = TopicPartition(facts.topic, facts.partition)
        return replica.seeker(
            self.evidence_reader.on_log(location(facts.directory), name, facts.first_base_offset, facts.high_watermark)
        )

    def _answer(self, topic: str, partition: int, query: str, questions: pa.RecordBatch) -> pa.RecordBatch:
        """Answer questions of one kind about one partition, in the order of targets."""
        targets: Longs = questions.column("target").to_numpy()
        sources: Values = questions.column("source")
        names = sources.dictionary.to_pylist()
        of_source = np.from_dlpack(sources.indices.cast(pa.int64()).fill_null(-1))
        is_open = np.ones(len(targets), np.bool_)
        rows: list[Longs] = []
        parts = []

        def add(source: str | None, asked: Longs, answers: pa.RecordBatch) -> None:
            rows.append(asked)
            values = {"topic": topic, "partition": partition, "query": query, "source": source}
            parts.append(_result(values, targets[asked], answers))

        for source, seeker in self.seekers[topic, partition].items():
            asks = of_source < 0
            if source in names:
                asks |= of_source == names.index(source)
            if asks.any():
                asked = np.flatnonzero(asks)
                add(source, asked, seek_all(seeker, query, targets[asked]))
                is_open &= ~asks
        for number in np.unique(of_source[is_open]).tolist():
            wanted = None if number < 0 else names[number]
            asked = np.flatnonzero(is_open & (of_source == number))
            note = self.unknown.get((topic, partition, wanted), _NO_PARTITION)
            add(wanted, asked, unanswered(len(asked), note))
        if len(parts) == 1:
            return parts[0]
        order = np.argsort(np.concatenate(rows), kind="stable")
        return pa.Table.from_batches(parts).combine_chunks().take(order).to_batches()[0]


def _result(values: Mapping[str, Any], targets: Longs, answers: pa.RecordBatch) -> pa.RecordBatch:
    """Rows of `RESULT`, with the same `values` in each."""
    scalars: dict[str, Any] = {name: pa.scalar(value, _ASKED[name]) for name, value in values.items()}
    columns: dict[str, Any] = {name: pa.repeat(scalar, len(answers)) for name, scalar in scalars.items()}
    columns["target"] = pa.array(targets)
    columns |= {name: answers.column(name) for name in ANSWER.names}
    return pa.RecordBatch.from_arrays([columns[name] for name in RESULT.names], schema=RESULT)


def _staged(answers: pa.RecordBatch) -> pa.RecordBatch:
    """Rows of `ANSWERED`."""
    inside = pa.StructArray.from_arrays(answers.columns, fields=list(RESULT))
    return pa.RecordBatch.from_arrays([inside], schema=ANSWERED)
