"""Logs and index files as objects of a real S3 server: the same bytes, few requests, and what goes wrong on the way."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from kidxlib.indexing.plan import BuildTask
from kidxlib.indexing.segments import BuiltSegment, build_segments
from kidxlib.indexing.source import source_at
from kidxlib.recovery.options import RecoverOptions
from kidxlib.recovery.outcome import Status
from kidxlib.recovery.recover import RecoveredSegment
from kidxlib.storage.location import Location
from kidxlib.storage.publisher import Published
from kidxlib.storage.store.requests import AT_ONCE
from kidxlib.storage.store.s3 import ObjectPath
from tests.faults.trees import indexes, small_log
from tests.support.compaction import applied, built, planned, to_interval
from tests.support.files import tree
from tests.support.logs import golden
from tests.support.object_store import BUCKET, ObjectStore
from tests.support.plans import plan_of

_LOG: Final = f"{0:020d}.log"
_DAMAGED_AND_SOUND: Final = golden.DATA / "logs"


def _tasks(source: Location | str, index_dir: Location) -> list[BuildTask]:
    return plan_of([source_at(str(source), "it")], index_dir).build_tasks(publish_truncated=True)


def _of_scan(recovered: RecoveredSegment) -> tuple[Any, ...]:
    return recovered.facts, recovered.producer_events.tobytes(), recovered.leader_epochs.tobytes()


def _found(segments: list[BuiltSegment]) -> dict[tuple[str, int], Any]:
    """What a build found and did, less where that was."""
    return {
        (segment.task.segment.topic_partition.directory, segment.task.segment.base_offset): (
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
    index_dir = ObjectPath(f"{BUCKET}/{prefix}/index")
    of_objects = list(build_segments(_tasks(url, index_dir), use_mmap=True))
    of_files = list(build_segments(_tasks(source, tmp_path), use_mmap=True))
    assert _found(of_objects) == _found(of_files)
    assert store.contents(f"{prefix}/index") == tree(tmp_path)
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


def _is_of_log(method: str, asked_how: str, key: str) -> bool:
    return asked_how == method and key.endswith(".log")


def test_small_logs_are_read_at_once(store: ObjectStore) -> None:
    for base_offset in range(0, 40 * AT_ONCE, 40):
        store.put(f"at-once/logs/topic-0/{base_offset:020}.log", small_log(base_offset=base_offset))
    tasks = _tasks(f"s3://{BUCKET}/at-once/logs", ObjectPath(f"{BUCKET}/at-once/index"))
    for method in ("HEAD", "GET"):
        store.gather(AT_ONCE, partial(_is_of_log, method))
        found = list(build_segments(tasks, use_mmap=True))
        assert [each.task for each in found] == tasks
        assert {each.end.status for each in found} == {Status.OK}


def test_what_is_there_already_is_left_alone_and_what_is_not_is_replaced(store: ObjectStore) -> None:
    store.put("again/logs/topic-0/" + _LOG, small_log())
    index_dir = ObjectPath(f"{BUCKET}/again/index")
    tasks = _tasks(f"s3://{BUCKET}/again/logs", index_dir)
    assert [each.published for each in build_segments(tasks, use_mmap=True)] == [Published.WRITTEN]
    right = store.contents("again/index")
    store.requests.clear()
    assert [each.published for each in build_segments(tasks, use_mmap=True)] == [Published.UNCHANGED]
    assert store.counted("PUT", "POST", "DELETE") == []

    name = next(name for name, content in right.items() if content)
    store.put(f"again/index/{name}", bytes(len(right[name])))
    store.requests.clear()
    assert [each.published for each in build_segments(tasks, use_mmap=True)] == [Published.WRITTEN]
    assert [each.key for each in store.counted("PUT", "POST")] == [f"again/index/{name}"]
    assert store.contents("again/index") == right


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
    key, index_dir = f"replaced/{left}/topic-0/{_LOG}", ObjectPath(f"{BUCKET}/replaced/{left}/index")
    store.put(key, bytes(1_000))
    tasks = _tasks(f"s3://{BUCKET}/replaced/{left}/topic-0", index_dir)
    _once(store, key, lambda: store.put(key, bytes([1]) * left))
    [segment] = build_segments(tasks, use_mmap=True)
    assert (segment.end.status, segment.end.reason) == (Status.CHANGED, "log-changed")
    assert store.contents(f"replaced/{left}/index") == {}


def test_an_object_that_goes_before_or_while_it_is_read_is_gone(store: ObjectStore) -> None:
    index_dir = ObjectPath(f"{BUCKET}/going/index")
    for method in ("HEAD", "GET"):
        key = f"going/{method}/topic-0/{_LOG}"
        store.put(key, small_log())
        tasks = _tasks(f"s3://{BUCKET}/going/{method}", index_dir)
        _once(store, key, partial(store.delete, key), method)
        [segment] = build_segments(tasks, use_mmap=True)
        assert (segment.end.status, segment.end.reason) == (Status.GONE, "no-such-file"), method
    assert store.contents("going/index") == {}


def test_an_object_that_may_not_be_read_does_not_stop_the_others(store: ObjectStore) -> None:
    for partition in (0, 1):
        store.put(f"denied/topic-{partition}/{_LOG}", small_log())
    tasks = _tasks(f"s3://{BUCKET}/denied", ObjectPath(f"{BUCKET}/denied-index"))
    store.before = lambda method, key: 403 if key == f"denied/topic-0/{_LOG}" else None
    denied, well = build_segments(tasks, use_mmap=True)
    assert (denied.end.status, denied.end.reason, well.end.status) == (Status.UNREADABLE, "cannot-read", Status.OK)
    assert denied.end.detail is not None and "ACCESS_DENIED" in denied.end.detail
    assert "Request ID" not in denied.end.detail  # which is another one each time


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
    assert store.contents(f"{prefix}/index") == tree(tmp_path / "index")


def test_names_that_no_url_would_hold_are_names_all_the_same(store: ObjectStore, tmp_path: Path) -> None:
    store.put(f"a b%2F+ü=é/topic-0/{_LOG}", small_log())
    tasks = _tasks(f"s3://{BUCKET}/a b%2F+ü=é/", tmp_path)
    assert [each.end.status for each in build_segments(tasks, use_mmap=True)] == [Status.OK]
    assert tasks[0].segment.path == f"s3://{BUCKET}/a b%2F+ü=é/topic-0/{_LOG}"
