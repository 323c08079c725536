"""Checks a `.timeindex`: what it does to searches by time, and to retention."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from kidxlib.audit.finding import Finding
from kidxlib.audit.index_files.finding_builder import Bytes, FindingBuilder
from kidxlib.audit.index_files.lookups import Entries, first_miss, one_of_each_class
from kidxlib.format import layouts as formats
from kidxlib.format import segment_files
from kidxlib.index.offset import OffsetIndex
from kidxlib.index.time import TimeIndex
from kidxlib.recovery.segment import RecoveredSegment
from kidxlib.storage.log_bytes import LogBytes

#: Consequence of a missing time index whose segment has no offset index either.
REBUILT_WITH_OFFSET_INDEX: Final = "a broker that starts rebuilds it together with the .index, which is missing too"

#: The reason of a time index with room after its entries.
PREALLOCATED: Final = "preallocated"
_OF_1970: Final = (
    "a broker takes zeros for the last entry: its retention by time takes the segment for one of 1970, and deletes it "
    "once no older one is left; searches by time do not find its records"
)


def audit_time_index(
    log: LogBytes,
    recovered: RecoveredSegment,
    offset_index: OffsetIndex,
    content: Bytes | None,
    *,
    active: bool,
    clean_shutdown: bool = False,
    rebuilt: bool = False,
) -> Finding:
    """The finding on a `.timeindex`. Arguments and errors that are not named here are those of `audit_offset_index`.

    Args:
        clean_shutdown: the broker of its log dir stopped cleanly.
        offset_index: the segment's right offset index, which lookups use next.
        rebuilt: there is no `.index`, so a broker rebuilds all indexes of the segment.
    """
    base_offset = offset_index.base_offset
    say = FindingBuilder(segment_files.TIME_INDEX_SUFFIX, TimeIndex, base_offset, content, recovered.time_index)
    if content is None or say.is_identical:
        return say.missing_or_identical(
            REBUILT_WITH_OFFSET_INDEX
            if rebuilt
            else "a broker that does not recover the segment makes an empty one and leaves it so: retention and "
            "searches by time take the age of the file"
        )
    index = TimeIndex.from_bytes(content, base_offset)
    # Of the active segment the check says no to the room after the entries, in every broker that runs.
    is_preallocated = active and _zeros_at_end(content, TimeIndex.entry_bytes)
    if not is_preallocated and (refused := say.refused(index)) is not None:
        return replace(refused, consequence=_OF_1970) if _zeros_at_end(content, TimeIndex.entry_bytes) else refused
    timestamps = Entries.of(content, formats.TIME_INDEX_ENTRY).keys("timestamp")
    largest = recovered.facts.max_timestamp_ms
    targets = one_of_each_class(timestamps, 0, largest)
    offsets = np.maximum(index.lookup_many(targets)["offset"], base_offset)
    starts = offset_index.lookup_many(offsets)["position"]
    miss = first_miss(log, targets, starts, "max_timestamp_before", largest)
    if miss is not None:
        return say.broken(
            "misses-records",
            index.trace(miss.target).slot,
            f"a search for times {miss.target} to {miss.until} begins at byte {miss.start}, {miss.what}",
        )
    last = index.last_entry.timestamp
    if last != largest and not is_preallocated:
        return say.broken("wrong-largest-timestamp", len(index) - 1, _wrong_largest(last, largest))
    if is_preallocated and clean_shutdown and recovered.facts.batches:
        # `LogLoader.load` recovers nothing, and `TimeIndex` counts entries by the file's size.
        return say.broken(PREALLOCATED, int(np.count_nonzero(timestamps)), _OF_1970)
    if is_preallocated and clean_shutdown:
        return say.safe(PREALLOCATED, "the log is empty: nothing of it can be deleted, and the first append rolls it")
    if is_preallocated:
        return say.safe(PREALLOCATED, "a broker trims the room after the entries when it closes the segment")
    kind = "not-increasing" if (np.diff(timestamps) <= 0).any() else "other-spacing"
    return say.safe(kind, "every search is right, and so is the largest timestamp")


def _wrong_largest(found: int, expected: int) -> str:
    if found < 0:
        return "retention and searches by time take the age of the file for the largest timestamp"
    if expected < 0:
        return (
            f"no batch has a timestamp: retention takes {found} for the largest one, and searches for times up to it "
            "end in the segment with nothing"
        )
    if found < expected:
        return (
            f"retention deletes the segment {expected - found:,} ms too early, and searches for times {found + 1} to "
            f"{expected} pass it by"
        )
    return (
        f"retention keeps the segment {found - expected:,} ms too long, and searches for times {expected + 1} to "
        f"{found} end in it with nothing"
    )


def _zeros_at_end(content: Bytes, entry_bytes: int) -> bool:
    return len(content) >= entry_bytes and len(content) % entry_bytes == 0 and not content[-entry_bytes:].any()
