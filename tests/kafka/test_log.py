"""Logs answer as Kafka's `UnifiedLog` does over the same files."""

from __future__ import annotations

import os
import random
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kidxlib.errors import OffsetOutOfRangeError
from kidxlib.format import segment_files
from kidxlib.format.checkpoint_files import EpochEntry, LeaderEpochs
from kidxlib.index.offset import OffsetIndex
from kidxlib.index.time import TimeIndex
from kidxlib.log.log import LeaderEpochCache, Log
from kidxlib.log.segment import LogSegment
from kidxlib.lookup.seeker import Seeker
from kidxlib.records.reader import Record
from kidxlib.recovery.options import RecoverOptions
from kidxlib.recovery.recover import recover
from kidxlib.storage.log_bytes import WholeLog
from tests.conftest import Say
from tests.support.broker_answers import LogOffset, RollParams, collect_aborted, read_log, should_roll
from tests.support.kafka.classes import Kafka
from tests.support.kafka.lookups import KafkaLog
from tests.support.logs import encoded
from tests.support.logs.golden import GoldenSegment
from tests.support.logs.random_logs import write_random_log
from tests.support.seeks import check_offset, check_timestamp, golden_directory, some_offsets, some_timestamps


@contextmanager
def _opened(kafka: Kafka, directory: Path, theirs: Path) -> Iterator[tuple[Log, KafkaLog]]:
    """The log in a directory, and Kafka's over a copy, which loading it changes."""
    shutil.copytree(directory, theirs)  # with modification times
    with kafka.opened_log(theirs) as java:
        java.updateHighWatermark(java.logEndOffset())
        yield Log.open(directory), KafkaLog(kafka, java)


