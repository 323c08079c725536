"""What executors stage is there once, in the order of their units, whatever became of their tasks; what killed runs
have left is swept; a job waits for loops that setup.sh compiles.
"""

from __future__ import annotations

import fcntl
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest
from chispa import assert_df_equality
from pyspark import StorageLevel
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as t
from pyspark.sql.pandas.types import to_arrow_schema

from jobs.common.spark import engine
from jobs.common.spark.engine import StagedBySpark, spark_engine
from jobs.common.spark.local_rows import of_arrow, one_a_task, spark_schema
from jobs.common.spark.session import JobSession, session
from kidxlib.engine.work import ItemRows, Work
from kidxlib.jit import compiling
from kidxlib.storage import scratch
from kidxlib.storage.scratch import DEAD_AFTER, HEARTBEAT
from tests.support.leftovers import age
from tests.support.spark.sessions import use_shared_session

_SCHEMA = pa.schema([pa.field("number", pa.struct([pa.field("of", pa.int64())]))])
#: More rows than go into one group of a file.
_ROWS = 70_000

_DEADLINE_SECONDS: Final = 60.0

_STAGED_SCHEMA: Final = pa.schema(
    [("odd", pa.struct([("number", pa.int64())])), ("even", pa.struct([("number", pa.int64()), ("text", pa.string())]))]
)
#: Of unequal tasks, as Spark reads large files first.
_STAGED_ROWS: Final = 5_000


@pytest.fixture(scope="module")
def spark_session() -> Iterator[JobSession]:
    use_shared_session()
    with JobSession("test", None) as session:
        yield session


def _numbers(items: Iterable[tuple[int, str]], use_mmap: bool) -> Iterator[ItemRows]:
    """Rows for each item. The first attempt at a unit fails after its first item."""
    for first, marker in items:
        numbers = pa.StructArray.from_arrays([pa.array(range(first, first + _ROWS))], ["of"])
        yield ItemRows(1, 10, batches=[pa.RecordBatch.from_arrays([numbers], schema=_SCHEMA)])
        if not os.path.exists(marker):
            Path(marker).touch()
            raise OSError(f"{marker}: not yet; mapped: {use_mmap}")


def _is_pandas_there(items: Iterable[int]) -> Iterator[ItemRows]:
    """Whether it was imported where Arrow has made an array of a list."""
    for _ in items:
        pa.array([0])
        there = pa.StructArray.from_arrays([pa.array([int("pandas" in sys.modules)])], ["of"])
        yield ItemRows(batches=[pa.RecordBatch.from_arrays([there], schema=_SCHEMA)])


@pytest.mark.parametrize("is_at_url", [False, True])
def test_tasks_import_no_pandas(
    is_at_url: bool, spark_session: JobSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither those that write a file themselves, nor those whose rows Spark writes. In another environment Spark
    starts another Python, as that of an earlier test may have pandas.
    """
    monkeypatch.setitem(spark_session.get().sparkContext.environment, "WITHOUT_PANDAS", tmp_path.name)
    with spark_engine(spark_session, tmp_path.as_uri() if is_at_url else str(tmp_path), "run") as engine:
        engine.start()
        staged = engine.run(Work("pandas", [[0]], _is_pandas_there, _SCHEMA))
        assert staged.rows("number")["of"].to_pylist() == [0]


@pytest.mark.parametrize("shared", ["directory", "URL", None])
def test_an_attempt_that_fails_leaves_no_rows(shared: str | None, spark_session: JobSession, tmp_path: Path) -> None:
    """Wherever rows are staged: in a directory that both see, at a URL, or on executors' disks."""
    staging = {"directory": str(tmp_path / "staging"), "URL": (tmp_path / "staging").as_uri(), None: None}[shared]
    units = [[(number * _ROWS, str(tmp_path / f"tried-{number}"))] for number in range(3)]
    with spark_engine(spark_session, staging, "run") as engine:
        engine.start()
        staged = engine.run(Work("numbers", units, _numbers, _SCHEMA, maps=True))
        assert (tmp_path / "staging" / "run" / HEARTBEAT).exists() == (shared is not None)
        expected = list(range(3 * _ROWS))
        assert staged.rows("number").sort_by("of")["of"].to_pylist() == expected
        in_order = [value for batch in staged.batches("number") for value in batch.column("of").to_pylist()]
        assert in_order == expected
        done = engine.done()
        assert (done.segments, done.log_bytes) == (3, 30)
        staged.remove()
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and not path.name.startswith("tried-")]


