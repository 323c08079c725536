"""What runs in a process of its own here, so that a crash or a hang of it is a finding and not the end of the tests."""

from __future__ import annotations

import resource
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path

from kidxlib.recovery.options import RecoverOptions
from kidxlib.recovery.recover import recover
from kidxlib.storage.log_bytes import ChunkedLog
from kidxlib.storage.opened_log import map_log, open_local_log


def scan_logs(send: Connection, logs: Sequence[tuple[Path, int, RecoverOptions, int | None]]) -> None:
    """Scan logs, each with its base offset and options, mapped or in chunks of that many bytes.

    Sends the result of each, and last by how many bytes the peak of memory grew after the first one.
    """
    memory = None
    for path, base_offset, options, chunk_bytes in logs:
        with open_local_log(str(path)) as (descriptor, version):
            log = (
                map_log(descriptor, version.size)
                if chunk_bytes is None
                else ChunkedLog(descriptor, version.size, chunk_bytes)
            )
            send.send(recover(log, base_offset, options))
        memory = memory or _peak_memory()
    send.send(_peak_memory() - (memory or 0))


def _peak_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
