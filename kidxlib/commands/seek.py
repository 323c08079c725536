"""`kidx seek`, `./spark-submit.sh seek`: where offsets and times are, for one question or for a file of millions."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

import click

from kidxlib.commands.command import FIRST, KIDX, OnCatalog, kidx_command, open_here, option, parameter
from kidxlib.errors import CheckpointError, NoSegmentsError, UsageError, describe_error
from kidxlib.format.topic_partition import PARTITION_MAX, TopicPartition
from kidxlib.terminal import options as shared_options
from kidxlib.terminal.console import warn
from kidxlib.terminal.options import IntegerRange, needing_packages
from kidxlib.terminal.outcome import Outcome
from kidxlib.text.times import milliseconds_of, show_time

if TYPE_CHECKING:
    from kidxlib.indexing.source import PartitionDirectory, Source
    from kidxlib.lookup.seeker import Seeker
    from kidxlib.operations.backend import Backend
    from kidxlib.operations.seek.one_question import Answer, NotAsked, Question, SeekRequest
    from kidxlib.operations.seek.seek_files import SeekFilesElsewhere
    from kidxlib.reading.brokers_metadata import BrokersEvidence
    from kidxlib.run.context import RunContext

#: Options that only go with a bucket, and options that only go with a catalog.
_OF_BUCKETS: Final = ("layout", "tiered_metadata")
_OF_CATALOGS: Final = ("source", "queries", "output", "consumer_group_csv", "settings_file", "processes")
#: From 12 January 1970 to 3 March 1973 in milliseconds, and from 2001 on in seconds.
_MAYBE_SECONDS: Final = range(10**9, 10**11)


@dataclass(frozen=True, kw_only=True)
class SeekCommand(OnCatalog):
    """What to look for, and where.

    Attributes:
        directories: log dirs, or a partition's directory; empty in a job, which asks a catalog.
    """

    needs: ClassVar[str | None] = "--catalog"

    directories: tuple[str, ...] = parameter(
        click.argument("directories", metavar="[DIR…]", nargs=-1), only=KIDX, at=FIRST
    )
    index_dir: str | None = option(
        "--index-dir",
        metavar="DIR",
        help="The directory of the index files of DIR. [default: beside the logs]",
        only=KIDX,
        at=FIRST,
    )
    layout: str | None = parameter(shared_options.layout, only=KIDX, at=FIRST)
    tiered_metadata: tuple[str, ...] = parameter(shared_options.tiered_metadata, only=KIDX, at=FIRST)
    source: str | None = option(
        "--source", metavar="NAME", help="Only this source. [default: each that holds the partition]"
    )
    topic: str | None = option(
        "--topic",
        help="The topic. [default: that of DIR, if it is one partition's directory; for a --timestamp all topics]",
    )
    partition: int | None = option(
        "--partition",
        metavar="N",
        type=IntegerRange(0, PARTITION_MAX),
        help="The partition's number. [default: for a --timestamp all of the topic]",
    )
    offset: int | None = option(
        "--offset", metavar="OFFSET", type=IntegerRange(-(2**63), 2**63 - 1), help="Which batch holds this offset?"
    )
    timestamp: str | None = option(
        "--timestamp",
        metavar="TIME",
        help="Which is the first record of this time or later? ISO 8601 with a zone, or ms.",
    )
    queries: str | None = option(
        "--queries",
        metavar="FILE",
        help="Many questions instead: .csv, .json, .parquet or a Delta table, with columns topic, partition, and "
        "offset or timestamp, and perhaps source.",
    )
    output: str | None = option(
        "--output", metavar="FILE", help="Where their answers go: .csv, .json, .parquet, else a Delta table."
    )
    consumer_group_csv: Path | None = option(
        "--consumer-group-csv",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="Write what kafka-consumer-groups --reset-offsets --from-file takes; one question a partition.",
    )
    now: None = None

    def __post_init__(self) -> None:
        if not self.is_job and bool(self.directories) == (self.catalog is not None):
            both = ", not both" if self.directories else ""
            raise UsageError(f"give one of these{both}: a log dir, or --catalog DIR")
        if self.directories:
            self.refuse(_OF_CATALOGS, "{option}: only for a catalog; name it with --catalog DIR")
            return
        self.refuse(["index_dir"], "{option}: the catalog knows where its indexes are; leave the option out")
        self.refuse(_OF_BUCKETS, "{option}: the catalog knows what its sources are; leave the option out")
        _ = self.of_catalog  # what is wrong is told before anything is done

    @cached_property
    def context(self) -> RunContext:
        if self.is_job:
            return super().context
        from kidxlib.run.context import RunContext
        from kidxlib.storage.location import absolute_place

        if "settings_file" in self.given:
            _ = self.settings  # a seek whose catalog is given uses no setting; this only refuses a file with mistakes
        catalog = absolute_place(str(self.catalog))
        return RunContext(
            catalog=catalog, database=None, now=datetime.now(UTC), event_log_dir=None
        ).with_existing_catalog()

    @property
    def writes(self) -> bool:
        return not self.is_quick

    @property
    def is_quick(self) -> bool:
        """Whether one question is answered on screen, without the imports that many questions need."""
        return self.queries is None and self.output is None and self.consumer_group_csv is None

    @cached_property
    def of_catalog(self) -> SeekRequest:
        from kidxlib.operations.seek.one_question import SeekRequest
        from kidxlib.storage.location import absolute_place

        if self.output is not None:
            _ensure_name(self.output)
        if self.consumer_group_csv is not None:
            _ensure_writable(self.consumer_group_csv)
        question = None
        if self.queries is None:
            question = self.question(self.topic, self.partition)
        elif (self.topic, self.partition, self.offset, self.timestamp) != (None, None, None, None):
            raise UsageError("--queries: the file has the questions; give none beside it")
        elif self.output is None and self.consumer_group_csv is None:
            raise UsageError("--queries: give --output FILE for the answers")
        return SeekRequest(
            question=question,
            queries=None if self.queries is None else absolute_place(self.queries),
            output=None if self.output is None else absolute_place(self.output),
            consumer_group_csv=self.consumer_group_csv,
            source=self.source,
        )

    def question(self, topic: str | None, partition: int | None) -> Question:
        """The one question; `topic` and `partition` are from the options, or from the directory's name."""
        from kidxlib.lookup.answers import OFFSET, TIMESTAMP
        from kidxlib.operations.seek.one_question import Question

        offset, timestamp = self.offset, self.timestamp
        if offset is not None and timestamp is not None:
            raise UsageError("--offset and --timestamp: give one of them, not both")
        given = {"--topic": topic, "--partition": partition, "--offset or --timestamp": (offset, timestamp)}
        if timestamp is not None:  # a time may be asked of a topic, or of all
            given = {"--topic": topic} if partition is not None else {}
        missing = [option for option, value in given.items() if value in (None, (None, None))]
        if missing:
            raise UsageError(
                f"not given: {', '.join(missing)}; give --topic, --partition and one of --offset and --timestamp (a "
                "time may be asked of all partitions), or --queries FILE"
            )
        if offset is not None:
            return Question(topic=topic, partition=partition, query=OFFSET, target=offset, asked=None)
        assert timestamp is not None
        target = milliseconds_of("--timestamp", timestamp)
        if timestamp.isdigit() and target in _MAYBE_SECONDS:
            warn(
                f"--timestamp {timestamp}: {show_time(target)}, as it is in milliseconds; if these are seconds, add 000"
            )
        return Question(topic=topic, partition=partition, query=TIMESTAMP, target=target, asked=timestamp)


