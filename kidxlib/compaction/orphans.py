"""Finds the files of a partition that nothing needs any more, from a listing of its directory.

A broker removes these files when it starts (`LogLoader.removeTempFilesAndCollectSwapFiles`, `loadSegmentFiles`,
`ProducerStateManager.removeStraySnapshots`), but no broker ever starts in an index directory.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from kidxlib.format.segment_files import (
    AUXILIARY_SUFFIXES,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    parse_segment_file,
    parse_snapshot,
)
from kidxlib.storage.location import FileStatus
from kidxlib.storage.publisher import is_staging


class OrphanReason(enum.StrEnum):
    """Why a file is not needed."""

    NO_SEGMENT = "no-segment"  # its log is not there, and the catalog does not expect it
    STRAY_SNAPSHOT = "stray-snapshot"  # a producer snapshot where neither a segment begins nor the log ends
    STAGED = "staged"  # its run was killed before it put the file in place
    DELETED = "deleted"  # a broker, or retention, renamed it and stopped before removing it


@dataclass(frozen=True, slots=True)
class Delays:
    """How old a file must be before it is removed, in ns.

    Attributes:
        staged: since the file was written; no run takes longer.
        deleted: since the file was renamed (`file.delete.delay.ms`).
    """

    staged: int
    deleted: int


@dataclass(frozen=True, slots=True)
class Orphan:
    name: str
    reason: OrphanReason
    size: int


def find_orphans(
    files: Mapping[str, FileStatus], base_offsets: Collection[int], now_ns: int, delays: Delays
) -> Iterator[Orphan]:
    """The orphans among the regular files of a directory, in the order in which to remove them: a log is last, so that
    a stopped removal can be continued. `base_offsets` are of the partition's segments.
    """
    bases = frozenset(base_offsets)
    end = max(bases, default=None)
    strays = [offset for name in files if (offset := parse_snapshot(name)) is not None and offset not in bases]
    # The last snapshot beyond all segments is at the log end offset.
    kept = max((offset for offset in strays if end is not None and offset >= end), default=None)

    def reason(name: str, status: FileStatus) -> OrphanReason | None:
        if is_staging(name):
            return OrphanReason.STAGED if now_ns - status.st_mtime_ns >= delays.staged else None
        if name.endswith(DELETED_SUFFIX):
            parsed = parse_segment_file(name.removesuffix(DELETED_SUFFIX))
            is_kafkas = parsed is not None and parsed[1] in (LOG_SUFFIX, *AUXILIARY_SUFFIXES)
            # Renaming leaves a file's modification time as it is.
            return OrphanReason.DELETED if is_kafkas and now_ns - status.st_ctime_ns >= delays.deleted else None
        parsed = parse_segment_file(name)
        if parsed is None or parsed[0] in bases or parsed[1] not in AUXILIARY_SUFFIXES:
            return None
        if parsed[1] == SNAPSHOT_SUFFIX:
            return None if parsed[0] == kept else OrphanReason.STRAY_SNAPSHOT
        return OrphanReason.NO_SEGMENT

    for name in sorted(files, key=lambda name: (name.endswith(LOG_SUFFIX + DELETED_SUFFIX), name)):
        why = reason(name, files[name])
        if why is not None:
            yield Orphan(name, why, files[name].st_size)
