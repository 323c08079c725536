"""Our index classes answer, write and fail as Kafka's own."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import pytest

from kidxlib.errors import (
    CorruptIndexError,
    IndexFullError,
    InvalidOffsetError,
    InvalidTimestampError,
    KidxError,
    OffsetOverflowError,
    UnknownVersionError,
)
from kidxlib.format import layouts
from kidxlib.index import search_kernel
from kidxlib.index.offset import OffsetIndex, OffsetPosition
from kidxlib.index.time import TimeIndex
from kidxlib.index.transaction import AbortedTransaction, TransactionIndex
from tests.conftest import Say
from tests.support.kafka import lookups
from tests.support.kafka.classes import Kafka, KafkaError
from tests.support.kafka.lookups import KafkaIndex, Targets
from tests.support.logs.golden import GoldenSegment

AnIndex: TypeAlias = OffsetIndex | TimeIndex

#: Random targets for each index that Kafka has written; beside them each entry and what is next to it.
RANDOM_TARGETS, RANDOM_TARGETS_EXHAUSTIVE = 30, 10_000
#: Fetch offsets for each transaction index, every upper bound with each.
STARTS_MAX: Final = 20
#: What is made up, in all these sizes: around those of the warm end, and far from them.
MADE: Final = ("sorted", "with duplicates", "zero-padded", "partly shuffled", "noise")
SIZES: Final = (0, 1, 2, 3, 30, 682, 683, 684, 1024, 1025, 1026, 1500, 3000, 20_000)
#: Sizes that each is tried in, and targets for each index: five times as many questions, as there are five kinds.
SIZES_TRIED, TARGETS = 4, 2_000
TARGETS_EXHAUSTIVE: Final = 10_000
#: Indexes written to at random, and changes to each.
WRITTEN, CHANGES = 40, 40
WRITTEN_EXHAUSTIVE: Final = 1000

_LONG_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class _Kind:
    """An offset index or a time index: our class, Kafka's, and the layout of the file."""

    ours: type[OffsetIndex] | type[TimeIndex]
    kafkas: Callable[..., KafkaIndex]
    layout: np.dtype[Any]
    key: int


_OFFSET: Final = _Kind(OffsetIndex, lookups.offset_index, layouts.OFFSET_INDEX_ENTRY, search_kernel.OFFSET)
_TIME: Final = _Kind(TimeIndex, lookups.time_index, layouts.TIME_INDEX_ENTRY, search_kernel.TIMESTAMP)
_KINDS: Final = (_OFFSET, _TIME)

#: What Kafka throws, and what we do.
_ERRORS: Final[dict[str, type[KidxError]]] = {
    "BufferOverflowException": IndexFullError,
    "InvalidOffsetException": InvalidOffsetError,
    "IndexOffsetOverflowException": OffsetOverflowError,
    "IllegalStateException": InvalidTimestampError,
    "CorruptIndexException": CorruptIndexError,
    "KafkaException": UnknownVersionError,
}


# ---- answers ----


@pytest.mark.promised_alone("indexes made up are looked up with both")
def test_indexes_that_kafka_has_written(
    kafka: Kafka, scratch: Path, golden_segments: list[GoldenSegment], rng: random.Random, say: Say, exhaustive: bool
) -> None:
    """Lookups at each entry and beside it, and anywhere, by key and by value; aborted transactions of all ranges."""
    lookups: Counter[str] = Counter()
    anywhere = RANDOM_TARGETS_EXHAUSTIVE if exhaustive else RANDOM_TARGETS
    for segment in golden_segments:
        for kind, content in ((_OFFSET, segment.offset_index), (_TIME, segment.time_index)):
            targets = _targets(rng, kind, content, segment.base_offset, anywhere, 10**9)
            try:
                lookups[kind.ours.__name__] += _compare_lookups(
                    kafka, scratch / "index", kind, content, segment.base_offset, targets
                )
            except AssertionError as error:
                error.add_note(f"{segment.name}, {kind.ours.__name__}")
                raise
        if segment.transaction_index is not None:
            lookups["TransactionIndex"] += _compare_aborted(
                kafka, scratch / "index", segment.transaction_index, segment.base_offset, rng
            )
    say(f"{len(golden_segments)} segments' indexes; lookups as Kafka's: {_counted(lookups)}")


