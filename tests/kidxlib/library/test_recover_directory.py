"""A directory is recovered by one call: Kafka's files in a tree of their own, and what became of each segment."""

from __future__ import annotations

import os
import shutil
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from kidxlib.errors import LogChangedError, UsageError
from kidxlib.format.checkpoint_files import LEADER_EPOCH_CHECKPOINT
from kidxlib.format.segment_files import OFFSET_INDEX_SUFFIX, SNAPSHOT_SUFFIX, segment_file
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.library.recover_directory import recover_directory, recover_file
from kidxlib.recovery.options import RecoverOptions
from kidxlib.recovery.outcome import Status
from kidxlib.recovery.recover import RecoveredSegment, recover
from kidxlib.storage.publisher import Published
from tests.faults.trees import write_log
from tests.support.logs.batches import Batch, control, encode
from tests.support.logs.golden import DATA, SAMPLES, GoldenSegment
from tests.support.object_store import ObjectStore


def test_a_log_dir_gets_kafkas_files(golden_segments: list[GoldenSegment], tmp_path: Path) -> None:
    """All of the sample, and no other file."""
    found = recover_directory(SAMPLES, tmp_path / "index", epochs=True)
    expected: dict[str, bytes] = {}
    segments: dict[str, list[int]] = defaultdict(list)
    for golden in golden_segments:
        if golden.log.parent.parent == SAMPLES:
            directory = golden.log.parent.name
            segments[directory].append(golden.base_offset)
            expected[f"{directory}/{LEADER_EPOCH_CHECKPOINT}"] = golden.leader_epoch_checkpoint
            expected |= {f"{directory}/{name}": content for name, content in golden.indexes.items()}
    assert {
        str(path.relative_to(tmp_path / "index")): path.read_bytes() for path in (tmp_path / "index").glob("*/*")
    } == expected
    assert found.damaged == ()
    assert found.notes == ()
    assert {
        partition.topic_partition.directory: [segment.base_offset for segment in partition.segments]
        for partition in found.partitions
    } == segments
    mixed = found.partitions[-1]
    assert mixed.topic_partition == TopicPartition("txn-mixed", 0)
    assert (mixed.directory, mixed.index_directory) == (
        str(SAMPLES / "txn-mixed-0"),
        str(tmp_path / "index/txn-mixed-0"),
    )
    assert sum(segment.aborted_transactions for segment in mixed.segments) == 34
    assert {segment.published for segment in mixed.segments} == {Published.WRITTEN}

    again = recover_directory(str(SAMPLES), str(tmp_path / "index"), epochs=True, use_mmap=True)
    published = {segment.published for partition in again.partitions for segment in partition.segments}
    assert published == {Published.UNCHANGED}


def test_one_partition_its_options_and_what_else_is_written(tmp_path: Path) -> None:
    options = RecoverOptions(interval_bytes=100_000)
    found = recover_directory(SAMPLES / "txn-mixed-0", tmp_path, options=options, snapshots=True)
    (partition,) = found.partitions
    facts = [segment.facts for segment in partition.segments]
    assert [each.offset_entries for each in facts if each is not None] == [0, 10, 0, 7]
    assert len([*tmp_path.glob(f"txn-mixed-0/*{SNAPSHOT_SUFFIX}")]) == 4


def test_topics_are_chosen(tmp_path: Path) -> None:
    found = recover_directory(SAMPLES, tmp_path, topics="plain-.*|compacted")
    assert [partition.topic_partition.topic for partition in found.partitions] == ["compacted", "plain-zstd"]


def test_damage_is_told_and_stops_nothing(tmp_path: Path) -> None:
    found = recover_directory(DATA / "logs", tmp_path)
    counts: dict[Status, int] = defaultdict(int)
    for partition in found.partitions:
        for segment in partition.segments:
            counts[segment.end.status] += 1
            index = (
                tmp_path / partition.topic_partition.directory / segment_file(segment.base_offset, OFFSET_INDEX_SUFFIX)
            )
            assert index.exists() == (segment.end.status in (Status.OK, Status.TRUNCATED)), segment
            assert (segment in found.damaged) == (segment.end.status is not Status.OK)
    assert counts[Status.OK] > 10 and counts[Status.TRUNCATED] > 10


