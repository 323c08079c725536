"""Answers questions from a catalog (`seek_in_catalog`): sorts many in the order of their answers, shares ranges of
equal length with workers, and writes the answers; also the offsets at which consumers should go on, as a file for
`kafka-consumer-groups`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.catalog.conditions import PRESENT, Among, Condition, scope_of
from kidxlib.catalog.matching import Flags, Longs, Values, numpy_of, positions_in, taken_at
from kidxlib.catalog.partitions import PARTITIONS
from kidxlib.catalog.rows import Table
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.engine.work import StagedRows, Work
from kidxlib.errors import KidxError, NotReadHereError, UsageError, describe_error
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.indexing.bins import BINS_PER_CORE
from kidxlib.lookup.answers import OFFSET
from kidxlib.lookup.searched_partitions import KnownPartitions
from kidxlib.operations.backend import Backend
from kidxlib.operations.seek.answer_work import (
    ANSWERED,
    KIND,
    PARTITIONS_TO_SEARCH,
    RESULT,
    SEGMENTS_TO_SEARCH,
    QuestionsToAnswer,
    Unknown,
    answer_questions,
)
from kidxlib.operations.seek.one_question import (
    Answer,
    Question,
    SeekRequest,
    answers_of_catalog,
    not_of_one_time_in,
    outcome_of_answers,
)
from kidxlib.operations.seek.seek_files import (
    SeekFilesElsewhere,
    ensure_new_output,
    is_elsewhere,
    not_reached,
    questions_in_one_table,
    questions_of_blocks,
    read_questions,
    write_answers,
)
from kidxlib.tables.protocol import Tables
from kidxlib.terminal import interrupts
from kidxlib.terminal.console import begin_phase, warn
from kidxlib.terminal.exit_codes import ExitCode
from kidxlib.terminal.outcome import Outcome

#: So few questions are answered faster than workers start: each reads about 12 kB of logs.
_FEW_QUESTIONS: Final = 5000
_INTERRUPTED: Final = "no answers were written; run the same command again"

#: The counts of a run, but for bytes.
_COUNTED = ("answers", "found", "not_answered", "file_error")

#: Partitions that are asked about, perhaps in one source alone, with the number of questions.
ASKED: Final = pa.schema(
    [
        *PARTITIONS.schema(("topic", "partition")),
        pa.field("source", pa.string()),
        pa.field("queries", pa.int64(), nullable=False),
    ]
)

#: So many questions are worth a unit of work.
_QUERIES_PER_RANGE: Final = 50_000
#: A range has so many questions at most, so that a worker needs seconds for it, and not minutes.
_QUERIES_PER_RANGE_MAX: Final = 1_000_000

_NAME: Final = ("topic", "partition")
_OF_SOURCE: Final = (*_NAME, "source")
#: Similar names are looked up for so many unknown partitions.
_EXPLAINED: Final = 100
#: So many partitions without an offset to reset to are named on screen.
_NAMED_ON_SCREEN: Final = 5


def seek_in_catalog(request: SeekRequest, backend: Backend, elsewhere: SeekFilesElsewhere | None) -> Outcome:
    """Answer questions, and write the answers. `elsewhere` reaches further places for both."""
    if request.output is not None:
        if not is_elsewhere(request.output):
            ensure_new_output(request.output)
        elif elsewhere is None:
            raise not_reached("--output", request.output)
        else:
            elsewhere.ensure_new(backend, request.output)
    with interrupts.telling(lambda: _INTERRUPTED):
        if request.question is not None:
            return _answer_one(request, request.question, backend, elsewhere)
        start = time.monotonic()
        begin_phase("reading the questions")
        questions = sorted_questions(_read(request, backend, elsewhere))
        return _answer_many(request, questions, backend, elsewhere, start=start)


def _read(request: SeekRequest, backend: Backend, elsewhere: SeekFilesElsewhere | None) -> pa.Table:
    assert request.queries is not None
    try:
        return read_questions(request.queries)
    except NotReadHereError:
        if elsewhere is None:
            raise
    blocks = elsewhere.read(backend, request.queries)
    return questions_in_one_table(request.queries, questions_of_blocks(request.queries, blocks, None))


def _answer_one(
    request: SeekRequest, question: Question, backend: Backend, elsewhere: SeekFilesElsewhere | None
) -> Outcome:
    tables = backend.catalog.tables
    answers, not_asked = answers_of_catalog(tables, question, request.source)
    lacks = None
    if request.output is not None or request.consumer_group_csv is not None:
        rows = pa.Table.from_pylist([dict(answer) for answer in answers], RESULT)
        if request.consumer_group_csv is not None:
            asked = _asked_of(answers)
            partitions = _partitions_to_search(tables, asked, request.source)
            ensure_unambiguous(asked, partitions)
            lacks = write_consumer_offsets(request.consumer_group_csv, rows, partitions, not_asked.of_topics)
        _write(request, backend, elsewhere, iter(rows.to_batches()))
    return outcome_of_answers(answers, question, not_asked, lacks=lacks)


def _asked_of(answers: Sequence[Answer]) -> pa.Table:
    """Rows of `ASKED` of answers to one question."""
    partitions = dict.fromkeys((answer["topic"], answer["partition"]) for answer in answers)
    rows = [{"topic": topic, "partition": number, "source": None, "queries": 1} for topic, number in partitions]
    return pa.Table.from_pylist(rows, ASKED)


def _answer_many(
    request: SeekRequest,
    questions: pa.Table,
    backend: Backend,
    elsewhere: SeekFilesElsewhere | None,
    *,
    start: float,
) -> Outcome:
    """Answer questions in order. `start` is when the run began, by the monotonic clock."""
    tables = backend.catalog.tables
    asked = asked_partitions(questions)
    partitions = _partitions_to_search(tables, asked, request.source)
    if request.consumer_group_csv is not None:
        ensure_unambiguous(asked, partitions)
    begin_phase("answering")
    unknown = _unknown_partitions(tables, asked, partitions, request.source)
    staged = _staged_answers(questions, partitions, unknown, backend)
    begin_phase("writing the answers")
    counts = _count_answers(staged)
    lacks = None
    if request.consumer_group_csv is not None:
        lacks = write_consumer_offsets(request.consumer_group_csv, staged.rows(KIND), partitions)
    _write(request, backend, elsewhere, staged.batches(KIND))
    not_asked = not_of_one_time_in(tables, partitions)
    fails = not_asked.is_problem or lacks or counts["file_error"]
    outcome = Outcome(
        code=ExitCode.PROBLEMS_FOUND if fails else ExitCode.OK,
        counts={name: counts[name] for name in _COUNTED},
        bytes=counts["bytes_read"],
    )
    tell_answer_counts(outcome, request, counts, unknown, round(time.monotonic() - start, 3))
    outcome.values.update(left_out=not_asked.as_json(), consumer_group_csv_lacks=lacks)
    not_asked.tell(outcome)
    return outcome


def _partitions_to_search(tables: Tables, wanted: pa.Table, source: str | None) -> pa.Table:
    """Rows of `PARTITIONS_TO_SEARCH` for workers: those of the wanted topics and numbers, of all sources or one,
    in the order of keys.
    """
    of_source = [] if source is None else [Among("source", (source,))]
    rows = _matching(tables, PARTITIONS, PARTITIONS_TO_SEARCH, wanted, of_source, _NAME)
    return rows.sort_by([(name, "ascending") for name in _OF_SOURCE])


def _partitions_named_in(partitions: pa.Table, wanted: pa.Table) -> pa.Table:
    return partitions.filter(positions_in(partitions, wanted, _NAME) >= 0)


def _segments_to_search(tables: Tables, partitions: pa.Table) -> pa.Table:
    """Rows of `SEGMENTS_TO_SEARCH` for workers, those of a partition one after another. A segment takes about
    300 bytes.
    """
    if not partitions.num_rows:
        return SEGMENTS_TO_SEARCH.empty_table()
    rows = _matching(tables, SEGMENTS, SEGMENTS_TO_SEARCH, partitions, [PRESENT], PARTITIONS.key)
    return rows.sort_by([(name, "ascending") for name in (*PARTITIONS.key, "base_offset")])


def _unknown_partitions(tables: Tables, asked: pa.Table, partitions: pa.Table, source: str | None) -> Unknown:
    """The notes with which workers answer for the first hundred partitions in `asked` (rows of `ASKED`) that are
    not in the catalog or in the source. `partitions` has all that were asked of; `source` is the only one that is asked
    at all, if one is.
    """
    of_any: Flags = asked["source"].is_null().to_numpy()
    of_one = asked.filter(~of_any)
    is_known = positions_in(asked, partitions, _NAME) >= 0
    is_known[~of_any] = positions_in(of_one, partitions, _OF_SOURCE) >= 0
    missing = asked.filter(~is_known)
    if not missing.num_rows:
        return {}
    known = KnownPartitions.from_rows(tables.read(PARTITIONS, PARTITIONS.key))
    return {
        (row["topic"], row["partition"], row["source"]): known.why_unknown(
            TopicPartition(row["topic"], row["partition"]), row["source"] or source
        )
        for row in missing.slice(0, _EXPLAINED).to_pylist()
    }


def _matching(
    tables: Tables,
    table: Table,
    schema: pa.Schema,
    wanted: pa.Table,
    where: Sequence[Condition],
    by: tuple[str, ...],
) -> pa.Table:
    """The rows of a table that agree with a wanted row in the columns `by`."""
    rows = tables.read(table, schema.names, [*scope_of({"wanted": wanted}, by), *where])
    return rows.filter(positions_in(rows, wanted, by) >= 0)


def _staged_answers(questions: pa.Table, partitions: pa.Table, unknown: Unknown, backend: Backend) -> StagedRows:
    """Rows of `ANSWERED`, in order."""
    engine = backend.engine
    is_small = questions.num_rows <= _FEW_QUESTIONS
    if not is_small:
        engine.start()
    units = [[to_answer] for to_answer in _units(questions, partitions, unknown, backend)]
    # An interruption need not wait for answers: they are written only if all are there.
    return engine.run(Work("seek", units, answer_questions, ANSWERED, is_small=is_small))


def _units(
    questions: pa.Table, partitions: pa.Table, unknown: Unknown, backend: Backend
) -> Iterator[QuestionsToAnswer]:
    """The ranges of questions, each with the catalog's rows of its partitions. Ranges of the same partitions share the
    rows.
    """
    engine, before = backend.engine, None
    for asking, asked in question_ranges(questions, engine.cores):
        if before is None or not asked.equals(before):
            before = asked
            of_range = _partitions_named_in(partitions, before)
            shared = engine.share(of_range), engine.share(_segments_to_search(backend.catalog.tables, of_range))
        yield QuestionsToAnswer(engine.share(asking), *shared, unknown)


def _write(
    request: SeekRequest, backend: Backend, elsewhere: SeekFilesElsewhere | None, answers: Iterator[pa.RecordBatch]
) -> None:
    if request.output is None:
        return
    if is_elsewhere(request.output):
        assert elsewhere is not None
        elsewhere.write(backend, answers, request.output)
    else:
        write_answers(answers, request.output)


def _count_answers(staged: StagedRows) -> dict[str, int]:
    """Counts of answers by their names in JSON; `bytes_read` is of logs."""
    flags = ["found", "answered", "file_error"]
    rows = staged.rows(KIND, [*flags, "bytes_read"])
    found, answered, file_error = (pc.sum(rows[name].cast(pa.int64())).as_py() or 0 for name in flags)
    return {
        "answers": rows.num_rows,
        "found": found,
        "not_answered": rows.num_rows - answered,
        "file_error": file_error,
        "bytes_read": pc.sum(rows["bytes_read"]).as_py() or 0,
    }


def tell_answer_counts(
    outcome: Outcome, request: SeekRequest, counts: Mapping[str, int], unknown: Unknown, seconds: float
) -> None:
    written = {
        "output": request.output,
        "consumer_group_csv": None if request.consumer_group_csv is None else str(request.consumer_group_csv),
    }
    outcome.values.update(**counts, seconds=seconds, **written)
    outcome.line(
        f"{counts['answers']:,} answers, {counts['found']:,} found, in {seconds:.1f} s",
        f"read {counts['bytes_read']:,} bytes of logs",
    )
    not_answered, noted = counts["not_answered"], counts["file_error"]
    if not_answered:
        outcome.line(f"{not_answered:,} not answered for certain: their notes say why")
    if noted > not_answered:
        outcome.line(f"{noted - not_answered:,} answered, with a note about a damaged file")
    outcome.line(*(f"  {why}" for why in list(unknown.values())[:_NAMED_ON_SCREEN]))
    if len(unknown) > _NAMED_ON_SCREEN:
        outcome.line(f"  … and more partitions that the catalog does not have: {len(unknown) - _NAMED_ON_SCREEN:,}")
    outcome.line(*(f"{name.replace('_', ' ')}: {path}" for name, path in written.items() if path is not None))


def sorted_questions(questions: pa.Table) -> pa.Table:
    """Rows of `QUESTIONS` in the order of topic, partition, kind of question and target."""
    key = _keys(questions)
    order = np.lexsort((numpy_of(questions["target"]), numpy_of(questions["by_time"]), key))
    return questions.take(order).combine_chunks()


def asked_partitions(questions: pa.Table) -> pa.Table:
    """Rows of `ASKED` of questions in order."""
    starts = _starts(_keys(questions))
    numbers = np.zeros(questions.num_rows, np.int64)
    numbers[starts[1:]] = 1
    group = np.cumsum(numbers)
    sources: Values = questions["source"].combine_chunks()
    of_source = np.from_dlpack(sources.indices.cast(pa.int64()).fill_null(-1))
    width = len(sources.dictionary) + 1
    pairs, counts = np.unique(group * width + of_source + 1, return_counts=True)
    first = questions.take(starts[pairs // width])
    of_pair: Values = pa.array(pairs % width - 1, mask=pairs % width == 0)
    source = sources.dictionary.take(of_pair)
    columns = [first["topic"].cast(pa.string()), first["partition"], source, pa.array(counts, pa.int64())]
    return pa.table(columns, schema=ASKED)


def question_ranges(questions: pa.Table, cores: int) -> Iterator[tuple[pa.Table, pa.Table]]:
    """Questions in order, in ranges of equal length: so many questions about one segment, or equal ones, are shared,
    too. Each range with the topics and numbers that it asks about, each once.
    """
    count = questions.num_rows
    ranges = min(-(-count // _QUERIES_PER_RANGE), cores * BINS_PER_CORE)
    ranges = max(ranges, -(-count // _QUERIES_PER_RANGE_MAX))
    for number in range(ranges):
        start, end = count * number // ranges, count * (number + 1) // ranges
        part = questions.take(np.arange(start, end))  # a slice would be pickled with the whole table
        first = part.take(_starts(_keys(part))).select(["topic", "partition"])
        yield part, first.cast(PARTITIONS.schema(("topic", "partition")))


def _keys(questions: pa.Table) -> Longs:
    """A number for each partition, in the order of topic and partition."""
    topics: Values = questions["topic"].combine_chunks()
    ranks = np.empty(len(topics.dictionary), np.int64)
    ranks[np.from_dlpack(pc.sort_indices(topics.dictionary))] = np.arange(len(ranks))
    of_topic: Longs = ranks[np.from_dlpack(topics.indices)]
    keys: Longs = (of_topic << 32) | numpy_of(questions["partition"])
    return keys


def _starts(keys: Longs) -> Longs:
    """The positions in sorted keys where each distinct key begins."""
    return np.concatenate([[0], np.flatnonzero(keys[1:] != keys[:-1]) + 1])


def ensure_unambiguous(asked: pa.Table, partitions: pa.Table) -> None:
    """Refuse several questions about one partition, or several sources that have it: consumers can go on at one offset
    only.
    """
    counts = asked.group_by(list(_NAME), use_threads=False).aggregate([("queries", "sum")])
    for row in counts.filter(pc.field("queries_sum") > 1).slice(0, 1).to_pylist():
        name = f"{row['topic']}-{row['partition']}"
        raise UsageError(f"--consumer-group-csv: {name} has {row['queries_sum']} questions, expected one")
    sources = partitions.group_by(list(_NAME), use_threads=False).aggregate([("source", "list"), ("source", "count")])
    for row in sources.filter(pc.field("source_count") > 1).slice(0, 1).to_pylist():
        name = f"{row['topic']}-{row['partition']}"
        raise UsageError(f"--consumer-group-csv: {name} is in {', '.join(row['source_list'])}; pick one with --source")


def _consumer_offsets(answers: pa.Table, partitions: pa.Table) -> Values:
    """The offsets at which consumers should go on, as `kafka-consumer-groups` would set them; null if not known. There
    is one answer for each partition.

    A consumer goes on at the offset of the question, or at the record that was found. As in Kafka's tool, an offset
    outside of the log becomes the nearer end of the log, and a time after the last record becomes the log end offset.
    """
    ends = taken_at(partitions, positions_in(answers, partitions, _NAME))
    # A checkpoint has the log start only if that is above the first segment's base offset.
    start: Values = pc.max_element_wise(ends["log_start_offset"], ends["first_base_offset"], pa.scalar(0, pa.int64()))
    end = ends["log_end_offset"]
    by_offset = pc.equal(answers["query"], pa.scalar(OFFSET))
    inside = pc.min_element_wise(pc.max_element_wise(answers["target"], start), end, skip_nulls=False)
    found = pc.if_else(by_offset, answers["target"], answers["offset"])
    nearest = pc.if_else(by_offset, inside, end)
    offsets: Values = pc.if_else(answers["found"], found, nearest)
    return pc.if_else(answers["answered"], offsets, pa.scalar(None, pa.int64()))


def write_consumer_offsets(
    path: Path, answers: pa.Table, partitions: pa.Table, not_asked: Sequence[TopicPartition] = ()
) -> int:
    """Write the known offsets, a line for each partition. Warns of partitions without one, as the consumer group would
    only be reset in part, and returns their number. `not_asked` are partitions of the same topics that nobody could
    ask.
    """
    rows = answers.append_column("goes_on_at", _consumer_offsets(answers, partitions))
    known = np.asarray(rows["goes_on_at"].is_valid().to_numpy())
    topic, partition, offset = (rows[name].filter(known).cast(pa.string()) for name in (*_NAME, "goes_on_at"))
    lines: Values = pc.call_function("binary_join_element_wise", [topic, partition, offset, ","], pc.JoinOptions())
    try:
        with path.open("x") as file:
            file.writelines(f"{line}\n" for line in lines.to_pylist())
    except OSError as error:
        raise KidxError(f"--consumer-group-csv {describe_error(error)}") from error
    left_out = rows.filter(~known)
    if left_out.num_rows:
        named = [f"{row['topic']}-{row['partition']}" for row in left_out.slice(0, _NAMED_ON_SCREEN).to_pylist()]
        warn(f"{path}: without {_few(named, left_out.num_rows)}, whose offsets are not known")
    if not_asked:
        named = [partition.directory for partition in not_asked[:_NAMED_ON_SCREEN]]
        warn(
            f"{path}: without {_few(named, len(not_asked))}, which no source that was asked has: a consumer group "
            "would be reset in part"
        )
    return left_out.num_rows + len(not_asked)


def _few(named: Sequence[str], count: int) -> str:
    more = f" and {count - len(named)} more" if count > len(named) else ""
    return f"{', '.join(named)}{more}"
