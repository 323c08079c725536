"""A plan of a million segments from a generated catalog, in one job: seconds, and the driver's memory."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Final

import click
from pyspark.sql import Column
from pyspark.sql import functions as F

from benchmarks import machine
from benchmarks.submit import run_job
from jobs.common.catalog.catalog import Catalog
from jobs.common.catalog.create import make_tables
from jobs.common.spark.session import session
from kidxlib.catalog.partitions import PARTITIONS
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.catalog.tables import CATALOG_VERSION
from kidxlib.terminal.console import note, print_line
from kidxlib.terminal.tables import print_table
from tests.support.spark.jobs import use_pips_spark

_NOW_MS: Final = 1_790_000_000_000
_HOUR_MS: Final = 3_600_000
_SEGMENT_BYTES: Final = 1 << 30
_OFFSETS: Final = 1_000_000
_TOPICS: Final = 50


@click.command()
@click.option("--segments", type=click.IntRange(1), default=1_000_000, show_default=True)
@click.option("--partitions", type=click.IntRange(1), default=2_000, show_default=True)
@click.option("--directory", type=click.Path(path_type=Path), default=Path("var/benchmarks"), show_default=True)
def retention(segments: int, partitions: int, directory: Path) -> None:
    """Plan the retention of a generated catalog through ./spark-submit.sh.

    Segments are of 1 GiB and an hour each, timestamps go back in some; no files exist for them. The driver is
    a Python process and Spark's JVM, which in local mode is the executor, too.
    """
    catalog = directory.resolve() / f"retention-{segments}-{partitions}"
    shutil.rmtree(catalog, ignore_errors=True)
    note(f"generating {segments:,} segments in {partitions:,} partitions below {catalog} …")
    _generate(catalog, segments, partitions)
    run = _plan(catalog)
    print_table(
        f"{segments:,} segments in {partitions:,} partitions",
        ("", "seconds in all", "segments a second", "driver's JVM, MB", "driver's Python, MB"),
        [
            (
                "plan",
                f"{run['seconds']:.1f}",
                f"{segments / run['seconds']:,.0f}",
                f"{run['jvm_bytes'] / 1e6:,.0f}",
                f"{run['python_bytes'] / 1e6:,.0f}",
            )
        ],
        text_columns=1,
    )
    print_line(run["said"])
    result = directory / "retention.json"
    result.write_text(json.dumps({"machine": machine.describe(), "runs": {"plan": run}}, indent=2) + "\n")
    print_line(f"all figures: {result}")


def _generate(path: Path, segments: int, partitions: int) -> None:
    each = -(-segments // partitions)
    use_pips_spark()
    with session("generate") as spark:
        catalog = Catalog(spark, str(path))
        make_tables(catalog, None, None)
        number = F.col("id") % each
        partition = F.floor(F.col("id") / each)
        name = F.format_string("topic-%d-%d", partition % _TOPICS, F.floor(partition / _TOPICS))
        key: dict[str, Column] = {
            "source": F.lit("generated"),
            "topic": F.format_string("topic-%d", partition % _TOPICS),
            "partition": F.floor(partition / _TOPICS).cast("int"),
        }
        # The last segment is of now; one in eight is ten hours older than its place says.
        timestamp = _NOW_MS - (each - 1 - number) * _HOUR_MS - F.when(F.col("id") % 8 == 0, 10 * _HOUR_MS).otherwise(0)
        of_segments: dict[str, Column] = {
            **key,
            "base_offset": number * _OFFSETS,
            "next_offset": (number + 1) * _OFFSETS,
            "status": F.lit("ok"),
            "active": number == each - 1,
            "log_bytes": F.lit(_SEGMENT_BYTES).cast("long"),
            "valid_bytes": F.lit(_SEGMENT_BYTES).cast("long"),
            "max_timestamp_ms": timestamp,
            "interval_bytes": F.lit(4096),
            "max_index_bytes": F.lit(10485760),
            "interval_source": F.lit("settings"),
            "crc_checked": F.lit(True),
            "log_mtime_ns": F.lit(_NOW_MS * 1_000_000),
            "log_path": F.concat(
                F.lit("/nowhere/logs/"),
                name,
                F.lit("/"),
                F.lpad((number * _OFFSETS).cast("string"), 20, "0"),
                F.lit(".log"),
            ),
            "index_directory": F.concat(F.lit("/nowhere/index/"), name),
            "catalog_version": F.lit(CATALOG_VERSION),
            "build_id": F.lit("generated"),
        }
        of_partitions: dict[str, Column] = {
            **key,
            "first_base_offset": F.lit(0).cast("long"),
            "clean_shutdown": F.lit(True),
            "present": F.lit(True),
            "directory": F.concat(F.lit("/nowhere/logs/"), name),
            "build_id": F.lit("generated"),
        }
        rows = spark.range(0, segments, 1, 8)
        for table, columns, chosen in (
            (SEGMENTS, of_segments, rows),
            (PARTITIONS, of_partitions, rows.where(number == 0)),
        ):
            written = chosen.select(*(value.alias(column) for column, value in columns.items()))
            written.write.format("delta").mode("append").save(catalog.table_path(table))


def _plan(catalog: Path) -> dict[str, Any]:
    run = run_job("retention", "--catalog", catalog, "--now", str(_NOW_MS))
    said = next(line for line in run.out.splitlines() if line.startswith("policy "))
    return {"seconds": run.seconds, "jvm_bytes": run.jvm_bytes, "python_bytes": run.python_bytes, "said": said.strip()}
