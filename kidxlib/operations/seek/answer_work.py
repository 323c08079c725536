"""The work of seek's workers: they answer questions by the catalog's rows of the partitions that are asked about."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from kidxlib.catalog.conditions import PRESENT, Among, Condition
from kidxlib.catalog.matching import Flags, Values, positions_in, runs
from kidxlib.catalog.partitions import PARTITIONS, PartitionToSearch
from kidxlib.catalog.rows import Table
from kidxlib.catalog.segment_views import SegmentToSearch
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.engine.work import ItemRows, SharedRows
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.lookup.answers import ANSWER, OFFSET, RESULT_COLUMNS, TIMESTAMP, Longs
from kidxlib.lookup.cataloged_partitions import CatalogedPartition, KnownPartitions
from kidxlib.lookup.seeker import Seeker, answer_all, unanswered
from kidxlib.reading.of_log_dir import OfLogDirs
from kidxlib.storage.location import location
from kidxlib.tables.protocol import Tables, scope_of

_ASKED: Final[dict[str, pa.DataType]] = {
    "topic": pa.string(),
    "partition": pa.int32(),
    "query": pa.string(),
    "target": pa.int64(),
    "source": pa.string(),
}
_TYPES: Final = _ASKED | {answer.name: answer.type for answer in ANSWER}
#: The rows of a result: the question, the answer, and whether the answer's note is about a damaged file.
RESULT: Final = pa.schema([pa.field(name, _TYPES[name]) for name in (*RESULT_COLUMNS, "file_error")])
#: The only kind of rows that workers give.
KIND: Final = "answer"
ANSWERED: Final = pa.schema([pa.field(KIND, pa.struct(list(RESULT)))])

_NO_PARTITION: Final = "no such partition in the catalog"
_KINDS: Final = (OFFSET, TIMESTAMP)
#: The sources that can answer for each partition.
_Seekers = Mapping[str, Seeker | str]

#: The note if the catalog does not have a partition, of a source or at all.
Unknown: TypeAlias = Mapping[tuple[str, int, str | None], str]

HELD: Final = PARTITIONS.schema(PartitionToSearch.names())
_SEARCHED: Final = SEGMENTS.schema((*PARTITIONS.key, *SegmentToSearch.names()))

_NAME: Final = ("topic", "partition")
_OF_SOURCE: Final = (*_NAME, "source")
#: For how many unknown partitions similar names are looked up.
_EXPLAINED: Final = 100


@dataclass(frozen=True, slots=True)
class QuestionsToAnswer:
    """A key range of questions, and the catalog's rows of the partitions that they ask about.

    Attributes:
        questions: rows of `QUESTIONS`, in order.
        held: rows of `HELD`, in the order of their keys.
        segments: rows of `_SEARCHED`, each partition's in one piece.
        unknown: what to say of partitions that the catalog does not have; it may lack some.
    """

    questions: SharedRows
    held: SharedRows
    segments: SharedRows
    unknown: Unknown


def answer_questions(ranges: Iterable[QuestionsToAnswer]) -> Iterator[ItemRows]:
    """Rows of `ANSWERED`, in the order of topic, partition, kind of question and target: one for each question and each
    source that holds the partition, or without a source where none does.
    """
    for key_range in ranges:
        answerer = _Answerer(_partitions(key_range), key_range.unknown)
        yield ItemRows(batches=(_staged(answerer.answer(batch)) for batch in key_range.questions.batches()))


def _partitions(key_range: QuestionsToAnswer) -> dict[tuple[str, int], list[CatalogedPartition]]:
    """The partitions in the catalog, of all sources, by topic and number."""
    segments = pa.Table.from_batches(key_range.segments.batches(), _SEARCHED).combine_chunks()
    of_partition = {
        tuple(segments[name][start].as_py() for name in PARTITIONS.key): segments.slice(start, end - start)
        for start, end in runs([segments[name].combine_chunks() for name in PARTITIONS.key])
    }
    none = _SEARCHED.empty_table()
    held: dict[tuple[str, int], list[CatalogedPartition]] = {}
    for facts in PartitionToSearch.of_arrow(pa.Table.from_batches(key_range.held.batches(), HELD)):
        rows = of_partition.get((facts.source, facts.topic, facts.partition), none)
        held.setdefault((facts.topic, facts.partition), []).append(CatalogedPartition(facts, rows))
    return held


@dataclass(frozen=True, slots=True)
class _Answerer:
    """Answers questions about some partitions. Their segments are opened once for all questions."""

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
        """Answer questions of one kind about one partition; the questions are sorted by their target."""
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
            note = self.unknown.get((topic, partition, wanted), _NO_PARTITION)
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


def held_partitions(tables: Tables, wanted: pa.Table, source: str | None) -> pa.Table:
    """Rows of `HELD` of some partitions, of all sources or of one, in the order of their keys.

    Args:
        wanted: their topics and numbers.
    """
    rows = _of(tables, PARTITIONS, HELD, wanted, _source(source))
    return rows.sort_by([(name, "ascending") for name in _OF_SOURCE])


def of_partitions(held: pa.Table, wanted: pa.Table) -> pa.Table:
    """The rows of some partitions, by their topics and numbers."""
    return held.filter(positions_in(held, wanted, _NAME) >= 0)


def segments_of(tables: Tables, held: pa.Table) -> pa.Table:
    """Rows of `_SEARCHED` of some partitions; those of a partition follow one another. A segment takes about 300 bytes.

    Args:
        held: rows of `HELD`.
    """
    if not held.num_rows:
        return _SEARCHED.empty_table()
    rows = _of(tables, SEGMENTS, _SEARCHED, held, [PRESENT], PARTITIONS.key)
    return rows.sort_by([(name, "ascending") for name in (*PARTITIONS.key, "base_offset")])


def unknown_partitions(tables: Tables, asked: pa.Table, held: pa.Table, source: str | None) -> Unknown:
    """The notes for the first hundred partitions that are asked about, but are not in the catalog or in the source.

    Args:
        asked: rows of `ASKED`.
        held: rows of `HELD`, all that were asked.
        source: the only one that is asked at all; None where each is.
    """
    of_any: Flags = asked["source"].is_null().to_numpy()
    of_one = asked.filter(~of_any)
    is_there = positions_in(asked, held, _NAME) >= 0
    is_there[~of_any] = positions_in(of_one, held, _OF_SOURCE) >= 0
    missing = asked.filter(~is_there)
    if not missing.num_rows:
        return {}
    known = KnownPartitions.of(tables.read(PARTITIONS, PARTITIONS.key))
    return {
        (row["topic"], row["partition"], row["source"]): known.why_unknown(
            TopicPartition(row["topic"], row["partition"]), row["source"] or source
        )
        for row in missing.slice(0, _EXPLAINED).to_pylist()
    }


def _of(
    tables: Tables,
    table: Table,
    schema: pa.Schema,
    wanted: pa.Table,
    where: list[Condition],
    by: tuple[str, ...] = _NAME,
) -> pa.Table:
    """The rows of a table that agree with some others in the columns `by`."""
    rows = tables.read(table, schema.names, [*scope_of({"wanted": wanted}, by), *where])
    return rows.filter(positions_in(rows, wanted, by) >= 0)


def _source(source: str | None) -> list[Condition]:
    return [] if source is None else [Among("source", (source,))]
