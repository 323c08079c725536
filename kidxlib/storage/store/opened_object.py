"""A segment's log in an object store, opened for reading."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from kidxlib.errors import LogChangedError
from kidxlib.storage.file_version import FileVersion
from kidxlib.storage.log_bytes import CHUNK_BYTES, Access, LogBytes
from kidxlib.storage.ranged_log import RANGE_BYTES, RANGES_AHEAD, RangedLog, Reads
from kidxlib.storage.store.s3 import ObjectPath, open_object, read_object_into


class OpenedObject:
    def __init__(self, path: ObjectPath) -> None:
        self._path = path
        self._file, self._opened_status = open_object(path)
        self._threads = ThreadPoolExecutor(RANGES_AHEAD)
        self._logs: list[RangedLog] = []
        self.version = FileVersion.of_object(self._opened_status)
        self.reads = Reads(requests=1)

    @property
    def status(self) -> os.stat_result | None:
        return None

    def log(
        self,
        size: int | None = None,
        *,
        use_mmap: bool,
        access: Access = Access.NORMAL,
        chunk_bytes: int | None = None,
    ) -> LogBytes:
        wanted = self.version.size if size is None else size
        # Who asks for small chunks searches, and reads on only by chance.
        ahead = RANGES_AHEAD if chunk_bytes is None or chunk_bytes >= CHUNK_BYTES else 1
        range_bytes = RANGE_BYTES if chunk_bytes is None else chunk_bytes
        read_into = partial(read_object_into, self._file, self._path)
        log = RangedLog(read_into, wanted, self.reads, self._threads, range_bytes, ahead)
        self._logs.append(log)
        return log

    def ensure_unchanged(self) -> None:
        self._release()
        self.reads.requests += 1
        _, status = open_object(self._path)
        if status != self._opened_status:
            raise LogChangedError(
                f"{self._opened_status.st_size} bytes before the scan, {status.st_size} after; the object was replaced"
            )

    def close(self) -> None:
        self._release()
        self._threads.shutdown()

    def _release(self) -> None:
        for log in self._logs:
            log.release()
