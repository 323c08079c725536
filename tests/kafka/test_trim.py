"""Preallocated index files that a killed broker leaves, beside what Kafka leaves when it closes the segment."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any, Final

import pytest

from kidxlib.compaction.compact_partition import ChangeAction, ChangeOutcome
from kidxlib.format.segment_files import LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, segment_file
from kidxlib.recovery.options import RecoverOptions
from tests.conftest import Say
from tests.support.compaction import applied, built, options, planned
from tests.support.kafka.classes import Kafka
from tests.support.logs.batches import Batch, encode

SEGMENTS, SEGMENTS_EXHAUSTIVE = 40, 2000

#: Room for 50 entries in an offset index.
_ROOM_BYTES: Final = 400
_INTERVAL_BYTES: Final = 300


def _log_of(rng: random.Random, base_offset: int) -> list[bytes]:
    """Batches of any size up to a few intervals, with timestamps that go back, that stay, or that are none."""
    clock = rng.choice([-1, 0, 5, 1_700_000_000_000])
    batches = []
    for number in range(rng.choice([1, 2, 5, 20, 40])):
        timestamp = clock if clock < 0 else clock + number // 3 * 10 + rng.randrange(40)
        batches.append(
            Batch(
                magic=rng.choice([2, 2, 2, 1, 0]),
                offset_step=rng.randint(1, 9),
                timestamp=timestamp,
                body=bytes(rng.randrange(256) for _ in range(rng.choice([40, 100, 400]))),
            )
        )
    return encode(base_offset, batches)


def _append(kafka: Kafka, segment: Any, batches: list[bytes]) -> None:
    """Each batch in an append of its own, as a follower's fetch may bring it."""
    for batch in batches:
        records = kafka.records.readable(batch)
        segment.append(records.firstBatch().lastOffset(), records)


def _killed_and_closed(kafka: Kafka, directory: Path, base_offset: int, batches: list[bytes]) -> Path:
    """A segment's files as a kill leaves them, in `directory`; and as closing leaves them, in the directory that is
    named.
    """
    directory.mkdir()
    (directory / segment_file(base_offset, LOG_SUFFIX)).touch()
    settings = {"segment.index.bytes": str(_ROOM_BYTES), "index.interval.bytes": str(_INTERVAL_BYTES)}
    closed = directory.with_name(f"closed-{directory.name}")
    closed.mkdir()
    with kafka.opened_segment(closed, base_offset, settings) as segment:
        _append(kafka, segment, batches)
        segment.flush()
        for path in closed.iterdir():
            shutil.copy2(path, directory / path.name)
    return closed


def test_a_killed_brokers_files_become_what_a_clean_close_leaves(
    kafka: Kafka, scratch: Path, rng: random.Random, say: Say, exhaustive: bool
) -> None:
    """Kafka itself appends, its files are copied as they stand, then it closes. Each of both files is trimmed to the
    very bytes, or, where a log of 1970 does not tell padding from an entry, left as it is.
    """
    count = SEGMENTS_EXHAUSTIVE if exhaustive else SEGMENTS
    log_dir, index_dir, kept, trimmed = scratch / "kafka-logs", scratch / "index", 0, 0
    log_dir.mkdir()
    expected: dict[Path, tuple[bytes, bytes]] = {}
    for number in range(count):
        base_offset = rng.choice([0, 7, 2**33])
        directory = log_dir / f"topic-{number}"
        batches = _log_of(rng, base_offset)
        closed = _killed_and_closed(kafka, directory, base_offset, batches)
        (directory / segment_file(base_offset + 10**6, LOG_SUFFIX)).touch()  # by now another one is active
        for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            path = directory / segment_file(base_offset, suffix)
            expected[path] = path.read_bytes(), (closed / path.name).read_bytes()
            assert len(expected[path][0]) == _ROOM_BYTES // (8 if suffix == OFFSET_INDEX_SUFFIX else 12) * (
                8 if suffix == OFFSET_INDEX_SUFFIX else 12
            )
        shutil.rmtree(closed)
    tasks = built(log_dir, index_dir, RecoverOptions(interval_bytes=_INTERVAL_BYTES))
    how = options(trim=True)
    plan = planned(tasks, how)
    assert {path: path.read_bytes() for path in expected} == {path: before for path, (before, _) in expected.items()}
    changes = {Path(change.place.path): change for change in applied(tasks, how)}
    assert [(change.place, change.bytes_before, change.bytes_after) for change in plan] == [
        (change.place, change.bytes_before, change.bytes_after) for change in changes.values()
    ]
    for path, (before, after) in expected.items():
        change = changes[path]
        assert change.action is ChangeAction.TRIM
        if change.outcome is ChangeOutcome.KEPT:
            kept += 1
            assert change.reason == "zero-timestamp" and path.read_bytes() == before
        else:
            trimmed += 1
            assert path.read_bytes() == after, path
            assert (change.bytes_before, change.bytes_after) == (len(before), len(after))
    assert all(change.outcome is ChangeOutcome.KEPT for change in planned(tasks, how))
    say(f"{trimmed} files as Kafka leaves them, {kept} not distinguished from an entry of 1970")


