"""Trims index files with zeros after their entries, as closing their segment would have done.

Kafka preallocates the index files of the active segment. When the segment is closed or rolled, the time index gets its
last entry and both files are truncated (`LogSegment.onBecomeInactiveSegment`, `close`). If the process is killed they
stay long, and a broker that finds them reads the zeros as entries. The entries before the zeros are checked against the
log. If one of them is wrong, the file stays as it is. A follower that truncated its log leaves such a file: old entries
follow the last right one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from kidxlib.audit.finding import Finding, Verdict
from kidxlib.audit.index_files.offset_index import audit_offset_index
from kidxlib.audit.index_files.time_index import audit_time_index
from kidxlib.format.segment_files import OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX
from kidxlib.index.offset import OffsetIndex
from kidxlib.index.preallocated import without_room
from kidxlib.index.time import TimeIndex
from kidxlib.records.batch_headers import batches
from kidxlib.recovery.segment import RecoveredSegment
from kidxlib.storage.log_bytes import LogBytes

#: Kinds of offset index that serve lookups well, and hold what is no entry of the log.
_STALE: Final = ("entries-behind-the-end", "not-increasing")


@dataclass(frozen=True, slots=True)
class Trimmed:
    """What becomes of an index file that ends in zeros.

    Attributes:
        suffix: which of the segment's.
        content: its new content; None if it stays as it is.
        reason: why it stays, in a short word; None if it does not.
    """

    suffix: str
    content: bytes | None
    reason: str | None = None


def ends_in_zeros(content: bytes, suffix: str) -> bool:
    """Whether an index file ends in at least one entry of zeros only."""
    entry_bytes = _ENTRY_BYTES[suffix]
    return len(content) >= entry_bytes and not any(content[-entry_bytes:])


def trim_offset_index(log: LogBytes, recovered: RecoveredSegment, base_offset: int, content: bytes) -> Trimmed:
    """The entries of an `.index` that ends in zeros. No entry is all zeros, because the batch at byte 0 is never
    indexed.

    Args:
        log: the segment's, up to the end of its last valid batch.
        recovered: what recovery makes of it.

    Raises:
        OSError, LogChangedError: the log cannot be read.
    """
    trimmed = without_room(content, OffsetIndex.entry_bytes)
    finding = audit_offset_index(log, recovered, base_offset, np.frombuffer(trimmed, np.uint8), active=False)
    return _unless_wrong(finding, len(content) % OffsetIndex.entry_bytes, trimmed)


def trim_time_index(log: LogBytes, recovered: RecoveredSegment, offset_index: OffsetIndex, content: bytes) -> Trimmed:
    """The entries of a `.timeindex` that ends in zeros, and the one that closing the segment adds.

    An entry may be all zeros: the first of a segment that begins at 1970-01-01T00:00:00Z. If it is uncertain whether
    there was one, the file stays.

    Args:
        log, recovered: as in `trim_offset_index`.
        offset_index: the segment's, one that is right.

    Raises:
        OSError, LogChangedError: the log cannot be read.
    """
    facts, base_offset = recovered.facts, offset_index.base_offset
    entries = without_room(content, TimeIndex.entry_bytes)
    first = next(batches(log), None)
    if not entries and first is not None and first.max_timestamp == 0 < facts.max_timestamp_ms:
        return Trimmed(TIME_INDEX_SUFFIX, None, "zero-timestamp")
    index = TimeIndex.from_bytes(entries, base_offset)
    last, offset = index.last_entry, facts.offset_of_max_timestamp
    if offset is not None and last.timestamp < facts.max_timestamp_ms and last.offset <= offset:
        index.resize(len(entries) + TimeIndex.entry_bytes)
        index.maybe_append(facts.max_timestamp_ms, offset, skip_full_check=True)
    trimmed = index.to_bytes()
    finding = audit_time_index(log, recovered, offset_index, np.frombuffer(trimmed, np.uint8), active=False)
    return _unless_wrong(finding, len(content) % TimeIndex.entry_bytes, trimmed)


_ENTRY_BYTES: Final = {
    OFFSET_INDEX_SUFFIX: OffsetIndex.entry_bytes,
    TIME_INDEX_SUFFIX: TimeIndex.entry_bytes,
}


def _unless_wrong(finding: Finding, bytes_over: int, trimmed: bytes) -> Trimmed:
    if bytes_over:
        return Trimmed(finding.file, None, "not-whole")
    if finding.verdict is Verdict.BROKEN or finding.reason in _STALE:
        return Trimmed(finding.file, None, finding.reason)
    return Trimmed(finding.file, trimmed)
