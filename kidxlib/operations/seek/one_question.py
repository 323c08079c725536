"""One question, answered by the command itself: no worker is worth starting for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from kidxlib.catalog.conditions import PRESENT, Among
from kidxlib.catalog.partitions import PARTITIONS, PartitionToSearch
from kidxlib.catalog.segment_views import SegmentToSearch
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.errors import UsageError
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.lookup.known_partitions import not_cataloged
from kidxlib.lookup.partition import CatalogedPartition
from kidxlib.lookup.seeker import Seeker, answer_all
from kidxlib.operations.seek.request import Question
from kidxlib.run.result import RunResult
from kidxlib.tables.protocol import Tables
from kidxlib.terminal.exit_codes import ExitCode

#: An answer: the columns of a result, and `file_error`.
Answer = Mapping[str, Any]


def answers_of_catalog(tables: Tables, question: Question, source: str | None) -> list[Answer]:
    """The answer of each source that holds the partition, or of one.

    Raises:
        UsageError: none holds it.
        CatalogError: a table cannot be read.
    """
    of_it = [Among("topic", (question.topic,)), Among("partition", (question.partition,))]
    of_source = [] if source is None else [Among("source", (source,))]
    held = PartitionToSearch.of_arrow(tables.read(PARTITIONS, PartitionToSearch.names(), [*of_it, *of_source]))
    if not held:
        known = tables.read(PARTITIONS, PARTITIONS.key).to_pylist()
        wanted = TopicPartition(question.topic, question.partition)
        raise UsageError(f"--catalog {tables.path}: {not_cataloged(wanted, source, known)}")
    answers = []
    for row in sorted(held, key=lambda row: row.source):
        present = [*of_it, Among("source", (row.source,)), PRESENT]
        segments = tables.read(SEGMENTS, SegmentToSearch.names(), present)
        answers.append(answer_of(CatalogedPartition(row, segments).seeker(), question, row.source))
    return answers


def answer_of(seeker: Seeker | str, question: Question, source: str) -> Answer:
    """The answer of one source, or the reason why there is none."""
    asked = {"topic": question.topic, "partition": question.partition, "query": question.query}
    [answer] = answer_all(seeker, question.query, np.array([question.target], np.int64)).to_pylist()
    return {**asked, "target": question.target, "source": source, **answer}


def result_of(answers: list[Answer]) -> RunResult:
    """How a run ended that gave these answers."""
    return RunResult(
        code=ExitCode.PROBLEMS_FOUND if any(answer["file_error"] for answer in answers) else ExitCode.OK,
        counts={
            "answers": len(answers),
            "found": sum(answer["found"] for answer in answers),
            "not_answered": sum(not answer["answered"] for answer in answers),
            "file_error": sum(answer["file_error"] for answer in answers),
        },
        bytes=sum(answer["bytes_read"] for answer in answers),
    )
