"""Answers one question in the command's own process, as starting a worker is not worth it. Also finds the partitions
that a question is about and that nobody asked (`NotAsked`).
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
from kidxlib.catalog.segments import SEGMENTS, SegmentToSearch
from kidxlib.errors import KidxError, UsageError
from kidxlib.format.topic_partition import INTERNAL_TOPICS, TopicPartition
from kidxlib.indexing.source import Source
from kidxlib.log.segment import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
)
from kidxlib.lookup.answers import OFFSET, RESULT_COLUMNS, TIMESTAMP
from kidxlib.lookup.searched_partitions import CatalogedPartition, not_cataloged
from kidxlib.lookup.seeker import Seeker, seek_all
from kidxlib.reading.brokers_metadata import BrokersEvidence, BrokersMetadata, log_dirs_without_metadata
from kidxlib.reading.left_out import (
    COPY_IT,
    LeftOut,
    WhyLeftOut,
    absent_as_left_out,
    in_older_log_dirs,
    lines_of_left_out,
    may_be_elsewhere,
    other_topic_ids_as_left_out,
    partitions_numbered_below,
    remedy_of_unmounted,
    unmounted_log_dirs,
)
from kidxlib.run.sources import as_sources, source_paths
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
        topic: None for all topics but those that brokers keep for themselves: only for a time.
        partition: None for all partitions: only for a time.
        query: `offset` or `timestamp`.
        asked: the time as the user typed it.
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

    def asks_for(self, topic: str, partition: int) -> bool:
        if self.topic is None:
            return topic not in INTERNAL_TOPICS
        return topic == self.topic and self.partition in (None, partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeekRequest:
    """
    Attributes:
        question: None where `queries` names a file.
        queries: absolute path or URL of a file or a table.
        output: absolute path or URL for the answers; None for the screen.
        consumer_group_csv: the file for the offsets to reset to.
        source: the only one to be asked; None for all.
    """

    question: Question | None
    queries: str | None
    output: str | None
    consumer_group_csv: Path | None
    source: str | None


def answers_of_catalog(tables: Tables, question: Question, source: str | None) -> tuple[list[Answer], NotAsked]:
    """Answer a question from each source that has the partitions, or from one source; and find the partitions that the
    answers leave out, by the sources on this machine.
    """
    conditions: list[Condition] = [] if source is None else [Among("source", (source,))]
    if question.topic is not None:
        conditions.append(Among("topic", (question.topic,)))
    if question.partition is not None:
        conditions.append(Among("partition", (question.partition,)))
    rows = PartitionToSearch.of_arrow(tables.read(PARTITIONS, PartitionToSearch.names(), conditions))
    partitions = [row for row in rows if question.asks_for(row.topic, row.partition)]
    if not partitions:
        raise UsageError(f"--catalog {tables.path}: {_why_none(tables, question, source)}")
    here = _sources_here(tables)
    evidence_reader = BrokersEvidence([of_name.path for of_name in here.values()])
    answers = []
    for row in sorted(partitions, key=lambda row: (row.topic, row.partition, row.source)):
        key = [Among("topic", (row.topic,)), Among("partition", (row.partition,)), Among("source", (row.source,))]
        segments = tables.read(SEGMENTS, SegmentToSearch.names(), [*key, PRESENT])
        asked = replace(question, topic=row.topic, partition=row.partition)
        partition, directory = TopicPartition(row.topic, row.partition), location(row.directory)
        evidence = evidence_reader.on_log(directory, partition, row.first_base_offset, row.high_watermark)
        seeker = CatalogedPartition(row, segments).seeker(evidence)
        answers.append(answer_question(seeker, asked, row.source, row.high_watermark))
    return answers, _not_asked(question, source, answers, here)


@dataclass(frozen=True, slots=True)
class NotAsked:
    """Partitions that a question is about, but that did not answer, and signs that answers may be out of date.

    Attributes:
        left_out: partitions that the cluster's metadata gives to the brokers of the log dirs; and partitions that were
            asked in older log dirs.
        without_metadata: log dirs whose brokers may have more that nobody can tell of.
        unmounted: log dirs that were asked and are empty, if any.
        of_topics: all partitions of the topics that were not asked, whichever broker has them.
        of_another_time: log dirs that may be older than others of their broker, and copies of the metadata that cannot
            be read, so that older ones count; a line each.
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
        return is_unknown or any(left_out.is_problem for left_out in self.left_out)

    def tell(self, outcome: Outcome) -> None:
        """Add notes and warnings, a line for each kind."""
        outcome.note(*lines_of_left_out(left_out for left_out in self.left_out if not left_out.is_problem))
        elsewhere = (may_be_elsewhere(log_dir, self.unmounted) for log_dir in self.without_metadata)
        (outcome.note if self.unmounted is None else outcome.warn)(*elsewhere)
        outcome.warn(*self.of_another_time)
        outcome.warn(*lines_of_left_out(left_out for left_out in self.left_out if left_out.is_problem))

    def as_json(self) -> list[dict[str, Any]]:
        return [
            {"topic": left_out.partition.topic, "partition": left_out.partition.partition, "why": left_out.why}
            for left_out in self.left_out
        ]

    def with_times(self, brokers: BrokersMetadata, asked: Iterable[tuple[TopicPartition, Location]]) -> NotAsked:
        """With the signs that log dirs are not of one time, and the partitions that have another topic's id, among
        those that were asked in their log dirs.
        """
        with_log_dirs = list(asked)
        left_out, of_another_time = in_older_log_dirs(brokers, with_log_dirs)
        left_out += other_topic_ids_as_left_out(brokers, with_log_dirs)
        return replace(self, left_out=[*self.left_out, *left_out], of_another_time=of_another_time)

    def why_not_in(self, partition: TopicPartition) -> str | None:
        """Where a wanted partition is; None if it is not known."""
        for left_out in self.left_out:
            if left_out.partition == partition and left_out.why is WhyLeftOut.OTHER_LOG_DIR:
                name = "" if left_out.directory_id is None else f" (directory.id {left_out.directory_id})"
                remedy = "name that one" if left_out.unmounted is None else remedy_of_unmounted(left_out.unmounted)
                return (
                    f"no partition {partition.directory} in it; by the cluster's metadata it is in another log dir of "
                    f"the broker{name}: {remedy}"
                )
            if left_out.partition == partition and left_out.aside is not None:
                return f"no partition {partition.directory} in it; there is {left_out.aside}: {COPY_IT}"
        return None


