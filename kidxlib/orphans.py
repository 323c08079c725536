"""Files of a partition that nothing needs any more, from a listing of its folder.

A broker that starts removes such files too (`LogLoader.removeTempFilesAndCollectSwapFiles`, `loadSegmentFiles`,
`ProducerStateManager.removeStraySnapshots`), but in a mirror tree no broker ever starts.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from kidxlib.names import (
    DELETED_SUFFIX,
    LOG_SUFFIX,
    SIDE_FILE_SUFFIXES,
    SNAPSHOT_SUFFIX,
    parse_segment_file,
    parse_snapshot,
)
from kidxlib.publish import FileStatus, is_staging


class OrphanReason(enum.StrEnum):
    """Why a file is not needed."""

    NO_SEGMENT = "no-segment"  # its log is not there, and the catalog does not say that it should be
    STRAY_SNAPSHOT = "stray-snapshot"  # of producers, at an offset where no segment begins and the log does not end
    STAGED = "staged"  # by a run that was killed before it put it in place
    DELETED = "deleted"  # renamed by a broker, or by retention, that did not come to removing it


@dataclass(frozen=True, slots=True)
class Delays:
    """How long a file must have been left alone, in ns.

    Attributes:
        staged: since it was written; no run takes longer.
        deleted: since it was renamed (`file.delete.delay.ms`).
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
    """The orphans among the regular files of a folder, in an order in which they may go: a log goes last, so that a
    removal that is stopped is gone on with.

    Args:
        base_offsets: of the partition's segments.
    """
    bases = frozenset(base_offsets)
    end = max(bases, default=None)
    strays = [offset for name in files if (offset := parse_snapshot(name)) is not None and offset not in bases]
    # The one behind all segments is that of the log's end.
    kept = max((offset for offset in strays if end is not None and offset >= end), default=None)

    def reason(name: str, status: FileStatus) -> OrphanReason | None:
        if is_staging(name):
            return OrphanReason.STAGED if now_ns - status.st_mtime_ns >= delays.staged else None
        if name.endswith(DELETED_SUFFIX):
            parsed = parse_segment_file(name.removesuffix(DELETED_SUFFIX))
            is_kafkas = parsed is not None and parsed[1] in (LOG_SUFFIX, *SIDE_FILE_SUFFIXES)
            # Renaming leaves a file's modification time as it is.
            return OrphanReason.DELETED if is_kafkas and now_ns - status.st_ctime_ns >= delays.deleted else None
        parsed = parse_segment_file(name)
        if parsed is None or parsed[0] in bases or parsed[1] not in SIDE_FILE_SUFFIXES:
            return None
        if parsed[1] == SNAPSHOT_SUFFIX:
            return None if parsed[0] == kept else OrphanReason.STRAY_SNAPSHOT
        return OrphanReason.NO_SEGMENT

    for name in sorted(files, key=lambda name: (name.endswith(LOG_SUFFIX + DELETED_SUFFIX), name)):
        why = reason(name, files[name])
        if why is not None:
            yield Orphan(name, why, files[name].st_size)
