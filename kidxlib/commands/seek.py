"""`kidx seek`: where offsets and times are, for one question or for a file of millions, without a JVM."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from typing import Any, Final

import click
from click.core import ParameterSource

from kidxlib.errors import CheckpointError, NoSegmentsError, UsageError, describe_error
from kidxlib.format.checkpoint_files import HIGH_WATERMARK_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT
from kidxlib.format.segment_files import OFFSET_MAX
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.indexing.listing import list_distinct_partitions
from kidxlib.indexing.remote_logs import RemoteOptions
from kidxlib.indexing.source import PartitionDirectory, Source, source_at
from kidxlib.lookup.answers import TIMESTAMP
from kidxlib.lookup.cataloged_partitions import no_such_partition
from kidxlib.lookup.remote_log import remote_log
from kidxlib.lookup.seeker import Seeker
from kidxlib.operations.seek.one_question import Answer, NotAsked, answer_of, find_not_asked, result_of
from kidxlib.operations.seek.options import seek_options
from kidxlib.operations.seek.seek_request import Question, seek_request
from kidxlib.reading.absent import BrokersMetadata
from kidxlib.reading.of_log_dir import OfLogDirs
from kidxlib.run.known_topics import ensure_distinct
from kidxlib.run.result import RunResult
from kidxlib.run.run_report import reports_run_of
from kidxlib.storage.logs_aside import logs_aside, remedy_of
from kidxlib.storage.small_files import read_offset_checkpoint
from kidxlib.terminal.extras import needing_packages
from kidxlib.terminal.options import shared as shared_options
from kidxlib.terminal.options import sources as source_options
from kidxlib.terminal.options.given import first_given
from kidxlib.terminal.seek import show_answers

_OF_BUCKETS: Final = {"layout": "--layout", "tiered_metadata": "--tiered-metadata"}
#: What only a catalog is asked with, by its parameter.
_OF_CATALOGS: Final = {
    "source": "--source",
    "queries": "--queries",
    "output": "--output",
    "consumer_group_csv": "--consumer-group-csv",
    "settings_file": "--settings",
    "processes": "--processes",
}


@click.command(context_settings={"max_content_width": 110})
@click.argument("directories", metavar="[DIR…]", nargs=-1)
@click.option("--index-dir", metavar="DIR", help="The directory of the index files of DIR. [default: beside the logs]")
@source_options.layout
@source_options.tiered_metadata
@seek_options
@shared_options.processes
@reports_run_of("seek")
@click.pass_context
def seek(
    context: click.Context,
    /,
    directories: tuple[str, ...],
    catalog: str | None,
    index_dir: str | None,
    layout: str | None,
    tiered_metadata: tuple[str, ...],
    **options: Any,
) -> RunResult:
    """Say which batch holds an offset, and which record is the first of a time, as a broker would: in DIR…, the
    log dirs of a Kafka broker, one partition's directory or a bucket of tiered storage, or in a catalog.

    Exit codes: 0 answered; 2 wrong options or inputs, nothing done; 3 answered, but files are not as they should be,
    which notes say, or partitions are missing, which warnings say; 1 failed.
    """
    if (not directories) == (catalog is None):
        raise UsageError(f"{_one_of(catalog)}: a log dir, or --catalog DIR")
    if catalog is not None:
        if index_dir is not None:
            raise UsageError("--index-dir: the catalog knows where its indexes are; leave the option out")
        if (option := first_given(context, _OF_BUCKETS)) is not None:
            raise UsageError(f"{option}: the catalog knows what its sources are; leave the option out")
        with needing_packages("--catalog"):  # and 200 ms
            from kidxlib.commands.in_catalog.seek import seek_in_catalog
        given = context.get_parameter_source("settings_file") is ParameterSource.COMMANDLINE
        return seek_in_catalog(catalog, reads_settings=given, **options)
    for parameter, option in _OF_CATALOGS.items():
        if context.get_parameter_source(parameter) is ParameterSource.COMMANDLINE:
            raise UsageError(f"{option}: only for a catalog; name it with --catalog DIR")
    del options["settings_file"], options["processes"]
    sources = [source_at(each, remote=RemoteOptions(layout, tiered_metadata)) for each in directories]
    return _seek_in(sources, index_dir, **options)


def _seek_in(sources: Sequence[Source], index_dir: str | None, *, as_json: bool, **options: Any) -> RunResult:
    """Answer what log dirs of a broker, or partitions' directories, are asked."""
    ensure_distinct(sources)
    partitions = {found.topic_partition: found for found in list_distinct_partitions(sources)}
    # The directory's name says which it is.
    if [found.path for found in partitions.values()] == [source.path for source in sources] and len(sources) == 1:
        for name, value in asdict(*partitions).items():
            options[name] = value if options[name] is None else options[name]
    question = seek_request(**options).question
    assert question is not None
    chosen = [each for each in partitions if question.means(each.topic, each.partition)]
    log_dirs = [source.path for source in sources]
    brokers = BrokersMetadata([*log_dirs, *(source.log_dir for source in sources)])
    others = NotAsked()
    if question.is_wide or not chosen:
        others = find_not_asked(question, log_dirs, brokers, list(partitions))
    if not chosen:
        raise UsageError(f"{', '.join(map(str, log_dirs))}: {_why_none(question, partitions, others)}")
    asked = [replace(question, topic=each.topic, partition=each.partition) for each in chosen]
    of_log_dirs = OfLogDirs(log_dirs)
    answers = [
        _answer_in(partitions[each], one, index_dir, of_log_dirs, is_wide=question.is_wide)
        for each, one in zip(chosen, asked, strict=True)
    ]
    others = others.with_times(brokers, [(each, partitions[each].log_dir) for each in chosen])
    show_answers(answers, as_json, question.asked, is_wide=question.is_wide, left_out=others.as_json())
    others.show()
    return result_of(answers, lacks=others.is_problem)


