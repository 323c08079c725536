"""A listing of many segments, compared with a catalog that knows all of them as they are, without Spark."""

from __future__ import annotations

import os
import resource
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click
import pyarrow as pa

from benchmarks.figures import Target, record
from benchmarks.library import plan_build
from benchmarks.links import SEGMENT_BYTES, SEGMENTS_A_PARTITION
from kidxlib.catalog.segments import IntervalSource
from kidxlib.catalog.tables import CATALOG_VERSION
from kidxlib.errors import KidxError
from kidxlib.format.segment_files import LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, segment_file
from kidxlib.indexing.changes import compare_with_catalog
from kidxlib.indexing.known_segments import KNOWN
from kidxlib.indexing.plan import AuxiliaryFiles, Plan
from kidxlib.recovery.options import INTERVAL_BYTES_DEFAULT, MAX_INDEX_BYTES_DEFAULT
from kidxlib.recovery.outcome import Status
from kidxlib.terminal.console import note

_T = TypeVar("_T")

_INDEX_BYTES: Final = 24


@click.command()
@click.option("--segments", type=click.IntRange(SEGMENTS_A_PARTITION), default=1_000_000, show_default=True)
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True)
@click.option("--directory", type=click.Path(path_type=Path), default=Path("var/benchmarks"), show_default=True)
def comparison(segments: int, rounds: int, directory: Path) -> None:
    """List a log dir, and compare it with a catalog's rows that say the same.

    Logs and index files are hard links to sparse files, which every partition has of its own: nothing reads them.
    """
    segments -= segments % SEGMENTS_A_PARTITION
    place = directory.resolve() / f"comparison-{segments}"
    if not (place / "made").exists():
        note(f"linking {segments:,} segments and their indexes below {place} …")
        _make(place, segments // SEGMENTS_A_PARTITION)
    listing, comparing = [], []
    for number in range(rounds):
        note(f"round {number + 1} of {rounds} …")
        plan, seconds = _timed(lambda: plan_build(place))
        listing.append(seconds)
        known = _known(plan)
        comparing.append(_timed(lambda: _compare(plan, known))[1])  # noqa: B023  # called at once
    of = f"{segments:,} segments"
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    both = [one + other for one, other in zip(listing, comparing, strict=True)]
    targets = [
        Target(
            name=f"unchanged, {of}: listing and comparing, processor", unit="s", values=both, at_most=segments * 15e-6
        ),
        Target(name=f"unchanged, {of}: listing", unit="µs a segment", values=[s / segments * 1e6 for s in listing]),
        Target(name=f"unchanged, {of}: comparing", unit="µs a segment", values=[s / segments * 1e6 for s in comparing]),
        Target(name=f"unchanged, {of}: memory, with the catalog's rows", unit="MB", values=[peak / 1e6], at_most=700),
    ]
    record(directory, "comparison", targets, segments=segments)


def _timed(work: Callable[[], _T]) -> tuple[_T, float]:
    """What it gives, and the seconds of processor that it takes, the kernel's part included."""
    start = time.process_time()
    found = work()
    return found, time.process_time() - start


def _compare(plan: Plan, known: pa.Table) -> None:
    changes = compare_with_catalog(
        plan, known, AuxiliaryFiles(), publish_truncated=True, explicit_interval=False, rebuild=False
    )
    if changes.to_read.num_rows or changes.relisted.num_rows or changes.gone.num_rows:
        raise KidxError(f"{changes.to_read.num_rows} segments to read; expected none")


def _make(place: Path, partitions: int) -> None:
    shutil.rmtree(place, ignore_errors=True)
    for number in range(partitions):
        directories = {name: place / name / f"bench-{number}" for name in ("kafka-logs", "index")}
        contents = {name: place / f"{number}.{name}" for name in directories}
        for name, size in (("kafka-logs", SEGMENT_BYTES), ("index", _INDEX_BYTES)):
            directories[name].mkdir(parents=True)
            contents[name].touch()
            os.truncate(contents[name], size)
        for base_offset in range(SEGMENTS_A_PARTITION):
            for name, suffix in (
                ("kafka-logs", LOG_SUFFIX),
                ("index", OFFSET_INDEX_SUFFIX),
                ("index", TIME_INDEX_SUFFIX),
            ):
                os.link(contents[name], directories[name] / segment_file(base_offset, suffix))
    (place / "made").touch()


def _known(plan: Plan) -> pa.Table:
    """What a catalog would say of the plan's segments, as the job reads it."""
    rows = plan.segments
    folders = pa.array([str(partition.index_directory) for partition in plan.partitions], pa.string())
    keys = plan.keys(rows)
    columns = {
        **{name: keys[name] for name in keys.column_names},
        **{name: rows[name] for name in ("active", "log_bytes", "log_mtime_ns", "log_inode")},
        "log_path": plan.paths_of_logs(rows),
        "index_directory": folders.take(rows["listed_partition"].combine_chunks()),
        "topic_id": pa.nulls(rows.num_rows),
        "transaction_index_bytes": pa.nulls(rows.num_rows),
    }
    same: dict[str, Any] = {
        "status": Status.OK.value,
        "interval_bytes": INTERVAL_BYTES_DEFAULT,
        "max_index_bytes": MAX_INDEX_BYTES_DEFAULT,
        "crc_checked": True,
        "producer_state": "log-start",
        "interval_source": IntervalSource.SETTINGS.value,
        "offset_index_bytes": _INDEX_BYTES,
        "time_index_bytes": _INDEX_BYTES,
        **dict.fromkeys(("log_crc32c", "log_crc64nvme", "smallest_timestamp_ms"), 1),  # any value: it is not read again
        "catalog_version": CATALOG_VERSION,
    }
    columns |= {name: pa.repeat(pa.scalar(value), rows.num_rows) for name, value in same.items()}
    arrays = []
    for column in KNOWN:
        values = columns[column.name].cast(column.type)
        shared = column.type == pa.string() and column.name != "log_path"
        arrays.append(values.dictionary_encode() if shared else values)
    return pa.table(arrays, names=KNOWN.names)
