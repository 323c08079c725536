"""Seeks on Spark: the same operation as `kidx seek`, so the same answers; and places that only Spark reaches."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from chispa import assert_df_equality
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from jobs.common.spark import session as job_session
from jobs.common.spark.session import session
from jobs.seek import seek
from tests.support.seek_catalog import Held, hold_golden, some_questions, write_questions
from tests.support.spark.jobs import Ended, run_here, seek_here
from tests.support.spark.sessions import use_own_session, use_shared_session

#: More questions than the driver answers itself.
_PER_PARTITION: Final = 100
_MOUNTED: Final = "spark.hadoop.fs.viewfs.mounttable.nodes.link./data"


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Held:
    return hold_golden(tmp_path_factory.mktemp("seek"))


@pytest.fixture(scope="module")
def mounted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """What is below viewfs://nodes/data, a file system that Hadoop has and Arrow has not."""
    directory = tmp_path_factory.mktemp("mounted")
    use_own_session()  # which reads the property when it starts
    with session("test") as spark:
        _system(spark).setProperty(_MOUNTED, f"file://{directory}")
    yield directory
    use_own_session()
    with session("test") as spark:
        _system(spark).clearProperty(_MOUNTED)


def _system(spark: SparkSession) -> Any:
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    return jvm.java.lang.System


def test_a_job_answers_as_kidx(held: Held, tmp_path: Path, rng: random.Random) -> None:
    """Of all partitions of both sources, by executors and by processes; what they count, too."""
    write_questions(some_questions(held, rng, _PER_PARTITION), tmp_path / "questions.csv", rng)
    ask = ("--queries", tmp_path / "questions.csv", "--json")
    by_kidx = held.ask(*ask, "--output", tmp_path / "kidx.parquet")
    before = _entries(held.catalog)
    by_spark = held.ask(*ask, "--output", tmp_path / "spark.parquet", seek=seek_here)
    assert by_spark.code == by_kidx.code == 3, by_spark
    assert _entries(held.catalog) == before, "a seek leaves nothing in the catalog"
    assert _counts(by_spark) == _counts(by_kidx)
    with session("test") as spark:
        found, expected = (spark.read.parquet(str(tmp_path / f"{name}.parquet")) for name in ("spark", "kidx"))
        assert_df_equality(found.drop("bytes_read"), expected.drop("bytes_read"), ignore_row_order=True)


def _entries(catalog: Path) -> set[Path]:
    return set(catalog.rglob("*"))


def _counts(ended: Ended) -> dict[str, int]:
    """But for those of reading, which go by how questions are shared out."""
    return {name: ended.json[name] for name in ("answers", "found", "not_answered", "file_error")}


def test_skewed_questions_are_spread(held: Held, tmp_path: Path) -> None:
    [log] = held.sources("plain-zstd", 0).values()
    segment = log.segments[-1]
    width = log.log_end_offset - segment.base_offset
    offsets = [segment.base_offset + (number % width if number % 2 else 0) for number in range(200_000)]
    columns = {"topic": ["plain-zstd"] * 200_000, "partition": pa.array([0] * 200_000, pa.int32()), "offset": offsets}
    pq.write_table(pa.table(columns), tmp_path / "questions.parquet")
    ask = ("--queries", tmp_path / "questions.parquet", "--output", tmp_path / "answers.csv")
    ended = held.ask(*ask, seek=seek_here)
    assert ended.code == 0 and "200,000 answers, 200,000 found" in ended.out, ended
    lines = (tmp_path / "answers.csv").read_text().splitlines()[1:]
    assert [int(line.split(",")[3]) for line in lines] == sorted(offsets)
    assert {line.split(",")[6] for line in lines} == {str(segment.base_offset)}


