"""Index raw Kafka segments: write .index and .timeindex as Kafka's recovery does, and record every segment."""

from __future__ import annotations

import json
import platform
import time
import uuid
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import click
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from rich.filesize import decimal

from jobs.common.catalog import open_catalog
from jobs.common.command import ExitCode, run
from jobs.common.distribute import Done, build_on_executors, pack
from jobs.common.plan import (
    BuildRequest,
    Plan,
    find_segments,
    local_folder,
    parse_sources,
    parse_topics,
    refuse_overlap,
)
from jobs.common.report import note, print_line, print_table, progress, rate, warn
from jobs.common.session import session
from jobs.common.settings import PROJECT, SETTINGS_FILE, read_settings
from kidxlib.discover import Source
from kidxlib.errors import UsageError
from kidxlib.names import NotASegment
from kidxlib.publish import Published
from kidxlib.recover import Status
from kidxlib.times import parse_time

SAMPLE: Final = Source("sample", PROJECT / "samples" / "kafka-logs")
#: Topics and segments shown on screen; the catalog has them all.
TOPICS_SHOWN: Final = 40
NOT_WELL_SHOWN: Final = 20
#: Segments that are not well in the JSON object, which also gives their number.
NOT_WELL_IN_JSON: Final = 1000


@click.command(context_settings={"max_content_width": 110})
@click.option(
    "--source",
    "sources",
    multiple=True,
    metavar="[NAME=]DIR",
    help="A Kafka log dir or one partition's folder; repeatable, then with a name each. [default: the bundled sample]",
)
@click.option(
    "--index-dir",
    metavar="DIR",
    help="Where <topic>-<partition>/<base offset>.index and .timeindex go. [settings: build.index_dir]",
)
@click.option("--catalog", metavar="DIR", help="Folder of the catalog's Delta tables. [settings: build.catalog]")
@click.option("--database", metavar="NAME", help="Keep the catalog in a database of Spark's metastore instead.")
@click.option("--topics", metavar="REGEX", help="Only topics whose full name matches. [settings: build.topics]")
@click.option(
    "--interval-bytes",
    type=click.IntRange(0, 2**31 - 1),
    help="Kafka's index.interval.bytes. [settings: build.interval_bytes]",
)
@click.option(
    "--max-index-bytes",
    type=click.IntRange(12, 2**31 - 1),
    help="Kafka's segment.index.bytes. [settings: build.max_index_bytes]",
)
@click.option(
    "--verify-crc/--no-verify-crc",
    default=None,
    help="Check every batch's checksum, or read batch headers only. [settings: build.verify_crc]",
)
@click.option(
    "--settings", "settings_file", type=click.Path(path_type=Path), default=SETTINGS_FILE, help="The settings file."
)
@click.option("--now", metavar="TIME", help="The time to record: ISO 8601 with a zone, or ms since the epoch.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on standard output.")
def build_index(
    sources: tuple[str, ...],
    index_dir: str | None,
    catalog: str | None,
    database: str | None,
    topics: str | None,
    interval_bytes: int | None,
    max_index_bytes: int | None,
    verify_crc: bool | None,
    settings_file: Path,
    now: str | None,
    as_json: bool,
) -> ExitCode:
    """Index raw Kafka segments: write .index and .timeindex byte for byte as Kafka's recovery would, without touching
    a log, and record every segment in Delta tables.

    Exit codes: 0 all well; 2 wrong options or inputs, nothing done; 3 done, but some segments are not well; 1 failed.
    """
    settings = read_settings(settings_file)
    if catalog and database:
        raise UsageError("--catalog and --database: give one of them")
    catalog_path = catalog or settings.build.catalog
    request = BuildRequest(
        sources=parse_sources(sources) or (SAMPLE,),
        index_dir=local_folder("--index-dir", index_dir or settings.build.index_dir),
        catalog=None if database else catalog_path if "://" in catalog_path else str(Path(catalog_path).resolve()),
        database=database,
        topics=parse_topics(settings.build.topics if topics is None else topics),
        interval_bytes=interval_bytes,
        max_index_bytes=max_index_bytes,
        verify_crc=settings.build.verify_crc if verify_crc is None else verify_crc,
        settings=settings,
        now=parse_time(now) if now else datetime.now(UTC),
    )
    refuse_overlap(request.index_dir, request.catalog, request.sources)
    plan = find_segments(request)
    for path, reason in plan.left_alone.unexpected:
        warn(f"{path}: left alone: {reason}")
    for source in plan.empty_sources:
        warn(f"{source.path}: no segment found")
    summary = _build(request, plan)
    if as_json:
        print_line(json.dumps(summary.as_json(), indent=2))
    else:
        _print(summary, request)
    return ExitCode.OK if summary.all_well else ExitCode.NOT_WELL


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What a run did: its row in `builds`, and what the screen and the JSON object show besides."""

    row: dict[str, Any]
    topics: list[dict[str, Any]]
    not_well: list[dict[str, Any]]
    scan_seconds: float
    catalog: str

    @property
    def all_well(self) -> bool:
        unlistable = self.row["left_alone"].get(NotASegment.UNLISTABLE_FOLDER.value, 0)
        return self.not_well_count == 0 and not unlistable

    @property
    def not_well_count(self) -> int:
        return sum(count for status, count in self.row["by_status"].items() if status != Status.OK)

    def as_json(self) -> dict[str, Any]:
        return {
            **self.row,
            "started_at": self.row["started_at"].isoformat(),
            "scan_seconds": round(self.scan_seconds, 3),
            "catalog": self.catalog,
            "topics": self.topics,
            "not_well_count": self.not_well_count,
            "not_well": self.not_well,
        }


def _build(request: BuildRequest, plan: Plan) -> Summary:
    start = time.monotonic()
    build_id = f"{request.now:%Y%m%dT%H%M%SZ}-{uuid.uuid4().hex[:8]}"
    note(f"{len(plan.tasks):,} segments, {decimal(plan.log_bytes)}, in {plan.partitions:,} partitions")
    with session("build_index") as spark:
        catalog = open_catalog(spark, request.catalog, request.database)
        bins = pack(plan.tasks, spark.sparkContext.defaultParallelism)
        done = Done.start(spark)
        with catalog.staging(build_id) as materialise:
            scan_start = time.monotonic()
            with progress(done, len(plan.tasks), plan.log_bytes):
                results = materialise(build_on_executors(spark, bins, request.index_dir, done))
            scan_seconds = time.monotonic() - scan_start
            rows_changed = catalog.merge_segments(results, build_id)
            topics = _by_topic(results)
            not_well = _not_well(results) if any(topic["not_well"] for topic in topics) else []
        row = {
            "build_id": build_id,
            "started_at": request.now,
            "seconds": round(time.monotonic() - start, 3),
            "sources": {source.name: str(source.path) for source in request.sources},
            "options": request.recorded(),
            "versions": _versions(spark.version),
            "partitions": plan.partitions,
            **{name: sum(topic[name] for topic in topics) for name in ("segments", "log_bytes", "batches")},
            "by_status": _added_up(topics, "by_status"),
            "by_published": _added_up(topics, "by_published"),
            "left_alone": {reason.value: count for reason, count in sorted(plan.left_alone.counts.items())},
            "rows_changed": rows_changed,
        }
        catalog.append_build(row)
    return Summary(row=row, topics=topics, not_well=not_well, scan_seconds=scan_seconds, catalog=catalog.path)


def _by_topic(results: DataFrame) -> list[dict[str, Any]]:
    """A row per topic, largest first: counts and bytes, and segments by status and by what publishing did."""
    entries = F.col("offset_index_entries") + F.col("time_index_entries")
    counted = results.groupBy("topic", "status", "published").agg(
        F.count("*").alias("segments"),
        *(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in ("log_bytes", "batches")),
        F.coalesce(F.sum(entries), F.lit(0)).alias("entries"),
    )
    topics: dict[str, dict[str, Any]] = {}
    for row in counted.collect():
        topic = topics.setdefault(
            row["topic"],
            {
                "topic": row["topic"],
                **dict.fromkeys(("segments", "log_bytes", "batches", "entries", "not_well"), 0),
                "by_status": Counter(),
                "by_published": Counter(),
            },
        )
        for name in ("segments", "log_bytes", "batches", "entries"):
            topic[name] += row[name]
        topic["not_well"] += row["segments"] if row["status"] != Status.OK else 0
        topic["by_status"][row["status"]] += row["segments"]
        topic["by_published"][row["published"]] += row["segments"]
    return sorted(topics.values(), key=lambda topic: (-topic["log_bytes"], topic["topic"]))


def _added_up(topics: list[dict[str, Any]], name: str) -> dict[str, int]:
    return dict(sum((topic[name] for topic in topics), Counter[str]()))


def _not_well(results: DataFrame) -> list[dict[str, Any]]:
    columns = ("source", "topic", "partition", "base_offset", "status", "reason", "reason_position", "reason_detail")
    rows = results.where(F.col("status") != Status.OK.value).select(*columns, "log_path")
    return [row.asDict() for row in rows.orderBy(*columns[:4]).limit(NOT_WELL_IN_JSON).collect()]


def _versions(spark_version: str) -> dict[str, str]:
    return {
        "kidx": metadata.version("kidx"),
        "spark": spark_version,
        "delta": metadata.version("delta-spark"),
        "python": platform.python_version(),
    }


def _print(summary: Summary, request: BuildRequest) -> None:
    """Show what was made: a row per topic, what is not well, the rate, where things are and what to do next."""
    row = summary.row
    print_table(
        f"build {row['build_id']}",
        ("topic", "segments", "bytes", "batches", "entries", "written", "unchanged", "not well"),
        [
            (
                topic["topic"],
                topic["segments"],
                topic["log_bytes"],
                topic["batches"],
                topic["entries"],
                topic["by_published"][Published.WRITTEN],
                topic["by_published"][Published.UNCHANGED],
                topic["not_well"],
            )
            for topic in summary.topics[:TOPICS_SHOWN]
        ],
        text_columns=1,
    )
    if len(summary.topics) > TOPICS_SHOWN:
        print_line(f"... and {len(summary.topics) - TOPICS_SHOWN:,} topics more: see the catalog")
    for segment in summary.not_well[:NOT_WELL_SHOWN]:
        print_line(
            f"{segment['status']}: {segment['log_path']}: byte {segment['reason_position']}: "
            f"{segment['reason']}: {segment['reason_detail']}"
        )
    if summary.not_well_count > NOT_WELL_SHOWN:
        print_line(
            f"... and {summary.not_well_count - NOT_WELL_SHOWN:,} segments more that are not well: see the catalog"
        )
    if row["left_alone"]:
        left_alone = ", ".join(f"{count:,} {reason}" for reason, count in row["left_alone"].items())
        print_line(f"left alone: {left_alone}")
    scan_rate = rate(row["log_bytes"], summary.scan_seconds)
    print_line(
        f"read {decimal(row['log_bytes'])} in {summary.scan_seconds:.1f} s ({scan_rate}), "
        f"{row['seconds']:.1f} s in all; "
        f"{row['rows_changed']:,} catalog rows added or changed"
    )
    print_line(f"index files: {request.index_dir}")
    print_line(f"catalog:     {summary.catalog} (tables segments and builds)")
    print_line("next:        query the catalog, docs/catalog.md has a dozen questions with their SQL")


if __name__ == "__main__":
    run(build_index)
