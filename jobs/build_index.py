"""Index raw Kafka segments: write .index and .timeindex as Kafka's recovery does, and record every segment."""

from __future__ import annotations

import contextlib
import json
import platform
import time
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from importlib import metadata
from typing import Any, Final

import click
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.filesize import decimal

from jobs.common import shared_options
from jobs.common.catalog import Catalog
from jobs.common.distribute import Counters, build_on_executors, refuse_unseen_logs, workers_beginning
from jobs.common.finish_partitions import finish_on_executors
from jobs.common.known_damage import KnownDamage, is_there, known_damage
from jobs.common.make_tables import catalog_version, make_tables
from jobs.common.observed import Ended, observed
from jobs.common.open_catalog import catalog_to_build, existing_catalog
from jobs.common.partitions import record_partitions
from jobs.common.repair import repairs_of_last_audits
from jobs.common.request import BuildOptions, BuildRequest, build_request
from jobs.common.session import session
from jobs.common.sources import as_line
from jobs.common.stop_file import StopFile, stop_file
from jobs.common.tables import CATALOG_VERSION, SEGMENTS
from kidxlib import interrupts
from kidxlib.build import BuildTask, remove_held
from kidxlib.cli.whole_number import WholeNumber
from kidxlib.command import ExitCode, run
from kidxlib.console import note, print_json, print_line, rate, warn
from kidxlib.errors import UsageError
from kidxlib.interrupts import Interrupted
from kidxlib.log_dir import locked
from kidxlib.names import NotASegment
from kidxlib.pack import BINS_PER_CORE, pack
from kidxlib.plan import Changes, Plan, all_new, compare, find_segments, log_dirs_to_lock, refuse_overlap
from kidxlib.progress import begin_phase
from kidxlib.publish import sweep
from kidxlib.summary import NOT_WELL_KEPT, WELL, Counts, NotWell, print_counts, print_rate, print_skipped
from kidxlib.times import NS_PER_MS

#: Bytes a second and core that the first wave is sized for; later ones use what was measured.
FIRST_WAVE_RATE: Final = 100_000_000

_RECORDING: Final = "recording in the catalog"


@click.command(context_settings={"max_content_width": 110})
@shared_options.sources
@shared_options.sample
@click.option(
    "--index-dir",
    metavar="DIR",
    help="Where <topic>-<partition>/<base offset>.index and .timeindex go. [settings: build.index_dir]",
)
@click.option("--in-place", is_flag=True, help="Write beside the segments instead, under the log dir's lock.")
@click.option("--accept-truncated", is_flag=True, help="In place, write the index of a corrupt log's valid prefix too.")
@shared_options.catalog
@click.option("--database", metavar="NAME", help="Keep the catalog in a database of Spark's metastore instead.")
@shared_options.topics_to_read
@click.option(
    "--interval-bytes",
    type=WholeNumber(0, 2**31 - 1),
    help="Kafka's index.interval.bytes. [settings: build.interval_bytes]",
)
@click.option(
    "--max-index-bytes",
    type=WholeNumber(12, 2**31 - 1),
    help="Kafka's segment.index.bytes. [settings: build.max_index_bytes]",
)
@click.option(
    "--verify-crc/--no-verify-crc",
    default=None,
    help="Check every batch's checksum, or read batch headers only. [settings: build.verify_crc]",
)
@click.option(
    "--snapshots/--no-snapshots", default=None, help="Write producer snapshots too. [settings: build.snapshots]"
)
@click.option(
    "--epochs/--no-epochs", default=None, help="Write leader-epoch-checkpoint files too. [settings: build.epochs]"
)
@click.option("--rebuild", is_flag=True, help="Read every segment again, whatever the catalog says of it.")
@click.option(
    "--repair", is_flag=True, help="Write what the last audit (verify_index --catalog) found broken, no more."
)
@click.option("--dry-run", is_flag=True, help="Say what would be read and how long that takes; write nothing.")
@shared_options.settings_file
@shared_options.time_to_record
@shared_options.as_json
@observed
def build_index(dry_run: bool, as_json: bool, **options: Any) -> Ended:
    """Index raw Kafka segments: write .index, .timeindex and .txnindex byte for byte as Kafka's recovery would, without
    touching a log, and record every segment in Delta tables. Segments that have not changed since the last build are
    not read.

    Exit codes: 0 all well; 2 wrong options or inputs, nothing done; 3 done, but some segments of these sources and
    topics are damaged, in this run's eyes or an earlier one's, and not accepted (see accept); 1 failed.
    """
    request = build_request(BuildOptions(**options))
    begin_phase("listing")
    plan = find_segments(request.sources, request.topics, request.target, request.recover_options)
    for warning in plan.warnings:
        warn(warning)
    return (_dry_run if dry_run else _build)(request, plan, as_json)


