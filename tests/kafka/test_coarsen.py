"""Coarsened indexes beside what Kafka's own recovery writes with the larger interval."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from kidxlib.format.segment_files import LOG_SUFFIX, segment_file
from kidxlib.recovery.coarsen import Indexes, coarsen_indexes, indexes_from_headers
from kidxlib.recovery.options import RecoverOptions
from kidxlib.recovery.outcome import Status
from kidxlib.recovery.recover import recover
from kidxlib.storage.log_bytes import WholeLog
from tests.conftest import Say
from tests.support.kafka.classes import Kafka
from tests.support.logs.batches import Batch, encode
from tests.support.logs.golden import GoldenSegment

LOGS, LOGS_EXHAUSTIVE = 25, 1500

_INTERVALS: Final = (64 * 1024, 1024 * 1024, 4096)


def _as_kafka(
    kafka: Kafka, directory: Path, data: bytes, base_offset: int, intervals: tuple[int, ...], tried: Counter[str]
) -> None:
    """From one interval to the next, as Kafka's recovery of the same log; the first is what a build had."""
    first, *later = intervals
    options = RecoverOptions(interval_bytes=first)
    built = recover(WholeLog(np.frombuffer(data, np.uint8)), base_offset, options)
    if built.end.status is Status.QUARANTINED:
        tried["quarantined"] += 1
        return
    valid = WholeLog(np.frombuffer(data, np.uint8)[: built.facts.valid_bytes])
    at_hand = Indexes(built.offset_index, built.time_index)
    for interval in later:
        options = replace(options, interval_bytes=interval)
        log = directory / segment_file(base_offset, LOG_SUFFIX)
        log.write_bytes(data)  # Kafka truncates it
        (theirs,) = kafka.recover(directory, interval).segments
        by_headers = indexes_from_headers(valid, base_offset, options)
        if theirs.error is not None:
            tried["Kafka fails then"] += 1
            assert by_headers.end.status is Status.QUARANTINED
            return
        expected = Indexes(theirs.offset_index or b"", theirs.time_index or b"")
        assert Indexes(by_headers.offset_index, by_headers.time_index) == expected
        tried["by headers"] += 1
        if interval > first and built.facts.offsets_increase:
            assert coarsen_indexes(valid, base_offset, options, at_hand) == expected
            tried["through the denser"] += 1
        first, at_hand = interval, expected


@pytest.mark.promised_alone("generated logs are read with both")
def test_golden_segments(kafka: Kafka, golden_segment: GoldenSegment, scratch: Path) -> None:
    """4 KiB → 64 KiB → 1 MiB → 4 KiB."""
    data = golden_segment.log.read_bytes()
    _as_kafka(kafka, scratch, data, golden_segment.base_offset, (_INTERVALS[-1], *_INTERVALS), Counter())


def test_generated_logs(kafka: Kafka, scratch: Path, rng: random.Random, say: Say, exhaustive: bool) -> None:
    """Batches of all formats and of any size beside the intervals; timestamps that go back, now and then offsets."""
    tried: Counter[str] = Counter()
    for number in range(LOGS_EXHAUSTIVE if exhaustive else LOGS):
        directory = scratch / str(number)
        directory.mkdir()
        disorder = rng.choice([0, 0, 0, 0.1])
        batches = [
            Batch(
                magic=rng.choice([2, 2, 2, 1, 0]),
                offset_step=rng.choice([-2, 0]) if rng.random() < disorder and place else rng.randint(1, 30),
                timestamp=rng.choice([-1, 10 * place + rng.randrange(100)]) if rng.random() < 0.3 else 10 * place,
                body=bytes(rng.choice([40, 100, 300, 3000])),
            )
            for place in range(rng.randint(1, 120))
        ]
        base_offset = rng.choice([0, 2**40])
        dense = rng.randint(0, 1500)
        sparse = dense + rng.randint(1, 9000)
        data = b"".join(encode(base_offset, batches))
        _as_kafka(kafka, directory, data, base_offset, (dense, sparse, sparse * 3, dense), tried)
        shutil.rmtree(directory)
    say(f"generated logs coarsened as Kafka: {dict(tried.most_common())}")