def test_few_questions_start_no_spark(held: Held, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_session, "session", None)
    question = ("--topic", "compacted", "--partition", "0", "--timestamp", "-2")
    ended = held.ask(*question, "--json", seek=partial(run_here, seek))
    assert (ended.code, ended.out) == (0, held.ask(*question, "--json").out)
    (tmp_path / "few.csv").write_text("topic,partition,offset\ncompacted,0,1\n")
    ask = ("--queries", tmp_path / "few.csv", "--output", tmp_path / "answers.csv")
    ended = held.ask(*ask, seek=partial(run_here, seek))
    assert ended.code == 0 and ended.out.startswith("2 answers, 2 found"), ended


@pytest.mark.parametrize("kind", [".csv", ".json", ".parquet", ""])
def test_places_that_only_spark_reaches(kind: str, held: Held, mounted: Path, rng: random.Random) -> None:
    """Questions come from there and answers go there, as to this machine; nothing there is replaced."""
    name = kind.removeprefix(".") or "delta"
    (mounted / name).mkdir()
    write_questions(some_questions(held, rng, 5), mounted / name / f"questions{kind}", rng)
    here = held.ask("--queries", mounted / name / f"questions{kind}", "--output", mounted / name / "expected.parquet")
    url = f"viewfs://nodes/data/{name}"
    ask = ("--queries", f"{url}/questions{kind}", "--output", f"{url}/there/answers{kind}")
    ended = held.ask(*ask, seek=seek_here)
    assert ended.code == here.code == 3, ended
    # As this one is a disk in fact, Hadoop puts hidden checksums beside its files.
    assert [path.name for path in (mounted / name / "there").glob("[!.]*")] == [f"answers{kind}"]
    with session("test") as spark:
        expected = spark.read.parquet(str(mounted / name / "expected.parquet"))
        place = str(mounted / name / "there" / f"answers{kind}")
        match kind:
            case ".csv":
                found = spark.read.csv(place, header=True, schema=expected.schema, escape='"')
            case ".json":
                found = spark.read.json(place, schema=expected.schema)
            case _:
                found = spark.read.format("parquet" if kind else "delta").load(place)
        assert_df_equality(found, expected, ignore_row_order=True, ignore_nullable=True)
    again = held.ask(*ask, seek=seek_here)
    assert (again.code, again.out) == (2, ""), again
    assert again.err == f"error: {ask[2]} {ask[3]}: it is there already; expected a new name\n"


def test_a_table_that_delta_rs_does_not_read(held: Held, tmp_path: Path) -> None:
    """Columns of a Delta table that have other names in its files."""
    use_shared_session()
    with session("test") as spark:
        rows = spark.range(3).select(F.lit("compacted").alias("topic"), F.lit(0).alias("partition"), F.col("id"))
        rows = rows.withColumnRenamed("id", "offset")
        rows.write.format("delta").option("delta.columnMapping.mode", "name").save(str(tmp_path / "questions"))
    ask = ("--queries", tmp_path / "questions", "--output", tmp_path / "answers.csv")
    ended = held.ask(*ask, "--source", "sample", seek=seek_here)
    assert ended.code == 0 and ended.out.startswith("3 answers, 3 found"), ended


def test_what_cannot_be_asked_is_one_line(held: Held, tmp_path: Path) -> None:
    """Said before Spark is started, where that can be known."""
    wrong = tmp_path / "wrong.csv"
    wrong.write_text("topic,partition,offset\na,0,1\na,x,1\n")
    ended = run_here(seek, "--catalog", held.catalog, "--queries", wrong, "--output", tmp_path / "b.csv")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err == (
        f"error: --queries {wrong}: line 3: partition x, expected a whole number from 0 on; nothing was answered\n"
    )
    for arguments, message in {
        ("--catalog", "c", "--database", "d"): "--catalog and --database: give one of them",
        ("--catalog", str(tmp_path)): "no catalog there; look whether the path is right, or make one",
    }.items():
        ended = run_here(seek, *arguments, "--topic", "t", "--partition", "0", "--offset", "1")
        assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1) and message in ended.err, ended
    none = ("--queries", "viewfs://nowhere/none.csv", "--output", tmp_path / "b.csv")
    ended = held.ask(*none, seek=seek_here)
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1), ended
    assert "; expected a file called .csv, .json or .parquet, or a Delta table" in ended.err, ended
