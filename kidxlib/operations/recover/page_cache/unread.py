"""Which unflushed segments need not be read where all that a broker has written is there, and the headers of the rest.

A broker has finished the indexes of a segment, and taken the producers at its end, before it writes into the next one
(`LocalLog.roll`, `UnifiedLog.roll`). Of the last one an index entry, an aborted transaction or an epoch may be missing
that was to come after the bytes of the log: so all its headers are read.
"""

from __future__ import annotations

import itertools
import os
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kidxlib.audit.startup.recovery import Recovery
from kidxlib.errors import (
    CheckpointError,
    CorruptIndexError,
    IndexSizeError,
    LogChangedError,
    MalformedRecordsError,
    SnapshotError,
)
from kidxlib.format import layouts as formats
from kidxlib.format.producer_snapshot import SNAPSHOT_BYTES_MAX, read_snapshot
from kidxlib.format.segment_files import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    parse_segment_log,
    segment_file,
)
from kidxlib.index.offset import OffsetIndex
from kidxlib.index.time import TimeIndex
from kidxlib.operations.recover.page_cache.mount import mount_id_of
from kidxlib.operations.recover.read_logs import LogReader
from kidxlib.records.batch_headers import batches
from kidxlib.recovery.options import RecoverOptions
from kidxlib.recovery.outcome import ScanEnd, Status
from kidxlib.recovery.past_end import PastEnd
from kidxlib.storage.checkpoints import read_leader_epochs
from kidxlib.storage.lazy_log import LogFile

_HEADER_BYTES: Final = formats.BATCH_V2.itemsize
#: Read at a time of the end of a segment, which is about as long as the interval of its index.
_END_BYTES: Final = 64 * 1024
_NOTHING_PAST: Final = PastEnd(unfinished=False, batches=0, records=0)


@dataclass(frozen=True, slots=True)
class HeadersRead:
    """The unflushed segments of a partition, by their headers.

    Attributes:
        kept: base offsets of those that are whole, with all their side files. Of these the end was read.
        bytes_read: of logs.
    """

    kept: frozenset[int] = frozenset()
    bytes_read: int = 0


def read_headers(
    directory: Path, recovery_point: int, options: RecoverOptions, reader: LogReader
) -> HeadersRead | None:
    """Read headers where all that a broker has written is there.

    Args:
        directory: of a partition, in a log dir that is noted to be so (`note.ensure_noted`).
        options: of the topic, without checksums.
        reader: gets what recovering each segment comes to.

    Returns:
        None where a log is not on the file system of its log dir.

    Raises:
        OSError, LogChangedError: a log cannot be read.
        UntrustedError: the kernel does not tell on which mount it is.
    """
    base_offsets = sorted(offset for name in os.listdir(directory) if (offset := parse_segment_log(name)) is not None)
    unflushed = base_offsets[max(bisect_right(base_offsets, recovery_point) - 1, 0) :]
    mount = mount_id_of(directory.parent)
    logs = [directory / segment_file(base_offset, LOG_SUFFIX) for base_offset in unflushed]
    if any(path.is_symlink() or mount_id_of(path) != mount for path in (directory, *logs)):
        return None
    kept = _kept(directory, unflushed)
    reader.recoveries.update({base_offset: end.recovery for base_offset, end in kept.items()})
    bytes_read = sum(end.bytes_read for end in kept.values())
    for base_offset, path in zip(unflushed, logs, strict=True):
        if base_offset not in kept:
            recovery = reader.read(str(path), path.stat().st_size, base_offset, options)
            bytes_read += recovery.batches * _HEADER_BYTES
    return HeadersRead(frozenset(kept), bytes_read)


@dataclass(frozen=True, slots=True)
class _End:
    """The end of a segment, from its last index entry on."""

    recovery: Recovery
    bytes_read: int
    last_epoch: int


def _kept(directory: Path, unflushed: Sequence[int]) -> dict[int, _End]:
    """The segments before the last one, if all are whole and nothing of them is missing elsewhere; else none."""
    if len(unflushed) < 2 or not _is_sound_snapshot(directory / segment_file(unflushed[-1], SNAPSHOT_SUFFIX)):
        return {}
    ends: dict[int, _End] = {}
    try:
        epochs = read_leader_epochs(directory)
        known_epoch = -1 if epochs is None or epochs.last is None else epochs.last.epoch
        for base_offset, next_base_offset in itertools.pairwise(unflushed):
            end = _end_of(directory, base_offset)
            if end is None or end.recovery.next_offset != next_base_offset or end.last_epoch > known_epoch:
                return {}
            ends[base_offset] = end
    except (CheckpointError, CorruptIndexError, IndexSizeError, MalformedRecordsError, LogChangedError, OSError):
        return {}  # then headers are read, whatever is wrong
    return ends


def _end_of(directory: Path, base_offset: int) -> _End | None:
    """A segment whose indexes are closed and lead to its very end; None for any other.

    Raises:
        OSError, LogChangedError: a file cannot be read.
        CorruptIndexError, IndexSizeError, MalformedRecordsError: what is there is not what a broker leaves.
    """
    index = OffsetIndex.open(directory / segment_file(base_offset, OFFSET_INDEX_SUFFIX), base_offset)
    times = TimeIndex.open(directory / segment_file(base_offset, TIME_INDEX_SUFFIX), base_offset)
    index.sanity_check()
    times.sanity_check()
    last, latest = index.last_entry, times.last_entry
    if (len(index) and not last.position) or latest.timestamp <= 0:
        return None  # zeros at the end: it was not closed
    log = LogFile(str(directory / segment_file(base_offset, LOG_SUFFIX)), _END_BYTES)
    try:
        found = list(batches(log, last.position))
        size = log.size
    finally:
        log.close()
    if not found or found[-1].next_position != size or (len(index) and found[0].last_offset != last.offset):
        return None
    if max(batch.max_timestamp for batch in found) > latest.timestamp or latest.offset > found[-1].last_offset:
        return None
    next_offset = found[-1].last_offset + 1
    recovery = Recovery(
        log_bytes=size,
        end=ScanEnd(Status.OK, None, size, None),
        next_offset=next_offset,
        map_end_offset=next_offset,
        batches=len(found),
        records=0,
        past=_NOTHING_PAST,
    )
    return _End(recovery, len(found) * _HEADER_BYTES, found[-1].partition_leader_epoch)


def _is_sound_snapshot(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            read_snapshot(file.read(SNAPSHOT_BYTES_MAX))
    except (OSError, SnapshotError):
        return False
    return True
