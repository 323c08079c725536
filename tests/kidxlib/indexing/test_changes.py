"""A listing is compared with the catalog as columns, against the same comparison segment by segment: what is gone, what
only seems to be, and which segments are read for the facts that they lack.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, Final, TypeVar

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kidxlib.catalog.rows import SEGMENT_KEY
from kidxlib.catalog.segments import IntervalSource
from kidxlib.errors import UsageError
from kidxlib.format.checkpoint_files import LEADER_EPOCH_CHECKPOINT
from kidxlib.format.segment_files import LOG_SUFFIX, segment_file
from kidxlib.format.topic_partition import PartitionKey, TopicPartition
from kidxlib.indexing.changes import Changes, all_new, compare_with_catalog
from kidxlib.indexing.known_segments import KNOWN
from kidxlib.indexing.listed_segments import ListedSegments, rows_of_partitions
from kidxlib.indexing.listing import UnlistableDirectory
from kidxlib.indexing.plan import AuxiliaryFiles, BuildTask, Plan, PlannedPartition
from kidxlib.indexing.source import NO_INODE, NOT_SEEN, FoundSegment, PartitionDirectory, Source
from kidxlib.recovery.options import INTERVAL, MAX_INDEX, OptionsOfTopic, RecoverOptions
from kidxlib.recovery.outcome import Status
from kidxlib.storage.location import Directory
from tests.docs.log_dirs import put
from tests.model.changes import compare_plainly, known_of
from tests.support.known_rows import known_row, known_rows, known_table
from tests.support.logs.batches import FILLER, Batch
from tests.support.plans import plan_of

_T = TypeVar("_T")

_SOURCES: Final = ("a", "b")
_KEYS: Final[list[PartitionKey]] = [
    (source, topic, number) for source in _SOURCES for topic in ("t", "u") for number in (0, 10)
]
_OFFSETS: Final = (0, 1, 5, 2**40)
_VERSIONS: Final = [
    (10, 7, 3),
    (10, 7, 4),
    (10, 8, 3),
    (11, 7, 3),
    (10, 7, NO_INODE),
    (10, 7, 2**63 + 1),
    (NOT_SEEN, 0, 5),
]
_TOPIC_IDS: Final = [None, "A", "B"]
_SIZES: Final = [None, 0, 8, 12]

#: Of a catalog's row, what may differ from what a listing would give.
_OTHERWISE: Final[dict[str, list[Any]]] = {
    "topic_id": _TOPIC_IDS,
    "status": list(Status),
    "active": [True, False],
    "log_bytes": [None, 10, 11],
    "log_mtime_ns": [None, 7, 8],
    "log_inode": [None, 3, 4],
    "interval_bytes": [4096, 100, 200],
    "max_index_bytes": [10 * 2**20, 1200],
    "interval_source": list(IntervalSource),
    "crc_checked": [True, False],
    "offset_index_bytes": _SIZES,
    "time_index_bytes": _SIZES,
    "transaction_index_bytes": _SIZES,
    "producer_state": [None, "snapshot"],
    "log_path": ["elsewhere", "/logs/a/t-0/00000000000000000000.log"],
    "index_directory": ["elsewhere"],
    "catalog_version": [1, 2],
}

#: Of the logs' batches, at base offsets 0, 100 and so on.
_BODIES = (100, 5000, 200, 300)


def listed(root: Path, topics: str = ".*") -> Plan:
    return plan_of([Source(name, root / name) for name in ("a", "b")], root / "index", topics)


def gone(before: Plan, now: Plan) -> list[tuple[str, str, int]]:
    """Source, topic and base offset of what is gone."""
    rows = changes(before, now).gone.to_pylist()
    return [(row["source"], row["topic"], row["base_offset"]) for row in rows]


def changes(before: Plan, now: Plan) -> Changes:
    """What has changed, where a catalog knows all that was there before."""
    return compare_with_catalog(
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
        assert set(emptied.empty) == {"b"}
        [told] = [each for each in emptied.warnings if each.startswith(f"{root}/b: no segment found")]
        assert ("is the disk mounted?" in told) == (emptied is not without_logs)
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
    return Plan(
        segments=rows_of_partitions(plan.segments, kept), partitions=[plan.partitions[number] for number in kept]
    )


def test_where_no_source_has_a_segment_nothing_is_compared(root: Path) -> None:
    for source in ("a", "b"):
        shutil.rmtree(root / source)
        (root / source).mkdir()
    with pytest.raises(UsageError, match="no partition directory"):
        listed(root)


@pytest.fixture(scope="module")
def indexes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Index directories `whole` and `part`: files of 8, 12 and 0 bytes; links; a directory in the place of a file."""
    root = tmp_path_factory.mktemp("indexes")
    for name, offsets in (("whole", _OFFSETS), ("part", _OFFSETS[1:])):
        (root / name).mkdir()
        for offset in offsets:
            for suffix, size in ((".index", 8), (".timeindex", 12), (".txnindex", 0), (".snapshot", 1)):
                (root / name / f"{offset:020d}{suffix}").write_bytes(bytes(size))
    (root / "whole" / LEADER_EPOCH_CHECKPOINT).touch()
    link = root / "part" / f"{_OFFSETS[1]:020d}.index"
    link.unlink()
    os.symlink(root / "whole" / link.name, link)
    (root / "part" / f"{_OFFSETS[2]:020d}.timeindex").unlink()
    (root / "part" / f"{_OFFSETS[2]:020d}.timeindex").mkdir()
    return root


