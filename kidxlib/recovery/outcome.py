"""How a scan ended, and the segment's status."""

from __future__ import annotations

import enum
import os
from dataclasses import dataclass
from typing import Final

import numpy as np

from kidxlib.errors import LogChangedError
from kidxlib.recovery.scan.scan_state import EndReason
from kidxlib.storage.store.s3 import is_object


class Status(enum.StrEnum):
    """The status of a segment."""

    OK = "ok"
    TRUNCATED = "truncated"  # a valid prefix; Kafka would truncate the rest
    QUARANTINED = "quarantined"  # Kafka itself fails on it; nothing is published
    CHANGED = "changed"  # another process wrote to the log while it was read
    UNREADABLE = "unreadable"
    GONE = "gone"  # listed, and deleted before it was read
    DELETED = "deleted"  # by retention, from a plan


#: Segments whose facts cover the whole log, or all of it that a broker's recovery keeps.
USABLE: Final = (Status.OK, Status.TRUNCATED)

#: Segments that are no longer in their source.
ABSENT: Final = (Status.GONE, Status.DELETED)


@dataclass(frozen=True, slots=True)
class ScanEnd:
    """Where a scan ended and why.

    Attributes:
        status: the segment's status.
        reason: a short word, the same for all segments that end this way; None at the end of a good file.
        position: the byte of the log at which the first batch starts that is not in the indexes.
        detail: what was found there and what was expected; None at the end of a good file.
    """

    status: Status
    reason: str | None
    position: int
    detail: str | None


#: For each reason the status, a word, and the detail, a template for what was found and expected.
_ENDS: Final = {
    EndReason.END_OF_FILE: (Status.OK, None, None),
    EndReason.TRAILING_BYTES: (
        Status.TRUNCATED,
        "trailing-bytes",
        "{found} bytes are left, too few for a batch; a batch header starts with at least 18",
    ),
    EndReason.BATCH_OVERRUNS_FILE: (
        Status.TRUNCATED,
        "batch-overruns-file",
        "the batch header says {expected} bytes, {found} are left in the file",
    ),
    EndReason.SIZE_TOO_SMALL: (
        Status.TRUNCATED,
        "size-too-small",
        "the size field is {found}, expected at least {expected} (a preallocated tail holds zeros)",
    ),
    EndReason.BATCH_TOO_SMALL: (
        Status.TRUNCATED,
        "batch-too-small",
        "a v2 batch of {found} bytes, expected at least {expected}",
    ),
    EndReason.CRC_MISMATCH: (
        Status.TRUNCATED,
        "crc-mismatch",
        "the batch's checksum is {found:#010x}, its header says {expected:#010x}",
    ),
    EndReason.INVALID_CONTROL_RECORD: (
        Status.TRUNCATED,
        "invalid-control-record",
        "the control batch before this byte does not hold a control record of version 0 or above; Kafka keeps that "
        "batch and truncates after it",
    ),
    EndReason.OFFSET_OVERFLOW: (
        Status.QUARANTINED,
        "offset-overflow",
        "last offset {found} is not within 0 to 2147483647 of base offset {expected}; Kafka would split the segment",
    ),
    EndReason.OFFSET_INDEX_FULL: (
        Status.QUARANTINED,
        "offset-index-full",
        "the offset index has room for {expected} entries; Kafka fails at the next one: raise --max-index-bytes",
    ),
    EndReason.TIME_INDEX_FULL: (
        Status.QUARANTINED,
        "time-index-full",
        "the time index has room for {expected} entries, the last kept free; Kafka fails here: raise --max-index-bytes",
    ),
    EndReason.OFFSET_NOT_INCREASING: (
        Status.QUARANTINED,
        "offset-not-increasing",
        "last offset {found} at an index point, expected more than {expected}, which was indexed before; Kafka empties "
        "such a segment when it recovers",
    ),
    EndReason.TIME_INDEX_OFFSET_DECREASING: (
        Status.QUARANTINED,
        "time-index-offset-decreasing",
        "the largest timestamp is at offset {found}, below {expected}, the last in the time index; Kafka empties "
        "such a segment when it recovers",
    ),
    EndReason.UNKNOWN_CONTROL_TYPE: (
        Status.QUARANTINED,
        "unknown-control-type",
        "a control record of a producer has type {found}, expected 0 (abort) or 1 (commit); Kafka fails here",
    ),
    EndReason.MALFORMED_CONTROL_RECORD: (
        Status.QUARANTINED,
        "malformed-control-record",
        "a control record of a producer has no key, or its value is too short for a marker; Kafka fails here",
    ),
    EndReason.COMPRESSED_CONTROL_BATCH: (
        Status.QUARANTINED,
        "compressed-control-batch",
        "a control batch of a producer is compressed, which Kafka never writes; it is not looked into here",
    ),
    EndReason.CONTROL_BATCH_TOO_LARGE: (
        Status.QUARANTINED,
        "control-batch-too-large",
        "a control batch of a producer has more than {expected} bytes, Kafka's have 78; it is not looked into here",
    ),
    EndReason.SEGMENT_TOO_LARGE: (
        Status.QUARANTINED,
        "segment-too-large",
        "the file has {found} bytes, Kafka opens at most {expected}",
    ),
}

#: What recovery says of a log that it does not accept as it is.
END_REASONS: Final = tuple(reason for _, reason, _ in _ENDS.values() if reason is not None)


def scan_end(state: np.void) -> ScanEnd:
    status, reason, detail = _ENDS[EndReason(int(state["end"]))]
    if detail is not None:
        detail = detail.format(found=int(state["found"]), expected=int(state["expected"]))
    return ScanEnd(status, reason, int(state["position"]), detail)


def end_of_unread_log(path: str, error: LogChangedError | OSError) -> ScanEnd:
    """How the scan of a log ended that could not be read."""
    match error:
        case LogChangedError():
            return ScanEnd(Status.CHANGED, "log-changed", 0, str(error))
        case FileNotFoundError():
            is_there = not is_object(path) and os.path.lexists(path)  # a symlink that leads nowhere
            status = Status.UNREADABLE if is_there else Status.GONE
            return ScanEnd(status, "no-such-file", 0, error.strerror)
        case _:
            return ScanEnd(Status.UNREADABLE, "cannot-read", 0, error.strerror or str(error))
