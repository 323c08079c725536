"""What executors stage is there once, whatever became of their tasks; what killed runs have left is swept."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from jobs.common.spark.engine import spark_engine
from jobs.common.spark.job_session import JobSession
from kidxlib.engine.work import ItemRows, Work
from tests.support.spark.jobs import use_pips_spark

_SCHEMA = pa.schema([pa.field("number", pa.struct([pa.field("of", pa.int64())]))])
#: More rows than go into one group of a file.
_ROWS = 70_000


@pytest.fixture(scope="module")
def spark_session() -> Iterator[JobSession]:
    use_pips_spark()
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


@pytest.mark.parametrize("shared", ["directory", "URL", None])
def test_an_attempt_that_fails_leaves_no_rows(shared: str | None, spark_session: JobSession, tmp_path: Path) -> None:
    """Wherever rows are staged: in a directory that both see, at a URL, or on executors' disks."""
    staging = {"directory": str(tmp_path / "staging"), "URL": (tmp_path / "staging").as_uri(), None: None}[shared]
    units = [[(number * _ROWS, str(tmp_path / f"tried-{number}"))] for number in range(3)]
    with spark_engine(spark_session, staging, "run") as engine:
        engine.start()
        staged = engine.run(Work("numbers", units, _numbers, _SCHEMA))
        expected = list(range(3 * _ROWS))
        assert staged.rows("number").sort_by("of")["of"].to_pylist() == expected
        in_order = [value for batch in staged.batches("number") for value in batch.column("of").to_pylist()]
        assert in_order == expected
        done = engine.done()
        assert (done.segments, done.log_bytes) == (3, 30)
        staged.remove()
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and not path.name.startswith("tried-")]


def test_what_is_old_at_a_url_is_swept(spark_session: JobSession, tmp_path: Path) -> None:
    for name in ("old", "young"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "part-0.parquet").touch()
    os.utime(tmp_path / "old", (1000, 1000))
    with spark_engine(spark_session, tmp_path.as_uri(), "run") as engine:
        engine.sweep(2_000_000)
    assert [path.name for path in tmp_path.iterdir()] == ["young"]
