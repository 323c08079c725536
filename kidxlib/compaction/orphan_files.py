"""Removes files that nothing needs."""

from __future__ import annotations

from kidxlib.compaction.change import NOT_LOCKED, NOT_OURS, Change, ChangeAction, ChangeOutcome
from kidxlib.compaction.orphans import Orphan, OrphanReason
from kidxlib.compaction.partition_files import FilesToCompact
from kidxlib.compaction.task import Mode
from kidxlib.format.checksums.crc import crc32c
from kidxlib.format.segment_files import parse_segment_file
from kidxlib.storage.directory import Directory, read_file


def remove_orphan(files: FilesToCompact, directory: Directory, orphan: Orphan) -> Change:
    """Remove a file that nothing needs."""
    place = files.place(directory, orphan.name)
    parsed = parse_segment_file(orphan.name)
    outcome, reason = ChangeOutcome.PLANNED, orphan.reason.value
    is_auxiliary_file = orphan.reason in (OrphanReason.NO_SEGMENT, OrphanReason.STRAY_SNAPSHOT)
    if place.log_dir is not None and is_auxiliary_file and not _is_ours(files, directory, orphan):
        outcome, reason = ChangeOutcome.KEPT, NOT_OURS
    elif not files.may_write(place):
        outcome, reason = ChangeOutcome.KEPT, NOT_LOCKED
    elif files.mode is Mode.APPLY:
        files.remover.remove(directory, orphan.name)
        outcome = ChangeOutcome.REMOVED
    return Change(
        key=files.task.key,
        base_offset=None if parsed is None else parsed[0],
        action=ChangeAction.REMOVE,
        outcome=outcome,
        place=place,
        reason=reason,
        bytes_before=orphan.size,
        bytes_after=orphan.size if outcome is ChangeOutcome.KEPT else 0,
    )


def _is_ours(files: FilesToCompact, directory: Directory, orphan: Orphan) -> bool:
    """Whether an index or auxiliary file of a missing segment has the content that was published for it."""
    base_offset, suffix = parse_segment_file(orphan.name) or (-1, "")
    recorded = {segment.base_offset: segment.crc32c_of(suffix) for segment in files.task.segments}
    content = read_file(directory, orphan.name)
    return content is not None and crc32c(content) == recorded.get(base_offset)