def test_entries_of_before_a_truncation_are_not_taken_for_the_logs(kafka: Kafka, scratch: Path) -> None:
    """A follower truncates its log and is killed: old entries follow the last one, no zeros. The file stays."""
    log_dir = scratch / "kafka-logs"
    log_dir.mkdir()
    directory = log_dir / "topic-0"
    directory.mkdir()
    batches = encode(0, [Batch(timestamp=1000 + number, body=bytes(400)) for number in range(20)])
    settings = {"segment.index.bytes": str(_ROOM_BYTES), "index.interval.bytes": str(_INTERVAL_BYTES)}
    closed = scratch / "closed"
    closed.mkdir()
    with kafka.opened_segment(closed, 0, settings) as segment:
        _append(kafka, segment, batches)
        segment.truncateTo(7)
        segment.flush()
        for path in closed.iterdir():
            shutil.copy2(path, directory / path.name)
    (directory / segment_file(10**6, LOG_SUFFIX)).touch()
    before = {path: path.read_bytes() for path in directory.iterdir()}
    changes = applied(built(log_dir, scratch / "index"), options(trim=True))
    assert {change.outcome for change in changes} == {ChangeOutcome.KEPT}
    assert {path: path.read_bytes() for path in directory.iterdir()} == before


@pytest.mark.parametrize("damage", ["not-whole", "other"])
def test_what_is_no_index_of_the_log_stays(damage: str, scratch: Path) -> None:
    log_dir = scratch / "kafka-logs"
    directory = log_dir / "topic-0"
    directory.mkdir(parents=True)
    batches = encode(0, [Batch(timestamp=1000 + number, body=bytes(400)) for number in range(20)])
    (directory / segment_file(0, LOG_SUFFIX)).write_bytes(b"".join(batches))
    (directory / segment_file(10**6, LOG_SUFFIX)).touch()
    tasks = built(log_dir, scratch / "index", RecoverOptions(interval_bytes=_INTERVAL_BYTES))
    right = (scratch / "index" / "topic-0" / segment_file(0, OFFSET_INDEX_SUFFIX)).read_bytes()
    content = (
        right + bytes(83)
        if damage == "not-whole"
        else right[:12] + (int.from_bytes(right[12:16]) + 1).to_bytes(4) + right[16:] + bytes(80)
    )
    path = directory / segment_file(0, OFFSET_INDEX_SUFFIX)
    path.write_bytes(content)
    (change,) = applied(tasks, options(trim=True))
    assert change.outcome is ChangeOutcome.KEPT
    assert change.reason == ("not-whole" if damage == "not-whole" else "misses-batches")
    assert path.read_bytes() == content
