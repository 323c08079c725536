"""`kidx seek`: where is offset N, where is time T, without a JVM."""

from __future__ import annotations

import click
import numpy as np

from kidxlib.build.listing import Skipped, list_partitions
from kidxlib.build.source import source_at
from kidxlib.errors import UsageError, describe_error
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.lookup.known_partitions import no_such_partition
from kidxlib.lookup.seeker import Seeker, answer_all
from kidxlib.storage.checkpoints import read_checkpoints
from kidxlib.terminal.exit_codes import ExitCode
from kidxlib.terminal.extras import needing_packages
from kidxlib.terminal.options import shared as shared_options
from kidxlib.terminal.options.integer_range import IntegerRange
from kidxlib.terminal.seek import show_answers
from kidxlib.times import parse_milliseconds


@click.command()
@click.argument("directory", metavar="[DIR]", required=False)
@click.option("--catalog", metavar="DIR", help="Ask the catalog in this directory instead of a log dir.")
@click.option("--index-dir", metavar="DIR", help="The directory of the index files of DIR. [default: beside the logs]")
@click.option("--source", metavar="NAME", help="With --catalog: only this source.")
@click.option("--topic", required=True, help="The topic.")
@click.option("--partition", metavar="N", type=IntegerRange(0), required=True, help="The partition's number.")
@click.option(
    "--offset",
    metavar="OFFSET",
    type=IntegerRange(-(2**63), 2**63 - 1),
    help="The offset to look up: which batch holds it?",
)
@click.option(
    "--timestamp",
    metavar="TIME",
    help="The time to look up: which is the first record of that time or later? ISO 8601 or ms.",
)
@shared_options.as_json
def seek(
    directory: str | None,
    catalog: str | None,
    index_dir: str | None,
    source: str | None,
    topic: str,
    partition: int,
    offset: int | None,
    timestamp: str | None,
    as_json: bool,
) -> ExitCode:
    """Say where an offset or a time is, in DIR, a Kafka log dir or one partition's directory, or in a catalog.

    Exit codes: 0 answered; 2 wrong options or inputs; 3 a file is damaged or has changed: the note says which, and the
    first line whether the question is answered.
    """
    if (directory is None) == (catalog is None):
        raise UsageError(f"{_one_of(directory)}: a log dir, or --catalog DIR")
    if (offset is None) == (timestamp is None):
        raise UsageError(f"{_one_of(offset)}: --offset N, or --timestamp TIME")
    wanted = TopicPartition(topic, partition)
    seekers: list[tuple[str, Seeker | str]]
    if catalog is not None:
        if index_dir is not None:
            raise UsageError("--index-dir: the catalog knows where its indexes are")
        seekers = _in_catalog(catalog, wanted, source)
    else:
        if source is not None:
            raise UsageError("--source: only a catalog has sources")
        assert directory is not None
        seekers = [_in_log_dir(directory, wanted, index_dir)]
    query, target = ("offset", offset) if timestamp is None else ("timestamp", parse_milliseconds(timestamp))
    answers = [
        {"topic": topic, "partition": partition, "query": query, "target": target, "source": name}
        | answer_all(seeker, query, np.array([target], np.int64)).to_pylist()[0]
        for name, seeker in seekers
    ]
    return show_answers(answers, as_json, timestamp)


def _in_catalog(catalog: str, wanted: TopicPartition, source: str | None) -> list[tuple[str, Seeker | str]]:
    with needing_packages("--catalog"):  # and 200 ms
        from kidxlib.cli.catalog import seekers_in_catalog
    return seekers_in_catalog(catalog, wanted, source)


def _in_log_dir(directory: str, wanted: TopicPartition, index_dir: str | None) -> tuple[str, Seeker]:
    source = source_at(directory)
    partitions = {found.topic_partition: found for found in list_partitions(source, Skipped())}
    found = partitions.get(wanted)
    if found is None:
        raise UsageError(f"{directory}: {no_such_partition(wanted, partitions)}")
    start_offsets = read_checkpoints(found.log_dir).log_start_offsets or {}
    index_directory = None if index_dir is None else source_at(index_dir).path / wanted.directory
    try:
        seeker = Seeker.of_directory(found.path, index_directory, log_start_offset=start_offsets.get(wanted, 0))
    except OSError as error:  # its directory may not be listed, or a log is a symlink that leads nowhere
        raise UsageError(f"{describe_error(error)}; nothing was answered") from error
    return source.name, seeker


def _one_of(given: object) -> str:
    return "give one of these" if given is None else "give one of these, not both"
