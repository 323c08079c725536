"""Checksums of a whole log, and of a batch that is larger than a window, computed in bounded memory."""

from __future__ import annotations

from typing import Final

import numpy as np

from kidxlib.format import checksums, layouts
from kidxlib.storage.log_bytes import LogBytes

#: The most bytes after the valid batches that are read, for the checksum only.
TAIL_BYTES_MAX: Final = 16 * 1024 * 1024

#: Where a log's checksum is not known.
NOT_KNOWN: Final = -1


def log_crc32c(log: LogBytes, position: int, crc: int) -> int:
    """The CRC-32C of a log; `NOT_KNOWN` if the rest is long or cannot be read.

    Args:
        position: where the rest begins.
        crc: the CRC-32C of the bytes before it.

    Raises:
        LogChangedError: the log shrank while it was read in chunks.
    """
    if log.size - position > TAIL_BYTES_MAX:
        return NOT_KNOWN
    try:
        while position < log.size:
            start, window = log.window(position)
            crc = checksums.extend_crc32c(crc, window[position - start :].tobytes())
            position = start + len(window)
    except OSError:  # the scan did not need these bytes
        return NOT_KNOWN
    return crc


def batch_checksum(log: LogBytes, batch_position: int, batch_bytes: int) -> int:
    """The checksum of a batch larger than a window, computed in bounded memory."""
    start, window = log.window(batch_position)
    magic = int(window[batch_position - start + layouts.MAGIC_AT].view(np.int8))
    if magic >= layouts.MAGIC_V2:
        extend, covered = checksums.extend_crc32c, layouts.V2_ATTRIBUTES_AT
    else:
        extend, covered = checksums.extend_crc32, layouts.MAGIC_AT
    crc, position, end = 0, batch_position + covered, batch_position + batch_bytes
    while position < end:
        start, window = log.window(position)
        piece = window[position - start : end - start]
        crc = extend(crc, piece.tobytes())
        position += len(piece)
    return crc
