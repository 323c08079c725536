"""Segments read in many waves end as those that are read in one."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kidxlib.indexing.listed_segments import TO_READ
from kidxlib.operations import catalog as marking
from kidxlib.operations.build import waves
from tests.conftest import Say
from tests.support.catalog import rows_of_catalog
from tests.support.files import tree
from tests.support.logs.changing_disks import CHANGES
from tests.support.logs.random_logs import write_random_log
from tests.support.spark.jobs import kidx_build_here

#: Of each run, and of where its index files are.
_OWN: Final = {"build_id", "index_directory"}


@given(
    partitions=st.lists(st.lists(st.none() | st.integers(0, 100), min_size=1, max_size=5), max_size=5),
    log_bytes=st.integers(1, 200),
    segments=st.integers(1, 6),
)
def test_a_wave_keeps_partitions_whole(partitions: list[list[int | None]], log_bytes: int, segments: int) -> None:
    rows = [
        {"listed_partition": number, "base_offset": offset, "log_bytes": size, "active": False, "interval_bytes": 1}
        | {"interval_source": "settings", "all_facts": False}
        for number, of_partition in enumerate(partitions)
        for offset, size in enumerate(of_partition)
    ]
    to_read = pa.Table.from_pylist(rows, TO_READ)
    rows = to_read.to_pylist()
    position = 0
    while position < len(rows):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(waves, "_WAVE_SEGMENTS", segments)
            wave = waves._next_wave(to_read, position, log_bytes).to_pylist()
        assert wave == rows[position : position + len(wave)]
        position += len(wave)
        size = sum(row["log_bytes"] or 0 for row in wave)
        assert len(wave) == 1 or (size <= log_bytes and len(wave) <= segments)
        if position < len(rows) and rows[position]["listed_partition"] == wave[-1]["listed_partition"]:
            assert {row["listed_partition"] for row in wave} == {wave[-1]["listed_partition"]}, "it did not fit alone"


def test_many_waves_end_as_one(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch, exhaustive: bool, say: Say
) -> None:
    """A random history of a log dir, through two catalogs: one gets each run in one commit, the other in parts."""
    log_dir = tmp_path / "disk"
    log_dir.mkdir()
    for number in range(3):
        write_random_log(log_dir / f"first-{number}", rng)
    in_parts = 0
    for step in range(60 if exhaustive else 3):
        for _ in range(rng.randrange(4)):
            rng.choice(CHANGES)(log_dir / f"{rng.choice('tuv')}-{rng.randrange(3)}", rng)
        _build(log_dir, tmp_path / "whole")
        with monkeypatch.context() as patch:
            limits = (waves, "_WAVE_SEGMENTS"), (waves, "_SEGMENTS_AT_ONCE"), (marking, "_ROWS_AT_ONCE")
            for module, name in limits:
                patch.setattr(module, name, rng.choice([1, 2, 5]) if step else 1)
            ended = _build(log_dir, tmp_path / "parts")
        in_parts += ended["waves"] > 1
        expected, found = (rows_of_catalog(tmp_path / name / "catalog", _OWN) for name in ("whole", "parts"))
        assert found == expected, f"after step {step}"
        assert tree(tmp_path / "parts" / "index") == tree(tmp_path / "whole" / "index")
    say(f"{in_parts} builds in several waves")
    assert in_parts


def _build(log_dir: Path, place: Path) -> Mapping[str, Any]:
    ended = kidx_build_here(
        "--source", f"a={log_dir}", "--index-dir", place / "index", "--catalog", place / "catalog", "--json"
    )
    assert ended.code in (0, 3), ended.err
    return ended.json
