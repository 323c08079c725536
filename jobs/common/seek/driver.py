"""Answers questions, writes the answers, and says what came of it."""

from __future__ import annotations

import time
from typing import Any

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from jobs.common.catalog.open import existing_catalog
from jobs.common.seek.answers import ensure_new, write_answers
from jobs.common.seek.executors import RESULT, Partitions, Unknown, answer_on_executors
from jobs.common.seek.partitions import cataloged_partitions, unknown_partitions
from jobs.common.seek.queries import questions
from jobs.common.seek.request import SeekRequest
from jobs.common.seek.reset_offsets import NAMED_ON_SCREEN, ensure_unambiguous, write_reset_offsets
from jobs.common.spark.session import session
from kidxlib.catalog.partitions import PARTITIONS
from kidxlib.errors import UsageError
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.lookup.known_partitions import not_cataloged
from kidxlib.run.result import RunResult
from kidxlib.terminal.console import print_json, print_line
from kidxlib.terminal.exit_codes import ExitCode
from kidxlib.terminal.progress import begin_phase
from kidxlib.terminal.seek import show_answers

#: An answer, by the names of its columns.
_Row = dict[str, Any]


def run_seek(request: SeekRequest, *, as_json: bool) -> RunResult:
    start = time.monotonic()
    context = request.context
    changes = request.output is not None or request.consumer_group_csv is not None
    with session("seek", context.event_log_dir, changes=changes) as spark:
        if request.output is not None:
            ensure_new(spark, request.output)
        catalog = existing_catalog(spark, context.catalog, context.database)
        begin_phase("reading the questions")
        queries, wanted = questions(spark, request)
        names = {TopicPartition(each.topic, each.partition) for each in wanted}
        partitions = cataloged_partitions(catalog, names, request.source)
        if request.question is not None and not partitions:
            [wanted_one] = names
            known = [row.asDict() for row in catalog.read(PARTITIONS).select(*PARTITIONS.key).collect()]
            raise UsageError(f"{catalog.path}: {not_cataloged(wanted_one, request.source, known)}")
        if request.consumer_group_csv is not None:
            ensure_unambiguous(wanted, partitions)
        begin_phase("answering")
        unknown = unknown_partitions(catalog, wanted, partitions, request.source)
        answers = answer_on_executors(queries, sum(each.queries for each in wanted), partitions, unknown)
        found, rows = _answer(request, answers, partitions)
        if request.question is not None:
            show_answers(rows, as_json, request.asked)
        else:
            _show_counts(request, found, unknown, round(time.monotonic() - start, 3), as_json=as_json)
    return RunResult(
        code=ExitCode.PROBLEMS_FOUND if found["file_error"] else ExitCode.OK,
        counts={name: found[name] for name in ("answers", "found", "not_answered", "file_error")},
        bytes=found["bytes_read"] or 0,
    )


def _answer(request: SeekRequest, answers: DataFrame, partitions: Partitions) -> tuple[dict[str, int], list[_Row]]:
    """Compute the answers, and write them to where they were asked for.

    Returns:
        Counts by name, and the answers, where they are few: one for each partition and source.
    """
    counted = Observation()
    answers = answers.observe(
        counted,
        F.count("*").alias("answers"),
        F.count_if("found").alias("found"),
        F.count_if(~F.col("answered")).alias("not_answered"),
        F.count_if("file_error").alias("file_error"),
        F.sum("bytes_read").alias("bytes_read"),
    )
    rows: list[_Row] = []
    if request.question is not None or request.consumer_group_csv is not None:
        few = answers.toArrow()
        rows, answers = few.to_pylist(), answers.sparkSession.createDataFrame(few, RESULT)
    if request.output is not None:
        write_answers(answers, request.output)
    if request.consumer_group_csv is not None:
        write_reset_offsets(request.consumer_group_csv, rows, partitions)
    return dict(counted.get), rows


def _show_counts(
    request: SeekRequest, found: dict[str, int], unknown: Unknown, seconds: float, *, as_json: bool
) -> None:
    written = {
        "output": request.output,
        "consumer_group_csv": None if request.consumer_group_csv is None else str(request.consumer_group_csv),
    }
    if as_json:
        print_json({**found, "seconds": seconds, **written})
        return
    print_line(f"{found['answers']:,} answers, {found['found']:,} found, in {seconds:.1f} s")
    print_line(f"read {found['bytes_read']:,} bytes of logs")
    _print_notes(found["not_answered"], found["file_error"], unknown)
    for name, path in written.items():
        if path is not None:
            print_line(f"{name.replace('_', ' ')}: {path}")


def _print_notes(not_answered: int, noted: int, unknown: Unknown) -> None:
    if not_answered:
        print_line(f"{not_answered:,} not answered for certain: their notes say why")
    if noted > not_answered:
        print_line(f"{noted - not_answered:,} answered, with a note about a damaged file")
    for why in list(unknown.values())[:NAMED_ON_SCREEN]:
        print_line(f"  {why}")
    if len(unknown) > NAMED_ON_SCREEN:
        print_line(f"  … and more partitions that the catalog does not have: {len(unknown) - NAMED_ON_SCREEN:,}")