def test_indexes_made_up(kafka: Kafka, scratch: Path, rng: random.Random, say: Say, exhaustive: bool) -> None:
    """Empty ones, with one entry and with thousands, around the size of the warm end; unsorted, zero-padded, noise.

    At least 10,000 lookups in each, by key and by value, lower and upper bounds.
    """
    lookups: Counter[str] = Counter()
    for kind in _KINDS:
        for made in MADE:
            for size in SIZES if exhaustive else (0, 1, *rng.sample(SIZES[2:], SIZES_TRIED - 2)):
                base_offset = rng.choice((0, 45, 2**31 + 5, 2**62, _LONG_MAX - 2**31, _LONG_MAX - 3))
                content = _made_up(rng, kind, made, size)
                count = TARGETS_EXHAUSTIVE if exhaustive else TARGETS
                targets = _targets(rng, kind, content, base_offset, count, count)
                try:
                    compared = _compare_lookups(kafka, scratch / "index", kind, content, base_offset, targets)
                except AssertionError as error:
                    error.add_note(f"{kind.ours.__name__} of {size} entries, {made}, base offset {base_offset}")
                    raise
                assert compared >= 10_000
                lookups[f"{kind.ours.__name__} {made}"] += compared
    say(f"lookups as Kafka's: {_counted(lookups)}")


def _compare_lookups(kafka: Kafka, path: Path, kind: _Kind, content: bytes, base_offset: int, targets: Targets) -> int:
    """Ask both for the same; how many answers were compared."""
    path.write_bytes(content)
    theirs = kind.kafkas(kafka, path, base_offset)
    ours = kind.ours.from_bytes(content, base_offset)
    data = np.frombuffer(content, np.uint8)
    compared = 0
    for by_value in (False, True):
        column = kind.key + by_value
        entries = len(ours)
        increasing = bool(search_kernel.increases(data, entries, column, base_offset))
        for upper in (False, True):
            slots = theirs.slots(targets, by_value=by_value, upper=upper)
            what = f"slots, {by_value=}, {upper=}"
            asked = (data, entries, column, base_offset)
            assert [search_kernel.warm_cold_slot(*asked, target, upper) for target in targets.tolist()] == slots, what
            many = np.empty(len(targets), np.int64)
            search_kernel.many_slots(*asked, targets, upper, increasing, many)
            assert many.tolist() == slots, what
            compared += len(slots)
    answers = theirs.lookup_many(targets)
    assert [_fields(ours.lookup(target)) for target in targets.tolist()] == answers
    assert ours.lookup_many(targets).tolist() == answers
    compared += len(answers)
    if isinstance(ours, OffsetIndex):
        positions = targets.astype(np.int32).astype(np.int64)
        for start, sizes in ((0, positions), (2**31 - 1, positions[:50])):
            bounds = theirs.fetch_upper_bounds(start, sizes)
            found = (ours.fetch_upper_bound(OffsetPosition(0, start), size) for size in sizes.tolist())
            assert [None if entry is None else _fields(entry) for entry in found] == bounds
            compared += len(bounds)
    theirs.close()
    return compared


def _compare_aborted(kafka: Kafka, path: Path, content: bytes, base_offset: int, rng: random.Random) -> int:
    """Ask both for ranges that start and end at what the entries say, and beside it."""
    path.write_bytes(content)
    theirs = lookups.transaction_index(kafka, path, base_offset)
    ours = TransactionIndex.from_bytes(content, base_offset, release=kafka.release)
    marks = [mark for one in ours.all() for mark in (one.first_offset, one.last_offset, one.last_stable_offset)]
    offsets = sorted({mark + step for mark in (base_offset, *marks) for step in (-1, 0, 1)})
    starts = offsets if len(offsets) <= STARTS_MAX else rng.sample(offsets, STARTS_MAX)
    for fetch_offset in starts:
        expected = theirs.collect_aborted(fetch_offset, np.array(offsets))
        assert [ours.collect_aborted(fetch_offset, upper_bound) for upper_bound in offsets] == expected
    theirs.close()
    return len(starts) * len(offsets)


