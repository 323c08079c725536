"""The files of a deleted segment: they get the names of deleted files (`.deleted`), and are removed later."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from kidxlib.format.segment_files import AUXILIARY_SUFFIXES, DELETED_SUFFIX, LOG_SUFFIX, segment_file
from kidxlib.retention.outcomes import DeletionOutcome
from kidxlib.retention.plan import PartitionDeletion, PlannedSegment
from kidxlib.storage.directory import Directory
from kidxlib.storage.remover import Remover, in_the_way


def outcome_of(
    remover: Remover, deletion: PartitionDeletion, segment: PlannedSegment, last: int | None
) -> tuple[DeletionOutcome, str | None]:
    """The outcome for a segment, from its log as it is now, or from the log that an earlier run has renamed."""
    directory, log = deletion.segments_directory, segment_file(segment.base_offset, LOG_SUFFIX)
    for name in (log, log + DELETED_SUFFIX):
        status = remover.status(directory, name)
        if status is None:
            continue
        if segment.differs(status):
            return DeletionOutcome.CHANGED, segment.difference(f"{directory}/{name}", status)
        return (
            (DeletionOutcome.LAST, None)
            if name == log and segment.base_offset == last
            else (DeletionOutcome.DELETED, None)
        )
    return DeletionOutcome.GONE, None


def rename_files(
    remover: Remover, deletion: PartitionDeletion, segment: PlannedSegment, names: Mapping[Directory, set[str]]
) -> None:
    """Give all files of a segment the names of deleted files, the log first.

    Raises:
        PublishError: a name is taken, or a file cannot be renamed.
    """
    _ensure_names_free(deletion, segment, names)
    log = segment_file(segment.base_offset, LOG_SUFFIX)
    if log in names[deletion.segments_directory]:
        remover.mark_deleted(deletion.segments_directory, log)
    for directory, name in _auxiliary_files(deletion, segment):
        if name in names[directory]:
            remover.mark_deleted(directory, name)


def _ensure_names_free(
    deletion: PartitionDeletion, segment: PlannedSegment, names: Mapping[Directory, set[str]]
) -> None:
    """Before anything of a segment is renamed. Its log is the first: as long as that has its name, no run before this
    one has renamed anything of it, so what has the name of a deleted file is not ours. Later that is ours, unless the
    file that is to get this name is there too.

    Raises:
        PublishError: a name is taken by a file that is not ours.
    """
    log = (deletion.segments_directory, segment_file(segment.base_offset, LOG_SUFFIX))
    is_new = log[1] in names[log[0]]
    for directory, name in (log, *_auxiliary_files(deletion, segment)):
        if name + DELETED_SUFFIX in names[directory] and (is_new or name in names[directory]):
            raise in_the_way(directory, name + DELETED_SUFFIX)


def remove_files(remover: Remover, segments: Sequence[tuple[PartitionDeletion, PlannedSegment]]) -> None:
    """Remove the renamed files of segments, their logs last."""
    for deletion, segment in segments:
        for directory, name in _auxiliary_files(deletion, segment):
            remover.remove(directory, name + DELETED_SUFFIX)
    remover.flush()
    for deletion, segment in segments:
        remover.remove(deletion.segments_directory, segment_file(segment.base_offset, LOG_SUFFIX + DELETED_SUFFIX))
    remover.flush()


def _auxiliary_files(deletion: PartitionDeletion, segment: PlannedSegment) -> Iterator[tuple[Directory, str]]:
    for directory in deletion.directories:
        for suffix in AUXILIARY_SUFFIXES:
            yield directory, segment_file(segment.base_offset, suffix)
