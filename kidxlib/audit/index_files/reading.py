"""Reads index files as they are on disk."""

from __future__ import annotations

import errno
import os

import numpy as np
from numpy.typing import NDArray

from kidxlib.audit.finding import Finding, Verdict
from kidxlib.format import segment_files
from kidxlib.format.producer_snapshot import SNAPSHOT_BYTES_MAX
from kidxlib.storage.location import Location
from kidxlib.storage.opened_log import map_file
from kidxlib.storage.packed import is_packed
from kidxlib.storage.store.s3 import is_object


def read_index(path: Location | str, use_mmap: bool) -> NDArray[np.uint8] | OSError | None:
    """The content of an index; None if there is no file; the error if it cannot be read."""
    try:
        if use_mmap:
            return map_file(str(path))
        text = str(path)
        # Objects and packed files are read as a whole in any case.
        return map_file(text) if is_object(text) or is_packed(text) else _read_around_holes(text)
    except FileNotFoundError:
        return None
    except OSError as error:
        return error


def _read_around_holes(path: str) -> NDArray[np.uint8]:
    """A file's content. The room that a broker preallocates after the entries is a hole in the file, and is neither
    read nor copied.
    """
    with open(path, "rb", buffering=0) as file:
        descriptor, size = file.fileno(), os.fstat(file.fileno()).st_size
        content, position = np.zeros(size, np.uint8), 0
        while position < size:
            try:
                position = os.lseek(descriptor, position, os.SEEK_DATA)
            except OSError as error:
                if error.errno != errno.ENXIO:  # only a hole follows
                    raise
                break
            end = min(os.lseek(descriptor, position, os.SEEK_HOLE), size)
            while position < end:
                got = os.preadv(descriptor, [content[position:end].data], position)
                if not got:
                    return content[:position]  # the file was shortened in the meantime
                position += got
    content.flags.writeable = False
    return content


def of_unreadable_file(suffix: str, error: OSError) -> Finding:
    return Finding(
        file=suffix,
        verdict=Verdict.BROKEN,
        reason="unreadable",
        detail=error.strerror or str(error),
        consequence="a broker that cannot read it takes its log dir out of use",
    )


def snapshot_files(directory: Location) -> list[Location]:
    return sorted(directory.glob(f"*{segment_files.SNAPSHOT_SUFFIX}"), key=str)


def read_snapshot_file(path: Location) -> bytes | None:
    if not path.is_file() or path.stat().st_size > SNAPSHOT_BYTES_MAX:
        return None
    return path.read_bytes()
