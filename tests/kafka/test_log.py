"""Logs answer as Kafka's `UnifiedLog` does over the same files."""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple, replace
from pathlib import Path

import numpy as np
import pytest

from kidxlib import names
from kidxlib.log import Log, LogOffset, OffsetOutOfRangeError
from kidxlib.log_segment import LogSegment, RollParams
from kidxlib.offset_index import OffsetIndex
from kidxlib.records import Record
from kidxlib.recover import RecoverOptions, recover
from kidxlib.seek import Seeker
from kidxlib.storage import WholeLog
from kidxlib.time_index import TimeIndex
from tests.conftest import Say
from tests.kidxlib import encoded
from tests.kidxlib.golden import GoldenSegment
from tests.support.kafka import Kafka
from tests.support.kafka_logs import KafkaLog
from tests.support.random_logs import write_random_log
from tests.support.seeks import check_offset, check_timestamp, golden_folder, some_offsets, some_timestamps


@contextmanager
def _opened(kafka: Kafka, folder: Path, theirs: Path) -> Iterator[tuple[Log, KafkaLog]]:
    """The log in a folder, and Kafka's over a copy, which loading it changes."""
    shutil.copytree(folder, theirs)  # with modification times
    with kafka.opened_log(theirs) as java:
        java.updateHighWatermark(java.logEndOffset())
        yield Log.open(folder), KafkaLog(kafka, java)


def _compare_seeks(log: Log, seeker: Seeker, theirs: KafkaLog, rng: random.Random, count: int) -> int:
    """As many seeks by offset as by time; how many they were."""
    assert (log.log_start_offset, log.log_end_offset) == (theirs.java.logStartOffset(), theirs.java.logEndOffset())
    ends = log.log_start_offset, log.log_end_offset
    offsets = some_offsets(log, rng, count)
    for offset, place in zip(offsets, theirs.places(np.array(offsets)), strict=True):
        assert log.read(offset, 1).start == place, offset
        found = log.translate_offset(offset)
        if found is None:
            assert place.offset == log.log_end_offset, offset
        else:
            assert place == LogOffset(found[1].base_offset, found[0].base_offset, found[1].position)
    for outside in (ends[0] - 1, ends[1] + 1):
        with pytest.raises(OffsetOutOfRangeError, match=str(outside)):
            log.translate_offset(outside)
    timestamps = some_timestamps(log, rng, count)
    answers = theirs.offsets_by_timestamp(np.array(timestamps))
    for timestamp, answer in zip(timestamps, answers, strict=True):
        assert log.fetch_offset_by_timestamp(timestamp) == answer, timestamp
    _compare_seeker(log, seeker, offsets, timestamps)
    return len(offsets) + len(timestamps)


def _compare_seeker(log: Log, seeker: Seeker, offsets: list[int], timestamps: list[int]) -> None:
    """Many seeks at once give what single ones do."""
    for offset, answer in zip(offsets, seeker.offsets(np.array(offsets)).to_pylist(), strict=True):
        check_offset(log, offset, answer)
    for timestamp, answer in zip(timestamps, seeker.timestamps(np.array(timestamps)).to_pylist(), strict=True):
        check_timestamp(log, timestamp, answer)


def _compare_fetches(log: Log, theirs: KafkaLog, rng: random.Random, count: int) -> None:
    """Fetches of few and many bytes, of all and of what is committed."""
    last_stable_offset = theirs.java.lastStableOffset()
    for _ in range(count):
        start = rng.randint(log.log_start_offset, log.log_end_offset)
        max_bytes = rng.choice([0, 1, 100, 2_000, 50_000, 2**31 - 1])
        at_least_one, committed = rng.random() < 0.5, rng.random() < 0.5
        ours = log.read(
            start,
            max_bytes,
            min_one_message=at_least_one,
            max_offset=last_stable_offset if committed else None,
            with_aborted=committed,
        )
        fetched, aborted = theirs.read(start, max_bytes, min_one_message=at_least_one, committed=committed)
        assert replace(ours, aborted=None) == fetched, (start, max_bytes, at_least_one, committed)
        skipped = None if ours.aborted is None else [(each.producer_id, each.first_offset) for each in ours.aborted]
        assert skipped == aborted, (start, max_bytes, committed)
        upper_bound = rng.randint(start, log.log_end_offset + 1)
        assert log.collect_aborted(start, upper_bound) == theirs.collect_aborted(start, upper_bound)