def _ensure_name(output: str) -> None:
    from kidxlib.operations.seek.seek_files import AnswerFormat
    from kidxlib.storage.location import ensure_text

    if AnswerFormat.of_path(output) is AnswerFormat.DELTA:
        ensure_text("--output ", output)


def _ensure_writable(path: Path) -> None:
    if os.path.lexists(path):
        raise UsageError(f"--consumer-group-csv {path}: it is there already; expected a new name")
    if not os.path.isdir(path.parent):
        raise UsageError(f"--consumer-group-csv {path}: no directory {path.parent}; expected one that is there")


def run_seek(request: SeekCommand, backend: Backend | None, elsewhere: SeekFilesElsewhere | None = None) -> Outcome:
    """Say which batch holds an offset, and which record is the first of a time, as a broker would: in DIR…, the
    log dirs of a Kafka broker, one partition's directory or a bucket of tiered storage, or in a catalog.

    Exit codes: 0 answered; 2 wrong options or inputs, nothing done; 3 answered, but files are not as they should be,
    which notes say, or partitions are missing, which warnings say; 1 failed.
    """
    if request.directories:
        return _seek_in(request, request.directories)
    seek_request = request.of_catalog
    if backend is None:
        from kidxlib.operations.seek.one_question import answers_of_catalog, outcome_of_answers

        with needing_packages("--catalog"):
            from kidxlib.tables.delta_tables import DeltaTables

        question, source = seek_request.question, seek_request.source
        assert question is not None and request.context.catalog is not None
        tables = DeltaTables(request.context.catalog)
        answers, not_asked = answers_of_catalog(tables, question, source)
        return outcome_of_answers(answers, question, not_asked)
    from kidxlib.operations.seek.many_questions import seek_in_catalog

    return seek_in_catalog(seek_request, backend, elsewhere)


