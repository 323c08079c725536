"""Compact indexes and tables: cut preallocated files, give cold segments sparser indexes, remove what nothing needs."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.common import shared_options
from jobs.common.catalog import Catalog
from jobs.common.compact_on_executors import compact_on_executors
from jobs.common.compaction_report import Report, print_report, print_tables, report, report_as_json
from jobs.common.compaction_request import CompactionRequest, GivenOptions, compaction_request
from jobs.common.maintain_tables import MaintainedTable, maintain_tables
from jobs.common.observed import Ended, observed
from jobs.common.open_catalog import existing_catalog
from jobs.common.session import session
from kidxlib.cli.whole_number import WholeNumber
from kidxlib.command import ExitCode, run
from kidxlib.compact import Action, CompactionOptions, Mode, Outcome
from kidxlib.console import print_json
from kidxlib.errors import UsageError
from kidxlib.log_dir import locked
from kidxlib.objects import SCHEME
from kidxlib.progress import begin_phase


@click.command(context_settings={"max_content_width": 110})
@shared_options.catalog
@shared_options.database
@shared_options.cataloged_sources
@shared_options.cataloged_topics
@click.option(
    "--interval-bytes", type=WholeNumber(0, 2**31 - 1), help="Give segments that are not active this interval."
)
@click.option(
    "--older-than", metavar="TIME", help="Only those whose largest timestamp is so long ago, as 7d. [default: 0]"
)
@click.option(
    "--policy",
    type=click.Path(path_type=Path),
    help="A file (TOML) of rules by topic, age and size, in place of these.",
)
@click.option("--trim", is_flag=True, help="Cut preallocated index files of segments that are not active.")
@click.option("--orphans", is_flag=True, help="Remove side files without a segment, and what killed runs left.")
@click.option(
    "--delete-delay", metavar="TIME", help="How long .deleted files have been renamed, at least. [default: 60s]"
)
@click.option("--tables", is_flag=True, help="Optimize and vacuum the catalog's tables; expire rows by the policy.")
@click.option("--apply", is_flag=True, help="Do it; without, only say what would be done.")
@shared_options.settings_file
@click.option(
    "--now",
    metavar="TIME",
    help="The time by which segments are --older-than: ISO 8601 with a zone, or ms since the epoch. What is removed "
    "goes by the clock.",
)
@shared_options.as_json
@observed
def compact_index(as_json: bool, **options: Any) -> Ended:
    """Make what is stored of indexes smaller: index files of segments that are not active are cut, or made anew with
    larger intervals, exactly as Kafka's recovery would write them; files that nothing needs are removed; tables are
    optimized. Nothing is changed but with --apply.

    Exit codes: 0 all well; 2 wrong options or inputs, nothing done; 3 done, but some files stay that were to change;
    1 failed.
    """
    request = compaction_request(GivenOptions(**options))
    with contextlib.ExitStack() as stack:
        where = request.where
        spark = stack.enter_context(session("compact_index", where.event_log_dir, changes=request.apply))
        catalog = existing_catalog(spark, where.catalog, where.database, bring_up_to_date=request.apply)
        changes, found = None, None
        if request.files is not None:
            changes = _compact(catalog, request, request.files, stack)
            found = report(changes)
        if request.tables is not None:
            begin_phase("maintaining tables" if request.apply else "looking at tables")
        tables = (
            maintain_tables(catalog, request.tables, datetime.now(UTC), apply=request.apply)
            if request.tables is not None
            else []
        )
        if as_json:
            print_json(
                {"applied": request.apply, "now": where.now.isoformat(), **report_as_json(found, changes, tables)}
            )
        else:
            _print(request, found, tables)
    changed, kept, not_well = (found.changed[0], found.kept[0], found.not_well) if found is not None else (0, 0, 0)
    return Ended(
        code=ExitCode.NOT_WELL if not_well else ExitCode.OK,
        counts={"changed": changed, "kept": kept, "not_well": not_well, "tables": len(tables)},
        bytes=sum(topic.bytes_before - topic.bytes_after for topic in found.topics) if found is not None else 0,
    )


def _print(request: CompactionRequest, found: Report | None, tables: Sequence[MaintainedTable]) -> None:
    if found is not None:
        print_report(found, applied=request.apply)
    if tables:
        print_tables(tables, applied=request.apply)


def _compact(
    catalog: Catalog, request: CompactionRequest, options: CompactionOptions, stack: contextlib.ExitStack
) -> DataFrame:
    """What changes, as rows of `COMPACTED_SCHEMA`; with `--apply` it is done, and recorded.

    Args:
        stack: what holds the log dirs that are written to, and what the rows are kept in.
    """
    begin_phase("looking at index files")
    rows = _to_compact(catalog, request)
    sources = catalog.source_paths()
    if options.trim or options.orphans:
        _refuse_objects(rows)
    if not request.apply:
        planned = compact_on_executors(rows, sources, options, Mode.PLAN).persist(StorageLevel.MEMORY_AND_DISK)
        stack.callback(planned.unpersist)
        return planned
    log_dirs = _lock(compact_on_executors(rows, sources, options, Mode.LOOK), stack)
    options = replace(options, locked=log_dirs)
    materialise = stack.enter_context(catalog.staging(f"compact-{uuid.uuid4().hex}"))
    begin_phase("writing index files")
    changes = materialise(compact_on_executors(rows, sources, options, Mode.APPLY))
    in_place = F.col("outcome").isin(Outcome.WRITTEN.value, Outcome.UNCHANGED.value)
    begin_phase("recording in the catalog")
    of_indexes = F.col("action").isin(Action.COARSEN.value, Action.DENSIFY.value)
    catalog.record_coarsened(changes.where(of_indexes & in_place))
    return changes


def _to_compact(catalog: Catalog, request: CompactionRequest) -> DataFrame:
    known = catalog.topics(gone_too=True)
    for source in request.sources:
        if source not in known:
            raise UsageError(f"--source {source}: no segment in the catalog; there are: {', '.join(sorted(known))}")
    sources = request.sources or tuple(sorted(known))
    topics = {topic for source in sources for topic in known[source] if request.topics.fullmatch(topic)}
    if not topics:
        raise UsageError(f"{catalog.path}: no segment of a topic that matches {request.topics.pattern}")
    return catalog.to_compact(sources, topics)


def _refuse_objects(rows: DataFrame) -> None:
    """Before files are cut or removed.

    Raises:
        UsageError: some are in an object store.
    """
    in_store = F.col("log_path").startswith(SCHEME) | F.col("index_folder").startswith(SCHEME)
    for row in rows.where(in_store).select("source", "log_path", "index_folder").limit(1).collect():
        raise UsageError(
            f"source {row['source']}: {row['log_path']}, with its index files in {row['index_folder']}: --trim and "
            "--orphans change nothing in an object store; name the others with --source, or leave both out"
        )


def _lock(changes: DataFrame, stack: contextlib.ExitStack) -> frozenset[str]:
    """Hold the log dirs in which something would be written, and name them.

    Raises:
        UsageError: one is held by another process, or the work is on several machines.
    """
    to_write = changes.where((F.col("outcome") != Outcome.KEPT.value) & F.col("log_dir").isNotNull())
    log_dirs = sorted(row["log_dir"] for row in to_write.select("log_dir").distinct().collect())
    if log_dirs and not str(changes.sparkSession.sparkContext.master).startswith("local"):
        raise UsageError(
            f"--apply: files in {log_dirs[0]} are to change; only with a local master, so that the log dir's lock "
            "covers every writer"
        )
    for log_dir in log_dirs:
        stack.enter_context(locked(Path(log_dir)))
    return frozenset(log_dirs)


if __name__ == "__main__":
    run(compact_index, "./spark-submit.sh compact_index")
