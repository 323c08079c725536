"""A listing has each segment once, in order, and says of all else what it is; it opens no log."""

from __future__ import annotations

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kidxlib.errors import PublishError, UsageError
from kidxlib.format.segment_files import LOG_SUFFIX, SWAP_SUFFIX, NotASegment, segment_file
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.indexing.listed_segments import ListedSegments
from kidxlib.indexing.listing import (
    IndexDirectoryListings,
    SkippedEntries,
    list_offset_indexes,
    list_segments,
    list_source_partitions,
    settled_segments,
)
from kidxlib.indexing.plan import Plan, PlannedPartition
from kidxlib.indexing.source import PartitionDirectory, Source, source_at
from kidxlib.recovery.options import OptionsOfTopic, RecoverOptions
from kidxlib.storage.location import Directory
from kidxlib.storage.store.requests import AT_ONCE
from tests.faults.watching import Did, Watch
from tests.support.object_store import BUCKET, ObjectStore
from tests.support.unlistable import unlistable_directory


def put(directory: Path, *names: str) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for name in names:
        (directory / name).write_bytes(name.encode())


def listed(path: Path) -> tuple[list[str], SkippedEntries]:
    skipped = SkippedEntries()
    found = list_source_partitions(Source("it", path), skipped)
    return [os.path.relpath(str(partition.path), path.parent) for partition in found], skipped


def test_partitions_come_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    root = tmp_path / "logs"
    for name in ("b-0", "a-10", "a-2", "a-0.0123456789abcdef0123456789abcdef-delete", "lost+found"):
        (root / name).mkdir(parents=True)
    (root / "link-0").symlink_to(root / "b-0")
    put(root, "meta.properties", "recovery-point-offset-checkpoint")
    found, skipped = listed(root)
    assert found == ["logs/a-2", "logs/a-10", "logs/b-0", "logs/link-0"]
    assert skipped.counts[NotASegment.DIRECTORY_DELETE] == skipped.counts[NotASegment.NO_PARTITION_NUMBER] == 1
    assert skipped.unexpected == [(str(root / "lost+found"), NotASegment.NO_PARTITION_NUMBER)]


def test_a_directory_without_partitions_may_be_one(tmp_path: Path) -> None:
    """What lies in it is told when its segments are listed."""
    put(tmp_path / "t-7", segment_file(0, ".log"), "other")
    assert listed(tmp_path / "t-7") == (["t-7"], SkippedEntries())
    put(tmp_path / "t-8" / "u-0", segment_file(0, ".log"))
    assert listed(tmp_path / "t-8")[0] == ["t-8/u-0"]


def test_segments_in_a_directory_that_names_no_partition_are_refused(tmp_path: Path) -> None:
    put(tmp_path / "topic", segment_file(0, ".log"))
    with pytest.raises(UsageError, match="it holds segments, but its name is not <topic>-<partition>"):
        listed(tmp_path / "topic")
    put(tmp_path / "empty", "notes")
    assert listed(tmp_path / "empty")[0] == []


@pytest.mark.parametrize("kind", ["delete", "future", "stray"])
def test_a_folder_that_kafka_has_renamed_is_no_source(tmp_path: Path, kind: str) -> None:
    directory = tmp_path / f"a-0.0123456789abcdef0123456789abcdef-{kind}"
    put(directory, segment_file(0, ".log"))
    with pytest.raises(UsageError, match=rf"\(-{kind}\); to look at it, copy it to a directory called a-0, and give"):
        listed(directory)


def test_segments_come_in_order_and_the_last_one_is_active(tmp_path: Path) -> None:
    directory, nowhere = tmp_path / "t-0", tmp_path / "nowhere"
    names = [segment_file(offset, ".log") for offset in (100, 20, 3)]
    put(directory, *names, segment_file(3, ".index"), "7.log", f"{names[0]}.deleted")
    (directory / segment_file(500, ".log")).symlink_to(nowhere)
    (directory / "inner").mkdir()
    skipped = SkippedEntries()
    [partition] = list_source_partitions(Source("it", directory), skipped)
    found, listed_segments = list_segments(partition, skipped), ListedSegments()
    listed_segments.add(0, found)
    of_partition = PlannedPartition(partition, None, Directory("/i", "t-0"), OptionsOfTopic(RecoverOptions()))
    plan = Plan(segments=listed_segments.table(), partitions=[of_partition])
    segments = [task.segment for task in plan.scan_tasks()]
    assert [segment.base_offset for segment in segments] == [3, 20, 100, 500]
    assert [segment.active for segment in segments] == [False, False, False, True]
    assert {segment.partition_key for segment in segments} == {("it", "t", 0)}
    *there, dangling = segments
    assert dangling.version is None, "reading it will say why"
    for segment in there:
        status = os.stat(segment.path)
        assert segment.version is not None
        assert (segment.version.size, segment.version.mtime_ns) == (status.st_size, status.st_mtime_ns)
    assert skipped.counts == {
        NotASegment.AUXILIARY: 1,
        NotASegment.WRONG_SEGMENT_NAME: 1,
        NotASegment.DELETED: 1,
        NotASegment.OTHER: 1,
    }
    assert skipped.unexpected == [(str(directory / "7.log"), NotASegment.WRONG_SEGMENT_NAME)]


