"""One segment's log, recovered in memory by its path; the file's name has the base offset. Nothing is written."""

from __future__ import annotations

import os

from kidxlib.errors import UsageError
from kidxlib.format.segment_files import parse_segment_log
from kidxlib.recovery.options import RecoverOptions
from kidxlib.recovery.segment import RecoveredSegment, recover
from kidxlib.storage.location import given_location, location
from kidxlib.storage.log_bytes import Access
from kidxlib.storage.opened_log import opened_log


def parse_segment_path(path: str | os.PathLike[str]) -> tuple[str, int]:
    """The path of a segment's log, or its URL, and the base offset in its name."""
    text = os.fspath(path)
    place = given_location("", text) or location(text)
    base_offset = parse_segment_log(place.name)
    if base_offset is None:
        raise UsageError(f"{text}: expected the path of a segment's log, which is named <base offset, 20 digits>.log")
    return str(place), base_offset


def recover_file(
    path: str | os.PathLike[str], options: RecoverOptions | None = None, *, use_mmap: bool = False
) -> RecoveredSegment:
    """What Kafka's recovery makes of a segment's log: the bytes of its `.index` and `.timeindex`, facts of its batches,
    and where and why the scan ended. Nothing is written, and the log is only read.

    A damaged log is no error: `end` says what is wrong. Its aborted transactions, and so its `.txnindex`, depend on the
    segments before: `recover_directory` has them.

    Args:
        path: the `.log`, here or `s3://<bucket>/<key>`; its name has the base offset.
        options: a broker's options that the indexes depend on; None for Kafka's defaults.
        use_mmap: map the file, which is twice as fast. If another process makes a mapped file shorter, this process is
            killed (SIGBUS): not for a segment that a broker writes to.

    Raises:
        UsageError: the file is not named as a segment's log.
        LogChangedError: another process changed the log while it was read.
        OSError: the log cannot be read.
    """
    place, base_offset = parse_segment_path(path)
    with opened_log(place) as opened:
        log = opened.log(use_mmap=use_mmap, access=Access.SEQUENTIAL)
        recovered = recover(log, base_offset, options or RecoverOptions())
        opened.ensure_unchanged()
    return recovered