def test_a_segment_whose_producers_kafka_fails_on_keeps_no_index(tmp_path: Path) -> None:
    """Its scan is sound; what is wrong lies in what came before."""
    transaction = Batch(producer_id=7, producer_epoch=0, base_sequence=0, attributes=0b10000)
    outside = Batch(producer_id=7, producer_epoch=0, base_sequence=1)
    segments = {0: (transaction,), 1: (outside,), 2: (Batch(**control()),)}
    for base_offset, batches in segments.items():
        write_log(tmp_path / "logs" / "topic-0", base_offset, b"".join(encode(base_offset, batches)))
    found = recover_directory(tmp_path / "logs", tmp_path / "index")
    (damaged,) = found.damaged
    assert (damaged.base_offset, damaged.end.reason) == (1, "non-transactional-in-transaction")
    assert damaged.published is Published.NONE
    names = sorted(path.name for path in (tmp_path / "index/topic-0").glob(f"*{OFFSET_INDEX_SUFFIX}"))
    assert names == [segment_file(offset, OFFSET_INDEX_SUFFIX) for offset in (0, 2)]


def test_what_a_person_should_know_of_a_log_dir(tmp_path: Path) -> None:
    log_dir = tmp_path / "logs"
    shutil.copytree(SAMPLES / "append-time-0", log_dir / "append-time-0")
    (log_dir / "append-time-0" / "5.log").touch()
    (log_dir / "empty-0").mkdir()
    loose = log_dir / segment_file(7, ".log")
    loose.touch()
    found = recover_directory(log_dir, tmp_path / "index")
    assert sorted(found.notes) == [
        f"{loose}: skipped: a log that is in no partition's directory, so that no broker loads it",
        f"{log_dir}/append-time-0/5.log: skipped: a .log whose name is not a 20-digit base offset",
    ]
    assert [len(partition.segments) for partition in found.partitions] == [1, 0]


def test_wrong_directories_are_refused(tmp_path: Path) -> None:
    """Before anything is written."""
    with pytest.raises(UsageError, match="no/such: No such file or directory"):
        recover_directory("no/such", tmp_path / "index")
    with pytest.raises(UsageError, match="no partition directory"):
        recover_directory(tmp_path, tmp_path.parent / "index")
    with pytest.raises(UsageError, match=r"^topics \(: not a regular expression"):
        recover_directory(SAMPLES, tmp_path / "index", topics="(")
    with pytest.raises(UsageError, match=r"index_dir .*: it is a log dir"):
        recover_directory(SAMPLES, SAMPLES)
    with pytest.raises(UsageError, match="one is inside the other"):
        recover_directory(SAMPLES, SAMPLES / "index")
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "loop-0").symlink_to("loop-0")
    with pytest.raises(
        UsageError, match="loop-0: cannot be listed: Too many levels of symbolic links; leave its topic"
    ):
        recover_directory(tmp_path / "logs", tmp_path / "index")
    assert not (tmp_path / "index").exists()


@pytest.mark.parametrize("use_mmap", [False, True])
def test_golden_files(golden_segment: GoldenSegment, use_mmap: bool) -> None:
    recovered = recover_file(golden_segment.log, golden_segment.options, use_mmap=use_mmap)
    if recovered.end.status is not Status.QUARANTINED:
        assert recovered.offset_index == golden_segment.offset_index
        assert recovered.time_index == golden_segment.time_index
        assert recovered.end.position == golden_segment.log.stat().st_size - golden_segment.truncated_bytes


def test_an_object_and_a_text(golden_segments: list[GoldenSegment], store: ObjectStore) -> None:
    """The base offset stands in the name of either, and Kafka's defaults hold where nobody says more."""
    golden = next(segment for segment in golden_segments if segment.base_offset == 5797)
    url = store.upload(golden.log.parent, "recover-file")
    for path in (str(golden.log), f"{url}/{golden.log.name}"):
        assert recover_file(path).offset_index == golden.offset_index


@pytest.mark.parametrize("name", ["7.log", "00000000000000000000.index", "s3://bucket/key/a.log", ""])
def test_another_name_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="expected the path of a segment's log"):
        recover_file(name)
    with pytest.raises(UsageError, match=r"^gs://bucket/00000000000000000000"):
        recover_file("gs://bucket/00000000000000000000.log")


def test_a_log_that_changes_meanwhile_is_refused(
    golden_segments: list[GoldenSegment], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Path(shutil.copy(golden_segments[0].log, tmp_path))

    def grows(*arguments: object) -> RecoveredSegment:
        with log.open("ab") as file:
            file.write(np.zeros(8, np.uint8).tobytes())
            os.fsync(file.fileno())
        return recover(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("kidxlib.library.recover_directory.recover", grows)
    with pytest.raises(LogChangedError, match="a broker seems to be writing to it"):
        recover_file(log, RecoverOptions())
