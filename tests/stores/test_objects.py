"""Logs and index files as objects of a real S3 server: the same bytes, few requests, and what goes wrong on the way."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kidxlib.build import BuildTask, BuiltSegment, build
from kidxlib.discover import source_at
from kidxlib.errors import PublishError
from kidxlib.objects import Location, ObjectPath, open_object, read_object_into
from kidxlib.plan import Target, find_segments, parse_topics
from kidxlib.publish import Folder, Published, Publisher, read_end, read_file
from kidxlib.recover import RecoveredSegment, RecoverOptions, Status, recover
from kidxlib.storage import RANGES_AHEAD, LogChangedError, RangedLog, Reads, WholeLog, opened_log
from tests.conftest import Say
from tests.faults.trees import indexes, small_log
from tests.kidxlib import golden
from tests.support.compaction import applied, built, planned, to_interval
from tests.support.object_store import BUCKET, ObjectStore

_LOG: Final = f"{0:020d}.log"
_DAMAGED_AND_SOUND: Final = golden.DATA / "logs"


def _tasks(source: Location | str, index_dir: Location) -> list[BuildTask]:
    target = Target(index_dir=index_dir, by_source=False, publish_truncated=True)
    plan = find_segments([source_at(str(source), "it")], parse_topics(".*"), target, lambda _: RecoverOptions())
    return plan.tasks


def _of_scan(recovered: RecoveredSegment) -> tuple[Any, ...]:
    return recovered.facts, recovered.producer_events.tobytes(), recovered.leader_epochs.tobytes()


def _found(segments: list[BuiltSegment]) -> dict[tuple[str, int], Any]:
    """What a build found and did, less where that was."""
    return {
        (segment.task.segment.topic_partition.folder, segment.task.segment.base_offset): (
            segment.task.segment.active,
            segment.task.topic_id,
            segment.end,
            None if segment.version is None else segment.version.size,
            None if segment.recovered is None else _of_scan(segment.recovered),
            segment.published,
            segment.offset_index,
            segment.time_index,
        )
        for segment in segments
    }


@pytest.mark.parametrize("source", [golden.SAMPLES, _DAMAGED_AND_SOUND], ids=["sample", "damaged and sound"])
def test_a_build_of_objects_is_a_build_of_files(store: ObjectStore, tmp_path: Path, source: Path) -> None:
    prefix = f"same/{source.name}"
    url = store.upload(source, f"{prefix}/logs")
    mirror = ObjectPath(f"{BUCKET}/{prefix}/index")
    of_objects = list(build(_tasks(url, mirror), may_map=True))
    of_files = list(build(_tasks(source, tmp_path), may_map=True))
    assert _found(of_objects) == _found(of_files)
    assert store.contents(f"{prefix}/index") == {
        str(path.relative_to(tmp_path)): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()
    }
    assert {segment.version and segment.version.inode for segment in of_objects} == {None}
    # Three requests a log: what it is, its bytes, what it is by then. One an index file, and one before to see if it is
    # there. The server counts what the rows say.
    for segment in of_objects:
        assert segment.reads is not None and segment.version is not None
        key = segment.task.segment.path.removeprefix(f"s3://{BUCKET}/")
        of_log = store.counted("GET", "HEAD", prefix=key)
        assert segment.reads.requests == len(of_log) == (3 if segment.version.size else 2)
        assert segment.reads.read_bytes == sum(each.sent for each in of_log) == segment.version.size
    written = [each.key for each in store.counted("PUT", "POST", prefix=f"{prefix}/index")]
    assert sorted(written) == sorted(f"{prefix}/index/{name}" for name in store.contents(f"{prefix}/index"))


def test_what_is_there_already_is_left_alone_and_what_is_not_is_replaced(store: ObjectStore) -> None:
    store.put("again/logs/topic-0/" + _LOG, small_log())
    mirror = ObjectPath(f"{BUCKET}/again/index")
    tasks = _tasks(f"s3://{BUCKET}/again/logs", mirror)
    assert [each.published for each in build(tasks, may_map=True)] == [Published.WRITTEN]
    right = store.contents("again/index")
    store.requests.clear()
    assert [each.published for each in build(tasks, may_map=True)] == [Published.UNCHANGED]
    assert store.counted("PUT", "POST", "DELETE") == []

    name = next(name for name, content in right.items() if content)
    store.put(f"again/index/{name}", bytes(len(right[name])))
    store.requests.clear()
    assert [each.published for each in build(tasks, may_map=True)] == [Published.WRITTEN]
    assert [each.key for each in store.counted("PUT", "POST")] == [f"again/index/{name}"]
    assert store.contents("again/index") == right


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
        log.let_go()
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
            recovered = recover(opened.log(may_map=True, chunk_bytes=range_bytes), int(path.stem), RecoverOptions())
        assert (recovered.end, recovered.facts) == (expected.end, expected.facts)
        assert (recovered.offset_index, recovered.time_index) == (expected.offset_index, expected.time_index)


def _once(store: ObjectStore, key: str, do: Callable[[], None], method: str = "GET") -> None:
    """Do something right before an object's bytes (GET), or what it is (HEAD), are asked for the first time."""

    def before(asked_how: str, asked: str) -> None:
        if (asked_how, asked) == (method, key):
            store.before = None
            do()

    store.before = before


