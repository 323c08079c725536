"""The files of a segment, opened for a dump."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from os import PathLike
from pathlib import Path

from kidxlib.errors import DumpError
from kidxlib.format import layouts as formats
from kidxlib.storage.lazy_log import LogFile
from kidxlib.storage.opened_file import open_log


@contextlib.contextmanager
def opened_log(path: Path) -> Iterator[LogFile]:
    """A log, closed at the end.

    Raises:
        DumpError: it is larger than any that Kafka opens.
        OSError: it cannot be read.
    """
    with contextlib.closing(LogFile(str(path))) as log:
        if log.size > formats.SEGMENT_BYTES_MAX:
            raise DumpError(f"{log.size} bytes, expected {formats.SEGMENT_BYTES_MAX} or less, all that Kafka opens")
        yield log


def content(path: PathLike[str]) -> bytes:
    """A small file as it is now: mapped, it would kill the process when a broker that uses it truncates it.

    Raises:
        OSError: it cannot be read.
    """
    with open_log(str(path)) as (descriptor, _version), open(descriptor, "rb", closefd=False) as file:
        return file.read()
