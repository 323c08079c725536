"""Verdicts on time indexes, checked against every search that there is."""

from __future__ import annotations

import random
from collections import Counter
from functools import partial

import numpy as np

from kidxlib.audit.finding import Finding, Verdict
from kidxlib.audit.index_files.time_index import audit_time_index
from kidxlib.format import layouts as formats
from kidxlib.index.offset import OffsetIndex
from kidxlib.index.time import TimeIndex
from tests.conftest import Say
from tests.support.logs.random_indexes import BASE, IndexedLog, damaged, or_malformed, random_log


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
        content = damaged(rng, segment.recovered.time_index, formats.TIME_INDEX_ENTRY)
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
