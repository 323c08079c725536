"""Checks an `.index`: what it does to fetches, and to a broker that finds the log end offset with it."""

from __future__ import annotations

import numpy as np

from kidxlib.audit.finding import PROMISES_OTHER_END, Finding
from kidxlib.audit.index_files.finding_builder import Bytes, FindingBuilder
from kidxlib.audit.index_files.lookups import Entries, Longs, first_miss, one_of_each_class
from kidxlib.errors import MalformedRecordsError
from kidxlib.format import layouts as formats
from kidxlib.format import segment_files
from kidxlib.index.offset import OffsetIndex
from kidxlib.index.time import TimeIndex
from kidxlib.log.segment import LogSegment
from kidxlib.records import header_search, header_sweep
from kidxlib.recovery.segment import RecoveredSegment
from kidxlib.storage.log_bytes import LogBytes


def rebuilt_from(log_bytes: int) -> str:
    """What comes of an `.index` that is missing beside a log of so many bytes."""
    return f"a broker that starts rebuilds the segment's indexes, from all {log_bytes:,} bytes of its log"


def audit_offset_index(
    log: LogBytes, recovered: RecoveredSegment, base_offset: int, content: Bytes | None, *, active: bool
) -> Finding:
    """The finding on an `.index`.

    Args:
        log: the segment's, up to the end of its last valid batch.
        recovered: what recovery makes of it.
        content: the file; None where there is none.
        active: the last segment of its partition, by whose index a broker finds the log end offset.

    Raises:
        OSError, LogChangedError: the log cannot be read.
    """
    say = FindingBuilder(segment_files.OFFSET_INDEX_SUFFIX, OffsetIndex, base_offset, content, recovered.offset_index)
    if content is None or say.is_identical:
        return say.missing_or_identical(rebuilt_from(log.size))
    index = OffsetIndex.from_bytes(content, base_offset)
    if (refused := say.refused(index)) is not None:
        return refused
    next_offset = recovered.facts.next_offset
    entries = Entries.of(content, formats.OFFSET_INDEX_ENTRY)
    offsets = entries.keys("relative_offset", base_offset)
    targets = one_of_each_class(offsets, base_offset, next_offset - 1)
    found = index.lookup_many(targets)["position"]
    starts = np.maximum(found, 0)
    miss = first_miss(log, targets, starts, "last_offset_before", next_offset - 1)
    if miss is not None:
        return say.broken(
            "misses-batches",
            index.trace(miss.target).slot,
            f"a fetch from offsets {miss.target} to {miss.until} begins at byte {miss.start}, {miss.what}",
        )
    if (found < 0).any():
        at = int(np.flatnonzero(found < 0)[0])
        return say.broken(
            "negative-position",
            index.trace(int(targets[at])).slot,
            f"a fetch from offset {targets[at]} begins at byte 0; a search by time that goes on from there fails, as "
            f"it would begin at byte {found[at]}",
        )
    if active:
        segment = LogSegment(log, base_offset, index, TimeIndex.from_bytes(b"", base_offset))
        end = _next_offset(segment)
        if end != next_offset:
            return say.broken(
                PROMISES_OTHER_END,
                len(index) - 1,
                f"a broker that starts after a clean stop takes {end} for the log end offset, not {next_offset}, and "
                "writes there",
            )
    longest = _longest_walk(log, recovered, base_offset, targets, starts)
    return say.safe(
        _kind_of_offset_index(log, offsets, entries, active),
        f"every lookup is right, after a walk over at most {longest:,} bytes of log",
    )


def _longest_walk(log: LogBytes, recovered: RecoveredSegment, base_offset: int, targets: Longs, starts: Longs) -> int:
    """The most bytes that a lookup reads from where it starts to its batch: that of each class's largest target. The
    right index tells where that batch is, so no walk here is long.
    """
    if not len(targets):
        return 0
    largest = np.append(targets[1:] - 1, recovered.facts.next_offset - 1)
    right = OffsetIndex.from_bytes(recovered.offset_index, base_offset)
    walks = header_search.new_walks(largest, right.lookup_many(largest)["position"])
    header_search.walk(log, walks, header_search.step_to_offsets)
    return int((walks["position"] - starts).max())


def _next_offset(segment: LogSegment) -> int | None:
    try:
        return segment.next_offset()
    except MalformedRecordsError:
        return None


def _kind_of_offset_index(log: LogBytes, offsets: Longs, entries: Entries, active: bool) -> str:
    """How an index came about that is right, as far as its entries show."""
    positions = entries.keys("position")
    if len(offsets) > 0 and positions[-1] == 0 and offsets[-1] <= offsets.min():
        return "preallocated" if active else "zero-padded"
    if (np.diff(offsets) <= 0).any() or (np.diff(positions) <= 0).any():
        return "not-increasing"
    batches = header_sweep.measure(log, positions)
    if not batches["is_batch"].all():
        return "entries-behind-the-end"
    if (offsets == batches["last_offset"]).all():
        return "other-spacing"  # another interval, a restart within the segment, or entries that are missing
    if (offsets == batches["base_offset"]).all():
        return "base-offsets"  # as recovery wrote them up to Kafka 1.1
    if (offsets >= batches["last_offset"]).all():
        return "entries-by-append"  # as brokers wrote them up to 3.9.0 and in 4.0.0
    return "other-offsets"