def _dry_run(request: BuildRequest, plan: Plan, as_json: bool) -> Ended:
    with session("build_index", request.where.event_log_dir) as spark:
        catalog = _catalog(request, spark)
        if request.repair:
            plan = repairs_of_last_audits(catalog, plan, request.sources)
        current = catalog_version(catalog) == CATALOG_VERSION
        changes = _changes(request, plan, catalog) if current else all_new(plan)
        last_rate = catalog.last_rate() if current else None
        is_known = current or is_there(catalog, SEGMENTS)  # of an older release, damage is known all the same
        damage = _known_damage(request, catalog, changes) if is_known else KnownDamage()
    log_bytes = sum(task.log_bytes for task in changes.to_read)
    seconds = log_bytes / last_rate if last_rate else None
    counts = {"segments": len(changes.to_read), "unchanged": changes.unchanged, "gone": len(changes.gone)}
    ended = Ended(
        code=_exit_code(plan, damage),
        counts={**counts, **damage.counts},
        bytes=log_bytes,
        catalog_segments=damage.figures if is_known else None,
    )
    if as_json:
        shown = {
            "to_read": len(changes.to_read),
            "to_read_bytes": log_bytes,
            "unchanged": changes.unchanged,
            "unchanged_bytes": changes.unchanged_bytes,
            "gone": len(changes.gone),
            "estimated_seconds": seconds,
            "damage": damage.as_json(),
        }
        print_json(shown)
        return ended
    print_line(f"would read {len(changes.to_read):,} segments, {decimal(log_bytes)}")
    print_line(f"unchanged: {changes.unchanged:,} segments, {decimal(changes.unchanged_bytes)}")
    print_line(f"gone:      {len(changes.gone):,} segments of the catalog")
    damage.show()
    if not changes.to_read:
        return ended
    if seconds is None:
        print_line("estimate:  none, as no build of this catalog has read anything yet")
    else:
        print_line(f"estimate:  {seconds:.0f} s at the last build's {rate(log_bytes, seconds)}")
    return ended


def _catalog(request: BuildRequest, spark: SparkSession) -> Catalog:
    find = existing_catalog if request.repair else catalog_to_build
    return find(spark, request.where.catalog, request.where.database)


def _changes(request: BuildRequest, plan: Plan, catalog: Catalog) -> Changes:
    sources = [source.name for source in request.sources]
    others = catalog.index_folders_of_others(sources)
    for partition in plan.partitions:
        if (other := others.get(str(partition.index_folder))) is not None:
            raise UsageError(
                f"{partition.index_folder}: holds the index files of the same partition of source {other}; "
                "give each source its own --index-dir, or all of them in one run"
            )
    known = catalog.known_segments(sources, request.topics)
    return compare(
        plan,
        known,
        request.side_files,
        explicit_interval=request.interval_bytes is not None,
        rebuild=request.rebuild,
    )


@dataclass(slots=True)
class _Scanned:
    """What a build has read so far, wave by wave.

    Attributes:
        seconds: that waves took until their results were there.
        read_seconds: in which some executor was reading: less what it took to begin.
    """

    counts: Counts = field(default_factory=Counts)
    seconds: float = 0.0
    read_seconds: float = 0.0
    waves: int = 0
    rows_changed: int = 0