def _compare_seeks(log: Log, seeker: Seeker, theirs: KafkaLog, rng: random.Random, count: int) -> int:
    """As many seeks by offset as by time; how many they were."""
    assert (log.log_start_offset, log.log_end_offset) == (theirs.java.logStartOffset(), theirs.java.logEndOffset())
    ends = log.log_start_offset, log.log_end_offset
    offsets = some_offsets(log, rng, count)
    for offset, place in zip(offsets, theirs.places(np.array(offsets)), strict=True):
        assert read_log(log, offset, 1).start == place, offset
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
        ours = read_log(
            log,
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
        assert collect_aborted(log, start, upper_bound) == theirs.collect_aborted(start, upper_bound)


@pytest.mark.promised_alone("random logs are looked up with both")
def test_golden_logs(
    kafka: Kafka, scratch: Path, golden_segments: list[GoldenSegment], rng: random.Random, exhaustive: bool, say: Say
) -> None:
    """Kafka opens a copy as after a clean stop, and is asked the same."""
    seeks = 0
    directories = sorted({segment.log.parent for segment in golden_segments})
    for number, path in enumerate(directories):
        directory, theirs = scratch / str(number) / path.name, scratch / f"{number}-theirs" / path.name
        for made in (directory, theirs):
            made.parent.mkdir()
        golden_directory([segment for segment in golden_segments if segment.log.parent == path], directory)
        with _opened(kafka, directory, theirs) as (log, kafka_log):
            seeks += _compare_seeks(log, Seeker.of_directory(directory), kafka_log, rng, 500 if exhaustive else 60)
            _compare_fetches(log, kafka_log, rng, 200 if exhaustive else 20)
        shutil.rmtree(directory.parent, ignore_errors=True)
        shutil.rmtree(theirs.parent, ignore_errors=True)
    say(f"{len(directories)} directories, {seeks} seeks as Kafka's")


def _compare_segments(kafka: Kafka, log: Log, theirs: KafkaLog, rng: random.Random, count: int) -> None:
    """The segments of ranges of offsets, at their base offsets and beside these (`LogSegments`)."""
    jvm: Any = kafka.gateway.jvm
    segments = jvm.org.apache.kafka.storage.internals.log.LogSegments(theirs.java.topicPartition())
    for segment in kafka.segments_of(theirs.java):
        segments.add(segment)
    near = [segment.base_offset + step for segment in log.segments for step in (-1, 0, 1)]

    def bases(found: Any) -> list[int]:
        return [each.baseOffset() for each in jvm.java.util.ArrayList(found)]

    for _ in range(count):
        start, end = sorted(rng.choices([-5, *near, near[-1] + 10_000], k=2))
        asked = f"{[segment.base_offset for segment in log.segments]}: {start} to {end}"
        assert [each.base_offset for each in log.segments_between(start, end)] == bases(segments.values(start, end)), (
            asked
        )
        not_active = [each.base_offset for each in log.non_active_segments_from(start)]
        assert not_active == bases(segments.nonActiveLogSegmentsFrom(start)), asked
        assert [each.base_offset for each in log.higher_segments(start)] == bases(segments.higherSegments(start)), asked
        floor, kafkas = log.floor_segment(start), segments.floorSegment(start)
        assert (floor and floor.base_offset) == (kafkas.get().baseOffset() if kafkas.isPresent() else None), asked


def test_random_logs(kafka: Kafka, scratch: Path, rng: random.Random, exhaustive: bool, say: Say) -> None:
    """Offset gaps between and inside segments, records without timestamps, and files older or newer than both."""
    seeks = 0
    for number in range(400 if exhaustive else 40):
        directory = scratch / f"test-{number}"
        write_random_log(directory, rng)
        theirs = scratch / "theirs" / directory.name
        theirs.parent.mkdir(exist_ok=True)
        with _opened(kafka, directory, theirs) as (log, kafka_log):
            seeks += _compare_seeks(log, Seeker.of_directory(directory), kafka_log, rng, 60)
            _compare_fetches(log, kafka_log, rng, 6)
            _compare_segments(kafka, log, kafka_log, rng, 5)
        shutil.rmtree(directory, ignore_errors=True)
        shutil.rmtree(theirs, ignore_errors=True)
    say(f"{seeks} seeks as Kafka's")


def test_a_segment_without_timestamps_swallows_the_search(kafka: Kafka, scratch: Path) -> None:
    """Its file is newer than what is looked for, so Kafka looks there and nowhere else."""
    answers = []
    for mtime_ms in (99, 100):
        directory = scratch / f"swallow-{mtime_ms}"
        directory.mkdir()
        for base_offset, data in (
            (0, encoded.message(Record(0, -1, None, b"v"), 0)),
            (1, encoded.batch_v2([Record(1, 100, None, b"v")])),
        ):
            log = directory / segment_files.segment_file(base_offset, segment_files.LOG_SUFFIX)
            log.write_bytes(data)
            recovered = recover(WholeLog(np.frombuffer(data, np.uint8)), base_offset, RecoverOptions())
            log.with_suffix(segment_files.OFFSET_INDEX_SUFFIX).write_bytes(recovered.offset_index)
            log.with_suffix(segment_files.TIME_INDEX_SUFFIX).write_bytes(recovered.time_index)
            os.utime(log, ns=(mtime_ms * 1_000_000, mtime_ms * 1_000_000))
        theirs = scratch / "theirs" / directory.name
        theirs.parent.mkdir(exist_ok=True)
        with _opened(kafka, directory, theirs) as (ours, kafka_log):
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
    java_params = kafka.gateway.jvm.org.apache.kafka.storage.internals.log.RollParams
    base_offset, now, answers = 10, 2_000_000_000_000, Counter[bool]()
    for number in range(200 if exhaustive else 30):
        directory = scratch / str(number)
        directory.mkdir()
        count, first_timestamp = rng.choice([0, 1, 3]), rng.choice([1_000, 1_000, -1])
        data = b"".join(
            encoded.batch_v2([Record(base_offset + each, first_timestamp + each, None, b"v" * rng.randrange(50))])
            for each in range(count)
        )
        (directory / segment_files.segment_file(base_offset, segment_files.LOG_SUFFIX)).write_bytes(data)
        index_bytes = rng.choice([16, 36, 1_000, 1_000, 1_000])
        settings = {"segment.index.bytes": str(index_bytes), "segment.jitter.ms": rng.choice(["0", "0", "50"])}
        with kafka.opened_segment(directory, base_offset, settings) as theirs:
            created = theirs.getClass().getDeclaredField("created")
            created.setAccessible(True)
            created.setLong(theirs, now - 1_000)
            ours = LogSegment(
                WholeLog(np.frombuffer(data, np.uint8)),
                base_offset,
                OffsetIndex.new(base_offset, index_bytes),
                TimeIndex.new(base_offset, index_bytes),
            )
            age = {"created_ms": now - 1_000, "roll_jitter_ms": theirs.rollJitterMs()}
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
                assert should_roll(ours, params, **age) == expected, (params, count, first_timestamp, settings)
                answers[expected] += 1
    say(f"{answers[True]} rolled and {answers[False]} not, as Kafka's")


def _entries(java: Any) -> tuple[EpochEntry, ...]:
    """Of a list of Kafka's, or of an `Optional` of one."""
    found = re.findall(r"epoch=(-?\d+), startOffset=(-?\d+)", java.toString())
    return tuple(EpochEntry(int(epoch), int(start_offset)) for epoch, start_offset in found)


def _number(java: Any) -> int | None:
    """Of an `OptionalInt`."""
    return java.getAsInt() if java.isPresent() else None


def _listed(entry: EpochEntry | None) -> tuple[EpochEntry, ...]:
    return () if entry is None else (entry,)


def test_leader_epochs(kafka: Kafka, scratch: Path, rng: random.Random, exhaustive: bool, say: Say) -> None:
    """Entries as they are assigned, whatever their order, and each question about epochs and offsets around them:
    `LeaderEpochFileCache`.
    """
    assigned = 0
    for number in range(500 if exhaustive else 25):
        directory = scratch / str(number)
        directory.mkdir()
        theirs, given = kafka.leader_epochs(directory), list[EpochEntry]()
        for _ in range(rng.choice([0, 1, 3, 6])):
            is_later = bool(given) and rng.random() < 0.6
            last = given[-1] if is_later else EpochEntry(rng.randrange(4), rng.randrange(12))
            given.append(EpochEntry(last.epoch + rng.choice([0, 1, 2]), last.start_offset + rng.randrange(5)))
            theirs.assign(given[-1].epoch, given[-1].start_offset)
        ours = LeaderEpochCache(tuple(given))
        assert ours.entries == LeaderEpochs(given).entries == _entries(theirs.epochEntries()), given
        assert _listed(ours.earliest_entry) == _entries(theirs.earliestEntry()), given
        assert _listed(ours.latest_entry) == _entries(theirs.latestEntry()), given
        assert ours.previous_epoch() == _number(theirs.previousEpoch()), given
        for epoch in range(-2, max((each.epoch for each in given), default=0) + 3):
            assert _listed(ours.epoch_entry(epoch)) == _entries(theirs.epochEntry(epoch)), given
            assert _listed(ours.previous_entry(epoch)) == _entries(theirs.previousEntry(epoch)), given
            assert ours.previous_epoch(epoch) == _number(theirs.previousEpoch(epoch)), (given, epoch)
            assert ours.next_epoch(epoch) == _number(theirs.nextEpoch(epoch)), (given, epoch)
            end, found = theirs.endOffsetFor(epoch, 30), ours.end_offset_for(epoch, 30)
            assert ((-1, -1) if found is None else astuple(found)) == (end.getKey(), end.getValue()), (given, epoch)
        offsets = range(-1, max((each.start_offset for each in given), default=0) + 3)
        for offset in offsets:
            assert ours.epoch_for_offset(offset) == _number(theirs.epochForOffset(offset)), (given, offset)
            end_offset = rng.choice(offsets)
            left = _entries(theirs.epochEntriesInRange(offset, end_offset))
            assert ours.entries_in_range(offset, end_offset) == left, (given, offset, end_offset)
        assigned += len(given)
    say(f"{assigned} epochs assigned, asked for as Kafka's")
