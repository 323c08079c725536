"""A plan says all that its reading needs, so that another process may read a part of it."""

from __future__ import annotations

import pickle
import random
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kidxlib.format import layouts
from kidxlib.format.segment_files import OFFSET_INDEX_SUFFIX
from kidxlib.library.read import read as read_records
from kidxlib.reading.plan import ReadPlan, plan_reads
from kidxlib.reading.request import read_request
from kidxlib.reading.rows import record_rows_of
from kidxlib.reading.walk import raise_damage
from kidxlib.records.arrow_columns import CONSUMED
from kidxlib.records.reader import Record
from tests.conftest import one_in
from tests.faults.trees import write_log
from tests.support.consumed import Row, read_rows, rows_of_partition, rows_until_damage
from tests.support.files import flip
from tests.support.logs import encoded
from tests.support.logs.random_indexes import damaged
from tests.support.logs.random_logs import write_random_log
from tests.support.seeks import sample_directory

PARTITION = "txn-mixed-0"


@pytest.fixture(scope="module")
def log_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample's partition with its indexes."""
    return sample_directory(tmp_path_factory.mktemp("log-dir") / PARTITION).parent


def _plan(path: Path, part_bytes: int | None = None, **options: Any) -> ReadPlan:
    return plan_reads(read_request(path, to_log_end=False, **options), goes_on=False, part_bytes=part_bytes)


def _rows(plan: ReadPlan) -> tuple[list[Row], str | None]:
    return rows_until_damage(record_rows_of(plan.reads, CONSUMED, raise_damage, goes_on=False, threads=1), CONSUMED)


def test_a_part_of_a_plan_may_be_read_elsewhere(log_dir: Path) -> None:
    plan = pickle.loads(pickle.dumps(_plan(log_dir, offsets=(50, 9_000))))
    found: list[pa.RecordBatch] = []
    for read in reversed(plan.reads):
        found[:0] = record_rows_of([read], CONSUMED, raise_damage, goes_on=False, threads=1)
    rows = [row for row in rows_of_partition(log_dir / PARTITION) if 50 <= row["offset"] < 9_000]
    assert read_rows(pa.Table.from_batches(found)) == rows


@pytest.mark.parametrize(
    ("offsets", "segments"),
    [
        ((None, None), [0, 84, 5797, 5891]),
        ((84, 85), [84]),
        ((83, 85), [0, 84]),
        ((5797, 5797), []),
        ((10_333, None), [5891]),
    ],
)
def test_segments_are_told_by_their_names(offsets: Any, segments: list[int], log_dir: Path) -> None:
    assert [read.base_offset for read in _plan(log_dir, offsets=offsets).reads] == segments


def test_an_index_leads_to_the_batch_of_an_offset(log_dir: Path, tmp_path: Path) -> None:
    """And to one that holds nothing wanted any more. An index in a tree of its own, too; without one all is read."""
    (read,) = _plan(log_dir, offsets=(5_000, 5_001)).reads
    assert read.position > 800_000 and read.last_offset_before < 5_000
    assert read.log_bytes < 20_000 and read.end_offset is not None and read.end_offset > 5_000
    (without,) = _plan(log_dir, offsets=(5_000, 5_001), index_dir=tmp_path).reads
    assert (without.position, without.end_position, without.last_offset_before) == (0, without.version.size, 83)
    (tmp_path / PARTITION).symlink_to(log_dir / PARTITION)
    assert _plan(log_dir, offsets=(5_000, 5_001), index_dir=tmp_path).reads == (read,)


def test_nothing_but_a_range_is_read(log_dir: Path, tmp_path: Path) -> None:
    """What stands before and after it may be anything."""
    plan = _plan(log_dir, offsets=(5_000, 5_100))
    (read,) = plan.reads
    rows, _ = _rows(plan)
    copy = tmp_path / PARTITION
    shutil.copytree(log_dir / PARTITION, copy)
    log = copy / Path(read.log_path).name
    data = bytearray(log.read_bytes())
    data[: read.position], data[read.end_position + 61 :] = (
        bytes(read.position),
        bytes(len(data) - read.end_position - 61),
    )
    log.write_bytes(data)
    assert _rows(_plan(copy, offsets=(5_000, 5_100))) == (rows, None) and len(rows) > 50


