"""Spark, the driver of a job and kidx write one catalog: the same rows, in turn and at once, whoever writes."""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from deltalake import DeltaTable

from jobs.common.spark.session import session
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.catalog.tables import TABLES
from kidxlib.cli.main import kidx
from tests.conftest import Say
from tests.support.catalog import rows_of_catalog
from tests.support.files import tree
from tests.support.logs import golden
from tests.support.logs.batches import Batch, encode
from tests.support.logs.changing_disks import CHANGES, add
from tests.support.logs.random_logs import write_random_log
from tests.support.spark.histories import assert_same_histories, assert_spark_reads_the_same
from tests.support.spark.jobs import Ended, RunHere, build_here, kidx_build_here, run_here, through_a_metastore

#: What is another in each run, or with each engine.
_OF_THE_RUN: Final = ("build_id", "seconds", "scan_seconds", "versions", "waves", "index_directory", "options")
#: What no fact of a segment is: by which requests its log was read.
_OF_THE_ENGINE: Final = ("read_requests", "read_bytes")
#: Spark keeps statistics of the first 32 characters of a text.
_SOURCE: Final = "broker-of-a-cluster-that-has-a-name-of-many-characters"
_DATED: Final = ("--now", "2026-11-24T10:00:00Z", "--json")
#: Executors, or kidx' processes, list and compare.
_BY_WORKERS: Final = "--plan-on-executors"
#: How many times two write at once: in each run of the tests, and with `--exhaustive`.
_PAIRS, _PAIRS_EXHAUSTIVE = 2, 10

_spawn: Any = multiprocessing.get_context("spawn")


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    return Path(shutil.copytree(golden.SAMPLES, tmp_path / "kafka-logs"))


def _begin(log_dir: Path) -> None:
    """The sample, as it is."""