def _build(request: BuildRequest, plan: Plan, as_json: bool) -> Ended:
    start = time.monotonic()
    build_id = f"{request.where.now:%Y%m%dT%H%M%SZ}-{uuid.uuid4().hex[:8]}"
    note(f"{len(plan.tasks):,} segments, {decimal(plan.log_bytes)}, in {len(plan.partitions):,} partitions")
    with contextlib.ExitStack() as stack:
        if request.in_place:
            for log_dir in log_dirs_to_lock(plan):
                stack.enter_context(locked(log_dir))
        spark = stack.enter_context(session("build_index", request.where.event_log_dir))
        if request.in_place and not str(spark.sparkContext.master).startswith("local"):
            raise UsageError("--in-place: only with a local master, so that the log dir's lock covers every writer")
        catalog = _catalog(request, spark)
        refuse_overlap(request.target.index_dir, catalog.path, request.sources)
        found = catalog_version(catalog)
        with workers_beginning(spark, found is None):
            is_new = make_tables(catalog, request.where.database, found)
        if request.repair:
            plan = repairs_of_last_audits(catalog, plan, request.sources)
        begin_phase("comparing with the catalog")
        _sweep(request, plan, catalog)
        changes = all_new(plan) if is_new else _changes(request, plan, catalog)
        with workers_beginning(spark, found is not None and bool(changes.to_read)):
            marked = catalog.mark(changes, build_id)
        stop = stack.enter_context(stop_file(spark, catalog.staging_path))
        stack.enter_context(_removing_held(request, plan))
        scanned = _scan(request, changes.to_read, catalog, build_id, stop)
        begin_phase("finishing partitions")
        # Both need the segments and not each other, and both are mostly waiting.
        with ThreadPoolExecutor(2) as beside:
            recorded = beside.submit(record_partitions, catalog, plan, build_id, all_topics=request.all_topics)
            finished_rows = _finish(request, plan, changes, catalog, build_id, scanned.counts, stop)
            known = beside.submit(_known_damage, request, catalog)
            notes, damage = recorded.result(), known.result()
        counts = {
            "partitions": len(plan.partitions),
            "segments": scanned.counts.segments,
            "unchanged": changes.unchanged,
            "gone": len(changes.gone),
            "rows_changed": marked + scanned.rows_changed + finished_rows,
        }
        row = {
            "build_id": build_id,
            "started_at": request.where.now,
            "seconds": round(time.monotonic() - start, 3),
            **counts,
            **_of_request(request, spark.version),
            **_of_scan(scanned),
            "left_alone": {reason.value: count for reason, count in sorted(plan.left_alone.counts.items())},
            "finished": len(changes.to_finish),
        }
        begin_phase("recording the build")
        catalog.append_build(row)
    if as_json:
        shown = {**row, **scanned.counts.as_json(), "started_at": request.where.now.isoformat(), "notes": notes}
        shown["options"] = request.recorded()
        print_json({**shown, "damage": damage.as_json(), "catalog": catalog.path, "new_catalog": is_new})
    else:
        _print(request, catalog, row, scanned, notes, damage)
        if is_new:
            print_line(f"new catalog made at {catalog.path}")
    return Ended(
        code=_exit_code(plan, damage),
        run_id=build_id,
        counts={**counts, "not_well": scanned.counts.not_well_count, **damage.counts},
        bytes=scanned.counts.log_bytes,
        catalog_segments=damage.figures,
    )


def _known_damage(request: BuildRequest, catalog: Catalog, changes: Changes | None = None) -> KnownDamage:
    """How the catalog's segments stand.

    Args:
        changes: what a listing found that is not recorded; None where all is.
    """
    sources = [source.name for source in request.sources]
    return known_damage(catalog, sources, request.topics, changes.gone if changes is not None else ())


def _exit_code(plan: Plan, damage: KnownDamage) -> ExitCode:
    """By all that is known of what was asked for, whether this run found it or an earlier one."""
    missing = [(name, path) for name, path in plan.empty.items() if damage.present(name)]
    for name, path in missing:
        warn(
            f"{path}: no segment found, but the catalog has {damage.present(name):,} of source {name}, which stay "
            "there: is it mounted? If they are gone for good, ./spark-submit.sh forget_source removes them"
        )
    unlistable = plan.left_alone.counts[NotASegment.UNLISTABLE_FOLDER]
    return ExitCode.NOT_WELL if damage.damaged or unlistable or missing else ExitCode.OK


def _of_request(request: BuildRequest, spark_version: str) -> dict[str, Any]:
    """What a row of `builds` says of what was asked for."""
    return {
        "sources": {source.name: str(source.path) for source in request.sources},
        "options": {name: _as_text(value) for name, value in request.recorded().items()},
        "versions": _versions(spark_version),
    }


