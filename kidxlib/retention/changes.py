"""Finds what has changed in a partition and in its logs since the plan."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from kidxlib.format.segment_files import DELETED_SUFFIX, LOG_SUFFIX, parse_segment_log, segment_file
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.retention.outcomes import DeletionOutcome, Kept
from kidxlib.retention.plan import PartitionDeletion, PartitionThen, SegmentThen
from kidxlib.storage.checkpoints import Checkpoints, read_checkpoints
from kidxlib.storage.location import location
from kidxlib.storage.log_dir import read_topic_id
from kidxlib.storage.remover import Remover


def change_of(remover: Remover, deletion: PartitionDeletion, then: PartitionThen) -> str | None:
    """What has changed in a partition; None if nothing has."""
    directory = deletion.segments_directory
    topic_partition = TopicPartition(deletion.key[1], deletion.key[2])
    checkpoints: Checkpoints = read_checkpoints(location(directory.root))
    found = (
        ("topic id", then.topic_id, read_topic_id(location(str(directory)))),
        ("log start offset", then.log_start_offset, (checkpoints.log_start_offsets or {}).get(topic_partition)),
        ("high watermark", then.high_watermark, (checkpoints.high_watermarks or {}).get(topic_partition)),
    )
    for what, before, now in found:
        if before != now:
            return f"{what} {_shown(now)}, planned with {_shown(before)}"
    known = {segment.file.base_offset for segment in then.segments}
    last = max((segment.base_offset for segment in deletion.segments), default=-1)
    for name in sorted(remover.names(directory)):
        base_offset = parse_segment_log(name)
        if base_offset is not None and base_offset <= last and base_offset not in known:
            return f"{name}: the plan does not know it"
    return None


def _shown(value: object) -> object:
    return "not there" if value is None else value


class _Found(NamedTuple):
    """A segment's log as it is now."""

    path: str
    status: os.stat_result


def find_log(remover: Remover, deletion: PartitionDeletion, segment: SegmentThen, *, is_going: bool) -> _Found | None:
    """A log, or the log that an earlier run has renamed if it was to be deleted; None if there is neither."""
    path, name = deletion.log_path(segment.file), segment_file(segment.file.base_offset, LOG_SUFFIX)
    for suffix in ("", DELETED_SUFFIX) if is_going else ("",):
        if (status := remover.status(deletion.segments_directory, name + suffix)) is not None:
            return _Found(path + suffix, status)
    return None


def log_differences(deletion: PartitionDeletion, found: Sequence[tuple[SegmentThen, _Found | None]]) -> dict[int, str]:
    """How segments differ from the plan, by base offset. Nothing was recorded of a segment that could not be read."""
    differences = {}
    for segment, log in found:
        file = segment.file
        if log is None:
            if not segment.deleted:
                differences[file.base_offset] = (
                    f"{deletion.log_path(file)}: not there as a file; planned as {file.log_bytes} bytes: run "
                    "build_index and plan again"
                )
        elif file.log_mtime_ns is not None and file.differs(log.status):
            differences[file.base_offset] = file.difference(log.path, log.status)
    return differences


def skipped(
    deletion: PartitionDeletion, found: Sequence[tuple[SegmentThen, _Found | None]], differences: Mapping[int, str]
) -> PartitionDeletion:
    """The outcomes if nothing of a partition is deleted: each segment that differs from the plan is reported."""
    kept = {
        segment.file.base_offset: Kept(DeletionOutcome.CHANGED, difference)
        if (difference := differences.get(segment.file.base_offset)) is not None
        else Kept(DeletionOutcome.LEFT, None)
        for segment, log in found
        if log is not None or segment.file.base_offset in differences
    }
    going = {segment.base_offset for segment in deletion.segments}
    others = tuple(
        (segment.file, kept[segment.file.base_offset])
        for segment, _ in found
        if segment.file.base_offset in differences and segment.file.base_offset not in going
    )
    return replace(deletion, kept=kept, others=others)
