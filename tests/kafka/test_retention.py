"""What is decided here about a partition's segments is what Kafka's `UnifiedLog` deletes of the same files."""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from kidxlib.format.segment_files import LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, segment_file
from kidxlib.library.recover_directory import recover_file
from kidxlib.operations.retention.plan_work import max_timestamp_on_disk
from kidxlib.recovery.recover import RecoveredSegment
from kidxlib.retention.decide import RetentionBounds, SegmentColumns, decide
from kidxlib.retention.policy import REASONS, Cleanup, TopicPolicy
from tests.conftest import Say
from tests.support.kafka.classes import Kafka
from tests.support.kafka.retention import KafkaRetention
from tests.support.logs.batches import Batch, encode
from tests.support.logs.golden import GoldenSegment

CASES, CASES_EXHAUSTIVE = 600, 6_000

#: The time in generated cases. Timestamps are taken from around it, so that limits are often met to the millisecond.
_NOW: Final = 1_790_000_000_000
_RETENTION_MS: Final = (-1, 0, 1, 1000, 5000)
_AGES: Final = (-(10**9), -1, 0, 1, 2, 999, 1000, 1001, 1002, 4999, 5000, 5001, 10**9)
_CLEANUP: Final = ("delete", "delete", "delete", "compact", "compact,delete", "")


