"""Say where offsets and times are: for one question, or for a file of millions."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from jobs.common import shared_options
from jobs.common.answer_files import Format, refuse_existing, reset_offsets, write_answers
from jobs.common.catalog import Catalog
from jobs.common.cataloged_partitions import cataloged_partitions, known_partitions
from jobs.common.check_queries import check_queries
from jobs.common.driver_rows import of_driver
from jobs.common.observed import Ended, observed
from jobs.common.open_catalog import existing_catalog
from jobs.common.queries import Asked, asked, one_query, read_queries
from jobs.common.request import Where, absolute
from jobs.common.seek_on_executors import RESULT, Partitions, Unknown, answer_on_executors
from jobs.common.session import session
from jobs.common.settings import read_settings
from jobs.common.tables import PARTITIONS
from kidxlib.answers import OFFSET, TIMESTAMP
from kidxlib.cataloged import not_cataloged
from kidxlib.cli.whole_number import WholeNumber
from kidxlib.command import ExitCode, run
from kidxlib.console import print_json, print_line, warn
from kidxlib.errors import UsageError
from kidxlib.names import PARTITION_MAX, TopicPartition
from kidxlib.progress import begin_phase
from kidxlib.show_answers import show_answers
from kidxlib.times import parse_milliseconds

#: Partitions that the catalog does not have, for which the most similar names are looked up.
_EXPLAINED: Final = 100
#: Partitions without an offset to reset to that are named on screen.
_NAMED: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class SeekRequest:
    """What to answer.

    Attributes:
        question: topic, partition, kind and target of the command line; None where `queries` names a file.
        asked: its time, as it was typed.
        output: where the answers go; None for the screen.
        consumer_group_csv: where offsets to reset to go.
    """

    question: tuple[str, int, str, int] | None
    asked: str | None
    queries: str | None
    output: str | None
    consumer_group_csv: Path | None
    source: str | None


@click.command(context_settings={"max_content_width": 110})
@shared_options.catalog
@click.option("--database", metavar="NAME", help="A catalog in a database of Spark's metastore instead.")
@click.option("--source", metavar="NAME", help="Only this source. [default: each that holds the partition]")
@click.option("--topic", help="The topic.")
@click.option("--partition", type=WholeNumber(0, PARTITION_MAX), help="The partition's number.")
@click.option("--offset", type=WholeNumber(-(2**63), 2**63 - 1), help="Which batch holds this offset?")
@click.option(
    "--timestamp", metavar="TIME", help="Which is the first record of this time or later? ISO 8601 with a zone, or ms."
)
@click.option(
    "--queries",
    metavar="FILE",
    help="Many questions instead: .csv, .json, .parquet or a Delta table, with columns topic, partition, and offset or "
    "timestamp, and perhaps source.",
)
@click.option("--output", metavar="FILE", help="Where their answers go: .csv, .json, .parquet, else a Delta table.")
@click.option(
    "--consumer-group-csv",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write what kafka-consumer-groups --reset-offsets --from-file takes; one question a partition.",
)
@shared_options.settings_file
@shared_options.as_json
@observed
def seek(catalog: str | None, database: str | None, settings_file: Path, as_json: bool, **options: Any) -> Ended:
    """Say which batch holds an offset, and which record is the first of a time, as a broker would.

    Exit codes: 0 answered; 2 wrong options or inputs, nothing done; 3 answered, but files are not as they should be,
    which notes say; 1 failed.
    """
    request = _request(**options)
    where = Where.of(read_settings(settings_file), catalog, database, now=None).with_catalog()
    start = time.monotonic()
    changes = request.output is not None or request.consumer_group_csv is not None
    with session("seek", where.event_log_dir, changes=changes) as spark:
        if request.output is not None:
            refuse_existing(spark, request.output)
        opened = existing_catalog(spark, where.catalog, where.database)
        begin_phase("reading the questions")
        queries, wanted = _questions(spark, request)
        names = {TopicPartition(each.topic, each.partition) for each in wanted}
        partitions = cataloged_partitions(opened, names, request.source)
        if request.question is not None and not partitions:
            [wanted_one] = names
            known = [row.asDict() for row in opened.read(PARTITIONS).select(*PARTITIONS.key).collect()]
            raise UsageError(f"{opened.path}: {not_cataloged(wanted_one, request.source, known)}")
        if request.consumer_group_csv is not None:
            _refuse_ambiguous(wanted, partitions)
        begin_phase("answering")
        unknown = _unknown(opened, wanted, partitions, request.source)
        answers = answer_on_executors(queries, sum(each.queries for each in wanted), partitions, unknown)
        return _answer(spark, request, answers, partitions, unknown, start, as_json)


def _unknown(catalog: Catalog, wanted: Sequence[Asked], partitions: Partitions, source: str | None) -> Unknown:
    """What to say of partitions that are asked and that the catalog, or one source of it, does not have."""
    missing = [
        each
        for each in wanted
        if not any(
            each.source in (None, held.facts["source"]) for held in partitions.get((each.topic, each.partition), ())
        )
    ]
    if not missing:
        return {}
    known = known_partitions(catalog)
    return {
        (each.topic, each.partition, each.source): known.why_unknown(
            TopicPartition(each.topic, each.partition), each.source or source
        )
        for each in missing[:_EXPLAINED]
    }


def _request(
    source: str | None,
    topic: str | None,
    partition: int | None,
    offset: int | None,
    timestamp: str | None,
    queries: str | None,
    output: str | None,
    consumer_group_csv: Path | None,
) -> SeekRequest:
    """Put the options together.

    Raises:
        UsageError: they ask nothing, or too much.
    """
    if output is not None:
        Format.of(output)
    if consumer_group_csv is not None:
        _refuse_unwritable(consumer_group_csv)
    if queries is not None:
        if (topic, partition, offset, timestamp) != (None, None, None, None):
            raise UsageError("--queries: the file has the questions; give none beside it")
        if output is None and consumer_group_csv is None:
            raise UsageError("--queries: give --output FILE for the answers")
        question = None
    elif topic is None or partition is None or (offset is None) == (timestamp is None):
        raise UsageError("give --topic, --partition and one of --offset and --timestamp, or --queries FILE")
    elif offset is not None:
        question = topic, partition, OFFSET, offset
    else:
        assert timestamp is not None
        question = topic, partition, TIMESTAMP, parse_milliseconds(timestamp)
    if queries is not None:
        check_queries(absolute(queries))
    return SeekRequest(
        question=question,
        asked=timestamp,
        queries=None if queries is None else absolute(queries),
        output=None if output is None else absolute(output),
        consumer_group_csv=consumer_group_csv,
        source=source,
    )


def _refuse_unwritable(path: Path) -> None:
    if os.path.lexists(path):
        raise UsageError(f"--consumer-group-csv {path}: it is there already; expected a new name")
    if not os.path.isdir(path.parent):
        raise UsageError(f"--consumer-group-csv {path}: no folder {path.parent}; expected one that is there")


def _questions(spark: SparkSession, request: SeekRequest) -> tuple[DataFrame, list[Asked]]:
    """The questions, and which partitions they ask."""
    if request.question is not None:
        topic, partition, query, target = request.question
        return one_query(spark, topic, partition, query, target), [Asked(topic, partition, None, 1)]
    assert request.queries is not None
    queries = read_queries(spark, request.queries)
    wanted = asked(queries, request.queries)
    if not wanted:
        raise UsageError(f"--queries {request.queries}: no row in it")
    return queries.drop("wrong"), wanted


def _refuse_ambiguous(wanted: Sequence[Asked], partitions: Partitions) -> None:
    """Consumers of a partition can go on at one offset alone.

    Raises:
        UsageError: a partition is asked more than one thing, or several sources hold it.
    """
    queries = Counter[tuple[str, int]]()
    for each in wanted:
        queries[each.topic, each.partition] += each.queries
    for (topic, partition), count in queries.items():
        if count > 1:
            raise UsageError(f"--consumer-group-csv: {topic}-{partition} is asked {count} things, expected one")
        sources = [held.facts["source"] for held in partitions.get((topic, partition), ())]
        if len(sources) > 1:
            raise UsageError(
                f"--consumer-group-csv: {topic}-{partition} is in {', '.join(sources)}; pick one with --source"
            )


def _answer(
    spark: SparkSession,
    request: SeekRequest,
    answers: DataFrame,
    partitions: Partitions,
    unknown: Unknown,
    start: float,
    as_json: bool,
) -> Ended:
    """Answer, write, and say what came of it."""
    counted = Observation()
    answers = answers.observe(
        counted,
        F.count("*").alias("answers"),
        F.count_if("found").alias("found"),
        F.count_if(~F.col("answered")).alias("not_answered"),
        F.count_if("trouble").alias("trouble"),
        F.sum("bytes_read").alias("bytes_read"),
    )
    if request.question is not None or request.consumer_group_csv is not None:
        rows = [row.asDict() for row in answers.collect()]  # one for each partition and source
        answers = of_driver(spark, (tuple(row.values()) for row in rows), RESULT)
    if request.output is not None:
        write_answers(answers, request.output)
    if request.consumer_group_csv is not None:
        _write_reset_offsets(request.consumer_group_csv, rows, partitions)
    found = dict(counted.get)
    ended = Ended(
        code=ExitCode.NOT_WELL if found["trouble"] else ExitCode.OK,
        counts={name: found[name] for name in ("answers", "found", "not_answered", "trouble")},
        bytes=found["bytes_read"] or 0,
    )
    if request.question is not None:
        show_answers(rows, as_json, request.asked)
        return ended
    counts: dict[str, Any] = {
        **found,
        "seconds": round(time.monotonic() - start, 3),
        "output": request.output,
        "consumer_group_csv": None if request.consumer_group_csv is None else str(request.consumer_group_csv),
    }
    if as_json:
        print_json(counts)
    else:
        print_line(f"{counts['answers']:,} answers, {counts['found']:,} found, in {counts['seconds']:.1f} s")
        print_line(f"read {counts['bytes_read']:,} bytes of logs")
        _print_trouble(counts["not_answered"], counts["trouble"], unknown)
        for name in ("output", "consumer_group_csv"):
            if counts[name] is not None:
                print_line(f"{name.replace('_', ' ')}: {counts[name]}")
    return ended


def _print_trouble(not_answered: int, trouble: int, unknown: Unknown) -> None:
    if not_answered:
        print_line(f"{not_answered:,} not answered for certain: their notes say why")
    if trouble > not_answered:
        print_line(f"{trouble - not_answered:,} answered, with a note about a damaged file")
    for why in list(unknown.values())[:_NAMED]:
        print_line(f"  {why}")
    if len(unknown) > _NAMED:
        print_line(f"  … and more partitions that the catalog does not have: {len(unknown) - _NAMED:,}")


def _write_reset_offsets(path: Path, rows: Sequence[Mapping[str, Any]], partitions: Partitions) -> None:
    ends = {
        key: (held[0].facts["log_start_offset"] or 0, held[0].facts["log_end_offset"])
        for key, held in partitions.items()
    }
    left_out = []
    with path.open("x") as file:
        for topic, partition, offset in reset_offsets(iter(rows), ends):
            if offset is None:
                left_out.append(f"{topic}-{partition}")
            else:
                file.write(f"{topic},{partition},{offset}\n")
    if left_out:
        more = f" and {len(left_out) - _NAMED} more" if len(left_out) > _NAMED else ""
        warn(f"{path}: without {', '.join(left_out[:_NAMED])}{more}, whose offsets are not known")


if __name__ == "__main__":
    run(seek, "./spark-submit.sh seek")