@pytest.mark.parametrize("left", [0, 1, 1_000])
def test_an_object_that_is_replaced_while_it_is_read_is_changed(store: ObjectStore, left: int) -> None:
    """By a shorter one, whose first ranges are there or not, or by one of the same length within the same second."""
    key, mirror = f"replaced/{left}/topic-0/{_LOG}", ObjectPath(f"{BUCKET}/replaced/{left}/index")
    store.put(key, bytes(1_000))
    tasks = _tasks(f"s3://{BUCKET}/replaced/{left}/topic-0", mirror)
    _once(store, key, lambda: store.put(key, bytes([1]) * left))
    [segment] = build(tasks, may_map=True)
    assert (segment.end.status, segment.end.reason) == (Status.CHANGED, "log-changed")
    assert store.contents(f"replaced/{left}/index") == {}


def test_a_range_behind_the_end_of_what_is_there_by_now_is_a_change(store: ObjectStore) -> None:
    store.put("shorter/log", bytes(1_000))
    with opened_log(f"s3://{BUCKET}/shorter/log") as opened:
        log = opened.log(may_map=False, chunk_bytes=100)
        log.window(0)
        store.put("shorter/log", b"1")
        for read in (partial(log.window, 500), partial(log.read, 500, 200)):
            with pytest.raises(LogChangedError, match="log ends at byte 500, it had 1000 bytes when opened"):
                read()
        with pytest.raises(LogChangedError, match="1000 bytes before the scan, 1 after; the object was replaced"):
            opened.refuse_changed()


def test_an_object_that_goes_before_or_while_it_is_read_is_gone(store: ObjectStore) -> None:
    mirror = ObjectPath(f"{BUCKET}/going/index")
    for method in ("HEAD", "GET"):
        key = f"going/{method}/topic-0/{_LOG}"
        store.put(key, small_log())
        tasks = _tasks(f"s3://{BUCKET}/going/{method}", mirror)
        _once(store, key, partial(store.delete, key), method)
        [segment] = build(tasks, may_map=True)
        assert (segment.end.status, segment.end.reason) == (Status.GONE, "no-such-file"), method
    assert store.contents("going/index") == {}


def test_an_object_that_may_not_be_read_does_not_stop_the_others(store: ObjectStore) -> None:
    for partition in (0, 1):
        store.put(f"denied/topic-{partition}/{_LOG}", small_log())
    tasks = _tasks(f"s3://{BUCKET}/denied", ObjectPath(f"{BUCKET}/denied-index"))
    store.before = lambda method, key: 403 if key == f"denied/topic-0/{_LOG}" else None
    denied, well = build(tasks, may_map=True)
    assert (denied.end.status, denied.end.reason, well.end.status) == (Status.UNREADABLE, "cannot-read", Status.OK)
    assert denied.end.detail is not None and "ACCESS_DENIED" in denied.end.detail
    assert "Request ID" not in denied.end.detail  # which is another one each time


