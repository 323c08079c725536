"""Checks an `.index` and a `.timeindex`: what they do to fetches, to searches by time and to retention, and to a broker
that finds the log end offset with them.

An index need not be what recovery writes to be right: releases and restarts leave other entries. It is right if every
lookup leads to a place from which the search through the log finds the right batch. That depends on a target only
through its comparisons with the entries, so it is enough to look up each entry's key and the key above it, and to ask
the log what stands before the places that come out. So the verdict holds for all lookups, in unsorted indexes too.

This is so for logs whose offsets increase from batch to batch, as a broker writes them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kidxlib.audit.finding import PROMISES_OTHER_END, Finding, Verdict
from kidxlib.audit.index_files.index_file import Bytes, IndexFileFindings
from kidxlib.errors import MalformedRecordsError
from kidxlib.format import layouts, segment_files
from kidxlib.index.offset import OffsetIndex
from kidxlib.index.time import TimeIndex
from kidxlib.log.segment import LogSegment
from kidxlib.records import header_search
from kidxlib.recovery.recover import RecoveredSegment
from kidxlib.storage.log_bytes import LogBytes
from kidxlib.storage.small_files import filled_bytes

Longs: TypeAlias = NDArray[np.int64]

#: The consequence of a missing time index if the segment has no offset index either.
REBUILT_WITH_OFFSET_INDEX: Final = "a broker that starts rebuilds it together with the .index, which is missing too"

#: The reason if preallocated room follows the entries of a time index.
PREALLOCATED: Final = "preallocated"
_TAKEN_FOR_1970: Final = (
    "a broker takes zeros for the last entry: its retention by time takes the segment for one of 1970, and deletes it "
    "once no older one is left; searches by time do not find its records"
)


def missing_offset_index(log_bytes: int) -> Finding:
    """The finding on a missing `.index`."""
    why = f"a broker that starts rebuilds the segment's indexes, from all {log_bytes:,} bytes of its log"
    return Finding(file=segment_files.OFFSET_INDEX_SUFFIX, verdict=Verdict.BROKEN, reason="missing", consequence=why)


@dataclass(frozen=True, slots=True)
class _MissedTargets:
    """A range of targets whose lookup starts at a wrong place.

    Attributes:
        target, until: the first and the last target.
        start: the byte of the log at which their lookup starts.
        what: what is wrong with that place.
    """

    target: int
    until: int
    start: int
    what: str


def one_of_each_class(keys: Longs, least: int, most: int) -> Longs:
    """The targets by which the audit of an `.index` or `.timeindex` tries all lookups: the smallest of each class
    between two numbers. Targets of one class compare alike with all keys, so the index misses this target if it misses
    any of its class.
    """
    targets = np.unique(np.concatenate([[least], keys, keys + 1]))
    return targets[(targets >= least) & (targets <= most)]


def _find_first_miss(
    log: LogBytes, targets: Longs, starts: Longs, largest_before: str, most: int
) -> _MissedTargets | None:
    """The first target whose search starts where no batch does, or after a batch that it must look into. `targets` are
    the smallest of each class, and none is above `most`. `largest_before` is the column of `header_search.measure` with
    the largest key before a position.
    """
    positions, number_of_start = np.unique(starts, return_inverse=True)
    measures = header_search.measure(log, positions)[number_of_start]
    missed = np.flatnonzero((measures["is_batch"] == 0) | (measures[largest_before] >= targets))
    if not len(missed):
        return None
    at = last = int(missed[0])
    # The class above may begin at a wrong place, too: an entry's key and the key above it are in two classes.
    while last + 1 < len(targets) and last + 1 in missed and starts[last + 1] == starts[at]:
        last += 1
    until = int(targets[last + 1]) - 1 if last + 1 < len(targets) else most
    if measures["is_batch"][at]:
        until = min(until, int(measures[largest_before][at]))
        what = "after the batch that it has to begin with"
    else:
        what = "where no batch starts"
    return _MissedTargets(int(targets[at]), max(until, int(targets[at])), int(starts[at]), what)


@dataclass(frozen=True, slots=True)
class SparseIndexEntries:
    """The entries of an `.index` or `.timeindex` as they are stored, and whether preallocated room follows them.

    Attributes:
        columns: the fields of the entries before the room, one column each.
        has_room: whether zeros follow, which Kafka takes for equal entries.
    """

    columns: dict[str, Longs]
    has_room: bool

    @classmethod
    def of(cls, content: NDArray[np.uint8], layout: np.dtype[Any]) -> Self:
        """The entries in the bytes of an `.index` or `.timeindex`, but for preallocated room, which may be large."""
        size = len(content) // layout.itemsize * layout.itemsize
        filled = filled_bytes(content[:size], layout.itemsize)
        entries = np.frombuffer(content.data, layout, filled // layout.itemsize)
        return cls({name: entries[name].astype(np.int64) for name in layout.names or ()}, filled < size)

    def keys(self, name: str, base: int = 0) -> Longs:
        """The keys by which the entries of a sparse index are looked up in a column, `base` added, with the key of the
        preallocated room.
        """
        keys = self.columns[name] + base
        return np.append(keys, base) if self.has_room else keys


def audit_offset_index(
    log: LogBytes, recovered: RecoveredSegment, base_offset: int, content: Bytes | None, *, active: bool
) -> Finding:
    """The finding on an `.index`; `log` reaches to the end of its last valid batch. A broker finds the log end offset
    with the index of the `active` segment, the last of its partition.
    """
    if content is None:
        return missing_offset_index(log.size)
    findings = IndexFileFindings(
        segment_files.OFFSET_INDEX_SUFFIX, OffsetIndex, base_offset, content, recovered.offset_index
    )
    if findings.is_identical:
        return Finding(file=segment_files.OFFSET_INDEX_SUFFIX, verdict=Verdict.IDENTICAL)
    index = OffsetIndex.from_bytes(content, base_offset)
    if (refused := findings.refused(index)) is not None:
        return refused
    next_offset = recovered.facts.next_offset
    entries = SparseIndexEntries.of(content, layouts.OFFSET_INDEX_ENTRY)
    offsets = entries.keys("relative_offset", base_offset)
    targets = one_of_each_class(offsets, base_offset, next_offset - 1)
    positions = index.lookup_many(targets)["position"]
    starts = np.maximum(positions, 0)
    miss = _find_first_miss(log, targets, starts, "last_offset_before", next_offset - 1)
    if miss is not None:
        return findings.broken(
            "misses-batches",
            index.trace(miss.target).slot,
            f"a fetch from offsets {miss.target} to {miss.until} begins at byte {miss.start}, {miss.what}",
        )
    if (positions < 0).any():
        at = int(np.flatnonzero(positions < 0)[0])
        return findings.broken(
            "negative-position",
            index.trace(int(targets[at])).slot,
            f"a fetch from offset {targets[at]} begins at byte 0; a search by time that goes on from there fails, as "
            f"it would begin at byte {positions[at]}",
        )
    if active:
        end = _next_offset_or_none(LogSegment(log, base_offset, index, TimeIndex.from_bytes(b"", base_offset)))
        if end != next_offset:
            return findings.broken(
                PROMISES_OTHER_END,
                len(index) - 1,
                f"a broker that starts after a clean stop takes {end} for the log end offset, not {next_offset}, and "
                "writes there",
            )
    longest = _longest_walk(log, recovered, base_offset, targets, starts)
    return findings.safe(
        _kind_of_offset_index(log, offsets, entries, active),
        f"every lookup is right, after a walk over at most {longest:,} bytes of log",
    )


def _longest_walk(log: LogBytes, recovered: RecoveredSegment, base_offset: int, targets: Longs, starts: Longs) -> int:
    """The most bytes that a lookup reads from where it starts to its batch: the walk to the largest target of each
    class. The right index tells where that batch is, so no walk here is long.
    """
    if not len(targets):
        return 0
    largest = np.append(targets[1:] - 1, recovered.facts.next_offset - 1)
    right = OffsetIndex.from_bytes(recovered.offset_index, base_offset)
    walks = header_search.new_walks(largest, right.lookup_many(largest)["position"])
    header_search.walk(log, walks, header_search.step_to_offsets)
    return int((walks["position"] - starts).max())


def _next_offset_or_none(segment: LogSegment) -> int | None:
    try:
        return segment.next_offset()
    except MalformedRecordsError:
        return None


def _kind_of_offset_index(log: LogBytes, offsets: Longs, entries: SparseIndexEntries, active: bool) -> str:
    """How a right index that differs from recovery's was made, as its entries show."""
    positions = entries.keys("position")
    if len(offsets) > 0 and positions[-1] == 0 and offsets[-1] <= offsets.min():
        return "preallocated" if active else "zero-padded"
    if (np.diff(offsets) <= 0).any() or (np.diff(positions) <= 0).any():
        return "not-increasing"
    batches = header_search.measure(log, positions)
    if not batches["is_batch"].all():
        return "entries-behind-the-end"
    if (offsets == batches["last_offset"]).all():
        return "other-spacing"  # another interval, a restart within the segment, or entries that are missing
    if (offsets == batches["base_offset"]).all():
        return "base-offsets"  # as recovery wrote them up to Kafka 1.1
    if (offsets >= batches["last_offset"]).all():
        return "entries-by-append"  # as brokers wrote them up to 3.9.0 and in 4.0.0
    return "other-offsets"


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
    """The finding on a `.timeindex`; arguments as in `audit_offset_index`. `offset_index` is the segment's right one,
    which lookups use next. If `rebuilt`, the `.index` is missing, and a broker rebuilds all indexes of the segment.
    """
    base_offset = offset_index.base_offset
    if content is None:
        why = (
            REBUILT_WITH_OFFSET_INDEX
            if rebuilt
            else "a broker that does not recover the segment makes an empty one and leaves it so: retention and "
            "searches by time take the age of the file"
        )
        return Finding(file=segment_files.TIME_INDEX_SUFFIX, verdict=Verdict.BROKEN, reason="missing", consequence=why)
    findings = IndexFileFindings(segment_files.TIME_INDEX_SUFFIX, TimeIndex, base_offset, content, recovered.time_index)
    if findings.is_identical:
        return Finding(file=segment_files.TIME_INDEX_SUFFIX, verdict=Verdict.IDENTICAL)
    index = TimeIndex.from_bytes(content, base_offset)
    # For an active segment, the check fails on the room after the entries, in every running broker.
    is_preallocated = active and _ends_with_zero_entry(content, TimeIndex.entry_bytes)
    if not is_preallocated and (refused := findings.refused(index)) is not None:
        return (
            replace(refused, consequence=_TAKEN_FOR_1970)
            if _ends_with_zero_entry(content, TimeIndex.entry_bytes)
            else refused
        )
    timestamps = SparseIndexEntries.of(content, layouts.TIME_INDEX_ENTRY).keys("timestamp")
    largest = recovered.facts.max_timestamp_ms
    targets = one_of_each_class(timestamps, 0, largest)
    offsets = np.maximum(index.lookup_many(targets)["offset"], base_offset)
    starts = offset_index.lookup_many(offsets)["position"]
    miss = _find_first_miss(log, targets, starts, "max_timestamp_before", largest)
    if miss is not None:
        return findings.broken(
            "misses-records",
            index.trace(miss.target).slot,
            f"a search for times {miss.target} to {miss.until} begins at byte {miss.start}, {miss.what}",
        )
    last = index.last_entry.timestamp
    if last != largest and not is_preallocated:
        return findings.broken("wrong-largest-timestamp", len(index) - 1, _consequence_of_wrong_largest(last, largest))
    if is_preallocated and clean_shutdown and recovered.facts.batches:
        # `LogLoader.load` recovers nothing, and `TimeIndex` counts entries by the file's size.
        return findings.broken(PREALLOCATED, int(np.count_nonzero(timestamps)), _TAKEN_FOR_1970)
    if is_preallocated and clean_shutdown:
        return findings.safe(
            PREALLOCATED, "the log is empty: nothing of it can be deleted, and the first append rolls it"
        )
    if is_preallocated:
        return findings.safe(PREALLOCATED, "a broker trims the room after the entries when it closes the segment")
    kind = "not-increasing" if (np.diff(timestamps) <= 0).any() else "other-spacing"
    return findings.safe(kind, "every search is right, and so is the largest timestamp")


def _consequence_of_wrong_largest(found: int, expected: int) -> str:
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


def _ends_with_zero_entry(content: Bytes, entry_bytes: int) -> bool:
    return len(content) >= entry_bytes and len(content) % entry_bytes == 0 and not content[-entry_bytes:].any()