def _plan(rng: Random, root: Path) -> Plan:
    """Partitions of two sources; some of them without a segment, or such as cannot be listed; in a repair, files."""
    plan, listed = Plan(log_dirs=set(_some(rng, _SOURCES))), ListedSegments()
    repairs = rng.random() < 0.3
    names = [f"{offset:020d}{suffix}" for offset in _OFFSETS for suffix in (".index", ".timeindex", ".txnindex", "")]
    for key in _some(rng, _KEYS):
        place = _place(key)
        plan.partitions.append(
            PlannedPartition(
                place,
                rng.choice(_TOPIC_IDS),
                Directory(str(root), rng.choice(["whole", "whole", "part", "missing"])),
                _choice(rng),
                only=frozenset(_some(rng, names, 0.1)) if repairs else None,
            )
        )
        found: list[FoundSegment] = [
            (offset, *rng.choice(_VERSIONS)) for offset in _some(rng, rng.sample(_OFFSETS, len(_OFFSETS)), 0.6)
        ]
        listed.add(len(plan.partitions) - 1, found)
        if not found and rng.random() < 0.5:
            plan.unlistable[key] = UnlistableDirectory(str(place.path), "Input/output error")
    plan.segments = listed.table()
    without = set(_SOURCES) - set(plan.keys(plan.segments)["source"].to_pylist())
    plan.empty = {source: Path(f"/logs/{source}") for source in _some(rng, sorted(without))}
    return plan


def _choice(rng: Random) -> OptionsOfTopic:
    """What is known of a topic's settings, by its cluster's metadata, by its user, or by nobody."""
    otherwise = RecoverOptions(interval_bytes=rng.choice([4096, 100]), verify_crc=rng.random() < 0.5)
    given = frozenset(_some(rng, [INTERVAL, MAX_INDEX], 0.3))
    if not (known := _some(rng, sorted({INTERVAL, MAX_INDEX} - given), 0.4)):
        return OptionsOfTopic(otherwise, given=given)
    of_topic = replace(otherwise, interval_bytes=200) if INTERVAL in known else otherwise
    return OptionsOfTopic(otherwise, rng.choice(_TOPIC_IDS), of_topic, tuple((name, "topic") for name in known), given)


def _catalog(rng: Random, plan: Plan) -> pa.Table:
    """Rows of some listed segments, most of them nearly as they are, and of some that are not listed."""
    rows = []
    listed = {(*task.segment.partition_key, task.segment.base_offset): task for task in _tasks(plan)}
    for key in [(*key, offset) for key in _KEYS for offset in (*_OFFSETS, 2**41)]:
        if rng.random() < 0.3:
            continue
        row = known_row(listed.get(key, _NOT_LISTED)) | dict(zip(SEGMENT_KEY, key, strict=True))
        row |= {"offset_index_bytes": 8, "time_index_bytes": 12}
        row["interval_source"] = rng.choice([IntervalSource.SETTINGS, IntervalSource.METADATA])
        for name in rng.sample(sorted(_OTHERWISE), rng.choice([0, 0, 1, 1, 2])):
            row[name] = rng.choice(_OTHERWISE[name])
        if (row["log_inode"] or 0) >= 2**63:
            row["log_inode"] = None  # no column of the catalog holds it
        rows.append(row)
    rng.shuffle(rows)
    half = rng.randrange(len(rows) + 1)
    table = pa.concat_tables([known_table(rows[:half]), known_table(rows[half:])])
    if rng.random() < 0.5:
        for name in [column.name for column in KNOWN if column.type == pa.string()]:
            table = table.set_column(table.schema.get_field_index(name), name, table[name].dictionary_encode())
    return table


def _some(rng: Random, values: Sequence[_T], share: float = 0.5) -> list[_T]:
    return [value for value in values if rng.random() < share]


def _place(key: PartitionKey) -> PartitionDirectory:
    source, topic, number = key
    log_dir = Path(f"/logs/{source}")
    return PartitionDirectory(Source(source, log_dir), TopicPartition(topic, number), log_dir / f"{topic}-{number}")