def _why_none(question: Question, partitions: Iterable[TopicPartition], others: NotAsked) -> str:
    if question.topic is None:
        return "no partition in it; expected directories named <topic>-<partition>"
    wanted = TopicPartition(question.topic, question.partition or 0)
    if (where := others.why_not_in(wanted)) is not None:
        return where
    name_all = "; another log dir of its broker may have it: name all" if others.without_metadata else ""
    return no_such_partition(wanted, partitions) + name_all


def _answer_in(
    found: PartitionDirectory, question: Question, index_dir: str | None, of_log_dirs: OfLogDirs, *, is_wide: bool
) -> Answer:
    """The answer of one partition; of many, one that cannot be asked has that for its answer.

    Args:
        of_log_dirs: of all that were named.
    """
    wanted = found.topic_partition
    log_start = (read_offset_checkpoint(found.log_dir / LOG_START_OFFSET_CHECKPOINT) or {}).get(wanted, 0)
    high_watermark = None
    with contextlib.suppress(CheckpointError):  # it is for a note alone
        high_watermark = (read_offset_checkpoint(found.log_dir / HIGH_WATERMARK_CHECKPOINT) or {}).get(wanted)
    index_directory = None if index_dir is None else source_at(index_dir).path / wanted.directory
    seeker: Seeker | str
    try:
        if found.remote is not None:
            seeker = Seeker(remote_log(found, index_directory, by_time=question.query == TIMESTAMP))
        else:
            says = of_log_dirs.of_log(found.path, wanted, None, high_watermark)
            seeker = Seeker.of_directory(found.path, index_directory, log_start_offset=log_start, of_log_dir=says)
    except (OSError, NoSegmentsError) as error:  # its directory may not be listed, or has no log
        aside = remedy_of(logs_aside(found.path, 0, OFFSET_MAX)) if isinstance(error, NoSegmentsError) else None
        why = "; ".join(filter(None, (describe_error(error), aside)))
        if not is_wide:
            raise UsageError(f"{why}; nothing was answered") from error
        seeker = why
    return answer_of(seeker, question, found.source.name, high_watermark)


def _one_of(given: object) -> str:
    return "give one of these" if given is None else "give one of these, not both"
