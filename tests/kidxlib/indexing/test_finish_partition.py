"""What is derived from a partition's segments in their order: Kafka's files, and which stay as a broker left them.
Directories of an object store are listed ahead; each has its own names, in whatever order they are asked for.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from kidxlib.format import layouts
from kidxlib.format.checkpoint_files import LEADER_EPOCH_CHECKPOINT
from kidxlib.format.segment_files import (
    OFFSET_INDEX_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    segment_file,
)
from kidxlib.indexing.finish_partition import FinishedPartition, UnfinishedSegment, fold_and_publish
from kidxlib.indexing.plan import AuxiliaryFiles
from kidxlib.indexing.segments import build_segments
from kidxlib.indexing.source import parse_sources
from kidxlib.recovery.partition_fold import Producers, StateSource
from kidxlib.storage.publisher import Published, held_name
from tests.faults.trees import write_log
from tests.support.logs import golden
from tests.support.logs.batches import Batch, control, encode
from tests.support.logs.snapshots import producers_in
from tests.support.plans import plan_of

ALL: Final = AuxiliaryFiles(snapshots=True, epochs=True)
IN_PLACE: Final = None


def build_log_dir(
    log_dir: Path, index_dir: Path | None, *, do_finish: bool = True, recovered: frozenset[int] = frozenset()
) -> list[FinishedPartition]:
    """Everything that one machine does with a log dir, within this process.

    Args:
        recovered: see `PartitionTask`.
    """
    plan = plan_of(parse_sources([str(log_dir)]), index_dir)
    built = list(build_segments(plan.build_tasks(publish_truncated=True), use_mmap=True))
    work = [
        (
            replace(listed.partition_task(ALL), recovered=recovered),
            [UnfinishedSegment.of(segment) for segment in built if segment.task.segment.partition_key == listed.key],
        )
        for listed in plan.partitions
    ]
    return list(fold_and_publish(work)) if do_finish else []


def test_golden_partitions_get_kafkas_files(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    """Transaction index, snapshots as sets of entries, leader epochs: all that Kafka wrote, and no other file."""
    more = pytestconfig.getoption("golden")
    segments = golden.committed() + (golden.found_below(Path(more)) if more else [])
    with_transactions = with_producers = 0
    for directory in {segment.log.parent for segment in segments}:
        log_dir, index_dir = tmp_path / "logs" / directory.parent.name, tmp_path / "index" / directory.parent.name
        for log in directory.glob("*.log"):  # without the snapshots that a broker left beside them
            (log_dir / directory.name).mkdir(parents=True, exist_ok=True)
            shutil.copy(log, log_dir / directory.name)
        build_log_dir(log_dir / directory.name, index_dir)
        found = {path.name: path for path in (index_dir / directory.name).iterdir()}
        for segment in (segment for segment in segments if segment.log.parent == directory):
            for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX):
                del found[segment_file(segment.base_offset, suffix)]
            transaction_index = found.pop(segment_file(segment.base_offset, TRANSACTION_INDEX_SUFFIX), None)
            assert (transaction_index and transaction_index.read_bytes()) == segment.transaction_index, segment.name
            with_transactions += transaction_index is not None
            snapshot = found.pop(segment_file(segment.base_offset, SNAPSHOT_SUFFIX), None)
            assert (snapshot is None) == (segment.snapshot is None), segment.name
            if snapshot is not None and segment.snapshot is not None:
                assert producers_in(snapshot.read_bytes()) == producers_in(segment.snapshot), segment.name
                with_producers += snapshot.stat().st_size > layouts.SNAPSHOT_HEADER.itemsize
            checkpoint = segment.leader_epoch_checkpoint
        assert found.pop(LEADER_EPOCH_CHECKPOINT).read_bytes() == checkpoint, directory
        assert [path.suffix for path in found.values()] in ([], [SNAPSHOT_SUFFIX]), "but for the one at the end"
    assert with_transactions > 5 and with_producers > 5


def test_a_brokers_own_directory_is_left_as_it_is(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    """Over what a broker wrote, in place: nothing changes, not even a snapshot with its entries in another order."""
    more = pytestconfig.getoption("golden")
    if more is None:
        pytest.skip("needs --golden DIR: the directories of a broker with its snapshots")
    log_dir = Path(shutil.copytree(Path(more) / "broker", tmp_path / "kafka-logs"))
    shutil.rmtree(log_dir / "small-interval-0")  # its indexes have an interval of their own
    before = {path: (path.stat().st_ino, path.read_bytes()) for path in log_dir.rglob("*") if path.is_file()}
    build_log_dir(log_dir, IN_PLACE)
    assert {path: (path.stat().st_ino, path.read_bytes()) for path in log_dir.rglob("*") if path.is_file()} == before


def write_partition(directory: Path, segments: Mapping[int, Sequence[Batch]]) -> Path:
    for base_offset, batches in segments.items():
        write_log(directory, base_offset, b"".join(encode(base_offset, batches)))
    return directory


def producer_ids(directory: Path, offset: int) -> set[int]:
    """Of the producers in a snapshot."""
    return {each.producer_id for each in producers_in((directory / segment_file(offset, SNAPSHOT_SUFFIX)).read_bytes())}


def data(producer_id: int = 7, *, transactional: bool = True) -> Batch:
    attributes = layouts.ATTRIBUTE_TRANSACTIONAL if transactional else 0
    return Batch(producer_id=producer_id, producer_epoch=0, base_sequence=0, attributes=attributes, leader_epoch=0)


ABORT: Final = Batch(**control(b"\0\0\0\0"), leader_epoch=0)
COMMIT: Final = Batch(**control(), leader_epoch=0)

#: Offsets 0, 1 | 2 aborts what began at 0, 3 | 4, 5 aborts what began at 3.
TWO_ABORTS: Final = {0: [data(), data(8)], 2: [ABORT, data()], 4: [data(8), ABORT]}


def entry(first: int, last: int, last_stable: int) -> bytes:
    return bytes(2) + b"".join(value.to_bytes(8) for value in (7, first, last, last_stable))


def test_transactions_that_began_in_an_earlier_segment(tmp_path: Path) -> None:
    """An abort marker's entry says where the transaction began; producer 8's, still open, holds the stable offset."""
    directory = write_partition(tmp_path / "logs" / "orders-0", TWO_ABORTS)
    [finished] = build_log_dir(directory.parent, tmp_path / "index")
    assert [segment.aborted.tobytes() for segment in finished.segments] == [b"", entry(0, 2, 1), entry(3, 5, 1)]
    assert {segment.state_source for segment in finished.segments} == {StateSource.LOG_START}
    index = tmp_path / "index" / "orders-0"
    assert not (index / segment_file(0, TRANSACTION_INDEX_SUFFIX)).exists(), "no file where nothing was aborted"
    assert (index / segment_file(4, TRANSACTION_INDEX_SUFFIX)).read_bytes() == entry(3, 5, 1)
    assert (index / LEADER_EPOCH_CHECKPOINT).read_text() == "0\n1\n0 0\n"

    # What was aborted before and is no more becomes an empty file, as in Kafka.
    (index / segment_file(0, TRANSACTION_INDEX_SUFFIX)).write_bytes(entry(0, 0, 0))
    [finished] = build_log_dir(directory.parent, tmp_path / "index")
    assert (index / segment_file(0, TRANSACTION_INDEX_SUFFIX)).read_bytes() == b""
    assert [segment.published for segment in finished.segments] == [Published.WRITTEN, *[Published.UNCHANGED] * 2]


def test_behind_damage_no_state_is_certain_though_no_offset_is_missing(tmp_path: Path) -> None:
    """What stood in the bytes behind the last whole batch nobody knows: it may have been of a producer."""
    directory = write_partition(tmp_path / "logs" / "orders-0", TWO_ABORTS)
    with (directory / segment_file(0, ".log")).open("ab") as log:
        log.write(b"torn")
    [finished] = build_log_dir(directory.parent, tmp_path / "index")
    sources = [segment.state_source for segment in finished.segments]
    assert sources == [StateSource.LOG_START, StateSource.UNKNOWN, StateSource.UNKNOWN]


def test_in_place_only_what_is_certain_replaces_a_brokers_file(tmp_path: Path) -> None:
    """Without the first segment, where the transactions began is unknown, until the broker's own snapshot says it."""
    whole = write_partition(tmp_path / "whole" / "orders-0", TWO_ABORTS)
    build_log_dir(whole.parent, IN_PLACE)
    right = {path.name: path.read_bytes() for path in whole.iterdir() if not path.name.startswith(f"{0:020d}")}

    directory = write_partition(tmp_path / "logs" / "orders-0", {base: TWO_ABORTS[base] for base in (2, 4)})
    old = {
        segment_file(2, TRANSACTION_INDEX_SUFFIX): entry(1, 2, 3),
        segment_file(4, SNAPSHOT_SUFFIX): b"not a snapshot",
        LEADER_EPOCH_CHECKPOINT: b"0\n1\n0 1\n",
    }
    for name, content in old.items():
        (directory / name).write_bytes(content)
    [finished] = build_log_dir(directory.parent, IN_PLACE)
    assert {name: (directory / name).read_bytes() for name in old} == old
    assert not (directory / segment_file(6, SNAPSHOT_SUFFIX)).exists(), "a broker would believe it"
    assert [segment.state_source for segment in finished.segments] == [StateSource.UNKNOWN] * 2
    assert [segment.published for segment in finished.segments] == [Published.KEPT, Published.WRITTEN]
    kept = [segment_file(4, SNAPSHOT_SUFFIX), segment_file(6, SNAPSHOT_SUFFIX), LEADER_EPOCH_CHECKPOINT]
    assert finished.kept == tuple(kept)

    (directory / segment_file(2, SNAPSHOT_SUFFIX)).write_bytes(right[segment_file(2, SNAPSHOT_SUFFIX)])
    [finished] = build_log_dir(directory.parent, IN_PLACE)
    assert [segment.state_source for segment in finished.segments] == [StateSource.SNAPSHOT] * 2
    found = {path.name: path.read_bytes() for path in directory.iterdir()}
    # Leader epochs are not in a snapshot: the broker's checkpoint may know of one that began earlier.
    assert found == {**right, LEADER_EPOCH_CHECKPOINT: old[LEADER_EPOCH_CHECKPOINT]}


