"""Log dirs of many segments that take little room: hard links to few files, valid under each of their names."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from benchmarks.generate import SegmentContent, write_segment
from kidxlib.names import LOG_SUFFIX, segment_file

#: A file system allows some tens of thousands of links to one file, so each partition has a file of its own.
SEGMENTS_A_PARTITION: Final = 1000
#: A segment where only their number counts.
SEGMENT_BYTES: Final = 64 * 1024
#: Where the offsets in the file begin: above every base offset that a link is named by, and within 2³¹ of it.
FIRST_OFFSET: Final = 1_000_000

_CONTENT: Final = SegmentContent(magic=2, batch_bytes=16 * 1024)


def write_partition(folder: Path, segment_bytes: int, segments: int, content: SegmentContent = _CONTENT) -> None:
    """Make a partition's folder with so many segments, all of them links to one file beside the log dir."""
    folder.mkdir(parents=True)
    write_segment(content_file(folder), content, segment_bytes, FIRST_OFFSET)
    link_segments(folder, range(segments))


def write_log_dir(log_dir: Path, segment_bytes: int, segments: int) -> list[Path]:
    """Make a log dir with so many segments of batches of 16 KiB, in partitions of `SEGMENTS_A_PARTITION`."""
    partitions = []
    for number, start in enumerate(range(0, segments, SEGMENTS_A_PARTITION)):
        partitions.append(log_dir / f"bench-{number}")
        write_partition(partitions[-1], segment_bytes, min(SEGMENTS_A_PARTITION, segments - start))
    return partitions


def link_segments(folder: Path, base_offsets: range) -> None:
    """Add segments to a partition."""
    content = content_file(folder)
    for base_offset in base_offsets:
        os.link(content, folder / segment_file(base_offset, LOG_SUFFIX))


def content_file(folder: Path) -> Path:
    """The file that a partition's segments are links to."""
    return folder.parent.with_name(f"{folder.name}.content")
