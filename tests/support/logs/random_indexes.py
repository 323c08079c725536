"""Random logs of a few small batches with their indexes, and randomly damaged indexes."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kidxlib.errors import MalformedRecordsError
from kidxlib.index.offset import OffsetIndex
from kidxlib.index.time import TimeIndex
from kidxlib.log.segment import LogSegment
from kidxlib.records.reader import Record
from kidxlib.recovery.options import RecoverOptions
from kidxlib.recovery.recover import RecoveredSegment, recover
from kidxlib.storage.log_bytes import WholeLog
from tests.support.logs import encoded

BASE = 1_000


@dataclass(frozen=True, slots=True)
class IndexedLog:
    """A log of a few small batches, and its recovery's result."""

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
            self.log, BASE, OffsetIndex.from_bytes(offset_index, BASE), TimeIndex.from_bytes(time_index, BASE)
        )


def random_log(rng: random.Random) -> IndexedLog:
    offset, data = BASE, b""
    for _ in range(rng.randrange(8)):
        offset += rng.choice([0, 0, 0, 2])
        count = rng.randint(1, 3)
        end = offset + count
        inside = [Record(at, rng.randrange(1, 30), None, b"v" * rng.randrange(30)) for at in range(offset, end)]
        data += encoded.batch_v2(inside)
        offset = end
    log = WholeLog(np.frombuffer(data, np.uint8))
    interval_bytes = rng.choice([0, 0, 150])
    return IndexedLog(log, recover(log, BASE, RecoverOptions(interval_bytes=interval_bytes)), rng.random() < 0.3)


def damaged(rng: random.Random, content: bytes, layout: np.dtype[np.void]) -> bytes:
    """A damaged index: entries are missing, twice, swapped or changed; or it is truncated or padded."""
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


def or_malformed(ask: Callable[[], object]) -> object:
    try:
        return ask()
    except MalformedRecordsError:
        return "malformed"