@dataclass(frozen=True, slots=True)
class _Partition:
    """A partition's files, and what recovery finds in them."""

    directory: Path
    recovered: dict[int, RecoveredSegment]

    @property
    def log_end_offset(self) -> int:
        return list(self.recovered.values())[-1].facts.next_offset

    def segments(self, *, clean: bool) -> SegmentColumns:
        """As recovery finds them, or as their index files say."""
        known = {base_offset: found.facts.max_timestamp_ms for base_offset, found in self.recovered.items()}
        if clean:
            for base_offset, timestamp in known.items():
                on_disk = max_timestamp_on_disk([str(self.directory)], base_offset, timestamp)
                if on_disk is not None:
                    known[base_offset] = on_disk.max_timestamp
        logs = [self.directory / segment_file(base_offset, LOG_SUFFIX) for base_offset in known]
        sizes = [found.facts.valid_bytes for found in self.recovered.values()]
        return SegmentColumns(
            base_offsets=np.array(list(known), np.int64),
            sizes=np.array(sizes, np.int64),
            max_timestamps=np.array(list(known.values()), np.int64),
            mtimes_ms=np.array([log.stat().st_mtime_ns // 1_000_000 for log in logs], np.int64),
            fully_read=np.ones(len(logs), np.bool_),
        )


def _partition(directory: Path) -> _Partition:
    return _Partition(directory, {int(log.stem): recover_file(log) for log in sorted(directory.glob(f"*{LOG_SUFFIX}"))})


@pytest.fixture(scope="module")
def retention(kafka: Kafka) -> KafkaRetention:
    return KafkaRetention(kafka)


def _policy(settings: dict[str, Any]) -> TopicPolicy:
    return TopicPolicy(
        retention_ms=settings["retention.ms"],
        retention_bytes=settings["retention.bytes"],
        cleanup=frozenset(Cleanup(word) for word in settings["cleanup.policy"].split(",") if word),
    )


def _compare(
    retention: KafkaRetention,
    partition: _Partition,
    settings: dict[str, Any],
    now_ms: int,
    *,
    log_start_offset: int = 0,
    high_watermark: int | None = None,
    clean: bool = False,
) -> Counter[str]:
    """The same segments go, and the log starts at the same offset afterwards; counts reasons."""
    segments = partition.segments(clean=clean)
    bounds = RetentionBounds.at_start(
        int(segments.base_offsets[0]),
        partition.log_end_offset,
        log_start_offset=log_start_offset,
        high_watermark=high_watermark,
    )
    ours = decide(segments, bounds, _policy(settings), now_ms)
    theirs = retention.retain(
        partition.directory,
        settings,
        now_ms,
        log_start_offset=log_start_offset,
        high_watermark=high_watermark,
        clean=clean,
    )
    assert theirs.before == segments.base_offsets.tolist()
    given = (settings, now_ms, log_start_offset, high_watermark, clean, segments, [REASONS[n] for n in ours.reasons])
    assert theirs.deleted == segments.base_offsets[: ours.deleted].tolist(), given
    first = bounds.log_end_offset if ours.whole_partition else int(segments.base_offsets[ours.deleted])
    assert theirs.log_start_offset == max(first, bounds.log_start_offset), given
    return Counter(REASONS[number].value for number in ours.reasons)


def _timestamps(rng: random.Random, count: int) -> Iterator[int]:
    """Newer from segment to segment, or in any order; some segments have none."""
    in_order = rng.random() < 0.5
    ages = [rng.choice(_AGES) for _ in range(count)]
    for age in sorted(ages, reverse=True) if in_order else ages:
        yield rng.choice([-1, -1, -5]) if rng.random() < 0.2 else _NOW - age


def _write_partition(rng: random.Random, directory: Path) -> _Partition:
    """A few segments of a few batches; the last may be empty, some hold messages of formats without timestamps."""
    directory.mkdir()
    count = rng.randint(1, 7)
    base_offset = rng.choice([0, 0, 7, 2**40])
    for number, timestamp in enumerate(_timestamps(rng, count)):
        empty = number == count - 1 and rng.random() < 0.4
        batches = []
        if not empty:
            earlier = [Batch(timestamp=timestamp - rng.randint(0, 3)) for _ in range(rng.choice([0, 0, 1, 3]))]
            newest = Batch(timestamp=timestamp, body=bytes(rng.choice([39, 100, 500])))
            batches = [Batch(magic=0)] if timestamp < 0 and rng.random() < 0.5 else [*earlier, newest]
        log = directory / segment_file(base_offset, LOG_SUFFIX)
        log.write_bytes(b"".join(encode(base_offset, batches)))
        mtime_ms = _NOW - rng.choice(_AGES)
        # The rest of a millisecond is there to be dropped.
        os.utime(log, ns=(0, mtime_ms * 1_000_000 + rng.choice([0, 999_999])))
        base_offset += len(batches)
    return _partition(directory)


def _write_indexes(rng: random.Random, partition: _Partition) -> None:
    """What a clean stop leaves, or something has made of it."""
    for base_offset, found in partition.recovered.items():
        offset_index = partition.directory / segment_file(base_offset, OFFSET_INDEX_SUFFIX)
        time_index = partition.directory / segment_file(base_offset, TIME_INDEX_SUFFIX)
        entries = found.time_index
        content = {
            "padded": entries + bytes(12 * rng.randint(1, 3)),
            "zeros": bytes(12 * rng.randint(1, 3)),
            "truncated": entries[: rng.randint(0, len(entries))],
            "empty": b"",
        }.get(rng.choice(["as it is"] * 6 + ["padded", "zeros", "truncated", "empty"]), entries)
        if rng.random() < 0.9:
            offset_index.write_bytes(found.offset_index)
        if rng.random() < 0.9:
            time_index.write_bytes(content)


def test_generated_partitions(
    retention: KafkaRetention, scratch: Path, rng: random.Random, say: Say, exhaustive: bool
) -> None:
    """Limits met and missed by one, by time, by size, by log start; timestamps out of order, missing, in the future;
    high watermarks anywhere; active segments empty and not; recovered, or opened with sound and spoiled time indexes.
    """
    reasons: Counter[str] = Counter()
    deleted = 0
    cases = CASES_EXHAUSTIVE if exhaustive else CASES
    for _ in range(cases):
        directory = scratch / "t-0"
        partition = _write_partition(rng, directory)
        clean = rng.random() < 0.5
        if clean:
            _write_indexes(rng, partition)
        segments = partition.segments(clean=False)
        below = int(segments.sizes[rng.randrange(len(segments)) :].sum())
        settings = {
            "retention.ms": rng.choice(_RETENTION_MS),
            "retention.bytes": max(-1, rng.choice([-1, -1, 0, below - 1, below, below + 1])),
            "cleanup.policy": rng.choice(_CLEANUP),
            "segment.index.bytes": 1200,
        }
        first, end = int(segments.base_offsets[0]), partition.log_end_offset
        offsets = [*segments.base_offsets.tolist(), first + 1, end, end - 1]
        found = _compare(
            retention,
            partition,
            settings,
            _NOW,
            log_start_offset=min(max(0, rng.choice([0] * 20 + offsets)), end),
            high_watermark=rng.choice([None] * 10 + offsets),
            clean=clean,
        )
        deleted += sum(found[reason] for reason in ("log-start", "size", "time"))
        reasons.update(found)
        shutil.rmtree(directory)
    say(f"{cases} partitions as Kafka's, {deleted} segments deleted; {dict(reasons.most_common())}")
    never_here = {"not-well", "internal-topic", "policy-unknown", "looks-compacted", "not modelled"}
    assert set(reasons) == {reason.value for reason in REASONS} - never_here


@pytest.mark.promised_alone("generated partitions are judged with both")
def test_golden_partitions(
    retention: KafkaRetention, scratch: Path, golden_segments: list[GoldenSegment], rng: random.Random, say: Say
) -> None:
    """All partitions that Kafka has written, and the damaged ones: by time around each segment's age, and by size."""
    directories = sorted({segment.log.parent for segment in golden_segments})
    reasons: Counter[str] = Counter()
    cases = 0
    for source in directories:
        original = _partition(source)
        segments = original.segments(clean=False)
        cut = any(segment.truncated_bytes for segment in golden_segments if segment.log.parent == source)
        limits: list[tuple[int, int, int]] = [(0, -1, 0), (0, -1, 10**13)]  # retention.ms, retention.bytes, now
        age_from_mtime = segments.max_timestamps < 0
        for timestamp in np.where(age_from_mtime, segments.mtimes_ms, segments.max_timestamps)[
            : None if not cut else 0
        ]:
            limits += [(1000, -1, int(timestamp) + 1000 + step) for step in (0, 1)]
        for start in range(len(segments)):
            limits += [(-1, int(segments.sizes[start:].sum()) + step, 0) for step in (-1, 0)]
        for retention_ms, retention_bytes, now_ms in limits:
            directory = scratch / source.name
            shutil.copytree(source, directory)
            settings = {
                "retention.ms": retention_ms,
                "retention.bytes": retention_bytes,
                "cleanup.policy": "delete",
                "segment.index.bytes": 1 << 20,
            }
            has_indexes = any(directory.glob(f"*{TIME_INDEX_SUFFIX}"))
            try:
                reasons += _compare(
                    retention,
                    _Partition(directory, original.recovered),
                    settings,
                    now_ms,
                    clean=has_indexes and rng.random() < 0.5,
                )
            except AssertionError as error:
                error.add_note(str(source))
                raise
            cases += 1
            shutil.rmtree(directory)
    say(f"{cases} cases of {len(directories)} partitions as Kafka's; {dict(reasons.most_common())}")