def _change(log_dir: Path) -> None:
    """A segment grows, a topic comes, retention takes a segment, a topic is deleted, and a crash harms two logs."""
    with sorted((log_dir / "plain-zstd-0").glob("*.log"))[-1].open("ab") as grown:
        grown.writelines(encode(1_000_000, [Batch()]))
    write_random_log(log_dir / "new-0", random.Random(1))
    transactional = sorted((log_dir / "txn-mixed-0").glob("*.log"))
    transactional[0].unlink()
    shutil.rmtree(log_dir / "append-time-0")
    os.truncate(transactional[-1], transactional[-1].stat().st_size - 10)
    flipped = next((log_dir / "compacted-0").glob("*.log"))
    content = bytearray(flipped.read_bytes())
    content[len(content) // 2] ^= 1
    flipped.write_bytes(content)


def _come_back(log_dir: Path) -> None:
    """The deleted topic is there again, the logs are whole, and the new topic has gone."""
    shutil.rmtree(log_dir)
    shutil.copytree(golden.SAMPLES, log_dir)


_STEPS: Final[tuple[Callable[[Path], None], ...]] = (_begin, _change, _come_back)


def test_each_engine_continues_the_others_catalog(log_dir: Path, tmp_path: Path, exhaustive: bool) -> None:
    """After every step of a history, each table is the one that kidx alone wrote, by name, row and value. Spark goes on
    with a catalog of kidx, and a driver that lists by executors with what Spark made of it. A build that Spark commits
    takes half a minute: with `--exhaustive` it begins, too, and goes all the way.
    """
    by_spark = through_a_metastore(build_here)
    writers: dict[str, Sequence[RunHere]] = {
        "kidx": (kidx_build_here,),
        "kidx-spark-driver": (partial(kidx_build_here, _BY_WORKERS), by_spark, partial(build_here, _BY_WORKERS)),
    }
    if exhaustive:
        writers |= {
            "spark": (by_spark,),
            "driver-kidx": (build_here, kidx_build_here),
            "spark-kidx-spark": (by_spark, kidx_build_here, by_spark),
        }
    histories: dict[str, list[dict[str, DeltaTable]]] = {name: [] for name in writers}
    for number, step in enumerate(_STEPS):
        step(log_dir)
        ended = {
            name: _build(turns[number % len(turns)], log_dir, tmp_path / name, *_DATED)
            for name, turns in writers.items()
        }
        codes = {name: one.code for name, one in ended.items()}
        assert len(set(codes.values())) == 1, (step.__doc__, codes)
        files = {name: tree(tmp_path / name / "index", but=(".kidx-",)) for name in writers}
        assert [name for name in writers if files[name] != files["kidx"]] == [], step.__doc__
        for name in writers:
            histories[name].append(_tables(tmp_path / name / "catalog"))
    commits = histories["kidx-spark-driver"][-1]["segments"].history()
    assert {str(commit["engineInfo"]).split("/")[0].split(":")[0] for commit in commits} == {"Apache-Spark", "delta-rs"}
    left_out = (*_OF_THE_RUN, *_OF_THE_ENGINE)
    for table in TABLES:
        expected, *found = ([step.get(table.name) for step in histories[name]] for name in writers)
        assert_same_histories(table, expected, dict(zip([*writers][1:], found, strict=True)), left_out)
    with session("test") as spark:
        by_kidx, by_both = (histories[name][-1][SEGMENTS.name] for name in ("kidx", "kidx-spark-driver"))
        assert_spark_reads_the_same(spark, SEGMENTS, by_kidx, by_both, left_out)


def test_two_engines_write_at_once(log_dir: Path, tmp_path: Path, exhaustive: bool) -> None:
    """Both make the catalog, and go on: of one source, and each of its own. No row is lost, and no key comes twice."""
    for source in ("own-of-kidx", "own-of-spark"):
        (tmp_path / source).mkdir()
    for number in range(_PAIRS_EXHAUSTIVE if exhaustive else _PAIRS):
        for source in ("own-of-kidx", "own-of-spark"):
            write_random_log(tmp_path / source / f"topic-{number}", random.Random(number))
        write_random_log(log_dir / f"topic-{number}", random.Random(number))
        how = [_BY_WORKERS] if number % 2 else []
        process = _spawn.Process(target=_build_all, args=("kidx", log_dir, tmp_path, how))
        process.start()
        _build_all("spark", log_dir, tmp_path, how)
        process.join()
        assert process.exitcode == 0
        for table in TABLES:
            if not (tmp_path / "catalog" / table.name).exists():
                continue
            keys = DeltaTable(tmp_path / "catalog" / table.name).to_pyarrow_table(columns=list(table.key)).to_pylist()
            twice = [key for key, count in Counter(tuple(key.values()) for key in keys).items() if count > 1]
            assert twice == [], table.name
        expected = {
            (source, path.parent.name, int(path.stem))
            for source in ("kafka-logs", "own-of-kidx", "own-of-spark")
            for path in (tmp_path / source).rglob("*.log")
        }
        found = DeltaTable(tmp_path / "catalog" / "segments").to_pyarrow_table(
            columns=["source", "topic", "partition", "base_offset", "log_bytes", "log_path"]
        )
        assert {
            (row["source"], f"{row['topic']}-{row['partition']}", row["base_offset"]) for row in found.to_pylist()
        } == expected
        assert all(row["log_bytes"] == Path(row["log_path"]).stat().st_size for row in found.to_pylist())


def _build_all(engine: str, log_dir: Path, directory: Path, how: Sequence[str]) -> None:
    """What one of two writers reads: the source that both read, and its own."""
    run = {"spark": build_here, "kidx": kidx_build_here}[engine]
    sources = (log_dir, directory / f"own-of-{engine}")
    named = [argument for source in sources for argument in ("--source", f"{source.name}={source}")]
    where = ("--index-dir", directory / "index", "--catalog", directory / "catalog")
    ended = run(*named, *where, *how)
    assert ended.code in (0, 3), ended.err


def _build(run: RunHere, log_dir: Path, directory: Path, *more: str) -> Ended:
    where = ("--index-dir", directory / "index", "--catalog", directory / "catalog")
    ended = run("--source", f"{_SOURCE}={log_dir}", *where, "--epochs", "--snapshots", *more)
    assert ended.code in (0, 3), ended.err
    return ended


def _tables(catalog: Path) -> dict[str, DeltaTable]:
    """Those that there are, at the version that they have."""
    return {table.name: DeltaTable(catalog / table.name) for table in TABLES if (catalog / table.name).exists()}


def test_each_engine_packs_for_the_other(log_dir: Path, tmp_path: Path) -> None:
    """Index files that the job's executors have packed are those of a build with files; `kidx` finds nothing new."""
    more = ("--snapshots", "--epochs", "--json")
    packed = ("--source", f"s={log_dir}", "--catalog", tmp_path / "catalog", "--pack", *more)
    assert build_here(*packed).code == 0
    for build in (build_here, kidx_build_here):
        again = build(*packed)
        assert (again.json["segments"], again.json["rows_changed"]) == (0, 0), again
    kidx_build_here(*packed[:2], "--catalog", tmp_path / "of-files", "--index-dir", tmp_path / "index", *more)
    assert run_here(kidx, "unpack", "--catalog", tmp_path / "catalog", "--index-dir", tmp_path / "unpacked").code == 0
    assert tree(tmp_path / "unpacked") == tree(tmp_path / "index") != {}


_SEGMENTS: Final = 100_000
_FLEET_STEPS: Final = 4
#: What is another in each run, or with each engine.
_OWN: Final = {"build_id", "index_directory", "read_requests", "read_bytes"}


@pytest.mark.exhaustive("takes twenty minutes; tests/jobs/build/test_engines.py has a small history")
def test_executors_that_plan_end_as_kidx_does(tmp_path: Path, rng: random.Random, say: Say) -> None:
    log_dir = tmp_path / "kafka-logs"
    log_dir.mkdir()
    samples = sorted(path for path in golden.SAMPLES.iterdir() if path.is_dir())
    partitions: list[Path] = []
    segments = 0
    while segments < _SEGMENTS:
        partitions.append(log_dir / f"topic-{len(partitions) % 50}-{len(partitions) // 50}")
        if rng.random() < 0.1:
            shutil.copytree(rng.choice(samples), partitions[-1])
        else:
            add(partitions[-1], rng)
        segments += len(list(partitions[-1].glob("*.log")))
    for step in range(_FLEET_STEPS):
        _build(kidx_build_here, log_dir, tmp_path / "kidx")
        _build(build_here, log_dir, tmp_path / "spark", _BY_WORKERS)
        expected, found = (rows_of_catalog(tmp_path / name / "catalog", _OWN) for name in ("kidx", "spark"))
        for table, rows in expected.items():
            assert found[table] == rows, f"{table} after step {step}"
        assert tree(tmp_path / "spark" / "index") == tree(tmp_path / "kidx" / "index"), f"after step {step}"
        say(f"step {step}: {len(expected['segments']):,} segments, {len(expected['producer_events']):,} events")
        for partition in rng.sample(partitions, len(partitions) // 20):
            rng.choice(CHANGES)(partition, rng)