def test_a_large_segment_is_read_in_parts(log_dir: Path) -> None:
    """Each begins where the one before it ends, and has about as many bytes as are asked for."""
    whole, plan = _plan(log_dir), _plan(log_dir, part_bytes=100_000)
    assert (plan.segments, plan.log_bytes, plan.skipped_bytes) == (4, whole.log_bytes, 0)
    assert len(plan.reads) > 15 and max(read.log_bytes for read in plan.reads) < 200_000
    for before, after in pairwise(plan.reads):
        if before.log_path == after.log_path:
            assert (before.end_position, before.end_offset) == (after.position, after.last_offset_before + 1)
    assert _rows(plan) == _rows(whole) == (rows_of_partition(log_dir / PARTITION), None)


@given(
    seed=st.integers(0, 2**32),
    limits=st.lists(st.none() | st.integers(0, 60), min_size=2, max_size=2),
    part_bytes=st.integers(1, 300),
    way=st.sampled_from(["as they are", "damaged", "of another log"]),
    is_cut=st.booleans(),
)
@one_in(2)
def test_parts_have_what_the_whole_has(
    seed: int,
    limits: list[int | None],
    part_bytes: int,
    way: str,
    is_cut: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Whatever is wrong with indexes, and with the log."""
    rng = random.Random(seed)
    directory = tmp_path_factory.mktemp("log-dir") / "topic-0"
    write_random_log(directory, rng)
    indexes = sorted(directory.glob(f"*{OFFSET_INDEX_SUFFIX}"))
    if way != "as they are":
        contents = [index.read_bytes() for index in indexes]
        for index, own in zip(indexes, contents, strict=True):
            content = own if way == "damaged" else rng.choice(contents)
            index.write_bytes(damaged(rng, content, layouts.OFFSET_INDEX_ENTRY))
    if is_cut:
        log = rng.choice(sorted(directory.glob("*.log")))
        if size := log.stat().st_size:
            flip(log, rng.randrange(size), bits=1 << rng.randrange(8))
    start, end = sorted(limits, key=lambda limit: -1 if limit is None else limit)
    whole = _rows(_plan(directory, offsets=(start, None if end is None else end), index_dir=directory.parent / "none"))
    rows, error = _rows(_plan(directory, part_bytes, offsets=(start, end)))
    if is_cut:  # damage that lies outside of a range is not met, or a little later
        assert rows[: len(whole[0])] == whole[0]
    else:
        assert (rows, error) == whole


@pytest.mark.parametrize(("offsets", "part_bytes"), [((None, 2), None), ((None, None), 100)])
def test_an_index_that_names_what_is_inside_of_a_record_is_found_out(
    offsets: tuple[int | None, int | None], part_bytes: int | None, tmp_path: Path
) -> None:
    """There is a batch in it, whole and sound, but for its being a value."""
    inner = encoded.batch_v2([Record(offset, 0, None, b"inner" * 30) for offset in (7, 8)])
    first = encoded.batch_v2([Record(0, 0, None, b"")])
    outer = encoded.batch_v2([Record(1, 0, None, inner)])
    log = write_log(tmp_path / "topic-0", 0, first + outer + encoded.batch_v2([Record(9, 0, None, b"")]))
    entry = np.array([(8, len(first) + outer.index(inner))], layouts.OFFSET_INDEX_ENTRY)
    log.with_suffix(OFFSET_INDEX_SUFFIX).write_bytes(entry.tobytes())
    rows, error = _rows(_plan(log, part_bytes, offsets=offsets))
    assert [row["offset"] for row in rows] == [0]
    assert error is not None and error.startswith(
        f"{log}: byte {len(first)}: no batch ends at byte {entry['position'][0]},"
    )
    found = read_records(log, offsets=offsets, on_damage="skip", columns=["offset"]).read_all()["offset"].to_pylist()
    assert found == [offset for offset in (0, 1, 9) if offsets[1] is None or offset < offsets[1]]