def test_what_killed_runs_have_left_at_a_url_is_swept(
    spark_session: JobSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder goes by its heartbeat, which a run renews there, too. One without goes by its age."""
    monkeypatch.setattr(scratch, "PERIOD", timedelta(milliseconds=10))
    for name in ("alive", "dead", "old", "young"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "part-0.parquet").touch()
    for name, since in {"alive": DEAD_AFTER / 2, "dead": DEAD_AFTER * 1.1}.items():
        (tmp_path / name / HEARTBEAT).touch()
        age(tmp_path / name / HEARTBEAT, since)
    for name in ("alive", "old"):
        age(tmp_path / name, timedelta(days=12))
    yesterday_ms = int((time.time() - 24 * 3600) * 1000)
    with spark_engine(spark_session, tmp_path.as_uri(), "run") as engine:
        engine.sweep(yesterday_ms)
        assert {path.name for path in tmp_path.iterdir()} == {"alive", "young", "run"}
        own = tmp_path / "run" / HEARTBEAT
        age(own, timedelta(days=12))
        assert _within_a_minute(lambda: own.exists() and own.stat().st_mtime > time.time() - 3600)
    assert {path.name for path in tmp_path.iterdir()} == {"alive", "young"}


def _within_a_minute(is_so: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 60
    while not is_so() and time.monotonic() < deadline:
        pass
    return is_so()


def test_a_job_waits_as_long_as_loops_are_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = tmp_path / "loops.lock"
    monkeypatch.setattr(engine, "_LOCK", lock)
    engine.wait_for_loops()  # there is none

    lock.touch()
    engine.wait_for_loops()  # nobody has it
    assert not compiling.is_compiling()

    waiting = threading.Thread(target=engine.wait_for_loops)
    with lock.open("rb") as of_setup:
        fcntl.flock(of_setup, fcntl.LOCK_EX)
        waiting.start()
        while waiting.is_alive() and not compiling.is_compiling():
            waiting.join(0.001)
        assert waiting.is_alive() and compiling.is_compiling()
    waiting.join(_DEADLINE_SECONDS)
    assert not waiting.is_alive() and not compiling.is_compiling()


def _rows() -> pa.Table:
    values = [
        {"odd": {"number": number}} if number % 2 else {"even": {"number": number, "text": "x" * (number % 50)}}
        for number in range(_STAGED_ROWS)
    ]
    return pa.Table.from_pylist(values, _STAGED_SCHEMA)


@pytest.mark.parametrize("is_in_files", [False, True], ids=["on-executors", "in-files"])
def test_rows_of_one_kind_come_in_order(is_in_files: bool, tmp_path: Path) -> None:
    use_shared_session()
    with session("test") as spark:
        data = (
            of_arrow(spark, _rows())
            .repartitionByRange(7, "odd.number", "even.number")
            .sortWithinPartitions("odd.number", "even.number")
        )
        if is_in_files:
            data.write.parquet(str(tmp_path / "staged"))
            data = spark.read.schema(spark_schema(_STAGED_SCHEMA)).parquet(str(tmp_path / "staged"))
        else:
            data = data.persist(StorageLevel.DISK_ONLY)
        staged = StagedBySpark(data, _STAGED_SCHEMA, str(tmp_path / "staged") if is_in_files else None)
        for kind, first in (("odd", 1), ("even", 0)):
            rows = pa.Table.from_batches(staged.batches(kind))
            assert rows["number"].to_pylist() == list(range(first, _STAGED_ROWS, 2))
            assert rows.column_names == [field.name for field in _STAGED_SCHEMA.field(kind).type]
        staged.remove()
        assert not (tmp_path / "staged").exists()


@pytest.mark.parametrize("count", [0, 1, 50])
def test_rows_of_every_type_that_tables_have(spark: SparkSession, count: int) -> None:
    epochs = t.StructType([t.StructField("epoch", t.IntegerType()), t.StructField("start_offset", t.LongType())])
    schema = t.StructType(
        [
            t.StructField("name", t.StringType(), False),
            t.StructField("at", t.TimestampType()),
            t.StructField("counts", t.MapType(t.StringType(), t.LongType())),
            t.StructField("epochs", t.ArrayType(epochs)),
            t.StructField("seconds", t.DoubleType()),
            t.StructField("well", t.BooleanType()),
        ]
    )
    moment = datetime(2026, 3, 29, 1, 30, 0, 123456, tzinfo=UTC)
    full = (moment, {"ok": 2**62, "": 0}, [(1, -1), (None, 2**63 - 1)], 1 / 3, True)
    rows = [(f"ü{number}", *(full if number % 3 else (None, None, [], None, None))) for number in range(count)]
    values = [
        {**dict(zip(schema.names, row, strict=True)), "counts": None if row[2] is None else list(row[2].items())}
        for row in rows
    ]
    made = pa.Table.from_pylist(values, to_arrow_schema(schema, timezone="UTC"))
    assert_df_equality(of_arrow(spark, made), spark.createDataFrame(rows, schema))


@pytest.mark.parametrize("sizes", [(0, 3), (3, 0), (0, 0), (2, 0, 5), (0, 0, 1, 0, 1)])
def test_rows_in_chunks_of_which_some_are_empty(spark: SparkSession, sizes: tuple[int, ...]) -> None:
    """None is lost: a change of the catalog is put together from several tables."""
    chunks = [
        pa.table({"number": pa.array([10 * place + row for row in range(size)], pa.int64())})
        for place, size in enumerate(sizes)
    ]
    rows = pa.concat_tables(chunks)
    assert [row["number"] for row in of_arrow(spark, rows).collect()] == rows["number"].to_pylist()


@pytest.mark.parametrize("count", [1, 7, 300])
def test_each_value_is_alone_in_its_task(spark: SparkSession, count: int, rng: random.Random) -> None:
    values = [rng.randbytes(rng.randrange(2000)) for _ in range(count)]
    rows = one_a_task(spark, values).withColumn("task", F.spark_partition_id()).collect()
    assert {row["task"]: bytes(row["work"]) for row in rows} == dict(enumerate(values))
