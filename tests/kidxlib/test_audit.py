"""Verdicts on indexes, held to every lookup that there is."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from kidxlib import formats
from kidxlib.audit import Finding, Verdict, audit_offset_index, audit_time_index
from kidxlib.log_segment import LogSegment
from kidxlib.offset_index import OffsetIndex
from kidxlib.records import MalformedRecordsError, Record
from kidxlib.recover import RecoveredSegment, RecoverOptions, recover
from kidxlib.storage import WholeLog
from kidxlib.time_index import TimeIndex
from tests.conftest import Say
from tests.kidxlib import encoded

_BASE = 1_000


@dataclass(frozen=True, slots=True)
class _Segment:
    """A log of a few small batches, and what recovery makes of it."""

    log: WholeLog
    recovered: RecoveredSegment
    active: bool

    @property
    def next_offset(self) -> int:
        return self.recovered.facts.next_offset

    @property
    def largest(self) -> int:
        return self.recovered.facts.max_timestamp_ms

    def with_indexes(self, offset_index: bytes, time_index: bytes) -> LogSegment:
        return LogSegment(
            self.log, _BASE, OffsetIndex.from_bytes(offset_index, _BASE), TimeIndex.from_bytes(time_index, _BASE)
        )


def _segment(rng: random.Random, batches: int = 8) -> _Segment:
    offset, data = _BASE, b""
    for _ in range(rng.randrange(batches)):
        offset += rng.choice([0, 0, 0, 2])
        count = rng.randint(1, 3)
        inside = [Record(offset + each, rng.randrange(1, 30), None, b"v" * rng.randrange(30)) for each in range(count)]
        data += encoded.batch_v2(inside)
        offset += count
    log = WholeLog(np.frombuffer(data, np.uint8))
    interval_bytes = rng.choice([0, 0, 150])
    return _Segment(log, recover(log, _BASE, RecoverOptions(interval_bytes=interval_bytes)), rng.random() < 0.3)


def _damaged(rng: random.Random, content: bytes, layout: np.dtype[np.void]) -> bytes:
    """An index with something done to it: entries that go, come twice, change places or values; cut or padded."""
    entries = np.frombuffer(content, layout).copy()
    for _ in range(rng.choice([1, 1, 2])):
        at = rng.randrange(len(entries)) if len(entries) else 0
        way = rng.randrange(8)
        if way == 0:
            entries = np.delete(entries, at) if len(entries) else entries
        elif way == 1:
            entries = entries[:at]
        elif way == 2:
            entries = np.concatenate([entries, np.zeros(rng.randint(1, 3), layout)])
        elif way == 3 and len(entries):
            other = rng.randrange(len(entries))
            entries[[at, other]] = entries[[other, at]]
        elif way == 4 and len(entries):
            entries = np.insert(entries, at, entries[at])
        elif len(entries):
            field = rng.choice(layout.names or ())
            entries[field][at] += rng.choice([-61, -7, -3, -2, -1, 1, 2, 3, 7, 61, 1_000])
    damaged = entries.tobytes()
    return damaged[: -rng.randrange(1, 8)] if damaged and rng.random() < 0.05 else damaged


def _fetches_right(segment: _Segment, offset_index: bytes) -> bool:
    """Whether every fetch begins with the right batch."""
    right, asked = segment.with_indexes(b"", b""), segment.with_indexes(offset_index, b"")
    return all(
        _or_malformed(partial(asked.translate_offset, offset)) == right.translate_offset(offset)
        for offset in range(_BASE, segment.next_offset)
    )


class _Watched(WholeLog):
    """A log that remembers where it was read first since it was last asked."""

    def __init__(self, log: WholeLog) -> None:
        super().__init__(log.window(0)[1])
        self.first: int | None = None

    def read(self, position: int, size: int) -> bytes:
        self.first = position if self.first is None else self.first
        return super().read(position, size)


def _longest_walk(segment: _Segment, offset_index: bytes) -> int:
    """The most bytes between the first header that a fetch reads and the batch that it then gets."""
    watched = _Watched(segment.log)
    index = OffsetIndex.from_bytes(offset_index, _BASE)
    asked = LogSegment(watched, _BASE, index, TimeIndex.from_bytes(b"", _BASE))
    longest = 0
    for offset in range(_BASE, segment.next_offset):
        watched.first = None
        found = asked.translate_offset(offset)
        assert found is not None and watched.first is not None
        longest = max(longest, found.position - watched.first)
    return longest


def _goes_on_right(segment: _Segment, offset_index: bytes) -> bool:
    """Whether searches by time that begin at an offset, as at the log's start, find the right record."""
    right, asked = segment.with_indexes(b"", b""), segment.with_indexes(offset_index, b"")
    return all(
        _or_malformed(partial(asked.find_offset_by_timestamp, 0, offset)) == right.find_offset_by_timestamp(0, offset)
        for offset in range(_BASE, segment.next_offset)
    )


