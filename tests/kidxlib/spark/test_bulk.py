"""`kidxlib.spark.read` gives what `kidxlib.read` gives, in its order, in a task for each part of the plan."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

import kidxlib.spark
from kidxlib.errors import DamagedLogError, UsageError
from kidxlib.format.segment_files import LOG_SUFFIX, segment_file
from kidxlib.library.read import read
from kidxlib.records.reader import Record
from kidxlib.spark import bulk, planning
from tests.faults.trees import write_log
from tests.support.logs import encoded
from tests.support.logs.golden import SAMPLES
from tests.support.seeks import sample_directory
from tests.support.spark.jobs import kidx_build_here


@pytest.mark.parametrize(
    "options",
    [
        {"include_headers": True},
        {"isolation": "read_committed", "topics": "txn-.*"},
        {"offsets": {"txn-mixed-0": (100, 9_000)}, "columns": ["offset", "value"]},
        {"times": ("2026-11-21T00:00Z", "2026-11-22T00:00Z")},
        {"mode": "batches"},
        {"topics": "none-of-them"},
    ],
)
def test_rows_are_those_of_the_library(spark: SparkSession, options: dict[str, Any]) -> None:
    found = kidxlib.spark.read(spark, SAMPLES, **options)
    expected = read(SAMPLES, **options).read_all()
    assert found.toArrow().equals(expected.cast(to_arrow_schema(found.schema, timezone="UTC")))


def test_a_catalog_tells_which_segments_are_read(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = tmp_path / "catalog"
    assert kidx_build_here(SAMPLES, "--index-dir", tmp_path / "index", "--catalog", place).code == 0
    options: dict[str, Any] = {"times": ("2026-11-21T00:00Z", "2026-11-22T00:00Z"), "columns": ["offset"]}
    with caplog.at_level(logging.INFO, "kidxlib"):
        found = kidxlib.spark.read(spark, SAMPLES, catalog=place, **options).toArrow()
    assert found["offset"].equals(read(SAMPLES, **options).read_all()["offset"])
    assert " passed over: 0 partitions, 0 segments" not in caplog.messages[0]


def test_columns_are_those_of_the_source(spark: SparkSession) -> None:
    kidxlib.spark.register(spark)
    of_source = spark.read.format("kafka_segment").option("includeHeaders", "true").load(str(SAMPLES))
    assert kidxlib.spark.read(spark, SAMPLES, include_headers=True).schema == of_source.schema


def test_each_part_is_a_task(spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A part is of about 32 MiB: of three segments that are half as large, two are read by one task."""
    for base_offset in (0, 20, 40):
        batches = [encoded.batch_v2([Record(base_offset + n, 0, None, bytes(780_000))]) for n in range(20)]
        write_log(tmp_path / "topic-0", base_offset, b"".join(batches))
    with caplog.at_level(logging.INFO, "kidxlib"):
        found = kidxlib.spark.read(spark, tmp_path, columns=["offset"])
    assert caplog.messages[0].startswith("3 segments to read, ")
    tasks = found.withColumn("task", F.spark_partition_id()).groupBy("task").agg(F.min("offset"), F.count("*"))
    assert sorted(map(tuple, tasks.collect())) == [(0, 0, 40), (1, 40, 20)]


def test_a_large_segment_is_read_by_several_tasks(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large is what is larger than 100 kB here."""
    partition = SAMPLES / "txn-mixed-0"
    sample_directory(tmp_path / partition.name)
    monkeypatch.setattr(bulk, "PART_BYTES", 100_000)
    monkeypatch.setattr(planning, "_TASK_BYTES", 100_000)
    found = kidxlib.spark.read(spark, tmp_path, columns=["offset"])
    assert found.rdd.getNumPartitions() > 4
    assert found.toArrow()["offset"].equals(read(partition, columns=["offset"]).read_all()["offset"])


def test_tasks_scan_logs_for_what_was_committed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what is wrong with one is told at once, in one line. Each log is scanned by a task of its own here."""
    monkeypatch.setattr(planning, "_TASK_BYTES", 1)
    monkeypatch.setattr(bulk, "_TASKS_AT_ONCE", 3)
    options: dict[str, Any] = {"isolation": "read_committed", "columns": ["offset"]}
    found = kidxlib.spark.read(spark, SAMPLES, **options).toArrow()
    assert found["offset"].equals(read(SAMPLES, **options).read_all()["offset"])
    shutil.copytree(SAMPLES / "txn-mixed-0", tmp_path / "txn-mixed-0")
    log = tmp_path / "txn-mixed-0" / segment_file(84, LOG_SUFFIX)
    log.write_bytes(log.read_bytes()[:-1])
    with pytest.raises(DamagedLogError, match=f"{log}: byte .*; which transactions were aborted cannot be told"):
        kidxlib.spark.read(spark, tmp_path, **options)
    found = kidxlib.spark.read(spark, tmp_path, on_damage="skip", **options).toArrow()
    assert found["offset"].equals(read(tmp_path, on_damage="skip", **options).read_all()["offset"])
    log.unlink()
    log.symlink_to("nowhere")
    with pytest.raises(FileNotFoundError, match=str(log)):
        kidxlib.spark.read(spark, tmp_path, **options)


def test_damage_ends_a_query_unless_it_may_be_passed_over(spark: SparkSession, tmp_path: Path) -> None:
    batches = [encoded.batch_v2([Record(n, 0, None, b"")], crc_error=int(n == 1)) for n in range(3)]
    write_log(tmp_path / "topic-0", 0, b"".join(batches))
    with pytest.raises(PySparkException, match=r"kidxlib.errors.DamagedLogError: .*the batch's checksum is not"):
        kidxlib.spark.read(spark, tmp_path).count()
    assert kidxlib.spark.read(spark, tmp_path, on_damage="skip").count() == 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"on_damage": "go on"}, "on_damage 'go on': expected 'fail' or 'skip'"),
        ({"columns": ["offsets"]}, "column 'offsets': expected each of these once at most"),
        ({"mode": "batches", "isolation": "read_committed"}, "isolation read_committed: of batches all are read"),
        ({"topics": "("}, r"topics \(: not a regular expression"),
        ({"catalog": "abfss://c@a/x"}, "catalog abfss://c@a/x: kidx keeps catalogs in directories and at s3:// URLs"),
    ],
)
def test_wrong_usage_is_told_at_once(spark: SparkSession, options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        kidxlib.spark.read(spark, SAMPLES, **options)
