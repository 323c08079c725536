"""`kidx seek`: where offsets and times are, for one question or for a file of millions, without a JVM."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

import click
from click.core import ParameterSource

from kidxlib.build.listing import list_partitions
from kidxlib.build.remote_logs import RemoteOptions
from kidxlib.build.skipped import Skipped
from kidxlib.build.source import PartitionDirectory, Source, source_at
from kidxlib.errors import UsageError, describe_error
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.lookup.columns import TIMESTAMP
from kidxlib.lookup.known_partitions import no_such_partition
from kidxlib.lookup.remote_log import remote_log
from kidxlib.lookup.seeker import Seeker
from kidxlib.operations.seek.one_question import Answer, answer_of, result_of
from kidxlib.operations.seek.options import seek_options
from kidxlib.operations.seek.request import Question, seek_request
from kidxlib.run.result import RunResult
from kidxlib.run.run_report import reports_run_of
from kidxlib.storage.checkpoints import read_checkpoints
from kidxlib.terminal.extras import needing_packages
from kidxlib.terminal.options import shared as shared_options
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
@click.argument("directory", metavar="[DIR]", required=False)
@click.option("--index-dir", metavar="DIR", help="The directory of the index files of DIR. [default: beside the logs]")
@shared_options.layout
@shared_options.tiered_metadata
@seek_options
@shared_options.processes
@reports_run_of("seek")
@click.pass_context
def seek(
    context: click.Context,
    /,
    directory: str | None,
    catalog: str | None,
    index_dir: str | None,
    layout: str | None,
    tiered_metadata: tuple[str, ...],
    **options: Any,
) -> RunResult:
    """Say which batch holds an offset, and which record is the first of a time, as a broker would: in DIR, a Kafka log
    dir, one partition's directory or a bucket of tiered storage, or in a catalog.

    Exit codes: 0 answered; 2 wrong options or inputs, nothing done; 3 answered, but files are not as they should be,
    which notes say; 1 failed.
    """
    if (directory is None) == (catalog is None):
        raise UsageError(f"{_one_of(directory)}: a log dir, or --catalog DIR")
    if catalog is not None:
        if index_dir is not None:
            raise UsageError("--index-dir: the catalog knows where its indexes are; leave the option out")
        if (option := first_given(context, _OF_BUCKETS)) is not None:
            raise UsageError(f"{option}: the catalog knows what its sources are; leave the option out")
        with needing_packages("--catalog"):  # and 200 ms
            from kidxlib.cli.in_catalog.seek import seek_in_catalog
        given = context.get_parameter_source("settings_file") is ParameterSource.COMMANDLINE
        return seek_in_catalog(catalog, reads_settings=given, **options)
    for parameter, option in _OF_CATALOGS.items():
        if context.get_parameter_source(parameter) is ParameterSource.COMMANDLINE:
            raise UsageError(f"{option}: only for a catalog; name it with --catalog DIR")
    assert directory is not None
    as_json = options.pop("as_json")
    del options["settings_file"], options["processes"]
    source = source_at(directory, remote=RemoteOptions(layout, tiered_metadata))
    partitions = {found.topic_partition: found for found in list_partitions(source, Skipped())}
    if [found.path for found in partitions.values()] == [source.path]:  # the directory's name says which it is
        for name, value in asdict(*partitions).items():
            options[name] = value if options[name] is None else options[name]
    question = seek_request(**options).question
    assert question is not None
    answers = [_answer_in(source, partitions, question, index_dir)]
    show_answers(answers, as_json, question.asked)
    return result_of(answers)


def _answer_in(
    source: Source,
    partitions: Mapping[TopicPartition, PartitionDirectory],
    question: Question,
    index_dir: str | None,
) -> Answer:
    wanted = TopicPartition(question.topic, question.partition)
    found = partitions.get(wanted)
    if found is None:
        raise UsageError(f"{source.path}: {no_such_partition(wanted, partitions)}")
    start_offsets = read_checkpoints(found.log_dir).log_start_offsets or {}
    index_directory = None if index_dir is None else source_at(index_dir).path / wanted.directory
    try:
        if found.remote is not None:
            seeker = Seeker(remote_log(found, index_directory, by_time=question.query == TIMESTAMP))
        else:
            seeker = Seeker.of_directory(found.path, index_directory, log_start_offset=start_offsets.get(wanted, 0))
    except OSError as error:  # its directory may not be listed, or a log is a symlink that leads nowhere
        raise UsageError(f"{describe_error(error)}; nothing was answered") from error
    return answer_of(seeker, question, source.name)


def _one_of(given: object) -> str:
    return "give one of these" if given is None else "give one of these, not both"
