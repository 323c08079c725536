"""A listing is compared with the catalog: what is gone, and what only seems to be."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from kidxlib.build.changes import Changes, compare
from kidxlib.build.directories import Target
from kidxlib.build.discover import find_segments
from kidxlib.build.listed import of_partitions
from kidxlib.build.plan import AuxiliaryFiles, Plan
from kidxlib.build.source import Source
from kidxlib.errors import UsageError
from kidxlib.format.segment_files import LOG_SUFFIX, segment_file
from kidxlib.recovery.options import OptionsOfTopic, RecoverOptions
from tests.docs.log_dirs import put
from tests.support.known_rows import known_rows
from tests.support.logs.batches import Batch


def listed(root: Path, topics: str = ".*") -> Plan:
    sources = [Source(name, root / name) for name in ("a", "b")]
    target = Target(index_dir=root / "index", by_source=True)
    return find_segments(sources, re.compile(topics), target, lambda _: OptionsOfTopic(RecoverOptions()))


def gone(before: Plan, now: Plan) -> list[tuple[str, str, int]]:
    """Source, topic and base offset of what is gone."""
    rows = changes(before, now).gone.to_pylist()
    return [(row["source"], row["topic"], row["base_offset"]) for row in rows]


def changes(before: Plan, now: Plan) -> Changes:
    """What has changed, where a catalog knows all that was there before."""
    return compare(
        now, known_rows(before), AuxiliaryFiles(), publish_truncated=True, explicit_interval=False, rebuild=False
    )


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for source in ("a", "b"):
        for topic in ("orders", "payments"):
            put(tmp_path / source / f"{topic}-0", 0, [Batch()])
    return tmp_path


def test_of_a_source_without_any_segment_nothing_is_gone(root: Path) -> None:
    """That is how a mount point without its mount looks: a log dir's, or those of all its partitions."""
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


def test_a_partition_without_segments_and_one_without_its_last_are_distinguished(root: Path) -> None:
    """Retention deletes at the beginning, perhaps all segments; a recreated topic begins again."""
    orders, payments = (root / "b" / f"{topic}-0" for topic in ("orders", "payments"))
    for directory in (orders, payments):
        for base_offset in (3, 6):
            put(directory, base_offset, [Batch()])
    before = listed(root)
    (orders / segment_file(0, LOG_SUFFIX)).unlink()
    shutil.rmtree(payments)
    now = changes(before, listed(root))
    assert (now.emptied, now.missing_at_end) == ({("b", "payments", 0): 3}, {})
    (orders / segment_file(6, LOG_SUFFIX)).unlink()
    assert changes(before, listed(root)).missing_at_end == {("b", "orders", 0): [6]}
    _make_again(before, orders)
    assert changes(before, listed(root)).missing_at_end == {}
    (orders / segment_file(3, LOG_SUFFIX)).unlink()
    put(orders, 9, [Batch()])
    rolled = changes(before, listed(root))
    assert rolled.gone.num_rows == 6 and rolled.emptied.keys() == {("b", "payments", 0)} and not rolled.missing_at_end


def _make_again(before: Plan, directory: Path) -> None:
    """Give a topic another id than the one that it had."""
    for number, partition in enumerate(before.partitions):
        if partition.directory.path == directory:
            before.partitions[number] = replace(partition, topic_id="A" * 22)
    (directory / "partition.metadata").write_text(f"version: 0\ntopic_id: {'B' * 22}")


def listed_of(plan: Plan, topic: str) -> Plan:
    kept = [number for number, partition in enumerate(plan.partitions) if partition.key[1] == topic]
    return Plan(segments=of_partitions(plan.segments, kept), partitions=[plan.partitions[number] for number in kept])


def test_where_no_source_has_a_segment_nothing_is_compared(root: Path) -> None:
    for source in ("a", "b"):
        shutil.rmtree(root / source)
        (root / source).mkdir()
    with pytest.raises(UsageError, match="no partition directory"):
        listed(root)
