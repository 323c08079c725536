"""Segments answer as Kafka's `LogSegment` does over the same files."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kidxlib.format import layouts, segment_files
from kidxlib.index.offset import OffsetIndex
from kidxlib.index.time import TimeIndex
from kidxlib.log.segment import BatchPosition, LogSegment, TimestampAndOffset
from kidxlib.records import batch_headers, reader
from kidxlib.records.reader import Record
from kidxlib.storage.log_bytes import WholeLog
from tests.conftest import Say
from tests.support.kafka.classes import Kafka
from tests.support.logs import encoded
from tests.support.logs.golden import GoldenSegment

_NUMBER = re.compile(r"-?\d+")


def _batch_position(answer: Any) -> BatchPosition | None:
    """From a `LogOffsetPosition`, or null."""
    return None if answer is None else BatchPosition(*map(int, _NUMBER.findall(answer.toString())))


def _record_found(answer: Any) -> TimestampAndOffset | None:
    """From an `Optional` of a `TimestampAndOffset`, whose epoch is an `Optional`."""
    numbers = [int(number) for number in _NUMBER.findall(answer.toString())]
    return TimestampAndOffset(numbers[0], numbers[1], numbers[2] if len(numbers) > 2 else None) if numbers else None


def _targets(rng: random.Random, known: list[int], count: int) -> list[int]:
    """Around what is there, in between, and beyond."""
    around = [value + step for value in rng.sample(known, min(count, len(known))) for step in (-1, 0, 1)]
    least, most = min(known, default=0), max(known, default=0)
    return [*around, *(rng.randint(least, most) for _ in range(count)), least - 1, most + 1, 0]


def _segment(
    directory: Path, base_offset: int, data: bytes, offset_index: bytes = b"", time_index: bytes = b""
) -> LogSegment:
    """Ours; the files for Kafka's are put into `directory`."""
    for suffix, content in (
        (segment_files.LOG_SUFFIX, data),
        (segment_files.OFFSET_INDEX_SUFFIX, offset_index),
        (segment_files.TIME_INDEX_SUFFIX, time_index),
    ):
        (directory / segment_files.segment_file(base_offset, suffix)).write_bytes(content)
    return LogSegment(
        WholeLog(np.frombuffer(data, np.uint8)),
        base_offset,
        OffsetIndex.from_bytes(offset_index, base_offset),
        TimeIndex.from_bytes(time_index, base_offset),
    )


@pytest.mark.promised_alone("batches in any order are appended with both")
def test_golden_segments(kafka: Kafka, golden_segment: GoldenSegment, scratch: Path, exhaustive: bool) -> None:
    """Offsets and timestamps at batches and records and next to them, between them, and on both sides of all."""
    rng = random.Random(random.getrandbits(32))  # of pytest-randomly's seed
    data = golden_segment.log.read_bytes()
    data = data[: len(data) - golden_segment.truncated_bytes]
    log = WholeLog(np.frombuffer(data, np.uint8))
    base = golden_segment.base_offset
    ours = _segment(scratch, base, data, golden_segment.offset_index, golden_segment.time_index)
    found = list(batch_headers.batches(log))
    inside = [record for batch in rng.sample(found, min(5, len(found))) for record in reader.records(log, batch)]
    offsets = [offset for batch in found for offset in (reader.base_offset(log, batch), batch.last_offset)]
    count = 100 if exhaustive else 4
    if found:
        assert ours.translate_offset(offsets[0]) == BatchPosition(offsets[0], 0, found[0].size)
    with kafka.opened_segment(scratch, base) as theirs:
        for offset in [*_targets(rng, offsets, count), *_targets(rng, [record.offset for record in inside], count)]:
            assert ours.translate_offset(offset) == _batch_position(theirs.translateOffset(offset)), offset
        for timestamp in _targets(rng, [record.timestamp for record in inside], count):
            assert ours.find_offset_by_timestamp(timestamp) == _record_found(
                kafka.find_offset_by_timestamp(theirs, timestamp, base)
            ), timestamp
            since = rng.choice(offsets or [0]) + rng.choice([-1, 0, 1])
            assert ours.find_offset_by_timestamp(timestamp, since) == _record_found(
                kafka.find_offset_by_timestamp(theirs, timestamp, since)
            ), (timestamp, since)


def _random_batch(rng: random.Random) -> bytes:
    """Of any format, at an offset up to 40, with a gap or two."""
    offsets = sorted(rng.sample(range(rng.randrange(36), 40), rng.randint(1, 4)))
    inside = [Record(offset, rng.randrange(100, 110), b"k", b"v") for offset in offsets]
    codec, compress = encoded.WAYS[rng.choice(["none", "gzip", "lz4", "snappy"])]
    magic = rng.choice([0, 1, 2, 2])
    if magic == 2:
        epoch = rng.choice([-1, 0, 5])
        return encoded.batch_v2(inside, codec, compress, leader_epoch=epoch)
    if codec == 0:
        return encoded.message(inside[0], magic)
    messages = [encoded.message(replace(record, offset=record.offset - offsets[0]), magic) for record in inside]
    if magic == 0:
        messages = [encoded.message(record, magic) for record in inside]
    largest = max(record.timestamp for record in inside)
    return encoded.wrapper(messages, offsets[-1], magic=magic, codec=codec, compress=compress, timestamp=largest)


def test_batches_in_any_order(kafka: Kafka, scratch: Path, rng: random.Random, exhaustive: bool, say: Say) -> None:
    """What a search makes of offsets that do not increase is Kafka's too, and of a position that it is given."""
    answers = nothing = 0
    for _ in range(300 if exhaustive else 25):
        encoded_batches = [_random_batch(rng) for _ in range(rng.randrange(6))]
        if rng.random() < 0.3:
            encoded_batches.sort(key=lambda data: data[:8])
        ours = _segment(scratch, 0, b"".join(encoded_batches))
        with kafka.opened_segment(scratch, 0) as theirs:
            for offset in range(-1, 42, rng.choice([1, 2, 3])):
                found = ours.translate_offset(offset)
                assert found == _batch_position(theirs.translateOffset(offset)), offset
                timestamp = rng.randrange(99, 111)
                record = ours.find_offset_by_timestamp(timestamp, offset)
                kafkas = kafka.find_offset_by_timestamp(theirs, timestamp, offset)
                assert record == _record_found(kafkas), (timestamp, offset)
                answers += (found is not None) + (record is not None)
                nothing += (found is None) + (record is None)
    say(f"{answers} answers and {nothing} times nothing, as Kafka's")


def test_starting_position() -> None:
    """What the caller knows is a lower bound too, and an index that knows more wins."""
    batches = [encoded.batch_v2([Record(offset, 0, None, None)]) for offset in range(4)]
    size = len(batches[0])
    entry = np.array([(2, 2 * size)], layouts.OFFSET_INDEX_ENTRY).tobytes()
    for index, offset, start, expected in [
        (b"", 0, 0, 0),
        (b"", 0, size, 1),
        (b"", 3, size, 3),
        (entry, 3, size, 3),
        (entry, 2, 3 * size, 3),
        (entry, 2, 0, 2),
        (entry, 1, 0, 1),
        (b"", 3, 4 * size, None),
    ]:
        segment = LogSegment(
            WholeLog(np.frombuffer(b"".join(batches), np.uint8)),
            0,
            OffsetIndex.from_bytes(index, 0),
            TimeIndex.from_bytes(b"", 0),
        )
        found = segment.translate_offset(offset, start)
        assert found == (None if expected is None else BatchPosition(expected, expected * size, size))
