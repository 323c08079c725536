"""An object that is read in ranges has the object's bytes, each of them read once, as has a log that is read ahead."""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from kidxlib.recovery.options import RecoverOptions
from kidxlib.recovery.recover import recover
from kidxlib.storage.log_bytes import (
    RANGES_AHEAD,
    ROOM_BYTES,
    ChunkedLog,
    RangedLog,
    RangeRequests,
    ReadAhead,
    UncachedReads,
    UncachedWrites,
    WholeLog,
    aligned_room,
)
from kidxlib.storage.opened_log import opened_log
from kidxlib.storage.store.s3 import ObjectPath, open_object, read_object_into
from tests.conftest import Say
from tests.support.logs import golden
from tests.support.object_store import BUCKET, ObjectStore

_Steps = list[tuple[bool, int, int]]


@given(st.integers(1, 64), st.lists(st.tuples(st.integers(0, 320), st.integers(0, 160)), max_size=20))
def test_what_is_read_ahead_is_what_is_there(chunk_bytes: int, reads: list[tuple[int, int]]) -> None:
    """In any order, across the ends of windows, of more than a window, and beyond the end of the log."""
    content = np.random.default_rng(chunk_bytes).bytes(300)
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.flush()
        ahead = ReadAhead(ChunkedLog(file.fileno(), len(content), chunk_bytes))
        assert [ahead.read(*read) for read in reads] == [content[at : at + size] for at, size in reads]


