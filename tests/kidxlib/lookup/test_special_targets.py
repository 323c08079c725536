"""Targets below 0 are answered as `Log` answers them, which tests/kafka holds to Kafka, with the places beside."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kidxlib.log.list_offsets import EARLIEST, LATEST, LATEST_TIERED, MAX_TIMESTAMP
from kidxlib.log.log import Log
from kidxlib.lookup.answers import Answers
from kidxlib.lookup.special_targets import answer_special
from kidxlib.records import batch_headers, reader
from tests.support.logs import golden
from tests.support.seeks import SPECIAL, check_timestamp, golden_directory


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> list[Log]:
    """All golden partitions, as a broker leaves them."""
    root = tmp_path_factory.mktemp("logs")
    found = []
    for parent, segments in itertools.groupby(golden.committed(), lambda segment: segment.log.parent):
        golden_directory(list(segments), root / parent.name)
        found.append(Log.open(root / parent.name))
    return found


def asked(log: Log, target: int) -> dict[str, Any]:
    """The answer to the second of three rows; the others are left alone."""
    answers = Answers(3)
    answer_special(log, target, np.array([1]), answers)
    first, answer, last = answers.to_arrow().to_pylist()
    assert not first["found"] and not last["found"] and first["note"] is last["note"] is None
    return dict(answer)


def timestamps(log: Log) -> Iterator[tuple[int, int]]:
    """Of each record, with its offset."""
    for segment in log.segments:
        for batch in batch_headers.batches(segment.log):
            yield from ((record.timestamp, record.offset) for record in reader.records(segment.log, batch))


@pytest.mark.parametrize("target", SPECIAL)
def test_golden_logs(logs: list[Log], target: int) -> None:
    found = 0
    for log in logs:
        answer = asked(log, target)
        check_timestamp(log, target, answer)
        assert answer["answered"] and not answer["file_error"], log.name
        found += answer["found"]
    assert (found > 20) == (target in range(-4, 0))


def test_the_largest_timestamp_is_that_of_the_first_record_that_has_it(logs: list[Log]) -> None:
    """In its batch, of all records of the log. Messages of magic 0 have none."""
    for log in logs:
        answer = asked(log, MAX_TIMESTAMP)
        largest, offset = max(timestamps(log), key=lambda each: (each[0], -each[1]), default=(-1, -1))
        if all(batch.magic == 0 for segment in log.segments for batch in batch_headers.batches(segment.log)):
            assert not answer["found"] and answer["note"] == "no record has a timestamp"
            continue
        assert (answer["timestamp"], answer["offset"]) == (largest, offset), log.name
        segment = next(each for each in log.segments if each.base_offset == answer["segment_base_offset"])
        batch = next(batch_headers.batches(segment.log, answer["position"]))
        assert offset in [record.offset for record in reader.records(segment.log, batch)]


def test_a_log_that_is_not_tiered_has_no_tiered_offset(logs: list[Log]) -> None:
    assert asked(logs[0], LATEST_TIERED)["note"] == "the log is not tiered"


@pytest.mark.parametrize(("target", "number"), [(EARLIEST, 0), (LATEST, -1), (MAX_TIMESTAMP, -1)])
def test_a_log_that_is_gone_makes_its_end_unsure(target: int, number: int, tmp_path: Path) -> None:
    segments = [each for each in golden.committed() if each.log.parent.name == "txn-mixed-0"]
    golden_directory(segments, tmp_path / "txn-mixed-0")
    log = Log.open(tmp_path / "txn-mixed-0")
    gone = tmp_path / "txn-mixed-0" / segments[number].log.name
    gone.unlink()
    answer = asked(log, target)
    assert not answer["answered"] and answer["file_error"] and str(gone) in answer["note"]
