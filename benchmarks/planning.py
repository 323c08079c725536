"""A build that finds a million segments and nothing new among them, and one offset looked up in their catalog."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import click
import numpy as np
from pyspark.sql import functions as F

from benchmarks.event_log import EventLog, seconds_of_build
from benchmarks.figures import Target, beside, record
from benchmarks.library import plan_build
from benchmarks.links import (
    FIRST_OFFSET,
    SEGMENT_BYTES,
    SEGMENTS_A_PARTITION,
    content_file,
    link_segments,
    write_partition,
)
from benchmarks.submit import JobRun, places, run_job, run_kidx
from jobs.common.spark.session import session
from kidxlib.catalog.partitions import PARTITIONS
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.catalog.tables import FILE_BYTES, ROW_BYTES
from kidxlib.errors import KidxError
from kidxlib.format import layouts
from kidxlib.format.segment_files import OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, segment_file
from kidxlib.terminal.console import note
from kidxlib.terminal.exit_codes import ExitCode
from tests.support.spark.sessions import use_own_session

_KIDX: Final = Path(sys.executable).with_name("kidx")
_GIB: Final = 2**30
_FIRST: Final = "bench-0"


@click.command()
@click.option("--segments", type=click.IntRange(2 * SEGMENTS_A_PARTITION), default=1_000_000, show_default=True)
@click.option("--lookups", type=click.IntRange(1), default=7, show_default=True)
@click.option("--directory", type=click.Path(path_type=Path), default=Path("var/benchmarks"), show_default=True)
def planning(segments: int, lookups: int, directory: Path) -> None:
    """Build a partition of 1,000 segments, multiply it with its indexes and its rows, and build again.

    Logs and indexes are hard links, which every partition has of its own; the rows are those that the job would have
    made. So the second build has to list and compare all of them, and finds that nothing has changed.
    """
    segments -= segments % SEGMENTS_A_PARTITION
    place = directory.resolve() / f"planning-{segments}"
    made = place / "made"
    if not made.exists():
        shutil.rmtree(place, ignore_errors=True)
        _make(place, segments // SEGMENTS_A_PARTITION)
        made.touch()
    note(f"a build that finds {segments:,} segments unchanged …")
    run = run_job("build_index", *places(place), events=place / "events")
    by_kidx = run_kidx("build", *places(place))
    for said in (run.json, by_kidx.json):
        if (said["segments"], said["unchanged"]) != (0, segments):
            raise KidxError(
                f"{said['segments']} segments read, {said['unchanged']} unchanged; expected 0 and {segments}"
            )
    start = time.perf_counter()
    plan_build(place)
    listing = time.perf_counter() - start
    note("one offset through the catalog …")
    random = np.random.default_rng(1)
    partitions = random.integers(0, segments // SEGMENTS_A_PARTITION, 1 + lookups).tolist()
    first, *later = [_look_up(place, partition, FIRST_OFFSET + int(random.integers(0, 40))) for partition in partitions]
    parts = seconds_of_build(run, EventLog.read(place / "events")) | {"listing": listing}
    targets = _targets(segments, run, by_kidx, listing, first, later)
    record(
        directory,
        "planning",
        targets,
        [beside("builds", targets)],
        segments=segments,
        parts=parts,
        memory=run.memory,
    )


def _targets(
    segments: int, run: JobRun, by_kidx: JobRun, listing: float, first: float, later: list[float]
) -> list[Target]:
    of = f", {segments:,} segments"
    targets = []
    for engine, of_engine in (("kidx", by_kidx), ("the job", run)):
        memory = of_engine.all_bytes / _GIB
        targets += [
            Target(name=f"{engine}{of}: nothing changed", unit="s", values=[of_engine.seconds], at_most=20),
            Target(name=f"{engine}{of}: memory of all processes", unit="GiB", values=[memory], at_most=1.2),
        ]
    return [
        *targets,
        Target(name=f"the library{of}: nothing changed", unit="s", values=[listing]),
        Target(name=f"kidx seek --catalog{of}: an offset", unit="s", values=later, at_most=1),
        Target(name=f"kidx seek --catalog{of}: the first offset", unit="s", values=[first]),
    ]


def _make(place: Path, partitions: int) -> None:
    """A log dir, an index directory and a catalog, as if the job had built all of it."""
    make_first(place)
    add_copies(place, range(1, partitions))


def make_first(place: Path) -> None:
    """A partition of `SEGMENTS_A_PARTITION` segments, built."""
    write_partition(place / "kafka-logs" / _FIRST, SEGMENT_BYTES, SEGMENTS_A_PARTITION)
    run_job("build_index", *places(place))


def add_copies(place: Path, numbers: range) -> None:
    """Partitions as the first, with its indexes and its rows. Each has hard links to a log of its own."""
    log_dir, index_dir = place / "kafka-logs", place / "index"
    note(f"linking {len(numbers) * SEGMENTS_A_PARTITION:,} segments and their indexes below {place} …")
    indexes = [
        segment_file(offset, suffix)
        for offset in range(SEGMENTS_A_PARTITION)
        for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX)
    ]
    versions = []
    for number in numbers:
        directory, index_directory = log_dir / f"bench-{number}", index_dir / f"bench-{number}"
        directory.mkdir()
        index_directory.mkdir()
        content = content_file(directory)
        shutil.copyfile(content_file(log_dir / _FIRST), content)
        link_segments(directory, range(SEGMENTS_A_PARTITION))
        for name in indexes:
            os.link(index_dir / _FIRST / name, index_directory / name)
        status = content.stat()
        versions.append((number, status.st_mtime_ns, status.st_ino))
    note("multiplying the rows of the catalog …")
    use_own_session()
    with session("benchmark") as spark:
        copies = F.broadcast(spark.createDataFrame(versions, "copy int, mtime_ns long, inode long"))
        for table, of_copy in ((SEGMENTS, ("partition", "base_offset")), (PARTITIONS, ("partition",))):
            path_of_table = f"{place}/catalog/{table.name}"
            rows = spark.read.format("delta").load(path_of_table).where("partition = 0")
            if table is SEGMENTS:
                rows = rows.where(F.col("base_offset") < SEGMENTS_A_PARTITION)
            rows = rows.crossJoin(copies).withColumn("partition", F.col("copy"))
            for path in ("log_path", "index_directory", "directory"):
                if path in rows.columns:
                    moved = F.concat(F.lit("/bench-"), F.col("copy"))
                    rows = rows.withColumn(path, F.regexp_replace(path, F.lit("/bench-0(?=/|$)"), moved))
            if table is SEGMENTS:
                rows = rows.withColumns({"log_mtime_ns": F.col("mtime_ns"), "log_inode": F.col("inode")})
                rows = rows.withColumn("log_mtime", F.timestamp_micros(F.expr("log_mtime_ns div 1000")))
            files = -(-ROW_BYTES * len(numbers) * SEGMENTS_A_PARTITION // FILE_BYTES) if table is SEGMENTS else 1
            rows = rows.select(*table.column_names).repartitionByRange(files, *of_copy).sortWithinPartitions(*of_copy)
            rows.write.format("delta").mode("append").save(path_of_table)


def _look_up(place: Path, partition: int, offset: int) -> float:
    """Seconds of a whole command.

    Raises:
        KidxError: it fails, or there is another batch where it says that the offset is.
    """
    where = ("--catalog", place / "catalog", "--topic", "bench", "--partition", str(partition))
    start = time.perf_counter()
    command: list[str | Path] = [_KIDX, "seek", *where, "--offset", str(offset), "--json"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - start
    if ended.returncode not in (ExitCode.OK, ExitCode.PROBLEMS_FOUND):  # links have the same offsets, as it says
        raise KidxError(f"{' '.join(map(str, command))}: exit code {ended.returncode}: {ended.stderr.strip()}")
    (answer,) = json.loads(ended.stdout)["answers"]
    log = content_file(place / "kafka-logs" / f"bench-{partition}").read_bytes()
    header = np.frombuffer(log, layouts.BATCH_V2, 1, answer["position"])[0]
    if not header["base_offset"] <= offset <= header["base_offset"] + header["last_offset_delta"]:
        raise KidxError(f"bench-{partition}: offset {offset} is not in the batch at byte {answer['position']}")
    return seconds
