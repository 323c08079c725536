"""Questions that a worker answers, from what the catalog knows of the partitions that they ask."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from kidxlib.catalog.matching import Values
from kidxlib.catalog.partitions import PARTITIONS, PartitionToSearch
from kidxlib.catalog.run_lengths import runs
from kidxlib.engine.shared_rows import SharedRows
from kidxlib.engine.work import ItemRows
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.lookup.answers import ANSWER, OFFSET, RESULT_COLUMNS, TIMESTAMP, Longs
from kidxlib.lookup.cataloged_partitions import CatalogedPartition
from kidxlib.lookup.seeker import Seeker, answer_all, unanswered
from kidxlib.operations.seek.catalog_rows import HELD, SEARCHED, Unknown
from kidxlib.reading.of_log_dir import OfLogDirs
from kidxlib.storage.location import location

_ASKED: Final[dict[str, pa.DataType]] = {
    "topic": pa.string(),
    "partition": pa.int32(),
    "query": pa.string(),
    "target": pa.int64(),
    "source": pa.string(),
}
_TYPES: Final = _ASKED | {answer.name: answer.type for answer in ANSWER}
#: Rows of a result: the question, the answer, and whether its note is about a file that is not as it should be.
RESULT: Final = pa.schema([pa.field(name, _TYPES[name]) for name in (*RESULT_COLUMNS, "file_error")])
#: The only kind of rows that workers give.
KIND: Final = "answer"
ANSWERED: Final = pa.schema([pa.field(KIND, pa.struct(list(RESULT)))])

NO_PARTITION: Final = "no such partition in the catalog"
_KINDS: Final = (OFFSET, TIMESTAMP)
#: Who answers for a partition, by the names of the sources that hold it.
_Seekers = Mapping[str, Seeker | str]


@dataclass(frozen=True, slots=True)
class QuestionsToAnswer:
    """A key range, and what is known of the partitions that it asks.

    Attributes:
        questions: rows of `QUESTIONS`, in order.
        held: rows of `catalog_rows.HELD`, in the order of their keys.
        segments: rows of `catalog_rows.SEARCHED`, each partition's in one piece.
        unknown: what to say of partitions that the catalog does not have; it may lack some.
    """

    questions: SharedRows
    held: SharedRows
    segments: SharedRows
    unknown: Unknown


def answer_questions(ranges: Iterable[QuestionsToAnswer], use_mmap: bool) -> Iterator[ItemRows]:
    """Rows of `ANSWERED`, in the order of topic, partition, kind of question and target: one for each question and each
    source that holds the partition, or without a source where none does.

    Args:
        use_mmap: logs are read; indexes are mapped whatever this is.
    """
    for key_range in ranges:
        answerer = _Answerer(_partitions(key_range), key_range.unknown)
        yield ItemRows(batches=(_staged(answerer.answer(batch)) for batch in key_range.questions.batches()))


def _partitions(key_range: QuestionsToAnswer) -> dict[tuple[str, int], list[CatalogedPartition]]:
    """The partitions that the catalog has, of all sources, by topic and number."""
    segments = pa.Table.from_batches(key_range.segments.batches(), SEARCHED).combine_chunks()
    of_partition = {
        tuple(segments[name][start].as_py() for name in PARTITIONS.key): segments.slice(start, end - start)
        for start, end in runs([segments[name].combine_chunks() for name in PARTITIONS.key])
    }
    none = SEARCHED.empty_table()
    held: dict[tuple[str, int], list[CatalogedPartition]] = {}
    for facts in PartitionToSearch.of_arrow(pa.Table.from_batches(key_range.held.batches(), HELD)):
        rows = of_partition.get((facts.source, facts.topic, facts.partition), none)
        held.setdefault((facts.topic, facts.partition), []).append(CatalogedPartition(facts, rows))
    return held


@dataclass(frozen=True, slots=True)
class _Answerer:
    """Answers questions to some partitions. Their segments are set up once for all questions."""

    partitions: Mapping[tuple[str, int], list[CatalogedPartition]]
    unknown: Unknown
    seekers: dict[tuple[str, int], _Seekers] = field(default_factory=dict)
    of_log_dirs: OfLogDirs = field(default_factory=OfLogDirs)

    def answer(self, questions: pa.RecordBatch) -> pa.RecordBatch:
        """Rows of `RESULT`."""
        columns = [questions.column(name) for name in ("topic", "partition", "by_time")]
        parts = []
        for start, end in runs(columns):
            topic, partition, by_time = (column[start].as_py() for column in columns)
            if (topic, partition) not in self.seekers:
                held = self.partitions.get((topic, partition), ())
                self.seekers[topic, partition] = {each.facts.source: self._seeker(each) for each in held}
            parts.append(self._answer(topic, partition, _KINDS[by_time], questions.slice(start, end - start)))
        return pa.Table.from_batches(parts, RESULT).combine_chunks().to_batches()[0]

    def _seeker(self, partition: CatalogedPartition) -> Seeker | str:
        facts = partition.facts
        name = TopicPartition(facts.topic, facts.partition)
        return partition.seeker(
            self.of_log_dirs.of_log(location(facts.directory), name, facts.first_base_offset, facts.high_watermark)
        )

    def _answer(self, topic: str, partition: int, query: str, questions: pa.RecordBatch) -> pa.RecordBatch:
        """The answers of one partition to questions of one kind, which are sorted by their target."""
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
                add(source, asked, answer_all(seeker, query, targets[asked]))
                is_open &= ~asks
        for number in np.unique(of_source[is_open]).tolist():
            wanted = None if number < 0 else names[number]
            asked = np.flatnonzero(is_open & (of_source == number))
            note = self.unknown.get((topic, partition, wanted), NO_PARTITION)
            add(wanted, asked, unanswered(len(asked), note))
        if len(parts) == 1:
            return parts[0]
        order = np.argsort(np.concatenate(rows), kind="stable")
        return pa.Table.from_batches(parts).combine_chunks().take(order).to_batches()[0]


def _result(values: Mapping[str, Any], targets: Longs, answers: pa.RecordBatch) -> pa.RecordBatch:
    """Rows of `RESULT`, all with the same values in some columns."""
    scalars: dict[str, Any] = {name: pa.scalar(value, _ASKED[name]) for name, value in values.items()}
    columns: dict[str, Any] = {name: pa.repeat(scalar, len(answers)) for name, scalar in scalars.items()}
    columns["target"] = pa.array(targets)
    columns |= {name: answers.column(name) for name in ANSWER.names}
    return pa.RecordBatch.from_arrays([columns[name] for name in RESULT.names], schema=RESULT)


def _staged(answers: pa.RecordBatch) -> pa.RecordBatch:
    """Rows of `ANSWERED`."""
    inside = pa.StructArray.from_arrays(answers.columns, fields=list(RESULT))
    return pa.RecordBatch.from_arrays([inside], schema=ANSWERED)