def test_golden_logs(
    kafka: Kafka,
    scratch: Path,
    golden_segments: list[GoldenSegment],
    rng: random.Random,
    exhaustive: bool,
    say: Say,
) -> None:
    """Goal: each log whose indexes Kafka has written answers seeks and fetches as Kafka does.

    Method: Kafka opens a copy as after a clean stop, and is asked the same; with --exhaustive a thousand seeks a
    folder.
    """
    seeks = 0
    folders = sorted({segment.log.parent for segment in golden_segments})
    for number, path in enumerate(folders):
        folder, theirs = scratch / str(number) / path.name, scratch / f"{number}-theirs" / path.name
        for made in (folder, theirs):
            made.parent.mkdir()
        golden_folder([segment for segment in golden_segments if segment.log.parent == path], folder)
        with _opened(kafka, folder, theirs) as (log, kafka_log):
            seeks += _compare_seeks(log, Seeker.of_folder(folder), kafka_log, rng, 500 if exhaustive else 60)
            _compare_fetches(log, kafka_log, rng, 200 if exhaustive else 20)
        shutil.rmtree(folder.parent, ignore_errors=True)
        shutil.rmtree(theirs.parent, ignore_errors=True)
    say(f"{len(folders)} folders, {seeks} seeks as Kafka's")


def test_random_logs(kafka: Kafka, scratch: Path, rng: random.Random, exhaustive: bool, say: Say) -> None:
    """Holes between and inside segments, records without timestamps, and files that are older or newer than both."""
    seeks = 0
    for number in range(400 if exhaustive else 40):
        folder = scratch / f"test-{number}"
        write_random_log(folder, rng)
        theirs = scratch / "theirs" / folder.name
        theirs.parent.mkdir(exist_ok=True)
        with _opened(kafka, folder, theirs) as (log, kafka_log):
            seeks += _compare_seeks(log, Seeker.of_folder(folder), kafka_log, rng, 60)
            _compare_fetches(log, kafka_log, rng, 6)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(theirs, ignore_errors=True)
    say(f"{seeks} seeks as Kafka's")


def test_a_segment_without_timestamps_swallows_the_search(kafka: Kafka, scratch: Path) -> None:
    """Its file is newer than what is looked for, so Kafka looks there and nowhere else."""
    answers = []
    for mtime_ms in (99, 100):
        folder = scratch / f"swallow-{mtime_ms}"
        folder.mkdir()
        for base_offset, data in (
            (0, encoded.message(Record(0, -1, None, b"v"), 0)),
            (1, encoded.batch_v2([Record(1, 100, None, b"v")])),
        ):
            log = folder / names.segment_file(base_offset, names.LOG_SUFFIX)
            log.write_bytes(data)
            recovered = recover(WholeLog(np.frombuffer(data, np.uint8)), base_offset, RecoverOptions())
            log.with_suffix(names.OFFSET_INDEX_SUFFIX).write_bytes(recovered.offset_index)
            log.with_suffix(names.TIME_INDEX_SUFFIX).write_bytes(recovered.time_index)
            os.utime(log, ns=(mtime_ms * 1_000_000, mtime_ms * 1_000_000))
        theirs = scratch / "theirs" / folder.name
        theirs.parent.mkdir(exist_ok=True)
        with _opened(kafka, folder, theirs) as (ours, kafka_log):
            found = ours.fetch_offset_by_timestamp(100)
            assert [found] == kafka_log.offsets_by_timestamp(np.array([100]))
            answers.append(None if found is None else found.offset)
    assert answers == [1, None]


