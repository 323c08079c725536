"""A partition is opened with its indexes, with those of a tree, or without any; the answers are the same."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from kidxlib.errors import CheckpointError, NoSegmentsError, OffsetOutOfRangeError, UsageError
from kidxlib.format.checkpoint_files import EpochEntry
from kidxlib.library.open_partition import open_partition
from kidxlib.library.recover_directory import recover_directory
from kidxlib.log.log import Log
from kidxlib.log.segment import BatchPosition, TimestampAndOffset
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
