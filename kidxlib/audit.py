"""Is this index right? What an index on disk does to lookups, and to a broker's rules, beside what recovery writes.

An index need not be what recovery writes to be right: releases and restarts leave other entries. It is right if every
lookup leads to a place from which the search through the log finds the right batch. That depends on a target only
through its comparisons with the entries, so it is enough to look up each entry's key and the key above it, and to ask
the log what stands before the places that come out. So the verdict holds for all lookups, in unsorted indexes too.

This is so for logs whose offsets increase from batch to batch, as a broker writes them.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kidxlib import formats, names, walk
from kidxlib.abstract_index import AbstractIndex, CorruptIndexError
from kidxlib.log_segment import LogSegment
from kidxlib.offset_index import OffsetIndex
from kidxlib.records import MalformedRecordsError
from kidxlib.recover import RecoveredSegment
from kidxlib.storage import LogBytes
from kidxlib.time_index import TimeIndex

_Longs: TypeAlias = NDArray[np.int64]
_Bytes: TypeAlias = NDArray[np.uint8]


class Verdict(enum.StrEnum):
    """What a file is worth; the mildest first."""

    IDENTICAL = "identical"  # an index or another side file: to what recovery writes
    WHOLE = "whole"  # a log: to its last byte
    SAFE = "safe"  # different, and every lookup is right
    TORN = "torn"  # a log that ends with an append that was not finished
    BROKEN = "broken"

    @property
    def severity(self) -> int:
        """Of two verdicts the one with the larger number is the worse."""
        return _SEVERITY[self]

    @property
    def is_well(self) -> bool:
        """Whether there is nothing to be said of the file."""
        return self.severity == 0


_SEVERITY: Final = {Verdict.IDENTICAL: 0, Verdict.WHOLE: 0, Verdict.SAFE: 1, Verdict.TORN: 2, Verdict.BROKEN: 3}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """What becomes of a log.

    Attributes:
        action: what a broker does with the segment at its next start (`kidxlib.startup.Action`); None where it does not
            come to it.
        kept_bytes: of the log, by then.
        lost_bytes, lost_batches, lost_records: what that drops; where it drops nothing, what recovery would. None where
            it is not known for certain.
    """

    action: str | None = None
    kept_bytes: int | None = None
    lost_bytes: int | None = None
    lost_batches: int | None = None
    lost_records: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What is to be said of one file of a segment: a side file, or the log itself.

    Attributes:
        file: its suffix.
        reason: a short word, the same for all files of this kind; None of an identical or whole one.
        position: the first byte of it that is wrong, or different; None where it is missing or nothing is.
        detail: what was found there, and what recovery would have written.
        consequence: what that does, or why it does nothing; None of an identical one.
        fate: of a log, once its partition was looked at as a whole.
    """

    file: str
    verdict: Verdict
    reason: str | None = None
    position: int | None = None
    detail: str | None = None
    consequence: str | None = None
    fate: Fate | None = None


def audit_offset_index(
    log: LogBytes, recovered: RecoveredSegment, base_offset: int, content: _Bytes | None, *, active: bool
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
    say = _Say(names.OFFSET_INDEX_SUFFIX, OffsetIndex, base_offset, content, recovered.offset_index)
    if content is None or say.is_identical:
        return say.missing(
            f"a broker that starts makes the segment's indexes anew, from all {log.size:,} bytes of its log"
        )
    index = OffsetIndex.from_bytes(content, base_offset)
    if (refused := say.refused(index)) is not None:
        return refused
    next_offset = recovered.facts.next_offset
    entries = _columns(index, formats.OFFSET_INDEX_ENTRY)
    offsets, positions = base_offset + entries["relative_offset"], entries["position"]
    targets = _one_of_each_class(offsets, base_offset, next_offset - 1)
    found = index.lookup_many(targets)["position"]
    starts = np.maximum(found, 0)
    miss = _first_miss(log, targets, starts, "last_offset_before")
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
                "wrong-log-end-offset",
                len(index) - 1,
                f"a broker that starts after a clean stop takes {end} for the log end offset, not {next_offset}, and "
                "writes there",
            )
    longest = _longest_walk(log, recovered, base_offset, targets, starts)
    return say.safe(
        _kind_of_offset_index(log, offsets, positions, active),
        f"every lookup is right, after a walk over at most {longest:,} bytes of log",
    )


