"""Log dirs of many segments that take little room: hard links to few files, valid under each of their names."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from benchmarks.generate import SegmentContent, write_segment
from kidxlib.format.segment_files import LOG_SUFFIX, segment_file

#: A file system allows some tens of thousands of links to one file, so each partition has a file of its own.
SEGMENTS_A_PARTITION: Final = 1000
#: A segment where only their number counts.
SEGMENT_BYTES: Final = 64 * 1024
#: Where the offsets in the file begin: above every base offset that a link is named by, and within 2³¹ of it.
FIRST_OFFSET: Final = 1_000_000

_CONTENT: Final = SegmentContent(magic=2, batch_bytes=16 * 1024)


def write_partition(directory: Path, segment_bytes: int, segments: int, content: SegmentContent = _CONTENT) -> None:
    """Make a partition's directory with so many segments, all of them links to one file beside the log dir."""
    directory.mkdir(parents=True)
    write_segment(content_file(directory), content, segment_bytes, FIRST_OFFSET)
    link_segments(directory, range(segments))


def write_log_dir(log_dir: Path, segment_bytes: int, segments: int) -> list[Path]:
    """Make a log dir with so many segments of batches of 16 KiB, in partitions of `SEGMENTS_A_PARTITION`."""
    partitions = []
    for number, start in enumerate(range(0, segments, SEGMENTS_A_PARTITION)):
        partitions.append(log_dir / f"bench-{number}")
        write_partition(partitions[-1], segment_bytes, min(SEGMENTS_A_PARTITION, segments - start))
    return partitions


def link_segments(directory: Path, base_offsets: range) -> None:
    """Add segments to a partition."""
    content = content_file(directory)
    for base_offset in base_offsets:
        os.link(content, directory / segment_file(base_offset, LOG_SUFFIX))


def content_file(directory: Path) -> Path:
    """The file that a partition's segments are links to."""
    return directory.parent.with_name(f"{directory.name}.content")
