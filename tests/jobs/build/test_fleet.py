"""A fleet with a random history ends the same, whoever lists, compares, reads and commits."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Final

import pytest

from tests.conftest import Say
from tests.support.catalog import rows_of_catalog
from tests.support.logs import golden
from tests.support.logs.changing_disks import CHANGES, add
from tests.support.spark.jobs import BuildHere, build_here, kidx_build_here

_SEGMENTS: Final = 100_000
_STEPS: Final = 4
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
    for step in range(_STEPS):
        _build(kidx_build_here, log_dir, tmp_path / "kidx")
        _build(build_here, log_dir, tmp_path / "spark", "--plan-on-executors")
        expected, found = (rows_of_catalog(tmp_path / name / "catalog", _OWN) for name in ("kidx", "spark"))
        for table, rows in expected.items():
            assert found[table] == rows, f"{table} after step {step}"
        assert _files(tmp_path / "spark") == _files(tmp_path / "kidx"), f"after step {step}"
        say(f"step {step}: {len(expected['segments']):,} segments, {len(expected['producer_events']):,} events")
        for partition in rng.sample(partitions, len(partitions) // 20):
            rng.choice(CHANGES)(partition, rng)


def _build(run: BuildHere, log_dir: Path, place: Path, *more: str) -> None:
    where = ("--index-dir", place / "index", "--catalog", place / "catalog")
    ended = run("--source", f"fleet={log_dir}", *where, "--epochs", "--snapshots", *more)
    assert ended.code in (0, 3), ended.err


def _files(place: Path) -> dict[str, bytes]:
    index_dir = place / "index"
    return {str(path.relative_to(index_dir)): path.read_bytes() for path in index_dir.rglob("*") if path.is_file()}