def test_what_has_a_partitions_name_and_cannot_be_looked_at_is_no_partition_that_is_gone(tmp_path: Path) -> None:
    """A link to a disk that is not mounted, and one to itself; what else has such a name is left out, as are links
    without one. A directory that went meanwhile cannot be listed either, nor one that can be opened alone.
    """
    root = tmp_path / "logs"
    (root / "t-0").mkdir(parents=True)
    put(root, "t-3")
    for name, target in {"t-1": "nowhere", "t-2": "t-2", "file-0": "t-3", "link": "nowhere"}.items():
        (root / name).symlink_to(target)
    found, skipped = listed(root)
    assert found == ["logs/t-0", "logs/t-1", "logs/t-2"]
    assert (skipped.counts, skipped.unexpected) == ({NotASegment.OTHER: 3}, [])
    partitions = list_source_partitions(Source("it", root), SkippedEntries())
    (root / "t-0").rmdir()
    for partition, error in zip(partitions, (errno.ENOENT, errno.ENOENT, errno.ELOOP), strict=True):
        with pytest.raises(OSError) as raised:
            list_segments(partition, skipped)
        assert raised.value.errno == error
    with unlistable_directory() as unlistable:
        (root / "t-0").symlink_to(unlistable)
        opened, *_ = list_source_partitions(Source("it", root), SkippedEntries())
        with pytest.raises(OSError, match="Invalid argument"):
            list_segments(opened, skipped)


def test_offset_indexes_are_known_by_their_names(tmp_path: Path) -> None:
    put(tmp_path / "i", segment_file(3, ".index"), segment_file(40, ".index"), "5.index", segment_file(6, ".timeindex"))
    assert list_offset_indexes(tmp_path / "i") == {3, 40}
    assert list_offset_indexes(tmp_path / "away") == set()


def test_a_swap_is_waited_for_and_not_for_ever(tmp_path: Path) -> None:
    """As `LocalLog.replaceSegments` renames files; a broker may have ended amid that."""
    (directory := tmp_path / "topic-0").mkdir()
    partition = PartitionDirectory(source_at(str(tmp_path)), TopicPartition("topic", 0), directory)
    swapped = directory / segment_file(0, LOG_SUFFIX + SWAP_SUFFIX)
    for path in (swapped, directory / segment_file(9, LOG_SUFFIX)):
        path.touch()
    assert [base_offset for base_offset, *_ in settled_segments(partition)] == [9]
    with Watch([directory], Did.OPEN) as watch, ThreadPoolExecutor(1) as pool:
        listed = pool.submit(settled_segments, partition)
        next(watch.events())
        swapped.rename(directory / segment_file(0, LOG_SUFFIX))
        assert [base_offset for base_offset, *_ in listed.result()] == [0, 9]


def test_each_has_its_own_names(store: ObjectStore, tmp_path: Path) -> None:
    directories = [Directory(f"s3://{BUCKET}/ahead", f"topic-{number}") for number in range(AT_ONCE + 3)]
    for number in range(1, AT_ONCE + 3):  # the first does not exist
        store.put(f"ahead/topic-{number}/{number}", b"")
    store.gather(AT_ONCE, lambda method, key: not key)
    (tmp_path / "topic-0").mkdir()
    (tmp_path / "topic-0" / "a").touch()
    with IndexDirectoryListings(directories) as listings:
        assert listings.names_in(directories[0]) == []
        assert listings.names_in(Directory(str(tmp_path), "topic-0")) == ["a"]
        for number in (1, 2, 5, AT_ONCE + 2, 3, 4):  # some are left out, and some come again
            assert listings.names_in(directories[number]) == [f"{number}"]
    store.before = lambda method, key: 403
    with (
        IndexDirectoryListings(directories) as listings,
        pytest.raises(PublishError, match="ahead/topic-0: not listed"),
    ):
        listings.names_in(directories[0])