def test_offsets_by_time_as_kafka_tests_them(scratch: Path) -> None:
    """`LogSegmentTest.testFindOffsetByTimestamp`: offsets 40 to 49 with timestamps 400 to 490."""
    data = b"".join(encoded.batch_v2([Record(offset, offset * 10, None, b"v")]) for offset in range(40, 50))
    recovered = recover(WholeLog(np.frombuffer(data, np.uint8)), 40, RecoverOptions())
    segment = LogSegment(
        WholeLog(np.frombuffer(data, np.uint8)),
        40,
        OffsetIndex.from_bytes(recovered.offset_index, 40),
        TimeIndex.from_bytes(recovered.time_index, 40),
    )
    found = {timestamp: segment.find_offset_by_timestamp(timestamp) for timestamp in (420, 421, 430, 431, 401, 399)}
    assert {timestamp: answer and answer.offset for timestamp, answer in found.items()} == {
        420: 42,
        421: 43,
        430: 43,
        431: 44,
        401: 41,
        399: 40,
    }
    assert segment.find_offset_by_timestamp(491) is None
    assert segment.next_offset() == 50


def test_should_roll(kafka: Kafka, scratch: Path, rng: random.Random, exhaustive: bool, say: Say) -> None:
    """By size, by time with jitter, by full indexes and by offsets that are too far away."""
    java_params = kafka.gateway.jvm.org.apache.kafka.storage.internals.log.RollParams
    base_offset, now, answers = 10, 2_000_000_000_000, Counter[bool]()
    for number in range(200 if exhaustive else 30):
        folder = scratch / str(number)
        folder.mkdir()
        count, first_timestamp = rng.choice([0, 1, 3]), rng.choice([1_000, 1_000, -1])
        data = b"".join(
            encoded.batch_v2([Record(base_offset + each, first_timestamp + each, None, b"v" * rng.randrange(50))])
            for each in range(count)
        )
        (folder / names.segment_file(base_offset, names.LOG_SUFFIX)).write_bytes(data)
        index_bytes = rng.choice([16, 36, 1_000, 1_000, 1_000])
        settings = {"segment.index.bytes": str(index_bytes), "segment.jitter.ms": rng.choice(["0", "0", "50"])}
        with kafka.opened_segment(folder, base_offset, settings) as theirs:
            created = theirs.getClass().getDeclaredField("created")
            created.setAccessible(True)
            created.setLong(theirs, now - 1_000)
            ours = LogSegment(
                WholeLog(np.frombuffer(data, np.uint8)),
                base_offset,
                OffsetIndex.new(base_offset, index_bytes),
                TimeIndex.new(base_offset, index_bytes),
                created_ms=now - 1_000,
                roll_jitter_ms=theirs.rollJitterMs(),
            )
            for each in range(rng.choice([0, 0, 1, 2, 3])):
                if not ours.offset_index.is_full:
                    ours.offset_index.append(base_offset + each, each)
                    theirs.offsetIndex().append(base_offset + each, each)
                if not ours.time_index.is_full:
                    ours.time_index.maybe_append(1_000 + each, base_offset + each)
                    theirs.timeIndex().maybeAppend(1_000 + each, base_offset + each)
            for _ in range(10):
                params = RollParams(
                    max_segment_ms=rng.choice([100, 999, 1_000, 1_049, 1_050]),
                    max_segment_bytes=rng.choice([len(data), len(data) + 10, 1_000]),
                    max_timestamp=1_000 + rng.choice([0, 50, 51, 99, 100, 101, 1_000, 1_001, -2_000]),
                    max_offset=base_offset + rng.choice([3, 3, 3, 3, 2**31 - 1, 2**31, -11]),
                    size=rng.choice([0, 10, 11]),
                    now=now,
                )
                expected = theirs.shouldRoll(java_params(*astuple(params)))
                assert ours.should_roll(params) == expected, (params, count, first_timestamp, settings)
                answers[expected] += 1
    say(f"{answers[True]} rolled and {answers[False]} not, as Kafka's")