def _of_scan(scanned: _Scanned) -> dict[str, Any]:
    """What a row of `builds` says of what was read."""
    return {
        "scan_seconds": round(scanned.seconds, 3),
        "waves": scanned.waves,
        "log_bytes": scanned.counts.log_bytes,
        "batches": scanned.counts.batches,
        "by_status": dict(scanned.counts.by_status),
        "by_published": dict(scanned.counts.by_published),
        "aborted_transactions": scanned.counts.aborted_transactions,
        "by_transaction_index": dict(scanned.counts.by_transaction_index),
    }


def _sweep(request: BuildRequest, plan: Plan, catalog: Catalog) -> None:
    """Remove what killed runs left behind: by the clock, whatever `--now` says, or a run that works now loses it."""
    longest_run = timedelta(hours=request.settings.build.longest_run_hours)
    older_than_ms = int((datetime.now(UTC) - longest_run).timestamp() * 1000)
    for partition in plan.partitions:
        sweep(partition.index_folder, older_than_ms * NS_PER_MS)
    catalog.sweep_staging(older_than_ms)


@contextlib.contextmanager
def _removing_held(request: BuildRequest, plan: Plan) -> Iterator[None]:
    """In place, where a run is interrupted, no offset index waits any longer for the end of its partition."""
    try:
        yield
    except Interrupted:
        if request.in_place:  # under the lock: they are this run's
            for partition in plan.partitions:
                remove_held(partition.index_folder)
        raise


def _scan(
    request: BuildRequest, tasks: Sequence[BuildTask], catalog: Catalog, build_id: str, stop: StopFile
) -> _Scanned:
    """Read segments in waves, each recorded in the catalog before the next begins."""
    spark, settings = catalog.spark, request.settings.build
    cores = spark.sparkContext.defaultParallelism
    scanned = _Scanned()
    if not tasks:
        return scanned
    bytes_a_second: float = FIRST_WAVE_RATE * cores
    counters = Counters(spark)
    position = 0
    log_bytes = sum(task.log_bytes for task in tasks)

    def done() -> str:
        read = f"{scanned.counts.segments:,} of {len(tasks):,} segments read and recorded in the catalog"
        return f"{read}; run the same command again to go on"

    with interrupts.telling(done):
        while position < len(tasks):
            wave = _wave(tasks, position, min(settings.wave_bytes, int(bytes_a_second * settings.wave_seconds)))
            position += len(wave)
            scanned.waves += 1
            with stop.stopping(), catalog.staging(f"{build_id}-{scanned.waves}") as materialise:
                start = time.monotonic()
                counters.begin_wave()
                begin_phase("reading", done=counters.done, segments=len(tasks), log_bytes=log_bytes, after=_RECORDING)
                rows = materialise(build_on_executors(spark, pack(wave, cores), request.sources, counters, stop))
                seconds = time.monotonic() - start
                begin_phase(_RECORDING)
                results = rows.where("segment IS NOT NULL").select("segment.*")
                refuse_unseen_logs(results)
                events = rows.where("event IS NOT NULL").select("event.*")
                scanned.rows_changed += catalog.record_scanned(results, events, build_id)
                _count(results, scanned.counts)
            scanned.seconds += seconds
            bytes_a_second = max(1.0, sum(task.log_bytes for task in wave) / seconds)
    scanned.read_seconds = counters.done().seconds
    return scanned


def _finish(
    request: BuildRequest,
    plan: Plan,
    changes: Changes,
    catalog: Catalog,
    build_id: str,
    counts: Counts,
    stop: StopFile,
) -> int:
    """Derive transactions, producers and leader epochs of partitions from what the catalog keeps of their segments.

    Returns:
        How many rows of `segments` it added to.
    """
    if not changes.to_finish:
        return 0
    tasks = {
        listed.key: listed.partition_task(request.side_files)
        for listed in plan.partitions
        if listed.key in changes.to_finish
    }
    shares = min(len(tasks), catalog.spark.sparkContext.defaultParallelism * BINS_PER_CORE)
    with stop.stopping(), catalog.staging(f"{build_id}-finish") as materialise:
        rows = materialise(finish_on_executors(catalog.to_finish(changes.to_finish), tasks, shares, stop))
        interrupts.raise_if_requested()  # some partitions are missing: the next run finishes all of them
        finished = rows.where("segment IS NOT NULL").select("segment.*")
        aborted = rows.where("aborted IS NOT NULL").select("aborted.*")
        counts.kept += [row["path"] for row in rows.where("kept IS NOT NULL").select("kept.path").collect()]
        _count_finished(finished, counts)
        _count_withdrawn(catalog.withdrawn(finished), counts)
        catalog.replace_aborted(tasks, aborted)
        return catalog.merge_finished(finished.drop("published"), build_id)


