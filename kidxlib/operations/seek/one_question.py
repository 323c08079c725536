"""Answers one question in the command's own process, as starting a worker is not worth it. Also finds partitions that a
question is about and that are in none of the named places.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from kidxlib.catalog.conditions import PRESENT, Among, Condition
from kidxlib.catalog.partitions import PARTITIONS, PartitionToSearch
from kidxlib.catalog.segment_views import SegmentToSearch
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.errors import KidxError, UsageError
from kidxlib.format.topic_partition import INTERNAL_TOPICS, TopicPartition
from kidxlib.indexing.source import Source
from kidxlib.log.cluster_metadata.image import ClusterMetadata
from kidxlib.log.segment import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
)
from kidxlib.lookup.answers import OFFSET, RESULT_COLUMNS, TIMESTAMP
from kidxlib.lookup.cataloged_partitions import CatalogedPartition, not_cataloged
from kidxlib.lookup.seeker import Seeker, answer_all
from kidxlib.reading.absent import (
    BrokersMetadata,
    absent_partitions,
    log_dirs_without_metadata,
    may_be_elsewhere,
    not_of_one_time,
    numbered_below,
    of_other_topics,
    unmounted_in,
)
from kidxlib.reading.left_out import COPY_IT, LeftOut, Why, lines_of, mount
from kidxlib.reading.of_log_dir import OfLogDirs
from kidxlib.run.recorded_sources import as_sources, source_paths
from kidxlib.storage.location import Location, location
from kidxlib.tables.protocol import Tables
from kidxlib.terminal.exit_codes import ExitCode
from kidxlib.terminal.outcome import Outcome
from kidxlib.text.times import show_ms, show_time

#: An answer: the columns of a result, and `file_error`.
Answer = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question of a command line.

    Attributes:
        topic, partition: None for all topics, but for those that brokers keep for themselves, or all of a topic's
            partitions: only for a time.
        query: `offset` or `timestamp`.
        asked: its time, as it was typed.
    """

    topic: str | None
    partition: int | None
    query: str
    target: int
    asked: str | None

    @property
    def is_wide(self) -> bool:
        """Whether the question may be about many partitions."""
        return self.partition is None

    def means(self, topic: str, partition: int) -> bool:
        """Whether the question is about a partition."""
        if self.topic is None:
            return topic not in INTERNAL_TOPICS
        return topic == self.topic and self.partition in (None, partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeekRequest:
    """A question together with the places to ask.

    Attributes:
        question: None where `queries` names a file.
        queries: absolute path or URL of a file or a table.
        output: where the answers go, an absolute path or a URL; None for the screen.
        consumer_group_csv: where offsets to reset to go.
        source: the only one to be asked; None for each.
    """

    question: Question | None
    queries: str | None
    output: str | None
    consumer_group_csv: Path | None
    source: str | None


def answers_of_catalog(tables: Tables, question: Question, source: str | None) -> list[Answer]:
    """Answer a question from each source that has the partitions, or from one source."""
    conditions: list[Condition] = [] if source is None else [Among("source", (source,))]
    if question.topic is not None:
        conditions.append(Among("topic", (question.topic,)))
    if question.partition is not None:
        conditions.append(Among("partition", (question.partition,)))
    rows = PartitionToSearch.of_arrow(tables.read(PARTITIONS, PartitionToSearch.names(), conditions))
    held = [row for row in rows if question.means(row.topic, row.partition)]
    if not held:
        raise UsageError(f"--catalog {tables.path}: {_why_none(tables, question, source)}")
    of_log_dirs = OfLogDirs([path for path in map(location, source_paths(tables).values()) if isinstance(path, Path)])
    answers = []
    for row in sorted(held, key=lambda row: (row.topic, row.partition, row.source)):
        of_it = [Among("topic", (row.topic,)), Among("partition", (row.partition,)), Among("source", (row.source,))]
        segments = tables.read(SEGMENTS, SegmentToSearch.names(), [*of_it, PRESENT])
        asked = replace(question, topic=row.topic, partition=row.partition)
        partition, directory = TopicPartition(row.topic, row.partition), location(row.directory)
        says = of_log_dirs.of_log(directory, partition, row.first_base_offset, row.high_watermark)
        answers.append(answer_of(CatalogedPartition(row, segments).seeker(says), asked, row.source, row.high_watermark))
    return answers


@dataclass(frozen=True, slots=True)
class NotAsked:
    """Partitions that a question is about, but that did not answer, and signs that answers may be out of date.

    Attributes:
        left_out: partitions that the cluster's metadata gives to the brokers of the log dirs; and those that were asked
            in older log dirs.
        without_metadata: log dirs of which nobody can tell what else their brokers have.
        unmounted: log dirs that were asked and in which nothing is; None for none.
        of_topics: all partitions that are known to be of the topics, whichever broker has them, and were not asked.
        of_another_time: log dirs that may be older than others of their broker, a line each.
    """

    left_out: Sequence[LeftOut] = ()
    without_metadata: Sequence[Location] = ()
    unmounted: str | None = None
    of_topics: Sequence[TopicPartition] = ()
    of_another_time: Sequence[str] = ()

    @property
    def is_problem(self) -> bool:
        """Whether an asked log dir should have such a partition, or another log dir has one of a named topic; or an
        answer comes from an older log dir, or from a partition with another topic's id.
        """
        is_unknown = bool(self.without_metadata) and self.unmounted is not None
        return is_unknown or any(each.is_problem for each in self.left_out)

    def tell(self, outcome: Outcome) -> None:
        """Add notes and warnings, a line for each kind."""
        outcome.note(*lines_of(each for each in self.left_out if not each.is_problem))
        elsewhere = (may_be_elsewhere(each, self.unmounted) for each in self.without_metadata)
        (outcome.note if self.unmounted is None else outcome.warn)(*elsewhere)
        outcome.warn(*self.of_another_time)
        outcome.warn(*lines_of(each for each in self.left_out if each.is_problem))

    def as_json(self) -> list[dict[str, Any]]:
        return [
            {"topic": each.partition.topic, "partition": each.partition.partition, "why": each.why}
            for each in self.left_out
        ]

    def with_times(self, brokers: BrokersMetadata, asked: Iterable[tuple[TopicPartition, Location]]) -> NotAsked:
        """With what tells that log dirs are not of one time, and which partitions have another topic's id.

        Args:
            brokers: of all log dirs at hand.
            asked: the partitions that were asked, with their log dirs.
        """
        there = list(asked)
        left_out, of_another_time = not_of_one_time(brokers, there)
        left_out += of_other_topics(brokers, there)
        return replace(self, left_out=[*self.left_out, *left_out], of_another_time=of_another_time)

    def why_not_in(self, partition: TopicPartition) -> str | None:
        """Where a wanted partition is; None if it is not known."""
        for each in self.left_out:
            if each.partition == partition and each.why is Why.OTHER_LOG_DIR:
                name = "" if each.directory_id is None else f" (directory.id {each.directory_id})"
                return (
                    f"no partition {partition.directory} in it; by the cluster's metadata it is in another log dir of "
                    f"the broker{name}: {'name that one' if each.unmounted is None else mount(each.unmounted)}"
                )
            if each.partition == partition and each.aside is not None:
                return f"no partition {partition.directory} in it; there is {each.aside}: {COPY_IT}"
        return None


def find_not_asked(
    question: Question, log_dirs: Collection[Location], brokers: BrokersMetadata, there: Collection[TopicPartition]
) -> NotAsked:
    """Find partitions that a question is about by what log dirs know of their brokers.

    Args:
        log_dirs: those that were asked as a whole.
        brokers: of all log dirs at hand, one of which may have the cluster's metadata.
        there: partitions that were asked, or that have a directory.
    """

    def means(partition: TopicPartition) -> bool:
        return question.means(partition.topic, partition.partition)

    known = []
    for log_dir in log_dirs:
        with contextlib.suppress(OSError, KidxError):  # of a log dir of which nothing is known nothing is told
            owner = brokers.owner(log_dir)
            if owner.cluster_id is not None and (metadata := brokers.of_cluster(owner.cluster_id)) is not None:
                known.append(metadata.to_end)
    asked = set(there)
    of_topics = {each for each in _of_topics(known, there) if means(each)} - asked
    left_out = absent_partitions(log_dirs, means, brokers, asked, by_name=question.topic is not None)
    without_metadata = log_dirs_without_metadata(log_dirs, brokers)
    return NotAsked(left_out, without_metadata, unmounted_in(log_dirs), sorted(of_topics))


def _of_topics(known: Iterable[ClusterMetadata], there: Iterable[TopicPartition]) -> Iterator[TopicPartition]:
    """The partitions that exist by the metadata, and by the numbers of others: a topic's numbers begin at 0 without
    gaps.
    """
    for metadata in known:
        yield from metadata.assignments
    yield from numbered_below(there)


def not_asked_of(tables: Tables, question: Question, source: str | None, answers: Sequence[Answer]) -> NotAsked:
    """The partitions that answers leave out, by the sources on this machine."""
    here = _sources_here(tables)
    log_dirs = [each.path for name, each in here.items() if source in (None, name)]
    brokers = BrokersMetadata([*log_dirs, *(each.log_dir for each in here.values())])
    others = NotAsked()
    if question.is_wide:
        there = {TopicPartition(answer["topic"], answer["partition"]) for answer in answers}
        others = find_not_asked(question, log_dirs, brokers, there)
    return others.with_times(brokers, _with_log_dirs(answers, here))


def times_of(tables: Tables, held: pa.Table) -> NotAsked:
    """Signs that the log dirs of asked partitions are not of one time, or that partitions have another topic's id, by
    the log dirs on this machine.

    Args:
        held: the partitions, with their sources.
    """
    here = _sources_here(tables)
    brokers = BrokersMetadata(each.log_dir for each in here.values())
    return NotAsked().with_times(brokers, _with_log_dirs(held.select(PARTITIONS.key).to_pylist(), here))


def _sources_here(tables: Tables) -> dict[str, Source]:
    return {each.name: each for each in as_sources(source_paths(tables)) if isinstance(each.path, Path)}


def _with_log_dirs(
    rows: Iterable[Mapping[str, Any]], here: Mapping[str, Source]
) -> Iterator[tuple[TopicPartition, Location]]:
    """The partitions of rows of sources that are on this machine, with their log dirs."""
    for row in rows:
        if (source := here.get(row["source"])) is not None:
            yield TopicPartition(row["topic"], row["partition"]), source.log_dir


def _why_none(tables: Tables, question: Question, source: str | None) -> str:
    known = tables.read(PARTITIONS, PARTITIONS.key).to_pylist()
    if question.topic is not None:
        return not_cataloged(TopicPartition(question.topic, question.partition or 0), source, known)
    where = "it" if source is None else f"source {source}"
    return f"no partition in {where}; it has sources {', '.join(sorted({row['source'] for row in known})) or 'none'}"


def answer_of(seeker: Seeker | str, question: Question, source: str, high_watermark: int | None) -> Answer:
    """The answer of one source, or the reason why it has none.

    Args:
        question: of one partition.
        high_watermark: of the partition; None where nobody says it.
    """
    asked = {"topic": question.topic, "partition": question.partition, "query": question.query}
    [answer] = answer_all(seeker, question.query, np.array([question.target], np.int64)).to_pylist()
    offset = question.target if question.query == OFFSET else answer["offset"]
    if high_watermark is not None and answer["position"] is not None and offset >= high_watermark:
        beyond = f"above the high watermark {high_watermark}, so consumers may not have had it"
        answer["note"] = beyond if answer["note"] is None else f"{answer['note']}; {beyond}"
    return {**asked, "target": question.target, "source": source, **answer}


def outcome_of(answers: Sequence[Answer], question: Question, others: NotAsked, *, lacks: int | None = None) -> Outcome:
    """The outcome of a run with these answers.

    Args:
        others: partitions that the question means and that nobody asked.
        lacks: how many partitions `--consumer-group-csv` lacks; None where it is not asked for.
    """
    is_problem = bool(lacks) or others.is_problem or any(answer["file_error"] for answer in answers)
    outcome = Outcome(
        code=ExitCode.PROBLEMS_FOUND if is_problem else ExitCode.OK,
        counts={
            "answers": len(answers),
            "found": sum(answer["found"] for answer in answers),
            "not_answered": sum(not answer["answered"] for answer in answers),
            "file_error": sum(answer["file_error"] for answer in answers),
        },
        bytes=sum(answer["bytes_read"] for answer in answers),
    )
    with_source = len({answer["source"] for answer in answers}) > 1
    for answer in answers:
        lines = [_line(answer, with_source=with_source)] if question.is_wide else _lines(answer, question.asked)
        outcome.line(*lines)
    outcome.values.update(
        answers=[{column: answer[column] for column in RESULT_COLUMNS} for answer in answers],
        left_out=others.as_json(),
        empty_log_dirs=others.unmounted,
        consumer_group_csv_lacks=lacks,
    )
    others.tell(outcome)
    return outcome


#: The words for an answer, by whether something was found, and whether this is certain.
_OUTCOMES: Final = {
    (True, True): "found",
    (False, True): "not found",
    (True, False): "not certain",
    (False, False): "not answered",
}
#: The words for special times.
_TARGETS: Final = {
    LATEST: "the log end",
    EARLIEST: "the log start",
    MAX_TIMESTAMP: "the largest timestamp",
    EARLIEST_LOCAL: "the log start",
    LATEST_TIERED: "what is tiered",
    EARLIEST_PENDING_UPLOAD: "what is to be tiered",
}


def _line(answer: Answer, *, with_source: bool) -> str:
    """The partition, the offset and the timestamp of an answer, as far as it has them, and its note."""
    offset = _OUTCOMES[answer["found"], answer["answered"]] if answer["offset"] is None else answer["offset"]
    time = show_time(answer["timestamp"]) if answer["timestamp"] is not None and answer["timestamp"] >= 0 else ""
    source = f"{answer['source']}  " if with_source else ""
    line = f"{source}{answer['topic']}-{answer['partition']}  {offset}  {time}".rstrip()
    return line if answer["note"] is None else f"{line}  ({answer['note']})"


def _lines(answer: Answer, asked: str | None) -> Iterator[str]:
    """All values of an answer, a line each."""
    outcome = _OUTCOMES[answer["found"], answer["answered"]]
    target = _target(answer["target"], asked) if answer["query"] == TIMESTAMP else answer["target"]
    yield f"{answer['topic']}-{answer['partition']}, {answer['query']} {target}: {outcome}"
    for column in RESULT_COLUMNS[RESULT_COLUMNS.index("answered") + 1 :]:
        value = answer[column]
        if value is not None:
            shown = f"{value}  ({show_time(value)})" if column == "timestamp" and value >= 0 else value
            yield f"  {column:<20} {shown}"


def _target(target: int, asked: str | None) -> str:
    if asked is not None and asked != str(target):  # as ISO 8601
        return asked
    return f"{target} ({_TARGETS[target]})" if target in _TARGETS else show_ms(target)
