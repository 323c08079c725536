"""An object that is read in ranges has the object's bytes, each of them read once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kidxlib.recovery.options import RecoverOptions
from kidxlib.recovery.segment import recover
from kidxlib.storage.log_bytes import RANGES_AHEAD, RangedLog, Reads, WholeLog
from kidxlib.storage.opened_log import opened_log
from kidxlib.storage.store.s3 import ObjectPath, open_object, read_object_into
from tests.conftest import Say
from tests.support.logs import golden
from tests.support.object_store import BUCKET, ObjectStore

_Steps = list[tuple[bool, int, int]]


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
        reads, threads = Reads(), ThreadPoolExecutor(RANGES_AHEAD)
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
