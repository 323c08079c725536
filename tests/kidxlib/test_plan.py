"""What a listing shows beside what the catalog knows: which segments are gone, and which only seem to be."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from kidxlib.build import IntervalSource
from kidxlib.discover import Source
from kidxlib.errors import UsageError
from kidxlib.names import LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TopicPartition, segment_file
from kidxlib.plan import KnownSegment, Plan, SideFiles, Target, compare, find_segments, mirror_to_write, segments_folder
from kidxlib.publish import Folder
from kidxlib.recover import RecoverOptions, Status
from tests.docs.log_dirs import put
from tests.kidxlib.segments import Batch


def listed(root: Path, topics: str = ".*") -> Plan:
    sources = [Source(name, root / name) for name in ("a", "b")]
    target = Target(index_dir=root / "index", by_source=True, publish_truncated=True)
    return find_segments(sources, re.compile(topics), target, lambda _: RecoverOptions())


def gone(before: Plan, now: Plan) -> list[tuple[str, str, int]]:
    """Source, topic and base offset of what is gone, where a catalog knows all that was there before."""
    known: dict[tuple[str, str, int], dict[int, KnownSegment]] = {}
    for task in before.tasks:
        known.setdefault(task.segment.partition_key, {})[task.segment.base_offset] = KnownSegment(
            version=task.segment.version,
            topic_id=None,
            options=task.options,
            interval_source=IntervalSource.SETTINGS,
            status=Status.OK,
            active=task.segment.active,
            log_path=task.segment.path,
            index_folder=str(task.index_folder),
            offset_index_bytes=None,
            time_index_bytes=None,
            transaction_index_bytes=None,
            finished=True,
            current=True,
        )
    changes = compare(now, known, SideFiles(), explicit_interval=False, rebuild=False)
    return [(key[0], key[1], base_offset) for key, base_offset in changes.gone]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for source in ("a", "b"):
        for topic in ("orders", "payments"):
            put(tmp_path / source / f"{topic}-0", 0, [Batch()])
    return tmp_path


def test_of_a_source_without_any_segment_nothing_is_gone(root: Path) -> None:
    """As a directory looks on which nothing is mounted; be it that of a log dir or those of all its partitions."""
    before = listed(root)
    for path in (root / "b").rglob("*.log"):
        path.unlink()
    without_logs = listed(root)
    shutil.rmtree(root / "b")
    (root / "b").mkdir()
    for emptied in (without_logs, listed(root)):
        assert set(emptied.empty) == {"b"} and f"{root}/b: no segment found" in emptied.warnings
        assert gone(before, emptied) == []
    shutil.rmtree(root / "a" / "orders-0")
    assert gone(before, listed(root)) == [("a", "orders", 0)], "of the other source all goes on"


def test_topics_that_are_gone_from_a_source_with_others_are_gone(root: Path) -> None:
    before = listed(root)
    shutil.rmtree(root / "b" / "orders-0")
    now = listed(root)
    assert now.empty == {} and gone(before, now) == [("b", "orders", 0)]
    only = listed(root, "orders")
    assert only.empty == {}, "it has segments of other topics"
    assert gone(listed_of(before, "orders"), only) == [("b", "orders", 0)]


def listed_of(plan: Plan, topic: str) -> Plan:
    return Plan(tasks=[task for task in plan.tasks if task.segment.topic_partition.topic == topic])


def test_where_no_source_has_a_segment_nothing_is_compared(root: Path) -> None:
    for source in ("a", "b"):
        shutil.rmtree(root / source)
        (root / source).mkdir()
    with pytest.raises(UsageError, match="no partition folder"):
        listed(root)


def test_logs_that_stand_elsewhere_than_their_source_have_no_place() -> None:
    """A source's name means another directory by now: nothing of what is recorded is looked for there."""
    partition, name = TopicPartition("t", 0), segment_file(7, LOG_SUFFIX)
    recorded = {7: f"/logs/a/t-0/{name}"}
    assert segments_folder(Path("/logs/a"), partition, recorded) == Folder("/logs/a", "t-0")
    assert segments_folder(Path("/logs/a/t-0"), partition, recorded) == Folder("/logs/a", "t-0")
    for elsewhere in ("/logs/b", "/logs", "/logs/a/u-0/x"):
        assert segments_folder(Path(elsewhere), partition, recorded) is None


@pytest.mark.parametrize("inside", ["", "orders-0", "b1/orders-0"])
def test_a_log_dir_is_no_place_for_a_mirror_tree(inside: str, tmp_path: Path) -> None:
    """Its index files would be replaced, without its lock: a partition, a log dir, and log dirs by source."""
    mirror = tmp_path / "mirror"
    folder = mirror / inside
    folder.mkdir(parents=True)
    (folder / segment_file(0, OFFSET_INDEX_SUFFIX)).touch()
    assert mirror_to_write("--index-dir", str(mirror)) == mirror
    (folder / segment_file(0, LOG_SUFFIX)).touch()
    with pytest.raises(UsageError, match=f"it is a log dir, {folder}/0+.log is there"):
        mirror_to_write("--index-dir", str(mirror))
