"""Partitions in an object store are listed several at a time, with what a listing one after the other gives."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from kidxlib.indexing.changes import IndexSizes
from kidxlib.indexing.plan import Plan, add_segments, find_partitions, find_segments
from kidxlib.indexing.source import IndexPlace, source_at
from kidxlib.recovery.options import OptionsOfTopic, RecoverOptions
from kidxlib.storage.location import location
from kidxlib.storage.store.requests import AT_ONCE
from tests.support.object_store import BUCKET, ObjectStore

_PARTITIONS: Final = AT_ONCE + 4
_PREFIX: Final = "discovered"
_URL: Final = f"s3://{BUCKET}/{_PREFIX}"


@pytest.fixture
def log_dir(store: ObjectStore, tmp_path: Path) -> Iterator[Path]:
    """Logs on disk, and the same in the store; some have no topic id or a wrong one, and one has other files."""
    for number in range(1, _PARTITIONS + 1):
        directory = tmp_path / f"topic-{number}"
        directory.mkdir()
        for segment in range(number % 4):
            (directory / f"{segment:020}.log").write_bytes(bytes(number))
            (directory / f"{segment:020}.index").write_bytes(bytes(8 * number))
        (directory / "partition.metadata").write_text("version: 0\n" + ("topic_id: A\n" if number % 5 else ""))
    (tmp_path / "topic-7" / "0.log").write_bytes(b"")
    (tmp_path / "no-number").mkdir()
    (tmp_path / "no-number" / "a").write_bytes(b"")
    store.upload(tmp_path, _PREFIX)
    yield tmp_path
    store.before = None
    for name in store.contents(_PREFIX):
        store.delete(f"{_PREFIX}/{name}")


def _listing(place: str | Path) -> dict[str, Any]:
    return {
        "sources": [source_at(str(place), "s")],
        "topics": re.compile(".*"),
        "index_place": IndexPlace(index_dir=location(str(place)), by_source=False),
        "options_for": lambda _: OptionsOfTopic(RecoverOptions()),
    }


def _found(plan: Plan, place: str | Path) -> tuple[Any, ...]:
    """What a plan has, less what differs from place to place."""
    partitions = [(partition.key, partition.topic_id) for partition in plan.partitions]
    segments = plan.segments.select(["listed_partition", "base_offset", "log_bytes"]).to_pylist()
    warnings = [warning.replace(str(place), "") for warning in plan.warnings]
    return partitions, segments, plan.skipped.counts, warnings, set(plan.unlistable)


def _is_listing(method: str, key: str) -> bool:
    return not key


def test_a_store_is_listed_at_once_as_a_disk_is_one_by_one(store: ObjectStore, log_dir: Path) -> None:
    listed: list[int] = []
    on_disk = find_segments(**_listing(log_dir), say_listed=listed.append)
    in_store = find_partitions(**_listing(_URL))
    store.gather(AT_ONCE, _is_listing)
    assert add_segments(in_store)
    assert _found(in_store, _URL)[:3] == _found(on_disk, log_dir)[:3]
    assert len(in_store.warnings) == _PARTITIONS // 5
    assert listed == sorted(listed) and listed[-1] == on_disk.segments.num_rows
    suffixes = (".index", ".timeindex")
    store.gather(AT_ONCE, _is_listing)
    sizes = [IndexSizes(plan).of(plan.segments, suffixes) for plan in (on_disk, in_store)]
    assert [each.tolist() for each in sizes[0]] == [each.tolist() for each in sizes[1]]
    assert max(sizes[0][0]) == 8 * (_PARTITIONS - 1)
