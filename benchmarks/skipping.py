"""What a question about one partition reads of a table of many segments, before and after its files are in order."""

from __future__ import annotations

import shutil
import time
from functools import partial
from pathlib import Path
from typing import Any, Final

import click
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.figures import Table, Target, record
from kidxlib.catalog import updates
from kidxlib.catalog.conditions import Among
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.errors import KidxError
from kidxlib.operations.maintenance import table_state
from kidxlib.tables.delta_maintenance import DeltaMaintenance
from kidxlib.tables.delta_tables import DeltaTables
from kidxlib.terminal.console import note

#: A build records so many segments of each partition, one after the other.
_BUILDS: Final = 10
_TOPICS: Final = 40
_PARTITIONS: Final = 25
#: The partition that is asked for.
_ASKED: Final = ("topic-017", 7)
#: Of the rows that a later build changes: a prime number, so that they are of all builds and partitions.
_ONE_IN: Final = 101
_SIZES: Final = ("mib", "mib_read", "ms")
_MIB: Final = 1024 * 1024


@click.command()
@click.option("--segments", type=click.IntRange(_BUILDS * _TOPICS * _PARTITIONS), default=1_000_000, show_default=True)
@click.option("--directory", type=click.Path(path_type=Path), default=Path("var/benchmarks"), show_default=True)
def skipping(segments: int, directory: Path) -> None:
    """Ask a catalog for one partition: as builds leave its table, after a build that changes a row in a hundred, once
    `kidx tables optimize` has written it anew, and after another such build.

    Prints the files and the bytes that the question reads, by Delta's statistics in the log and in the files.
    """
    place = directory.resolve() / "skipping"
    shutil.rmtree(place, ignore_errors=True)
    tables = DeltaTables(str(place))
    for number in range(_BUILDS):
        note(f"build {number + 1} of {_BUILDS} …")
        _record(tables, np.arange(number, segments, _BUILDS))
    found = [_asked(tables, "as ten builds left it")]
    note("a build that changes a row in a hundred …")
    changing = [_record(tables, np.arange(0, segments, _ONE_IN), seed=1)]
    found.append(_asked(tables, "1 % of the rows changed"))
    note("writing the table anew …")
    seconds = _optimize(tables)
    found.append(_asked(tables, "optimized"))
    changing.append(_record(tables, np.arange(0, segments, _ONE_IN), seed=2))
    found.append(_asked(tables, "1 % changed again"))
    rows = [
        (
            each["table"],
            *(f"{each[name]:,}" for name in ("files", "files_read")),
            *(f"{each[name]:.1f}" for name in ("mib", "mib_read", "ms")),
        )
        for each in found
    ]
    columns = ("the table", "files", "files read", "MiB", "MiB read", "ms")
    files, mib = ([each[name] for each in found[2:]] for name in ("files_read", "mib_read"))
    targets = [
        Target(name="files that hold one partition, optimized and changed", unit="files", values=files, at_most=2),
        Target(name="read for one partition, optimized and changed", unit="MiB", values=mib, at_most=8),
        Target(name="a table written anew", unit="s", values=[seconds]),
        Target(name="a change of 1 % of the rows", unit="s", values=changing),
    ]
    shown = [Table(name="questions", columns=columns, rows=rows)]
    record(directory, "skipping", targets, shown, segments=segments, states=found)


def _record(tables: DeltaTables, numbers: NDArray[np.int64], seed: int = 0) -> float:
    """Seconds that it takes."""
    change, rows = partial(updates.written, table=SEGMENTS), _rows(numbers, seed)
    start = time.perf_counter()
    tables.change_rows(SEGMENTS, {"row": rows}, change, by=SEGMENTS.key)
    return time.perf_counter() - start


def _optimize(tables: DeltaTables) -> float:
    """Seconds that it takes.

    Raises:
        KidxError: the table would be written anew once more.
    """
    maintenance = DeltaMaintenance(tables)
    start = time.perf_counter()
    maintenance.rewrite(SEGMENTS)
    seconds = time.perf_counter() - start
    if table_state(maintenance, SEGMENTS).needs_rewrite:
        raise KidxError(f"{tables.path}: expected a table in order once it is written anew")
    return seconds


def _asked(tables: DeltaTables, title: str) -> dict[str, Any]:
    """What a question about one partition takes."""
    topic, partition = _ASKED
    files = DeltaMaintenance(tables).files(SEGMENTS).to_pylist()
    may_hold = [
        file
        for file in files
        if file["min.topic"] <= topic <= file["max.topic"]
        and file["min.partition"] <= partition <= file["max.partition"]
    ]
    read, start = _bytes_read(), time.perf_counter()
    rows = tables.read(SEGMENTS, None, [Among("topic", (topic,)), Among("partition", (partition,))])
    seconds, read = time.perf_counter() - start, _bytes_read() - read
    if not rows.num_rows:
        raise KidxError(f"{tables.path}: expected rows of {topic}-{partition}")
    return {
        "table": title,
        "files": len(files),
        "files_read": len(may_hold),
        "mib": sum(file["size_bytes"] for file in files) / _MIB,
        "mib_read": read / _MIB,
        "ms": seconds * 1000,
    }


def _bytes_read() -> int:
    """Bytes that this process has read so far, from the disk or from memory."""
    return int(Path("/proc/self/io").read_text().split()[1])


def _rows(numbers: NDArray[np.int64], seed: int) -> pa.Table:
    """Segments by number: all partitions have their first one before any has a second."""
    rng = np.random.default_rng([seed, numbers[0]])
    topics, partitions = numbers % _TOPICS, numbers // _TOPICS % _PARTITIONS
    base_offsets = numbers // (_TOPICS * _PARTITIONS) * 1_000_000
    names = [
        (f"topic-{topic:03}", partition, base_offset)
        for topic, partition, base_offset in zip(
            topics.tolist(), partitions.tolist(), base_offsets.tolist(), strict=True
        )
    ]
    given: dict[str, Any] = {
        "source": pa.repeat("broker", len(numbers)),
        "topic": pa.array([name for name, _, _ in names]),
        "partition": pa.array(partitions.astype(np.int32)),
        "base_offset": pa.array(base_offsets),
        "log_path": pa.array([f"/kafka/{name}-{number}/{base:020}.log" for name, number, base in names]),
        "index_directory": pa.array([f"/index/{name}-{number}" for name, number, _ in names]),
    }
    columns = []
    for field in SEGMENTS.schema():
        if field.name in given:
            columns.append(given[field.name].cast(field.type))
        elif pa.types.is_integer(field.type):
            columns.append(pa.array(rng.integers(0, 2**31 - 1, len(numbers))).cast(field.type))
        elif field.nullable:
            columns.append(pa.nulls(len(numbers), field.type))
        else:
            columns.append(pa.repeat(False if pa.types.is_boolean(field.type) else "ok", len(numbers)))
    return pa.table(columns, schema=SEGMENTS.schema())