def _seek_in(request: SeekCommand, directories: Sequence[str]) -> Outcome:
    from kidxlib.indexing.listing import SkippedEntries, list_distinct_partitions
    from kidxlib.indexing.source import RemoteOptions, ensure_distinct, source_at
    from kidxlib.operations.seek.one_question import NotAsked, find_not_asked, outcome_of_answers
    from kidxlib.reading.brokers_metadata import BrokersEvidence, BrokersMetadata
    from kidxlib.reading.left_out import folders_passed_over

    remote = RemoteOptions(request.layout, request.tiered_metadata)
    sources = [source_at(directory, remote=remote) for directory in directories]
    ensure_distinct(sources)
    skipped = SkippedEntries()
    partitions = {listed.topic_partition: listed for listed in list_distinct_partitions(sources, skipped)}
    question = _question_in(request, sources, partitions.values())
    chosen = [name for name in partitions if question.asks_for(name.topic, name.partition)]
    log_dirs = [source.path for source in sources]
    brokers = BrokersMetadata([*log_dirs, *(source.log_dir for source in sources)])
    others = NotAsked()
    if question.is_wide or not chosen:
        others = find_not_asked(question, log_dirs, brokers, list(partitions))
    if not chosen:
        raise UsageError(f"{', '.join(map(str, log_dirs))}: {_why_none(question, partitions, others)}")
    evidence_reader = BrokersEvidence(log_dirs)
    answers = [
        _answer_in(
            partitions[name],
            replace(question, topic=name.topic, partition=name.partition),
            request.index_dir,
            evidence_reader,
            is_wide=question.is_wide,
        )
        for name in chosen
    ]
    others = others.with_times(brokers, [(name, partitions[name].log_dir) for name in chosen])
    outcome = outcome_of_answers(answers, question, others)
    if question.is_wide:
        place = ", ".join(map(str, log_dirs))
        outcome.note(*folders_passed_over(place, skipped, partitions, chosen))
    return outcome


def _question_in(request: SeekCommand, sources: Sequence[Source], partitions: Iterable[PartitionDirectory]) -> Question:
    """The question. The name of a partition's directory says which partition it is."""
    topic, partition = request.topic, request.partition
    if [listed.path for listed in partitions] == [source.path for source in sources] and len(sources) == 1:
        [only] = partitions
        topic = only.topic_partition.topic if topic is None else topic
        partition = only.topic_partition.partition if partition is None else partition
    return request.question(topic, partition)


def _why_none(question: Question, partitions: Iterable[TopicPartition], others: NotAsked) -> str:
    from kidxlib.lookup.searched_partitions import no_such_partition
    from kidxlib.reading.left_out import remedy_of_unmounted

    unmounted = "" if others.unmounted is None else f"; {remedy_of_unmounted(others.unmounted)}"
    if question.topic is None:
        return f"no partition in it; expected directories named <topic>-<partition>{unmounted}"
    wanted = TopicPartition(question.topic, question.partition or 0)
    if (where := others.why_not_in(wanted)) is not None:
        return where
    name_all = "; another log dir of its broker may have it: name all" if others.without_metadata else ""
    return no_such_partition(wanted, partitions) + (unmounted or name_all)


def _answer_in(
    partition: PartitionDirectory,
    question: Question,
    index_dir: str | None,
    evidence_reader: BrokersEvidence,
    *,
    is_wide: bool,
) -> Answer:
    """The answer of one partition. If many are asked, the error of one that cannot be read becomes its answer."""
    from kidxlib.format.checkpoint_files import LOG_START_OFFSET_CHECKPOINT
    from kidxlib.indexing.source import source_at
    from kidxlib.lookup.answers import TIMESTAMP
    from kidxlib.lookup.checkpoint_evidence import checkpointed_high_watermark
    from kidxlib.lookup.searched_partitions import log_in_bucket
    from kidxlib.lookup.seeker import Seeker
    from kidxlib.operations.seek.one_question import answer_question
    from kidxlib.storage.logs_aside import LogsAside
    from kidxlib.storage.packed import given_packed

    name = partition.topic_partition
    high_watermark = checkpointed_high_watermark(partition.path, name, evidence_reader.offsets_in)
    index_directory = None
    if index_dir is not None:
        index_directory = (given_packed(index_dir) or source_at(index_dir).path) / name.directory
    seeker: Seeker | str
    try:
        if partition.remote is not None:
            seeker = Seeker(log_in_bucket(partition, index_directory, by_time=question.query == TIMESTAMP))
        else:
            evidence = evidence_reader.on_log(partition.path, name, None, high_watermark)
            starts = evidence_reader.offsets_in(partition.log_dir / LOG_START_OFFSET_CHECKPOINT) or {}
            log_start = starts.get(name, 0)
            seeker = Seeker.of_directory(
                partition.path, index_directory, log_start_offset=log_start, of_log_dir=evidence
            )
    except (OSError, NoSegmentsError, CheckpointError) as error:  # its directory may not be listed, or has no log
        aside = LogsAside().remedy_of_empty(partition.path) if isinstance(error, NoSegmentsError) else None
        why = "; ".join(filter(None, (describe_error(error), aside)))
        if not is_wide:
            raise UsageError(f"{why}; nothing was answered") from error
        seeker = why
    return answer_question(seeker, question, partition.source.name, high_watermark)


def _catalog_opened(request: SeekCommand) -> AbstractContextManager[Backend | None]:
    if request.directories or request.is_quick:
        return contextlib.nullcontext()
    return open_here(request)


seek = kidx_command("seek", SeekCommand, run_seek, opened=_catalog_opened, reports_as="seek")
