"""Seeks from the questions to the last answer."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa

from kidxlib.engine.staged import Staged
from kidxlib.engine.work import SMALL_BYTES, Work
from kidxlib.errors import NotReadHereError
from kidxlib.operations.backend import Backend, OpenBackend
from kidxlib.operations.seek.answer_work import ANSWERED, KIND, RESULT, QuestionsToAnswer, answer_questions
from kidxlib.operations.seek.catalog_rows import (
    Unknown,
    held_partitions,
    of_partitions,
    segments_of,
    unknown_partitions,
)
from kidxlib.operations.seek.consumer_offsets import ensure_unambiguous, write_consumer_offsets
from kidxlib.operations.seek.elsewhere import Elsewhere, is_elsewhere, not_reached
from kidxlib.operations.seek.key_ranges import ASKED, asked_partitions, in_order, key_ranges
from kidxlib.operations.seek.one_question import Answer, answers_of_catalog, not_asked_of, result_of, times_of
from kidxlib.operations.seek.output import ensure_new, write_answers
from kidxlib.operations.seek.questions import of_blocks, one_table, read_questions
from kidxlib.operations.seek.report import count_answers, show_counts
from kidxlib.operations.seek.report import result_of as result_of_counts
from kidxlib.operations.seek.request import Question, SeekRequest
from kidxlib.run.result import RunResult
from kidxlib.terminal import interrupts
from kidxlib.terminal.progress import begin_phase
from kidxlib.terminal.seek import show_answers

#: What a question reads of logs, about: where they are few, the command answers them itself.
_BYTES_PER_QUESTION: Final = 12_000
_INTERRUPTED: Final = "no answers were written; run the same command again"


def run_seek(
    request: SeekRequest, open_backend: OpenBackend, *, as_json: bool, elsewhere: Elsewhere | None = None
) -> RunResult:
    """Answer questions, write the answers, and say what came of it.

    Args:
        open_backend: called once the questions are read and known to be right.
        elsewhere: reaches further places for questions and answers; None where nobody does.

    Raises:
        UsageError: a question is wrong, or answers cannot go where they are to; nothing was answered.
    """
    if request.output is not None:
        if not is_elsewhere(request.output):
            ensure_new(request.output)
        elif elsewhere is None:
            raise not_reached("--output", request.output)
    with interrupts.telling(lambda: _INTERRUPTED):
        if request.question is not None:
            with open_backend() as backend:
                _ensure_new_elsewhere(request, backend, elsewhere)
                return _answer_one(request, request.question, backend, elsewhere, as_json=as_json)
        start = time.monotonic()
        begin_phase("reading the questions")
        questions = _read_here(request, elsewhere)
        with open_backend() as backend:
            _ensure_new_elsewhere(request, backend, elsewhere)
            if questions is None:
                questions = _read_elsewhere(request, backend, elsewhere)
            return _answer_many(request, in_order(questions), backend, elsewhere, start=start, as_json=as_json)


def _ensure_new_elsewhere(request: SeekRequest, backend: Backend, elsewhere: Elsewhere | None) -> None:
    if request.output is not None and is_elsewhere(request.output):
        assert elsewhere is not None
        elsewhere.ensure_new(backend, request.output)


def _read_here(request: SeekRequest, elsewhere: Elsewhere | None) -> pa.Table | None:
    """The questions of a file; None where only somebody else can read it."""
    assert request.queries is not None
    try:
        return read_questions(request.queries)
    except NotReadHereError:
        if elsewhere is None:
            raise
        return None


def _read_elsewhere(request: SeekRequest, backend: Backend, elsewhere: Elsewhere | None) -> pa.Table:
    assert request.queries is not None and elsewhere is not None
    blocks = elsewhere.read(backend, request.queries)
    return one_table(request.queries, of_blocks(request.queries, blocks, None))


def _answer_one(
    request: SeekRequest, question: Question, backend: Backend, elsewhere: Elsewhere | None, *, as_json: bool
) -> RunResult:
    tables = backend.catalog.tables
    answers = answers_of_catalog(tables, question, request.source)
    others = not_asked_of(tables, question, request.source, answers)
    lacks = others.is_problem
    if request.output is not None or request.consumer_group_csv is not None:
        rows = pa.Table.from_pylist([dict(answer) for answer in answers], RESULT)
        if request.consumer_group_csv is not None:
            asked = _asked_of(answers)
            held = held_partitions(tables, asked, request.source)
            ensure_unambiguous(asked, held)
            is_whole = write_consumer_offsets(request.consumer_group_csv, rows, held, others.of_topics)
            lacks = lacks or not is_whole
        _write(request, backend, elsewhere, iter(rows.to_batches()))
    show_answers(answers, as_json, question.asked, is_wide=question.is_wide, left_out=others.as_json())
    others.show()
    return result_of(answers, lacks=lacks)


def _asked_of(answers: Sequence[Answer]) -> pa.Table:
    """Rows of `ASKED` of answers to one question."""
    partitions = dict.fromkeys((answer["topic"], answer["partition"]) for answer in answers)
    rows = [{"topic": topic, "partition": number, "source": None, "queries": 1} for topic, number in partitions]
    return pa.Table.from_pylist(rows, ASKED)


def _answer_many(
    request: SeekRequest,
    questions: pa.Table,
    backend: Backend,
    elsewhere: Elsewhere | None,
    *,
    start: float,
    as_json: bool,
) -> RunResult:
    """
    Args:
        questions: in order.
        start: when the run began, by the monotonic clock.
    """
    tables = backend.catalog.tables
    asked = asked_partitions(questions)
    held = held_partitions(tables, asked, request.source)
    if request.consumer_group_csv is not None:
        ensure_unambiguous(asked, held)
    begin_phase("answering")
    unknown = unknown_partitions(tables, asked, held, request.source)
    staged = _answered(questions, held, unknown, backend)
    begin_phase("writing the answers")
    counts = count_answers(staged)
    is_whole = True
    if request.consumer_group_csv is not None:
        is_whole = write_consumer_offsets(request.consumer_group_csv, staged.rows(KIND), held)
    _write(request, backend, elsewhere, staged.batches(KIND))
    show_counts(request, counts, unknown, round(time.monotonic() - start, 3), as_json=as_json)
    times = times_of(tables, held)
    times.show()
    return result_of_counts(counts, lacks=times.is_problem or not is_whole)


def _answered(questions: pa.Table, held: pa.Table, unknown: Unknown, backend: Backend) -> Staged:
    """Rows of `ANSWERED`, in order."""
    engine = backend.engine
    question_bytes = questions.num_rows * _BYTES_PER_QUESTION
    if question_bytes > SMALL_BYTES:
        engine.start()
    units = [[each] for each in _units(questions, held, unknown, backend)]
    # An interruption does not wait for answers: without all of them none is written.
    return engine.run(Work("seek", units, answer_questions, ANSWERED, bytes=question_bytes))


def _units(questions: pa.Table, held: pa.Table, unknown: Unknown, backend: Backend) -> Iterator[QuestionsToAnswer]:
    """The key ranges, each with what is known of the partitions that it asks. Those that ask the same share it."""
    engine, before = backend.engine, None
    for key_range in key_ranges(questions, engine.cores):
        if before is None or not key_range.partitions.equals(before):
            before = key_range.partitions
            of_range = of_partitions(held, before)
            known = engine.share(of_range), engine.share(segments_of(backend.catalog.tables, of_range))
        yield QuestionsToAnswer(engine.share(key_range.questions), *known, unknown)


def _write(
    request: SeekRequest, backend: Backend, elsewhere: Elsewhere | None, answers: Iterator[pa.RecordBatch]
) -> None:
    """Write rows of `RESULT` where they were asked for; where they were not, nowhere."""
    if request.output is None:
        return
    if is_elsewhere(request.output):
        assert elsewhere is not None
        elsewhere.write(backend, answers, request.output)
    else:
        write_answers(answers, request.output)