def test_windows_are_those_of_the_bytes_in_memory(store: ObjectStore, exhaustive: bool, say: Say) -> None:
    """Whatever is asked in whatever order; and all that is asked of the server is counted."""
    size, range_bytes = 10_000, 1_000
    content = np.random.default_rng(9).integers(0, 256, size, np.uint8)
    store.put("windows/object", content.tobytes())
    path = ObjectPath(f"{BUCKET}/windows/object")
    expected = WholeLog(content)
    step = st.tuples(st.booleans(), st.integers(0, size), st.integers(0, 3 * range_bytes))
    tried = 0

    @settings(max_examples=2_000 if exhaustive else 25, deadline=None)
    @given(st.lists(step, max_size=12), st.just(0) | st.integers(100, 2_500))
    def check(steps: _Steps, stride: int) -> None:
        nonlocal tried
        tried += 1
        reads, threads = RangeRequests(), ThreadPoolExecutor(RANGES_AHEAD)
        file, _ = open_object(path)
        store.requests.clear()
        log = RangedLog(partial(read_object_into, file, path), size, reads, threads, range_bytes)
        on_and_on = [(True, position, 0) for position in range(0, size, stride)] if stride else []
        for is_window, position, count in [*steps, *on_and_on]:
            if is_window:
                start, window = log.window(position)
                assert start == position and not window.flags.writeable
                assert min(range_bytes, size - position) <= len(window) <= 2 * range_bytes
                assert window.tobytes() == expected.read(position, len(window))
            else:
                assert log.read(position, count) == expected.read(position, count)
        log.release()
        threads.shutdown()
        assert (reads.requests, reads.read_bytes) == (len(store.requests), sum(each.sent for each in store.requests))
        if not steps and 0 < stride <= range_bytes:  # from end to end each byte comes once
            assert (reads.requests, reads.read_bytes) == (size // range_bytes, size)

    check()
    say(f"{tried} sequences of windows and reads")


def test_logs_of_many_ranges_are_scanned_as_files_are(store: ObjectStore) -> None:
    """Batches lie across the ends of ranges, and some are larger than one."""
    path = max(golden.SAMPLES.rglob("*.log"), key=lambda path: path.stat().st_size)
    store.put("ranges/log", path.read_bytes())
    data = np.fromfile(path, np.uint8)
    expected = recover(WholeLog(data), int(path.stem), RecoverOptions())
    for range_bytes in (9_999, 65_537):
        with opened_log(f"s3://{BUCKET}/ranges/log") as opened:
            recovered = recover(opened.log(use_mmap=True, chunk_bytes=range_bytes), int(path.stem), RecoverOptions())
        assert (recovered.end, recovered.facts) == (expected.end, expected.facts)
        assert (recovered.offset_index, recovered.time_index) == (expected.offset_index, expected.time_index)


_PAGE: Final = mmap.PAGESIZE
_MIB: Final = 1024 * 1024
_CONTENT: Final = np.random.default_rng(7).integers(0, 256, 6 * _PAGE, np.uint8)
#: About pages: their starts and ends, one byte off, and anything between.
_PLACES: Final = st.one_of(
    st.integers(0, 6 * _PAGE),
    st.builds(lambda page, off: max(0, page * _PAGE + off), st.integers(0, 5), st.sampled_from([-1, 0, 1])),
)


@pytest.fixture(scope="module", params=["disk", "memory"])
def directory(request: pytest.FixtureRequest) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/dev/shm" if request.param == "memory" else None) as path:
        yield Path(path)


def _memory(size: int, is_aligned: bool) -> NDArray[np.uint8]:
    return aligned_room(_MIB)[slice(0, size) if is_aligned else slice(1, size + 1)]


@given(size=_PLACES, position=_PLACES, wanted=_PLACES, is_aligned=st.booleans())
def test_reads_fill_memory_as_pread_does(
    directory: Path, size: int, position: int, wanted: int, is_aligned: bool
) -> None:
    path = directory / "read"
    path.write_bytes(_CONTENT[:size].tobytes())
    room = _memory(wanted, is_aligned)
    with path.open("rb", buffering=0) as file, UncachedReads(file.fileno()) as read_into:
        count = read_into(position, room)
        assert room[:count].tobytes() == os.pread(file.fileno(), wanted, position)


@given(pieces=st.lists(st.tuples(_PLACES, st.booleans()), max_size=4))
def test_what_was_written_is_read(directory: Path, pieces: list[tuple[int, bool]]) -> None:
    """Pieces of any length, one behind the other, of any memory."""
    path, position = directory / "written", 0
    with path.open("wb", buffering=0) as file, UncachedWrites(file.fileno()) as write:
        for size, is_aligned in pieces:
            piece = _memory(size, is_aligned)
            piece[:] = _CONTENT[:size]
            write(position, piece)
            position += size
    assert path.read_bytes() == b"".join(_CONTENT[:size].tobytes() for size, _ in pieces)


def test_memory_is_taken_again_once_no_view_of_it_is_left() -> None:
    first = aligned_room(_MIB)
    address, view = first.ctypes.data, first[5:].view(np.int8)
    del first
    assert aligned_room(_MIB).ctypes.data != address
    del view
    assert aligned_room(_MIB).ctypes.data == address
    assert len(aligned_room(ROOM_BYTES + 1)) == ROOM_BYTES + 1


def test_a_forked_process_has_memory_of_its_own() -> None:
    free, used = aligned_room(_MIB), aligned_room(_MIB)
    used[:] = 1
    del free
    child = os.fork()
    if child == 0:
        used[:] = 2
        aligned_room(_MIB)[:] = 2
        os._exit(0)
    taken = aligned_room(_MIB)
    taken[:] = 1
    os.waitpid(child, 0)
    assert (used == 1).all()
    assert (taken == 1).all()


def test_after_its_context_it_still_reads_its_file(directory: Path) -> None:
    """The number of the second descriptor may be another file's by then."""
    path, other = directory / "read", directory / "other"
    path.write_bytes(_CONTENT.tobytes())
    other.write_bytes(_CONTENT[::-1].tobytes())
    room = _memory(len(_CONTENT), is_aligned=True)
    with path.open("rb", buffering=0) as file:
        with UncachedReads(file.fileno()) as read_into:
            pass
        with other.open("rb", buffering=0):
            assert read_into(0, room) == len(_CONTENT)
    np.testing.assert_array_equal(room, _CONTENT)
