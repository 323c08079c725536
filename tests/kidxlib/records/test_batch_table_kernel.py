"""Headers that are read one by one from a file are those of the log, and of large batches nothing else is read."""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kidxlib.errors import LogChangedError, MalformedRecordsError
from kidxlib.records.batch_table import BatchWalk
from kidxlib.records.batch_table_kernel import BATCH
from kidxlib.records.reader import Record
from kidxlib.records.wanted_records import WantedRecords
from kidxlib.storage.log_bytes import ChunkedLog, LogBytes, WholeLog
from tests.conftest import one_in
from tests.support.logs import encoded

_SIZES = st.lists(st.sampled_from([0, 10, 8_000, 20_000, 600_000]), max_size=30)


def _log(sizes: list[int]) -> bytes:
    return b"".join(encoded.batch_v2([Record(number, 0, None, bytes(size))]) for number, size in enumerate(sizes))


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[ChunkedLog]:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield ChunkedLog(descriptor, path.stat().st_size)
    finally:
        os.close(descriptor)


def _rows(log: LogBytes, position: int, wanted: WantedRecords) -> tuple[list[tuple[int, ...]], str]:
    """The rows, and how the walk ends."""
    walk, found = BatchWalk(log, position, wanted, whole=False), [np.zeros(0, BATCH)]
    try:
        found.extend(table.rows.copy() for table in walk.tables())
    except MalformedRecordsError as error:
        return np.concatenate(found).tolist(), str(error)
    return np.concatenate(found).tolist(), f"{walk.position}, {walk.is_past}"


@given(sizes=_SIZES, seed=st.integers(0, 2**32))
@one_in(2)
def test_rows_are_those_of_a_log_in_memory(
    sizes: list[int], seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """From any batch on, of some offsets; cut, or with a byte that is wrong."""
    rng = random.Random(seed)
    data = bytearray(_log(sizes))
    if data and rng.random() < 0.5:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    data = data[: len(data) - rng.choice([0, 0, 1, 70])]
    path = tmp_path_factory.mktemp("log") / "log"
    path.write_bytes(data)
    wanted = WantedRecords.between(*sorted(rng.choices(range(31), k=2))) if rng.random() < 0.5 else WantedRecords()
    position = len(_log(sizes[: rng.randrange(len(sizes) + 1)]))
    with _opened(path) as log:
        found = _rows(log, position, wanted)
    assert found == _rows(WholeLog(np.frombuffer(bytes(data), np.uint8)), position, wanted)


def _bytes_asked() -> int:
    """Bytes that this process has asked of files so far (proc_pid_io(5))."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line.removeprefix("rchar: ") for line in lines if line.startswith("rchar: ")))


@pytest.mark.parametrize(("size", "least", "most"), [(100_000, 61 * 60, 50_000), (100, 10_000, 100_000)])
def test_of_large_batches_headers_alone_are_read(size: int, least: int, most: int, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(_log([size] * 60))
    with _opened(path) as log:
        _rows(log, 0, WantedRecords())
        before = _bytes_asked()
        rows, _ = _rows(log, 0, WantedRecords())
        asked = _bytes_asked() - before
    assert len(rows) == 60 and least <= asked <= most


def test_a_file_that_shrinks_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(_log([20_000] * 9))
    with _opened(path) as log:
        os.truncate(path, 50_000)
        with pytest.raises(LogChangedError, match="file ends at byte 60"):
            _rows(log, 0, WantedRecords())