def _searches_right(segment: _Segment, time_index: bytes) -> bool:
    """Whether every search by time finds the right record."""
    right = segment.with_indexes(b"", b"")
    asked = segment.with_indexes(segment.recovered.offset_index, time_index)
    return all(
        _or_malformed(partial(asked.find_offset_by_timestamp, time)) == right.find_offset_by_timestamp(time)
        for time in range(segment.largest + 1)
    )


def _or_malformed(ask: Callable[[], object]) -> object:
    try:
        return ask()
    except MalformedRecordsError:
        return "malformed"


def _audit_offsets(segment: _Segment, content: bytes | None) -> Finding:
    array = None if content is None else np.frombuffer(content, np.uint8)
    return audit_offset_index(segment.log, segment.recovered, _BASE, array, active=segment.active)


def _audit_times(segment: _Segment, content: bytes | None) -> Finding:
    array = None if content is None else np.frombuffer(content, np.uint8)
    index = OffsetIndex.from_bytes(segment.recovered.offset_index, _BASE)
    return audit_time_index(segment.log, segment.recovered, index, array, active=segment.active)


def test_verdicts_on_offset_indexes_hold_for_every_fetch(rng: random.Random, exhaustive: bool, say: Say) -> None:
    """Goal: what is called safe is right for all offsets; what is called broken is wrong for one, or breaks a rule.

    Method: ask for each offset with the damaged index, and without any.
    """
    verdicts = Counter[str]()
    for _ in range(10_000 if exhaustive else 1_000):
        segment = _segment(rng)
        content = _damaged(rng, segment.recovered.offset_index, formats.OFFSET_INDEX_ENTRY)
        finding = _audit_offsets(segment, content)
        right = _fetches_right(segment, content) and _goes_on_right(segment, content)
        if finding.verdict is Verdict.SAFE:
            told = f"every lookup is right, after a walk over at most {_longest_walk(segment, content):,} bytes of log"
            assert finding.consequence == told, content.hex()
        index = OffsetIndex.from_bytes(content, _BASE)
        end = _or_malformed(segment.with_indexes(content, b"").next_offset)
        refused = len(content) % OffsetIndex.entry_bytes != 0 or index.last_offset < _BASE
        wrong_end = segment.active and end != segment.next_offset
        assert (finding.verdict is Verdict.BROKEN) == (not right or refused or wrong_end), (finding, content.hex())
        assert (finding.verdict is Verdict.IDENTICAL) == (content == segment.recovered.offset_index)
        verdicts[f"{finding.verdict} {finding.reason or ''}"] += 1
    say(", ".join(f"{verdict} {count}" for verdict, count in verdicts.most_common()))


def test_verdicts_on_time_indexes_hold_for_every_search(rng: random.Random, exhaustive: bool, say: Say) -> None:
    """Likewise, for all times; and the largest timestamp, by which retention goes, is the last entry's."""
    verdicts = Counter[str]()
    for _ in range(10_000 if exhaustive else 1_000):
        segment = _segment(rng)
        content = _damaged(rng, segment.recovered.time_index, formats.TIME_INDEX_ENTRY)
        finding = _audit_times(segment, content)
        right = _searches_right(segment, content)
        index = TimeIndex.from_bytes(content, _BASE)
        whole = len(content) % TimeIndex.entry_bytes == 0
        padded = segment.active and whole and len(index) > 0 and not any(content[-TimeIndex.entry_bytes :])
        refused = not whole or (
            len(index) > 0
            and not padded
            and (index.last_entry.timestamp < index.entry(0).timestamp or index.last_entry.offset < _BASE)
        )
        wrong_largest = index.last_entry.timestamp != segment.largest and not padded
        assert (finding.verdict is Verdict.BROKEN) == (not right or refused or wrong_largest), (finding, content.hex())
        assert (finding.verdict is Verdict.IDENTICAL) == (content == segment.recovered.time_index)
        verdicts[f"{finding.verdict} {finding.reason or ''}"] += 1
    say(", ".join(f"{verdict} {count}" for verdict, count in verdicts.most_common()))
