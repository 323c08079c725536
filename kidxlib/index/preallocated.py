"""The room that a broker keeps after the entries of an active segment's index: zeros, until it trims the file."""

from __future__ import annotations


def without_room(content: bytes, entry_bytes: int) -> bytes:
    """The entries alone, each whole. Zeros at the end are no entries: of an offset index no entry is all zeros, because
    the batch at byte 0 is never indexed (`LogSegment.append`).
    """
    used = len(content.rstrip(b"\0"))
    return content[: -(-used // entry_bytes) * entry_bytes]
