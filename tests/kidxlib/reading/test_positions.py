"""Segments that the cleaner swaps in are among those that are listed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kidxlib.format.segment_files import LOG_SUFFIX, SWAP_SUFFIX, segment_file
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.indexing.listing import settled_segments
from kidxlib.indexing.source import PartitionDirectory, source_at
from tests.faults.watching import Did, Watch


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
