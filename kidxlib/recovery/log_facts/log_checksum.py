"""The CRC-32C of a whole log, from that of its batches and the bytes after them."""

from __future__ import annotations

from typing import Final

from kidxlib.format.checksums import crc as checksums
from kidxlib.storage.log_bytes import LogBytes

#: Of bytes that are no batch at most so many are read, for the checksum alone.
TAIL_BYTES_MAX: Final = 16 * 1024 * 1024


def log_crc32c(log: LogBytes, position: int, crc: int) -> int | None:
    """The CRC-32C of a log; None where what is left of it is long, or cannot be read.

    Args:
        position: what stands before it is known.
        crc: the CRC-32C of that.

    Raises:
        LogChangedError: the log shrank while it was read in chunks.
    """
    if log.size - position > TAIL_BYTES_MAX:
        return None
    try:
        while position < log.size:
            start, window = log.window(position)
            crc = checksums.extend_crc32c(crc, window[position - start :].tobytes())
            position = start + len(window)
    except OSError:  # the scan had no need of these bytes
        return None
    return crc