def _wave(tasks: Sequence[BuildTask], position: int, log_bytes: int) -> Sequence[BuildTask]:
    """As many tasks from `position` on as stay within `log_bytes`, and one at least."""
    end = position + 1
    left = log_bytes - tasks[position].log_bytes
    while end < len(tasks) and tasks[end].log_bytes <= left:
        left -= tasks[end].log_bytes
        end += 1
    return tasks[position:end]


def _count(results: DataFrame, counts: Counts) -> None:
    """Add a wave's results to the counts."""
    sums = {
        "log_bytes": F.sum("log_bytes"),
        "batches": F.sum("batches"),
        "entries": F.sum(F.col("offset_index_entries") + F.col("time_index_entries")),
    }
    grouped = results.groupBy("topic", "status", "published").agg(
        F.count("*").alias("segments"), *(F.coalesce(value, F.lit(0)).alias(name) for name, value in sums.items())
    )
    for row in grouped.collect():
        values = row.asDict()
        counts.topic(values.pop("topic")).add(**values)
    room = NOT_WELL_KEPT - len(counts.not_well)
    if counts.not_well_count > len(counts.not_well) and room > 0:
        columns = list(NotWell.__dataclass_fields__)
        not_well = results.where(~F.col("status").isin(*WELL)).select(*columns).orderBy(*columns[:4]).limit(room)
        counts.not_well.extend(NotWell(**row.asDict()) for row in not_well.collect())


def _count_finished(finished: DataFrame, counts: Counts) -> None:
    """Add what finishing partitions came to."""
    grouped = finished.groupBy("topic", "published").agg(
        F.count("*").alias("segments"), F.sum("aborted_transactions").alias("aborted")
    )
    for row in grouped.collect():
        topic = counts.topic(row["topic"])
        topic.aborted_transactions += row["aborted"]
        topic.by_transaction_index[row["published"]] += row["segments"]


def _count_withdrawn(withdrawn: DataFrame, counts: Counts) -> None:
    """Count the segments that turned out as quarantined when their partition was finished."""
    for row in withdrawn.groupBy("topic", "status_before").count().collect():
        counts.topic(row["topic"]).withdraw(row["status_before"], row["count"])
    columns = list(NotWell.__dataclass_fields__)
    room = max(0, NOT_WELL_KEPT - len(counts.not_well))
    rows = withdrawn.select(*columns).orderBy(*columns[:4]).limit(room).collect()
    counts.not_well.extend(NotWell(**row.asDict()) for row in rows)


def _as_text(value: str | int | bool | None) -> str | None:
    """An option as the table has it, whose values are text: as JSON has it, but for quotes."""
    return value if value is None or isinstance(value, str) else json.dumps(value)


def _versions(spark_version: str) -> dict[str, str]:
    return {
        "kidx": metadata.version("kidx"),
        "spark": spark_version,
        "delta": metadata.version("delta-spark"),
        "python": platform.python_version(),
    }


def _print(
    request: BuildRequest,
    catalog: Catalog,
    row: dict[str, Any],
    scanned: _Scanned,
    notes: list[str],
    damage: KnownDamage,
) -> None:
    """Show what was made, where it is, and what to do next."""
    print_counts(f"build {row['build_id']}", scanned.counts)
    if row["unchanged"] or row["gone"]:
        print_line(f"not read: {row['unchanged']:,} segments are unchanged; {row['gone']:,} are gone from their source")
    damage.show()
    print_skipped(row["left_alone"].items())
    for text in notes:
        print_line(f"note: {text}")
    if request.repair and not row["partitions"]:
        print_line("repair:      nothing, the last audit found nothing broken")
    else:
        print_rate(row["log_bytes"], scanned.read_seconds, row["seconds"])
    print_line(f"source:      {as_line(request.sources)}")
    where = "beside the segments" if request.in_place else request.target.index_dir
    print_line(f"index files: {where}")
    print_line(f"catalog:     {catalog.path} ({row['rows_changed']:,} rows of segments added or changed)")
    print_line("next:        ask the catalog; docs/catalog.md has questions with their SQL")


if __name__ == "__main__":
    run(build_index, "./spark-submit.sh build_index")
