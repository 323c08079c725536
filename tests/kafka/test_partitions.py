"""Generated partitions, recovered by this project and by Kafka's own classes: the same bytes, or why not."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Final

import hypothesis
import numpy as np
import pytest
from hypothesis import event, given, note
from hypothesis import strategies as st

from kidxlib.format.segment_files import LOG_SUFFIX, segment_file
from kidxlib.recovery import outcome, partition_fold
from kidxlib.recovery import recover as recover
from kidxlib.storage.log_bytes import WholeLog
from tests.kafka.conftest import Tally
from tests.kafka.partitions import FAULTS, Partition, partitions_with, wild_partitions
from tests.kafka.same_partition import REASONS_OF_THE_FOLD, OurPartition, assert_as_kafka, fold_partition
from tests.support.kafka.classes import Kafka, KafkaPartition
from tests.support.logs.golden import DATA, GoldenSegment
from tests.support.logs.snapshots import producers_in

#: Partitions tried per fault, and wild ones; a partition has two to three segments.
PARTITIONS: Final = 3
PARTITIONS_EXHAUSTIVE: Final = 70
WILD: Final = 10  # times as many

_HEALTHY: Final = [hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.data_too_large]


@pytest.fixture
def examples(exhaustive: bool) -> int:
    return PARTITIONS_EXHAUSTIVE if exhaustive else PARTITIONS


@pytest.fixture
def seed(pytestconfig: pytest.Config, request: pytest.FixtureRequest) -> str:
    """Other examples for each fault: the same each time, or by --hypothesis-seed."""
    return f"{pytestconfig.getoption('hypothesis_seed')} {request.node.name}"


@pytest.mark.parametrize("fault", FAULTS)
def test_one_fault(kafka: Kafka, scratch: Path, fault: str, examples: int, seed: str, tally: Tally) -> None:
    """Sound partitions with several producers' transactions, and one fault. What Kafka leaves in files is compared byte
    by byte, producers as sets, failures by their reason. The fault must have been met.
    """
    ends = _check(kafka, scratch, partitions_with(fault), examples, seed, tally)
    assert FAULTS[fault].meets in ends, ends


def test_several_faults(kafka: Kafka, scratch: Path, examples: int, seed: str, tally: Tally) -> None:
    _check(kafka, scratch, wild_partitions(), WILD * examples, seed, tally)


def test_every_end_has_a_fault() -> None:
    """A new way to end needs a fault that leads there. Only a file of 2 GiB has none."""
    reasons = {reason or "ok" for _, reason, _ in outcome._ENDS.values()}
    assert reasons | REASONS_OF_THE_FOLD == {fault.meets for fault in FAULTS.values()} | {"segment-too-large"}
    assert len(REASONS_OF_THE_FOLD) == len(partition_fold._FAILURES) + 1  # and a leader epoch


def test_golden_partitions(kafka: Kafka, scratch: Path, golden_segments: list[GoldenSegment]) -> None:
    """What Kafka is asked here is what it was asked for the golden files, and we make the same of them. Recover each
    golden partition of the repository again, and compare with the files and with us.
    """
    for directory in sorted({segment.log.parent for segment in golden_segments}):
        if not (DATA / "expected" / directory.name).is_dir():
            continue
        segments = [segment for segment in golden_segments if segment.log.parent == directory]
        partition = Partition(
            logs=tuple((segment.base_offset, segment.log.read_bytes()) for segment in segments),
            options=segments[0].options,
        )
        kafkas = _recover_with_kafka(kafka, scratch, partition)
        _assert_as_expected(kafkas, DATA / "expected" / directory.name)
        assert_as_kafka(_recover(partition), kafkas)


def _assert_as_expected(kafkas: KafkaPartition, expected: Path) -> None:
    def file(base_offset: int, suffix: str) -> bytes | None:
        path = expected / segment_file(base_offset, suffix)
        return path.read_bytes() if path.exists() else None

    for segment in kafkas.segments:
        assert segment.offset_index == file(segment.base_offset, ".index")
        assert segment.time_index == file(segment.base_offset, ".timeindex")
        assert segment.transaction_index == file(segment.base_offset, ".txnindex")
        snapshot = file(segment.base_offset, ".snapshot")
        assert segment.producers == (producers_in(snapshot) if snapshot else frozenset())
    assert kafkas.leader_epoch_checkpoint == (expected / "leader-epoch-checkpoint").read_text()


def _check(
    kafka: Kafka, scratch: Path, partitions: st.SearchStrategy[Partition], examples: int, seed: str, tally: Tally
) -> Counter[str]:
    """Compare that many partitions: how their segments ended, by our reasons."""
    ends: Counter[str] = Counter()

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=examples, database=None, report_multiple_bugs=False, suppress_health_check=_HEALTHY
    )
    @given(partitions)
    def check(partition: Partition) -> None:
        note(partition.description())
        kafkas = _recover_with_kafka(kafka, scratch, partition)
        ours = _recover(partition)
        tally.in_full += assert_as_kafka(ours, kafkas)
        for segment in ours.segments:
            event(f"ends: {segment.end.reason}")
            ends[segment.end.reason or "ok"] += 1

    check()
    tally.ends += ends
    return ends


def _recover(partition: Partition) -> OurPartition:
    return fold_partition(
        (base_offset, len(log), recover.recover(WholeLog(np.frombuffer(log, np.uint8)), base_offset, partition.options))
        for base_offset, log in partition.logs
    )


def _recover_with_kafka(kafka: Kafka, scratch: Path, partition: Partition) -> KafkaPartition:
    directory = scratch / "test-0"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    for base_offset, log in partition.logs:
        (directory / segment_file(base_offset, LOG_SUFFIX)).write_bytes(log)
    return kafka.recover(directory, partition.options.interval_bytes, partition.options.max_index_bytes)