def _targets(rng: random.Random, kind: _Kind, content: bytes, base_offset: int, count: int, near_max: int) -> Targets:
    """Keys and values of entries and what is next to them, all or `near_max` of these; `count` others; in no order."""
    stored = np.frombuffer(content, kind.layout, count=len(content) // kind.layout.itemsize)
    columns = []
    for name in kind.layout.names or ():
        values = stored[name].astype(np.int64)
        columns.append(values + np.int64(base_offset) if name == "relative_offset" else values)
    random_numbers = np.random.default_rng(rng.getrandbits(32))
    near = np.concatenate([*columns, np.array([0, base_offset])])
    near = (near[None, :] + np.array([[-1], [0], [1]])).ravel()
    low, high = int(near.min()), int(near.max())
    if len(near) > near_max:
        near = random_numbers.choice(near, near_max)
    low, high = max(low - count, -_LONG_MAX - 1), min(high + count, _LONG_MAX)
    anywhere = low + random_numbers.choice(min(high - low, _LONG_MAX), count, replace=False)
    targets = np.unique(np.concatenate([near, anywhere, np.array([-_LONG_MAX - 1, _LONG_MAX, -1])]))
    random_numbers.shuffle(targets)
    return targets


def _made_up(rng: random.Random, kind: _Kind, made: str | None = None, size: int | None = None) -> bytes:
    """An index file of this kind and with so many entries, or any."""
    made = rng.choice(("sorted", *MADE)) if made is None else made
    size = rng.choice(SIZES) if size is None else size
    numbers = np.random.default_rng(rng.getrandbits(32))
    entries = np.zeros(size, kind.layout)
    names = kind.layout.names or ()
    for name in names:
        least_step = 0 if made == "with duplicates" else 1
        entries[name] = np.cumsum(numbers.integers(least_step, rng.choice((2, 5, 900)), size))
    if made == "zero-padded":
        entries[numbers.integers(0, size + 1) :] = np.zeros(1, kind.layout)
    elif made == "partly shuffled":
        numbers.shuffle(entries[size // 3 : size // 2])
    elif made == "noise":
        entries = np.frombuffer(numbers.bytes(entries.nbytes), kind.layout)
    return entries.tobytes() + numbers.bytes(rng.choice((0, 0, 0, 5)))


# ---- changes ----


def test_written_to_at_random(kafka: Kafka, scratch: Path, rng: random.Random, say: Say, exhaustive: bool) -> None:
    """Start with an empty index or a file, and make random changes to ours and to Kafka's."""
    outcomes: Counter[str] = Counter()
    for number in range(WRITTEN_EXHAUSTIVE if exhaustive else WRITTEN):
        kind = _KINDS[number % 2]
        path = scratch / f"{number}.index"
        base_offset, max_bytes = rng.choice((0, 45, 2**62)), rng.choice((24, 50, 240))
        ours: AnIndex
        if rng.random() < 0.5:
            ours = kind.ours.new(base_offset, max_bytes)
        else:
            content = _made_up(rng, kind)[:300]
            path.write_bytes(content)
            ours = kind.ours.from_bytes(content, base_offset, max_bytes=max_bytes)
        theirs = kind.kafkas(kafka, path, base_offset, max_bytes)
        done = []
        for _ in range(CHANGES):
            change = _change(rng, ours)
            done.append(change)
            outcome = _change_both(ours, theirs, *change)
            outcomes[f"{change[0]}{f': {outcome}' if outcome else ''}"] += 1
            assert path.read_bytes() == ours.to_bytes(), done
            assert (len(ours), ours.max_entries, ours.is_full, ours.length) == (
                theirs.java.entries(),
                theirs.java.maxEntries(),
                theirs.java.isFull(),
                theirs.java.length(),
            ), done
        theirs.close()
    say(f"changes with Kafka's outcome: {_counted(outcomes)}")


def _change(rng: random.Random, index: AnIndex) -> tuple[Any, ...]:
    """A method of ours and its arguments. What leaves Kafka's index broken is not among them (see the classes)."""
    last = index.last_entry
    offset = last.offset + rng.choice((1, 1, 1, 1, 5, 0, -1, -7))
    used = len(index) * index.entry_bytes
    changes: list[tuple[Any, ...]] = [
        ("truncate_to", offset - rng.randrange(20)),
        ("resize", used + rng.choice((0, 5, 30, 100))),
        ("trim_to_valid_size",),
        rng.choice((("truncate",), ("reset",))),
    ]
    append: tuple[Any, ...]
    if isinstance(index, OffsetIndex):
        append = ("append", rng.choice((*[offset] * 9, index.base_offset + 2**31)), rng.randrange(-5, 2**31))
    else:
        timestamp = index.last_entry.timestamp + rng.choice((1, 1, 1, 1, 9, 0, -1))
        if len(index) == 0 or offset >= last.offset:  # Kafka would write the timestamp, and then fail
            offset = min(max(offset, index.base_offset), index.base_offset + 2**31 - 1)
        append = ("maybe_append", timestamp, offset, rng.random() < 0.3)
    return rng.choice([*[append] * 8, *changes])


_JAVA_NAMES: Final = {
    "append": "append",
    "maybe_append": "maybeAppend",
    "truncate_to": "truncateTo",
    "truncate": "truncate",
    "resize": "resize",
    "trim_to_valid_size": "trimToValidSize",
    "reset": "reset",
    "sanity_check": "sanityCheck",
}


def _change_both(ours: AnIndex | TransactionIndex, theirs: KafkaIndex, name: str, *arguments: Any) -> str:
    """Do the same to both; assert that both accept it or fail alike; the name of our error, "" for none."""
    thrown = theirs.call(_JAVA_NAMES[name], *arguments)
    try:
        getattr(ours, name)(*arguments)
    except KidxError as error:
        assert type(error) is _expected(thrown), f"{name}{arguments}: {error!r}, Kafka: {thrown}"
        return type(error).__name__
    assert thrown is None, f"{name}{arguments}: Kafka: {thrown}"
    return ""


def _expected(thrown: KafkaError | None) -> type[KidxError] | None:
    if thrown is None:
        return None
    if thrown.name == "IllegalArgumentException":
        return IndexFullError if "full" in thrown.message else InvalidOffsetError
    return _ERRORS[thrown.name]


def test_sanity(kafka: Kafka, scratch: Path, rng: random.Random, say: Say, exhaustive: bool) -> None:
    outcomes: Counter[str] = Counter()
    for number in range(1000 if exhaustive else 100):
        kind = _KINDS[number % 2]
        base_offset = rng.choice((0, 45, _LONG_MAX - 5))
        content = _made_up(rng, kind)
        path = scratch / "index"
        path.write_bytes(content)
        ours, theirs = kind.ours.from_bytes(content, base_offset), kind.kafkas(kafka, path, base_offset)
        outcomes[_change_both(ours, theirs, "sanity_check") or "sound"] += 1
        theirs.close()
    assert set(outcomes) == {"sound", "CorruptIndexError"}
    say(_counted(outcomes))


def test_transaction_indexes_written_to(
    kafka: Kafka, scratch: Path, rng: random.Random, say: Say, exhaustive: bool
) -> None:
    """Sanity checks are among the changes; files may hold anything, a part of an entry or other versions."""
    outcomes: Counter[str] = Counter()
    for number in range(WRITTEN_EXHAUSTIVE if exhaustive else WRITTEN):
        path = scratch / f"{number}.txnindex"
        base_offset = rng.choice((0, 0, 45))
        content = _aborted(rng)
        if content or rng.random() < 0.5:
            path.write_bytes(content)
        ours = TransactionIndex.from_bytes(content, base_offset, release=kafka.release)
        theirs = lookups.transaction_index(kafka, path, base_offset)
        for _ in range(CHANGES // 4):
            change = rng.choice((["append"] * 5) + ["truncate_to", "reset", "sanity_check"])
            arguments: tuple[Any, ...] = ()
            if change == "append":
                fields = [rng.randrange(100) for _ in range(4)]
                thrown = theirs.call("append", lookups.aborted_transaction(kafka, *fields))
                try:
                    ours.append(AbortedTransaction(*fields))
                except InvalidOffsetError as error:
                    assert type(error) is _expected(thrown)
                    outcomes["append: InvalidOffsetError"] += 1
                else:
                    assert thrown is None
                    outcomes["append"] += 1
            else:
                if change == "truncate_to":
                    arguments = (rng.randrange(100),)
                outcome = _change_both(ours, theirs, change, *arguments)
                outcomes[f"{change}{f': {outcome}' if outcome else ''}"] += 1
            assert ours.to_bytes() == (path.read_bytes() if path.exists() else b"")
        theirs.close()
    say(f"changes with Kafka's outcome: {_counted(outcomes)}")


def _aborted(rng: random.Random) -> bytes:
    """A transaction index file: sound, with odd versions, or out of step."""
    versions = rng.choice(((0,), (0,), (0, 0, 0, 1, -1, 256, 300)))
    entries = [(rng.choice(versions), *(rng.randrange(100) for _ in range(4))) for _ in range(rng.randrange(6))]
    return np.array(entries, layouts.ABORTED_TRANSACTION).tobytes() + bytes(rng.choice((0, 0, 3, 33)))


def _fields(entry: Any) -> tuple[int, int]:
    """Key and value of an entry."""
    return (entry.offset, entry.position) if isinstance(entry, OffsetPosition) else (entry.timestamp, entry.offset)


def _counted(counter: Counter[str]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counter.most_common())
