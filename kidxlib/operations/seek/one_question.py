"""One question, answered by the command itself: no worker is worth starting for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.build.source import Source
from kidxlib.catalog.conditions import PRESENT, Among, Condition
from kidxlib.catalog.partitions import PARTITIONS, PartitionToSearch
from kidxlib.catalog.segment_views import SegmentToSearch
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.errors import UsageError
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.lookup.answers import OFFSET
from kidxlib.lookup.cataloged_partitions import CatalogedPartition, not_cataloged
from kidxlib.lookup.seeker import Seeker, answer_all
from kidxlib.operations.seek.not_asked import NotAsked, find_not_asked
from kidxlib.operations.seek.request import Question
from kidxlib.reading.brokers_metadata import BrokersMetadata
from kidxlib.reading.of_log_dir import OfLogDirs
from kidxlib.run.recorded_sources import as_sources, source_paths
from kidxlib.run.result import RunResult
from kidxlib.storage.location import Location, location
from kidxlib.tables.protocol import Tables
from kidxlib.terminal.exit_codes import ExitCode

#: An answer: the columns of a result, and `file_error`.
Answer = Mapping[str, Any]


def answers_of_catalog(tables: Tables, question: Question, source: str | None) -> list[Answer]:
    """The answers of each source that holds the partition, or the partitions, or of one source.

    Raises:
        UsageError: none holds one.
        CatalogError: a table cannot be read.
    """
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


def not_asked_of(tables: Tables, question: Question, source: str | None, answers: Sequence[Answer]) -> NotAsked:
    """What answers leave out, as far as sources that are on this machine know."""
    here = _sources_here(tables)
    log_dirs = [each.path for name, each in here.items() if source in (None, name)]
    brokers = BrokersMetadata([*log_dirs, *(each.log_dir for each in here.values())])
    others = NotAsked()
    if question.is_wide:
        there = {TopicPartition(answer["topic"], answer["partition"]) for answer in answers}
        others = find_not_asked(question, log_dirs, brokers, there)
    return others.with_times(brokers, _with_log_dirs(answers, here))


def times_of(tables: Tables, held: pa.Table) -> NotAsked:
    """What tells that log dirs of partitions that were asked are not of one time, as far as they are on this machine.

    Args:
        held: the partitions, with their sources.
    """
    here = _sources_here(tables)
    brokers = BrokersMetadata(each.log_dir for each in here.values())
    older = brokers.older()
    names = [name for name, each in here.items() if each.log_dir in older]
    in_older = held.filter(pc.is_in(held["source"], pa.array(names, pa.string()))).to_pylist()
    return NotAsked().with_times(brokers, _with_log_dirs(in_older, here))


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
    """The answer of one source, or the reason why there is none.

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


def result_of(answers: list[Answer], *, lacks: bool = False) -> RunResult:
    """How a run ended that gave these answers.

    Args:
        lacks: partitions are missing that ought to have been asked.
    """
    return RunResult(
        code=ExitCode.PROBLEMS_FOUND if lacks or any(answer["file_error"] for answer in answers) else ExitCode.OK,
        counts={
            "answers": len(answers),
            "found": sum(answer["found"] for answer in answers),
            "not_answered": sum(not answer["answered"] for answer in answers),
            "file_error": sum(answer["file_error"] for answer in answers),
        },
        bytes=sum(answer["bytes_read"] for answer in answers),
    )
