"""Verdicts on offset and time indexes, checked against every lookup and every search that there is."""

from __future__ import annotations

import random
import re
from collections import Counter
from functools import partial

import numpy as np

from kidxlib.audit.finding import Finding, Verdict
from kidxlib.audit.index_files.sparse_indexes import audit_offset_index, audit_time_index
from kidxlib.format import layouts
from kidxlib.index.offset import OffsetIndex
from kidxlib.index.time import TimeIndex
from kidxlib.log.segment import LogSegment
from kidxlib.storage.log_bytes import WholeLog
from tests.conftest import Say
from tests.support.logs.random_indexes import BASE, IndexedLog, damaged, or_malformed, random_log


def _fetches_right(segment: IndexedLog, offset_index: bytes) -> bool:
    """Whether every fetch begins with the right batch."""
    return all(_is_right(segment, offset_index, offset) for offset in range(BASE, segment.next_offset))


def _is_right(segment: IndexedLog, offset_index: bytes, offset: int) -> bool:
    right, asked = segment.with_indexes(b"", b""), segment.with_indexes(offset_index, b"")
    return or_malformed(partial(asked.translate_offset, offset)) == right.translate_offset(offset)


class _Watched(WholeLog):
    """A log that remembers where it was read first since it was last asked."""

    def __init__(self, log: WholeLog) -> None:
        super().__init__(log.window(0)[1])
        self.first: int | None = None

    def read(self, position: int, size: int) -> bytes:
        self.first = position if self.first is None else self.first
        return super().read(position, size)


def _longest_walk(segment: IndexedLog, offset_index: bytes) -> int:
    """The most bytes between the first header that a fetch reads and the batch that it then gets."""
    watched = _Watched(segment.log)
    index = OffsetIndex.from_bytes(offset_index, BASE)
    asked = LogSegment(watched, BASE, index, TimeIndex.from_bytes(b"", BASE))
    longest = 0
    for offset in range(BASE, segment.next_offset):
        watched.first = None
        found = asked.translate_offset(offset)
        assert found is not None and watched.first is not None
        longest = max(longest, found.position - watched.first)
    return longest


def _goes_on_right(segment: IndexedLog, offset_index: bytes) -> bool:
    """Whether searches by time that begin at an offset, as at the log's start, find the right record."""
    right, asked = segment.with_indexes(b"", b""), segment.with_indexes(offset_index, b"")
    return all(
        or_malformed(partial(asked.find_offset_by_timestamp, 0, offset)) == right.find_offset_by_timestamp(0, offset)
        for offset in range(BASE, segment.next_offset)
    )


def _audit_offsets(segment: IndexedLog, content: bytes | None) -> Finding:
    array = None if content is None else np.frombuffer(content, np.uint8)
    return audit_offset_index(segment.log, segment.recovered, BASE, array, active=segment.active)


def test_verdicts_on_offset_indexes_hold_for_every_fetch(rng: random.Random, exhaustive: bool, say: Say) -> None:
    """Goal: what is called safe is right for all offsets; what is called broken is wrong for one, or breaks a rule.

    Method: ask for each offset with the damaged index, and without any.
    """
    verdicts = Counter[str]()
    for _ in range(10_000 if exhaustive else 300):
        segment = random_log(rng)
        content = damaged(rng, segment.recovered.offset_index, layouts.OFFSET_INDEX_ENTRY)
        finding = _audit_offsets(segment, content)
        right = _fetches_right(segment, content) and _goes_on_right(segment, content)
        if finding.verdict is Verdict.SAFE:
            reported = (
                f"every lookup is right, after a walk over at most {_longest_walk(segment, content):,} bytes of log"
            )
            assert finding.consequence == reported, content.hex()
        index = OffsetIndex.from_bytes(content, BASE)
        end = or_malformed(segment.with_indexes(content, b"").next_offset)
        refused = len(content) % OffsetIndex.entry_bytes != 0 or index.last_offset < BASE
        wrong_end = segment.active and end != segment.next_offset
        assert (finding.verdict is Verdict.BROKEN) == (not right or refused or wrong_end), (finding, content.hex())
        if finding.reason == "misses-batches":
            named = re.match(r"a fetch from offsets (\d+) to (\d+) begins", finding.consequence or "")
            assert named is not None
            wrong = [not _is_right(segment, content, offset) for offset in range(int(named[1]), int(named[2]) + 1)]
            assert wrong and all(wrong), (finding, content.hex())
        assert (finding.verdict is Verdict.IDENTICAL) == (content == segment.recovered.offset_index)
        verdicts[f"{finding.verdict} {finding.reason or ''}"] += 1
    say(", ".join(f"{verdict} {count}" for verdict, count in verdicts.most_common()))


def _searches_right(segment: IndexedLog, time_index: bytes) -> bool:
    """Whether every search by time finds the right record."""
    right = segment.with_indexes(b"", b"")
    asked = segment.with_indexes(segment.recovered.offset_index, time_index)
    return all(
        or_malformed(partial(asked.find_offset_by_timestamp, time)) == right.find_offset_by_timestamp(time)
        for time in range(segment.largest + 1)
    )


def _audit_times(segment: IndexedLog, content: bytes | None) -> Finding:
    array = None if content is None else np.frombuffer(content, np.uint8)
    index = OffsetIndex.from_bytes(segment.recovered.offset_index, BASE)
    return audit_time_index(segment.log, segment.recovered, index, array, active=segment.active)


def test_verdicts_on_time_indexes_hold_for_every_search(rng: random.Random, exhaustive: bool, say: Say) -> None:
    """Goal: what is called safe is right for all times; and the last entry has the largest timestamp, for retention."""
    verdicts = Counter[str]()
    for _ in range(10_000 if exhaustive else 300):
        segment = random_log(rng)
        content = damaged(rng, segment.recovered.time_index, layouts.TIME_INDEX_ENTRY)
        finding = _audit_times(segment, content)
        right = _searches_right(segment, content)
        index = TimeIndex.from_bytes(content, BASE)
        whole = len(content) % TimeIndex.entry_bytes == 0
        padded = segment.active and whole and len(index) > 0 and not any(content[-TimeIndex.entry_bytes :])
        refused = not whole or (
            len(index) > 0
            and not padded
            and (index.last_entry.timestamp < index.entry(0).timestamp or index.last_entry.offset < BASE)
        )
        wrong_largest = index.last_entry.timestamp != segment.largest and not padded
        assert (finding.verdict is Verdict.BROKEN) == (not right or refused or wrong_largest), (finding, content.hex())
        assert (finding.verdict is Verdict.IDENTICAL) == (content == segment.recovered.time_index)
        verdicts[f"{finding.verdict} {finding.reason or ''}"] += 1
    say(", ".join(f"{verdict} {count}" for verdict, count in verdicts.most_common()))
