"""`kidx compare`: has a copy all that its original has, and are two replicas the same."""

from __future__ import annotations

from functools import partial

import click

from kidxlib.errors import UsageError
from kidxlib.operations.compare.compare_request import As, CompareRequest
from kidxlib.operations.local_once import open_local_once
from kidxlib.run.result import RunResult
from kidxlib.run.run_report import reports_run_of
from kidxlib.terminal.extras import needing_packages
from kidxlib.terminal.options import shared as shared_options
from kidxlib.terminal.options.sources import parse_topics


@click.command(context_settings={"max_content_width": 110})
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@click.option(
    "--as",
    "how",
    type=click.Choice([each.value for each in As]),
    default=As.COPY.value,
    show_default=True,
    help="What B is of A: a copy, file by file and byte for byte; or a replica, whose batches are compared by offset, "
    "however its segments are cut.",
)
@click.option(
    "--allow-behind",
    is_flag=True,
    help="Exit 0 where B is the same as A up to where B ends, also in segments that are cut elsewhere. Not with "
    "--catalog and a copy.",
)
@click.option(
    "--logs-only",
    is_flag=True,
    help="Exit 0 also where B lacks files beside the logs or has other ones: index files, snapshots, checkpoints. They "
    "are listed. Not with --catalog.",
)
@click.option(
    "--catalog",
    metavar="DIR",
    help="Read no log of A: A is the name of a source in this catalog. B is its copy at s3://BUCKET/PREFIX, which is "
    "asked for checksums; or, with --as replica, another source.",
)
@click.option(
    "--inactive-only",
    is_flag=True,
    help="With --catalog and a copy: leave out the last segment of each partition, to which a broker may still write.",
)
@shared_options.topics
@shared_options.processes
@shared_options.as_json
@reports_run_of("compare")
def compare(
    *,
    a: str,
    b: str,
    how: str,
    catalog: str | None,
    inactive_only: bool,
    topics: str,
    processes: int | None,
    as_json: bool,
    **gates: bool,
) -> RunResult:
    """Compare B with A, the original: partitions, segments, offsets and bytes first, then other files. Nothing is
    written, and no catalog is needed.

    A and B are each a Kafka log dir, all log dirs of a broker with commas between them, as in log.dirs, one partition's
    directory, or a copy of one of these at s3://BUCKET/PREFIX.

    Exit codes: 0 B has all that A has; 2 wrong options or inputs, nothing done; 3 B lacks something, has something
    else, ends earlier (without --allow-behind), or something could not be compared; 1 failed.
    """
    request = CompareRequest(
        a=a, b=b, how=As(how), topics=parse_topics(topics), catalog=catalog, inactive_only=inactive_only, **gates
    )
    if catalog is not None:
        with needing_packages("kidx compare --catalog", "copies"):
            from kidxlib.commands.in_catalog.compare import compare_with_catalog

        return compare_with_catalog(request, processes, as_json=as_json)
    if inactive_only:
        raise UsageError("--inactive-only: only with --catalog; --allow-behind lets a copy end earlier")
    from kidxlib.operations.compare.compare_places import run_compare  # with compiled loops: others do not wait

    return run_compare(request, partial(open_local_once, processes), as_json=as_json)