def test_where_a_broker_recovers_it_believes_no_snapshot_behind(tmp_path: Path) -> None:
    """The record at offset 1 is lost. A broker that takes the segment at 0 for flushed believes the snapshot at 2, that
    has producer 8; one that recovers it does not, and goes on from what it has read.
    """
    snapshots = {}
    for recovered in (frozenset[int](), frozenset({0, 2})):
        directory = write_partition(tmp_path / f"logs-{len(recovered)}" / "orders-0", TWO_ABORTS)
        build_log_dir(directory.parent, IN_PLACE)
        (directory / segment_file(0, ".log")).write_bytes(b"".join(encode(0, TWO_ABORTS[0][:1])))
        [finished] = build_log_dir(directory.parent, IN_PLACE, recovered=recovered)
        snapshots[recovered] = producer_ids(directory, 2)
        assert finished.segments[1].state_source is (StateSource.LOG_START if recovered else StateSource.SNAPSHOT)
    assert snapshots == {frozenset(): {7, 8}, frozenset({0, 2}): {7}}


def test_a_broker_that_recovers_takes_a_snapshot_of_what_it_has_read(tmp_path: Path) -> None:
    """The first segment is not there, and no snapshot can be read. One that can stays, whatever it says."""
    directory = write_partition(tmp_path / "logs" / "orders-0", {base: TWO_ABORTS[base] for base in (2, 4)})
    sound = Producers().snapshot()
    (directory / segment_file(4, SNAPSHOT_SUFFIX)).write_bytes(b"not a snapshot")
    (directory / segment_file(6, SNAPSHOT_SUFFIX)).write_bytes(sound)
    build_log_dir(directory.parent, IN_PLACE, recovered=frozenset({2, 4}))
    assert producer_ids(directory, 4) == {7}
    assert (directory / segment_file(6, SNAPSHOT_SUFFIX)).read_bytes() == sound