def audit_time_index(
    log: LogBytes,
    recovered: RecoveredSegment,
    offset_index: OffsetIndex,
    content: _Bytes | None,
    *,
    active: bool,
    rebuilt: bool = False,
) -> Finding:
    """The finding on a `.timeindex`, likewise.

    Args:
        offset_index: the segment's, which lookups go on with; one that is right.
        rebuilt: there is no `.index`, so that a broker makes all indexes of the segment anew.
    """
    base_offset = offset_index.base_offset
    say = _Say(names.TIME_INDEX_SUFFIX, TimeIndex, base_offset, content, recovered.time_index)
    if content is None or say.is_identical:
        return say.missing(
            "a broker that starts makes it anew together with the .index, which is missing too"
            if rebuilt
            else "a broker that starts makes an empty one and leaves it so: retention and searches by time take the "
            "age of the file"
        )
    index = TimeIndex.from_bytes(content, base_offset)
    # Of the active segment the check says no to the room behind the entries, in every broker that runs.
    is_preallocated = active and _zeros_at_end(content, TimeIndex.entry_bytes)
    if not is_preallocated and (refused := say.refused(index)) is not None:
        return refused
    entries = _columns(index, formats.TIME_INDEX_ENTRY)
    largest = recovered.facts.max_timestamp_ms
    targets = _one_of_each_class(entries["timestamp"], 0, largest)
    offsets = np.maximum(index.lookup_many(targets)["offset"], base_offset)
    starts = offset_index.lookup_many(offsets)["position"]
    miss = _first_miss(log, targets, starts, "max_timestamp_before")
    if miss is not None:
        return say.broken(
            "misses-records",
            index.trace(miss.target).slot,
            f"a search for times {miss.target} to {miss.until} begins at byte {miss.start}, {miss.what}",
        )
    last = index.last_entry.timestamp
    if last != largest and not is_preallocated:
        return say.broken("wrong-largest-timestamp", len(index) - 1, _wrong_largest(last, largest))
    if is_preallocated:
        return say.safe("preallocated", "a broker cuts the room behind the entries when it closes the segment")
    kind = "not-increasing" if (np.diff(entries["timestamp"]) <= 0).any() else "other-spacing"
    return say.safe(kind, "every search is right, and so is the largest timestamp")


# ---- lookups ----


@dataclass(frozen=True, slots=True)
class _Miss:
    """Targets from one to another whose lookup starts at a wrong place."""

    target: int
    until: int
    start: int
    what: str


def _one_of_each_class(keys: _Longs, least: int, most: int) -> _Longs:
    """The smallest of the targets that compare alike with all keys, for each class of such from one number to another:
    the one that is missed if any of them is.
    """
    targets = np.unique(np.concatenate([[least], keys, keys + 1]))
    return targets[(targets >= least) & (targets <= most)]


def _first_miss(log: LogBytes, targets: _Longs, starts: _Longs, before: str) -> _Miss | None:
    """The first target whose search starts where no batch does, or behind one that it has to look into."""
    positions, of = np.unique(starts, return_inverse=True)
    measures = walk.measure(log, positions)[of]
    missed = np.flatnonzero((measures["is_batch"] == 0) | (measures[before] >= targets))
    if not len(missed):
        return None
    at = int(missed[0])
    until = int(targets[at + 1]) - 1 if at + 1 < len(targets) else int(targets[at])
    if measures["is_batch"][at]:
        until = min(until, int(measures[before][at]))
        what = "behind the batch that it has to begin with"
    else:
        what = "where no batch starts"
    return _Miss(int(targets[at]), max(until, int(targets[at])), int(starts[at]), what)


def _longest_walk(log: LogBytes, recovered: RecoveredSegment, base_offset: int, targets: _Longs, starts: _Longs) -> int:
    """The most bytes that a lookup passes over from where it starts to the batch that it is for: of each class of
    targets the largest one's. Where that batch is the right index tells, so that no walk here is long.
    """
    if not len(targets):
        return 0
    largest = np.append(targets[1:] - 1, recovered.facts.next_offset - 1)
    right = OffsetIndex.from_bytes(recovered.offset_index, base_offset)
    walks = walk.new_walks(largest, right.lookup_many(largest)["position"])
    walk.walk(log, walks, walk.step_to_offsets)
    return int((walks["position"] - starts).max())


def _next_offset(segment: LogSegment) -> int | None:
    try:
        return segment.next_offset()
    except MalformedRecordsError:
        return None


# ---- what kind of index it is ----


