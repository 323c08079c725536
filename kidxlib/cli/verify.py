"""`kidx verify`: are the side files of a log dir right, and what happens if they are not."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import click

from kidxlib.audit import Verdict
from kidxlib.cli import shared_options
from kidxlib.cli.workers import Workers
from kidxlib.command import ExitCode
from kidxlib.console import print_json, print_line, print_table
from kidxlib.discover import LeftAlone, PartitionFolder, list_partitions, list_segments, source_at
from kidxlib.names import NotASegment
from kidxlib.plan import parse_topics
from kidxlib.recover import RecoverOptions
from kidxlib.verify import SegmentFinding, verify_partition

#: Findings that are told on screen in full.
_SHOWN: Final = 20


@dataclass(frozen=True, slots=True)
class _Partition:
    """What a worker verifies."""

    folder: PartitionFolder
    index_folder: Path
    base_offsets: list[int]
    options: RecoverOptions


@click.command()
@click.argument("folder", metavar="DIR")
@click.option("--index-dir", metavar="DIR", help="The mirror tree with the side files. [default: beside the logs]")
@shared_options.topics
@shared_options.interval_bytes
@click.option(
    "--fail-on",
    type=click.Choice([Verdict.BROKEN.value, Verdict.SAFE.value]),
    default=Verdict.BROKEN.value,
    show_default=True,
    help="End with 3 where there is a file like this, or a worse one.",
)
@shared_options.processes
@shared_options.as_json
def verify(
    folder: str,
    index_dir: str | None,
    topics: str,
    interval_bytes: int,
    fail_on: str,
    processes: int | None,
    as_json: bool,
) -> ExitCode:
    """Hold each side file in DIR, a Kafka log dir or one partition's folder, to what recovery would write, and say what
    a wrong one leads to. Nothing is written.

    Exit codes: 0 all well; 2 wrong options or inputs; 3 some files are as --fail-on says; 1 failed.
    """
    source, left_alone = source_at(folder), LeftAlone()
    mirror = None if index_dir is None else source_at(index_dir).path
    pattern, options = parse_topics(topics), RecoverOptions(interval_bytes=interval_bytes)
    work = [
        _Partition(
            found,
            found.path if mirror is None else mirror / found.topic_partition.folder,
            [segment.base_offset for segment in list_segments(found, left_alone) or ()],
            options,
        )
        for found in list_partitions(source, left_alone)
        if pattern.fullmatch(found.topic_partition.topic)
    ]
    by_partition: dict[int, list[SegmentFinding]] = {}
    with Workers(processes or os.cpu_count() or 1) as workers:
        workers.run(_verify, list(enumerate(work)), lambda found: by_partition.update([found]))
    files = [
        {
            "source": source.name,
            "topic": partition.folder.topic_partition.topic,
            "partition": partition.folder.topic_partition.partition,
            "base_offset": found.base_offset,
            **asdict(found.finding),
        }
        for number, partition in enumerate(work)
        for found in by_partition[number]
    ]
    counts = Counter((str(each["file"]), Verdict(each["verdict"])) for each in files)
    if as_json:
        print_json({"files": files})
    else:
        _show(str(source.path), files, counts)
    bad = {Verdict.BROKEN} if fail_on == Verdict.BROKEN.value else {Verdict.BROKEN, Verdict.SAFE}
    unlistable = left_alone.counts[NotASegment.UNLISTABLE_FOLDER]
    return ExitCode.NOT_WELL if unlistable or any(verdict in bad for _, verdict in counts) else ExitCode.OK


def _verify(piece: tuple[int, _Partition], _may_map: bool) -> tuple[int, list[SegmentFinding]]:
    number, partition = piece
    return number, list(
        verify_partition(partition.folder.path, partition.index_folder, partition.base_offsets, partition.options)
    )


def _show(title: str, files: Sequence[dict[str, object]], counts: Counter[tuple[str, Verdict]]) -> None:
    suffixes = sorted({suffix for suffix, _ in counts})
    rows: list[list[str | int]] = [[suffix, *(counts[suffix, verdict] for verdict in Verdict)] for suffix in suffixes]
    print_table(title, ["side file", *(verdict.value for verdict in Verdict)], rows, text_columns=1)
    told = [each for each in files if each["verdict"] == Verdict.BROKEN]
    told += [each for each in files if each["verdict"] == Verdict.SAFE]
    for each in told[:_SHOWN]:
        where = f"{each['topic']}-{each['partition']} {each['base_offset']} {each['file']}"
        print_line(f"{each['verdict']}: {where}: {each['reason']}: {each['detail'] or 'no such file'}")
        print_line(f"  {each['consequence']}")
    if len(told) > _SHOWN:
        print_line(f"… and {len(told) - _SHOWN:,} more; --json has them all")
