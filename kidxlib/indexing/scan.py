"""Scans a segment's log with as many threads as may work on it, and says why a log cannot be read."""

from __future__ import annotations

import os

from kidxlib.errors import LogChangedError
from kidxlib.format.segment_files import OFFSET_INDEX_SUFFIX, segment_file
from kidxlib.indexing.tasks import ScanTask
from kidxlib.recovery.outcome import ScanEnd, Status
from kidxlib.recovery.parallel import recover_in_sections
from kidxlib.recovery.segment import RecoveredSegment
from kidxlib.storage.directory import read_file
from kidxlib.storage.log_bytes import LogBytes
from kidxlib.storage.store.s3 import is_object


def recover_task(log: LogBytes, task: ScanTask) -> RecoveredSegment:
    """Scan a segment's log, with as many threads as may work on it."""
    base_offset, offset_index = task.segment.base_offset, None
    threads = min(task.threads, len(os.sched_getaffinity(0)))
    if threads > 1:
        offset_index = read_file(task.index_directory, segment_file(base_offset, OFFSET_INDEX_SUFFIX))
    return recover_in_sections(log, base_offset, task.options, threads, offset_index)


def why_not_read(path: str, error: LogChangedError | OSError) -> ScanEnd:
    """How the scan of a log ended that could not be read to its end."""
    match error:
        case LogChangedError():
            return ScanEnd(Status.CHANGED, "log-changed", 0, str(error))
        case FileNotFoundError():
            is_there = not is_object(path) and os.path.lexists(path)  # a symlink that leads nowhere
            status = Status.UNREADABLE if is_there else Status.GONE
            return ScanEnd(status, "no-such-file", 0, error.strerror)
        case _:
            return ScanEnd(Status.UNREADABLE, "cannot-read", 0, error.strerror or str(error))