def test_an_error_publishes_nothing_and_a_write_that_fails_leaves_what_was_there(store: ObjectStore) -> None:
    folder = Folder(f"s3://{BUCKET}/failing", "topic-0")
    with pytest.raises(ZeroDivisionError), Publisher() as publisher:
        publisher.stage(folder, "a", b"content")
        _ = 1 // 0
    assert store.counted("PUT", "POST") == []
    store.put("failing/topic-0/a", b"before")
    store.before = lambda method, key: 403 if method == "PUT" else None
    with Publisher() as publisher:
        assert publisher.stage(folder, "a", b"content") is Published.WRITTEN
        with pytest.raises(PublishError, match=r"failing/topic-0/a: not written: .*; what stood there is untouched"):
            publisher.commit()
    assert store.contents("failing") == {"topic-0/a": b"before"}


def test_large_and_empty_files_are_whole_objects_too(store: ObjectStore) -> None:
    """From 10 MiB on in parts, which appear together."""
    folder = Folder(f"s3://{BUCKET}/sizes", "topic-0")
    contents = {str(size): np.arange(size // 4, dtype=np.int32).tobytes() for size in (0, 4, 10 << 20, 11 << 20)}
    with Publisher() as publisher:
        for name, content in contents.items():
            assert publisher.stage(folder, name, content) is Published.WRITTEN
        publisher.commit()
        assert store.contents("sizes/topic-0") == contents
        for name, content in contents.items():
            assert publisher.stage(folder, name, content) is Published.UNCHANGED
        publisher.remove(folder, "4")
        publisher.remove(folder, "not there")
    assert set(store.contents("sizes/topic-0")) == set(contents) - {"4"}
    assert (read_file(folder, "4"), read_file(folder, "0"), read_end(folder, str(11 << 20), 8)) == (
        None,
        b"",
        contents[str(11 << 20)][-8:],
    )


@pytest.mark.parametrize("denser", [512, 4096])
def test_coarsened_indexes_are_the_same_as_of_files(store: ObjectStore, tmp_path: Path, denser: int) -> None:
    prefix = f"coarse/{denser}"
    url, options = store.upload(golden.SAMPLES, f"{prefix}/logs"), RecoverOptions(interval_bytes=denser)
    of_objects = built(ObjectPath.of(url), ObjectPath(f"{BUCKET}/{prefix}/index"), options)
    of_files = built(golden.SAMPLES, tmp_path / "index", options)
    assert indexes(tmp_path / "index")
    how = to_interval(16384)
    store.requests.clear()
    assert [each.bytes_after for each in planned(of_objects, how)] == [
        each.bytes_after for each in planned(of_files, how)
    ]
    assert store.counted("PUT", "POST", "DELETE") == []
    assert [each.outcome for each in applied(of_objects, how)] == [each.outcome for each in applied(of_files, how)]
    assert store.contents(f"{prefix}/index") == {
        str(path.relative_to(tmp_path / "index")): path.read_bytes()
        for path in (tmp_path / "index").rglob("*")
        if path.is_file()
    }


def test_names_that_no_url_would_hold_are_names_all_the_same(store: ObjectStore, tmp_path: Path) -> None:
    store.put(f"a b%2F+ü=é/topic-0/{_LOG}", small_log())
    tasks = _tasks(f"s3://{BUCKET}/a b%2F+ü=é/", tmp_path)
    assert [each.end.status for each in build(tasks, may_map=True)] == [Status.OK]
    assert tasks[0].segment.path == f"s3://{BUCKET}/a b%2F+ü=é/topic-0/{_LOG}"