def test_in_place_an_offset_index_waits_for_its_transaction_index(tmp_path: Path) -> None:
    """A build that dies in between leaves no offset index, so that a broker recovers the segment by itself."""
    plain = Batch(leader_epoch=0)
    directory = write_partition(tmp_path / "logs" / "orders-0", {**TWO_ABORTS, 6: [plain, plain]})
    build_log_dir(directory.parent, IN_PLACE, do_finish=False)
    offset_indexes = [(directory / segment_file(base, OFFSET_INDEX_SUFFIX)).exists() for base in (0, 2, 4, 6)]
    assert offset_indexes == [False, False, False, True], "only the segment without producers is done"
    assert (directory / held_name(2)).exists()
    build_log_dir(directory.parent, IN_PLACE)
    assert sorted(path.suffix for path in directory.iterdir()) == sorted(
        [*[".log", ".index", ".timeindex"] * 4, *[".txnindex"] * 2, *[".snapshot"] * 4, ""]
    )


@pytest.mark.parametrize(
    ("batches", "reason", "position"),
    [
        ([data(transactional=False)], "non-transactional-in-transaction", 100),
        ([Batch(leader_epoch=1, last_offset_delta=5)], "negative-leader-epoch-offset", 100),
    ],
)
def test_where_kafka_fails_on_producers_or_epochs_a_segment_is_quarantined(
    batches: list[Batch], reason: str, position: int, tmp_path: Path
) -> None:
    """Its indexes leave an index directory; in place, a broker's own stay. What follows is not certain any more."""
    segments = {0: [data(), *batches], 2: [data(8), Batch(**{**control(b"\0\0\0\0"), "producer_id": 8})]}
    directory = write_partition(tmp_path / "logs" / "orders-0", segments)
    [finished] = build_log_dir(directory.parent, tmp_path / "index")
    failure = finished.segments[0].failure
    assert failure is not None
    assert (failure.reason, failure.position) == (reason, position)
    index = {path.name for path in (tmp_path / "index" / "orders-0").iterdir()}
    assert {name for name in index if name.startswith(f"{0:020d}")} == set()
    assert segment_file(2, OFFSET_INDEX_SUFFIX) in index
    assert finished.segments[1].state_source is StateSource.UNKNOWN

    broker_index = directory / segment_file(0, OFFSET_INDEX_SUFFIX)
    broker_index.write_bytes(b"a broker's")
    build_log_dir(directory.parent, IN_PLACE)
    assert broker_index.read_bytes() == b"a broker's"
    assert not list(directory.glob(".kidx-*"))


def test_a_snapshot_reads_back_as_it_was_written(tmp_path: Path) -> None:
    """A state with an open transaction, an ended one and a producer outside of any survives the way through bytes."""
    directory = write_partition(
        tmp_path / "logs" / "orders-0", {0: [data(), data(8), data(9, transactional=False), COMMIT]}
    )
    build_log_dir(directory.parent, tmp_path / "index")
    content = (tmp_path / "index" / "orders-0" / segment_file(4, SNAPSHOT_SUFFIX)).read_bytes()
    assert len(producers_in(content)) == 3
    assert Producers.from_snapshot(content).snapshot() == content
