"""One segment's log by its path, recovered; nothing is written."""

from __future__ import annotations

import os

from kidxlib.library.segment_log import segment_log
from kidxlib.recovery.options import RecoverOptions
from kidxlib.recovery.segment import RecoveredSegment, recover
from kidxlib.storage.log_bytes import Access
from kidxlib.storage.opened_log import opened_log


def recover_file(
    path: str | os.PathLike[str], options: RecoverOptions | None = None, *, use_mmap: bool = False
) -> RecoveredSegment:
    """What Kafka's recovery makes of a segment's log: the bytes of its `.index` and `.timeindex`, what is in it, and
    where and why the scan ended. Nothing is written, and the log is only read.

    A damaged log is no error: `end` says what is wrong. The transactions that were aborted in it, and so its
    `.txnindex`, depend on the segments before: `recover_directory` has them.

    Args:
        path: the `.log`, here or `s3://<bucket>/<key>`; its name holds the base offset.
        options: what else the indexes depend on; None for Kafka's defaults.
        use_mmap: map the file, which is twice as fast. One that another process makes shorter meanwhile then kills this
            process (SIGBUS): not for a segment that a broker writes to.

    Raises:
        UsageError: the file is not named as a segment's log.
        LogChangedError: another process changed the log while it was read.
        OSError: it cannot be read.
    """
    place, base_offset = segment_log(path)
    with opened_log(place) as opened:
        log = opened.log(use_mmap=use_mmap, access=Access.SEQUENTIAL)
        recovered = recover(log, base_offset, options or RecoverOptions())
        opened.ensure_unchanged()
    return recovered