def _tasks(plan: Plan) -> list[BuildTask]:
    return plan.build_tasks(publish_truncated=True)


def _not_listed() -> BuildTask:
    partition = PlannedPartition(_place(_KEYS[0]), "A", Directory("/index", "t-0"), OptionsOfTopic(RecoverOptions()))
    listed = ListedSegments()
    listed.add(0, [(0, 10, 7, 3)])
    [task] = _tasks(Plan(segments=listed.table(), partitions=[partition]))
    return task


#: A segment of which another's row is made.
_NOT_LISTED: Final = _not_listed()


@given(rng=st.randoms(use_true_random=True))
def test_columns_are_compared_as_segments_are(rng: Random, indexes: Path) -> None:
    plan = _plan(rng, indexes)
    known = _catalog(rng, plan)
    wanted = AuxiliaryFiles(snapshots=rng.random() < 0.5, epochs=rng.random() < 0.5)
    how = {name: rng.random() < 0.3 for name in ("publish_truncated", "explicit_interval", "rebuild")}
    found = compare_with_catalog(plan, known, wanted, **how)
    plain = compare_plainly(plan, known_of(known), wanted, **how)
    assert plan.build_tasks(found.to_read, publish_truncated=how["publish_truncated"]) == plain.to_read
    assert (found.unchanged, found.unchanged_bytes) == (plain.unchanged, plain.unchanged_bytes)
    assert found.bytes_to_read == sum(task.log_bytes for task in plain.to_read)
    assert [tuple(row.values()) for row in found.relisted.to_pylist()] == [
        (*key, *others) for key, *others in plain.relisted
    ]
    assert [tuple(row.values()) for row in found.gone.to_pylist()] == [(*key, offset) for key, offset in plain.gone]
    assert (found.emptied, found.missing_at_end, found.to_finish) == (
        plain.emptied,
        plain.missing_at_end,
        plain.to_finish,
    )


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    for number, size in enumerate(_BODIES):
        put(tmp_path / "orders-0", 100 * number, [Batch(body=FILLER[:size])])
    return plan_of([Source("a", tmp_path)], tmp_path / "index")


@pytest.fixture
def known(plan: Plan) -> list[dict[str, Any]]:
    """What a catalog knows of all segments."""
    return list(map(known_row, plan.build_tasks(publish_truncated=True)))


def to_read(changes: Changes) -> dict[int, bool]:
    """By base offset, whether all facts are wanted of segments that are read."""
    rows = changes.to_read.select(["base_offset", "all_facts"]).to_pylist()
    return {row["base_offset"]: row["all_facts"] for row in rows}


def changes_to_fill(plan: Plan, known: list[dict[str, Any]], fill_bytes: int | None) -> Changes:
    # A quarantined segment is unchanged without index files.
    rows = pa.Table.from_pylist([{**row, "status": Status.QUARANTINED} for row in known], KNOWN)
    return compare_with_catalog(
        plan,
        rows,
        AuxiliaryFiles(),
        publish_truncated=True,
        explicit_interval=False,
        rebuild=False,
        fill_bytes=fill_bytes,
    )


def test_up_to_a_number_of_bytes(plan: Plan, known: list[dict[str, Any]]) -> None:
    """A log that is larger than that does not keep others from being read."""
    for fill_bytes, read in (
        (None, ()),
        (0, ()),
        (161, (0,)),
        (161 + 261 + 360, (0, 200)),
        (10_000, (0, 100, 200, 300)),
    ):
        assert to_read(changes_to_fill(plan, known, fill_bytes)) == dict.fromkeys(read, True)
    assert changes_to_fill(plan, known, 161).unknown_facts == dict.fromkeys(
        ("log_crc32c", "smallest_timestamp_ms", "log_crc64nvme"), 3
    )


def test_what_is_known_is_not_read_again(plan: Plan, known: list[dict[str, Any]]) -> None:
    """Where all bytes were read a fact that is null all the same is one that cannot be known."""
    known[0]["log_crc64nvme"] = -1
    assert to_read(changes_to_fill(plan, known, 10_000)) == {100: True, 200: True, 300: True}


def test_new_segments_are_read_anyhow(plan: Plan, known: list[dict[str, Any]]) -> None:
    """Their bytes count, too."""
    assert to_read(changes_to_fill(plan, known[1:], 161)) == {0: True}
    assert to_read(changes_to_fill(plan, known[1:], None)) == {0: False}
    assert to_read(all_new(plan, 161)) == {0: True, 100: False, 200: False, 300: False}
    assert to_read(all_new(plan)) == dict.fromkeys((0, 100, 200, 300), False)