def _kind_of_offset_index(log: LogBytes, offsets: _Longs, positions: _Longs, active: bool) -> str:
    """How an index came about that is right, as far as its entries show."""
    padded = len(offsets) > 0 and positions[-1] == 0 and offsets[-1] <= offsets.min()
    if padded:
        return "preallocated" if active else "zero-padded"
    if (np.diff(offsets) <= 0).any() or (np.diff(positions) <= 0).any():
        return "not-increasing"
    batches = walk.measure(log, positions)
    if not batches["is_batch"].all():
        return "entries-behind-the-end"
    if (offsets == batches["last_offset"]).all():
        return "other-spacing"  # another interval, a restart within the segment, or entries that are missing
    if (offsets == batches["base_offset"]).all():
        return "base-offsets"  # as recovery wrote them up to Kafka 1.1
    if (offsets >= batches["last_offset"]).all():
        return "entries-by-append"  # as brokers wrote them up to 3.9.0 and in 4.0.0
    return "other-offsets"


def _wrong_largest(found: int, expected: int) -> str:
    if found < 0:
        return "retention and searches by time take the age of the file for the largest timestamp"
    if found < expected:
        return (
            f"retention deletes the segment {expected - found:,} ms too early, and searches for times {found + 1} to "
            f"{expected} pass it by"
        )
    return (
        f"retention keeps the segment {found - expected:,} ms too long, and searches for times {expected + 1} to "
        f"{found} end in it with nothing"
    )


def _zeros_at_end(content: _Bytes, entry_bytes: int) -> bool:
    return len(content) >= entry_bytes and len(content) % entry_bytes == 0 and not content[-entry_bytes:].any()


def _columns(index: AbstractIndex[Any], layout: np.dtype[Any]) -> dict[str, _Longs]:
    """The fields of all entries, as they are stored."""
    entries = np.frombuffer(index.to_bytes(), layout, len(index))
    return {name: entries[name].astype(np.int64) for name in layout.names or ()}


class _Say:
    """Findings on one file."""

    def __init__(
        self, suffix: str, kind: type[AbstractIndex[Any]], base_offset: int, content: _Bytes | None, expected: bytes
    ) -> None:
        self._suffix = suffix
        self._entry_bytes = kind.entry_bytes
        self._found = kind.from_bytes(b"" if content is None else content, base_offset)
        self._expected = kind.from_bytes(expected, base_offset)
        self._is_missing = content is None
        self.is_identical = content is not None and content.tobytes() == expected

    def missing(self, consequence: str) -> Finding:
        """Of a file that is not there; or of one that is identical."""
        if self.is_identical:
            return Finding(file=self._suffix, verdict=Verdict.IDENTICAL)
        return Finding(file=self._suffix, verdict=Verdict.BROKEN, reason="missing", consequence=consequence)

    def refused(self, index: AbstractIndex[Any]) -> Finding | None:
        """Where Kafka's own sanity check says no."""
        try:
            index.sanity_check()
        except CorruptIndexError as error:
            return Finding(
                file=self._suffix,
                verdict=Verdict.BROKEN,
                reason="fails-sanity-check",
                position=len(index) * self._entry_bytes,
                detail=str(error).partition(": ")[2],
                consequence="a broker does not look when it starts, but refuses it when it fetches it from a tier",
            )
        return None

    def broken(self, reason: str, entry: int, consequence: str) -> Finding:
        return Finding(
            file=self._suffix,
            verdict=Verdict.BROKEN,
            reason=reason,
            position=max(entry, 0) * self._entry_bytes,
            detail=self._detail(max(entry, 0)),
            consequence=consequence,
        )

    def safe(self, reason: str, consequence: str) -> Finding:
        different = self._first_difference()
        return Finding(
            file=self._suffix,
            verdict=Verdict.SAFE,
            reason=reason,
            position=different * self._entry_bytes,
            detail=self._detail(different),
            consequence=consequence,
        )

    def _first_difference(self) -> int:
        whole = np.dtype((np.void, self._entry_bytes))
        found, expected = (
            np.frombuffer(index.to_bytes(), whole, len(index)) for index in (self._found, self._expected)
        )
        both = min(len(found), len(expected))
        different = np.flatnonzero(found[:both] != expected[:both])
        return int(different[0]) if len(different) else both

    def _detail(self, number: int) -> str:
        return entries_differ(self._found, self._expected, number)


def entries_differ(found: AbstractIndex[Any], expected: AbstractIndex[Any], number: int) -> str:
    """How an index differs from what recovery writes, from its entry `number` on, counted from 0."""
    is_there, is_expected = number < len(found), number < len(expected)
    if is_there and is_expected and found.entry(number) != expected.entry(number):
        return f"entry {number} is {found.entry(number)}, recovery writes {expected.entry(number)}"
    more = f"; entry {number} is {found.entry(number)}" if is_there and not is_expected else ""
    less = f"; entry {number} would be {expected.entry(number)}" if is_expected and not is_there else ""
    return f"{len(found)} entries, recovery writes {len(expected)}{more}{less}"
