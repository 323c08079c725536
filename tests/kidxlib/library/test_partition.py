"""A partition is opened with its indexes, with those of a tree, or without any; the answers are the same. It is decided
on as its segments' columns are.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from kidxlib.errors import CheckpointError, NoSegmentsError, OffsetOutOfRangeError, UsageError
from kidxlib.format.checkpoint_files import EpochEntry
from kidxlib.format.segment_files import LOG_SUFFIX, segment_file
from kidxlib.library.partition import decide_retention, open_partition
from kidxlib.library.recover_directory import recover_directory
from kidxlib.log.log import Log
from kidxlib.log.segment import BatchPosition, TimestampAndOffset
from kidxlib.retention.policy import Cleanup, Reason, TopicPolicy
from tests.support.logs.golden import SAMPLES
from tests.support.object_store import ObjectStore

PARTITION = SAMPLES / "txn-mixed-0"


def _answers(log: Log) -> object:
    found = log.translate_offset(5850)
    assert found is not None
    return (
        log.log_start_offset,
        log.log_end_offset,
        found[0].base_offset,
        found[1],
        log.segments[2].find_offset_by_timestamp(1760000057400),
        log.leader_epoch_cache.entries,
    )


EXPECTED = (
    0,
    10_333,
    5797,
    BatchPosition(5849, 10_364, 1163),
    TimestampAndOffset(1760000057409, 5837, 0),
    (EpochEntry(0, 0),),
)


def test_with_a_tree_and_without_any_index(tmp_path: Path) -> None:
    recover_directory(PARTITION, tmp_path)
    assert _answers(open_partition(PARTITION, tmp_path)) == EXPECTED
    assert _answers(open_partition(str(PARTITION), str(tmp_path))) == EXPECTED
    assert _answers(open_partition(PARTITION)) == EXPECTED
    assert _answers(open_partition(os.path.relpath(PARTITION))) == EXPECTED


def test_in_a_store(store: ObjectStore) -> None:
    assert _answers(open_partition(store.upload(PARTITION, "open-partition/txn-mixed-0"))) == EXPECTED


def test_the_log_start_offset_is_the_log_dirs(tmp_path: Path) -> None:
    directory = tmp_path / "txn-mixed-0"
    shutil.copytree(PARTITION, directory)
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n2\nother 0 7\ntxn-mixed 0 100\n")
    log = open_partition(directory)
    assert log.log_start_offset == 100
    with pytest.raises(OffsetOutOfRangeError):
        log.translate_offset(99)
    assert log.leader_epoch_cache.entries == (EpochEntry(0, 100),)
    assert open_partition(directory, log_start_offset=0).log_start_offset == 0
    renamed = directory.rename(tmp_path / "a copy")
    assert open_partition(renamed).log_start_offset == 0, "it is no partition's name"
    renamed.rename(directory)
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\nnonsense\n")
    with pytest.raises(CheckpointError, match="line 3"):
        open_partition(directory)


def test_what_is_no_partition_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NoSegmentsError):
        open_partition(tmp_path)
    with pytest.raises(FileNotFoundError):
        open_partition(tmp_path / "topic-0")
    with pytest.raises(UsageError, match="expected the path of a directory, or s3://"):
        open_partition("gs://bucket/topic-0")


#: The largest timestamps of its segments: of the second and the last they are those of markers.
LARGEST = (1760000000924, 1795224738702, 1760000057992, 1795224740485)
DAY_MS = 24 * 60 * 60 * 1000


def test_by_time() -> None:
    """Segments go whose largest timestamp, by their time indexes or by the logs themselves, is too old."""
    log = open_partition(PARTITION)
    found = decide_retention(log, TopicPolicy(retention_ms=DAY_MS), LARGEST[2] + DAY_MS)
    assert found.largest_timestamps.tolist() == list(LARGEST)
    assert found.deleted == 1 and not found.whole_partition
    assert found.named_reasons == (
        Reason.TIME,
        Reason.FUTURE_TIMESTAMP,
        Reason.TIME_NOT_REACHED,
        Reason.FUTURE_TIMESTAMP,
    )
    a_moment_later = decide_retention(log, TopicPolicy(retention_ms=DAY_MS), LARGEST[2] + DAY_MS + 1)
    assert a_moment_later.named_reasons[2] is Reason.AFTER_KEPT
    assert decide_retention(log, TopicPolicy(retention_ms=DAY_MS), LARGEST[3] + DAY_MS + 1).whole_partition


def test_by_size_and_not_of_a_compacted_topic() -> None:
    log = open_partition(PARTITION)
    sizes = [segment.size for segment in log.segments]
    policy = TopicPolicy(retention_ms=-1, retention_bytes=sum(sizes) - sizes[0])
    assert decide_retention(log, policy, LARGEST[3]).named_reasons[:2] == (Reason.SIZE, Reason.SIZE_NOT_REACHED)
    compacted = TopicPolicy(cleanup=frozenset({Cleanup.COMPACT}))
    assert set(decide_retention(log, compacted, 2**62).named_reasons) == {Reason.COMPACTED}


def test_nothing_of_a_tiered_topic_is_deleted() -> None:
    """A local segment may be the only copy, whatever limits and offsets say."""
    log = open_partition(PARTITION, log_start_offset=5797)
    found = decide_retention(log, TopicPolicy(remote_storage=True, retention_ms=0, retention_bytes=0), 2**50)
    assert found.deleted == 0 and found.named_reasons == (Reason.NOT_MODELLED,) * 4
    assert found.largest_timestamps.tolist() == list(LARGEST)


def test_offsets_that_keep_and_that_let_go() -> None:
    log = open_partition(PARTITION, log_start_offset=5797)
    policy = TopicPolicy(retention_ms=-1)
    assert decide_retention(log, policy, LARGEST[3]).named_reasons[:3] == (
        Reason.LOG_START,
        Reason.LOG_START,
        Reason.NO_LIMIT,
    )
    kept = decide_retention(open_partition(PARTITION), TopicPolicy(retention_ms=0), 2**62, high_watermark=84)
    assert kept.named_reasons == (Reason.TIME, *[Reason.HIGH_WATERMARK] * 3)


@pytest.mark.parametrize(("broken", "expected"), [(84, ["time", "not-well", "behind", "behind"]), (5891, None)])
def test_a_segment_that_cannot_be_read_stays(broken: int, expected: list[str] | None, tmp_path: Path) -> None:
    """And all after it. Of the last one the log end offset is not known either."""
    directory = tmp_path / PARTITION.name
    shutil.copytree(PARTITION, directory)
    log = directory / segment_file(broken, LOG_SUFFIX)
    log.unlink()
    log.mkdir()
    found = decide_retention(open_partition(directory), TopicPolicy(retention_ms=DAY_MS), 2**62)
    assert list(found.named_reasons) == (expected or ["time", "time", "time", "not-well"])