def find_not_asked(
    question: Question, log_dirs: Collection[Location], brokers: BrokersMetadata, known: Collection[TopicPartition]
) -> NotAsked:
    """Find the partitions that a question is about and that are not `known`: neither asked, nor with a directory.
    `log_dirs` were asked as a whole; any log dir of `brokers` may have the cluster's metadata.
    """

    def asks_for(partition: TopicPartition) -> bool:
        return question.asks_for(partition.topic, partition.partition)

    # All partitions by the metadata, and by the numbers of others: a topic's numbers begin at 0 without gaps.
    # Only those that the question asks for are held: a directory's number may be any.
    existing = set(filter(asks_for, partitions_numbered_below(known)))
    for log_dir in log_dirs:
        with contextlib.suppress(OSError, KidxError):  # of a log dir of which nothing is known nothing is told
            owner = brokers.owner(log_dir)
            if owner.cluster_id is not None and (metadata := brokers.of_cluster(owner.cluster_id)) is not None:
                existing.update(filter(asks_for, metadata.to_end.assignments))
    asked = set(known)
    left_out = absent_as_left_out(log_dirs, asks_for, brokers, asked, by_name=question.topic is not None)
    without_metadata = log_dirs_without_metadata(log_dirs, brokers)
    return NotAsked(left_out, without_metadata, unmounted_log_dirs(log_dirs), sorted(existing - asked))


def _not_asked(
    question: Question, source: str | None, answers: Sequence[Answer], here: Mapping[str, Source]
) -> NotAsked:
    log_dirs = [of_name.path for name, of_name in here.items() if source in (None, name)]
    brokers = BrokersMetadata([*log_dirs, *(of_name.log_dir for of_name in here.values())])
    not_asked = NotAsked()
    if question.is_wide:
        answered = {TopicPartition(answer["topic"], answer["partition"]) for answer in answers}
        not_asked = find_not_asked(question, log_dirs, brokers, answered)
    return not_asked.with_times(brokers, _with_log_dirs(answers, here))


def not_of_one_time_in(tables: Tables, partitions: pa.Table) -> NotAsked:
    """Signs that answers to a question may be out of date: log dirs of partitions that are not of one time, or
    partitions that have another topic's id, by the log dirs on this machine.
    """
    here = _sources_here(tables)
    brokers = BrokersMetadata(source.log_dir for source in here.values())
    return NotAsked().with_times(brokers, _with_log_dirs(partitions.select(PARTITIONS.key).to_pylist(), here))


def _sources_here(tables: Tables) -> dict[str, Source]:
    return {source.name: source for source in as_sources(source_paths(tables)) if isinstance(source.path, Path)}


def _with_log_dirs(
    rows: Iterable[Mapping[str, Any]], here: Mapping[str, Source]
) -> Iterator[tuple[TopicPartition, Location]]:
    """The partitions of the rows whose sources are on this machine, with their log dirs."""
    for row in rows:
        if (source := here.get(row["source"])) is not None:
            yield TopicPartition(row["topic"], row["partition"]), source.log_dir


def _why_none(tables: Tables, question: Question, source: str | None) -> str:
    known = tables.read(PARTITIONS, PARTITIONS.key).to_pylist()
    if question.topic is not None:
        return not_cataloged(TopicPartition(question.topic, question.partition or 0), source, known)
    where = "it" if source is None else f"source {source}"
    return f"no partition in {where}; it has sources {', '.join(sorted({row['source'] for row in known})) or 'none'}"


def answer_question(seeker: Seeker | str, question: Question, source: str, high_watermark: int | None) -> Answer:
    """Answer one question of a command line about one partition from one source, or say why there is no answer."""
    asked = {"topic": question.topic, "partition": question.partition, "query": question.query}
    [answer] = seek_all(seeker, question.query, np.array([question.target], np.int64)).to_pylist()
    offset = question.target if question.query == OFFSET else answer["offset"]
    if high_watermark is not None and answer["position"] is not None and offset >= high_watermark:
        beyond = f"above the high watermark {high_watermark}, so consumers may not have had it"
        answer["note"] = beyond if answer["note"] is None else f"{answer['note']}; {beyond}"
    return {**asked, "target": question.target, "source": source, **answer}


def outcome_of_answers(
    answers: Sequence[Answer], question: Question, not_asked: NotAsked, *, lacks: int | None = None
) -> Outcome:
    """The outcome of the answers to one question. `lacks` is the number of partitions that `--consumer-group-csv`
    lacks, if it was given.
    """
    is_problem = bool(lacks) or not_asked.is_problem or any(answer["file_error"] for answer in answers)
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
        left_out=not_asked.as_json(),
        empty_log_dirs=not_asked.unmounted,
        consumer_group_csv_lacks=lacks,
    )
    not_asked.tell(outcome)
    return outcome


#: The words for an answer, by whether a record was found, and whether this is certain.
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
