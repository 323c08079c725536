"""Random partitions of a killed broker: headers alone lead to what all bytes lead to, and to what Kafka makes of it."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from kidxlib.errors import UntrustedError
from kidxlib.format.checkpoint_files import (
    HIGH_WATERMARK_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    offset_checkpoint,
)
from kidxlib.format.layouts import ABORTED_TRANSACTION
from kidxlib.format.segment_files import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
)
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.operations.recover.page_cache import last_message, mount_of, note_down
from kidxlib.storage.log_dir import META_PROPERTIES, PARTITION_METADATA, read_offset_checkpoint
from tests.conftest import Say
from tests.faults.processes import kidx
from tests.kafka.killed_disks import KilledPartition, kill, write_partition
from tests.kafka.loaded import files_of, load
from tests.support.cluster_metadata import write_checkpoints
from tests.support.kafka.classes import Kafka
from tests.support.logs.snapshots import Producer

#: Files that do not depend on what was before the log start offset.
_WITHOUT_PRODUCERS: Final = (LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, LEADER_EPOCH_CHECKPOINT)

#: What is said of both, in the plan of a partition.
_SAME: Final = ("log_end_offset", "start_bytes", "left_to_the_broker", "cut", "dropped")


@pytest.fixture(autouse=True)
def _needs_a_kernel_that_tells(tmp_path: Path) -> None:
    try:
        mount_of(tmp_path)
        last_message()
    except UntrustedError as error:
        pytest.skip(f"nothing is trusted here: {error}")


class _KilledBroker:
    """The log dir of a killed broker, and copies of it.

    Attributes:
        trusted, read: copies, one of which is noted to be whole.
        alone: a copy that kidx does not see.
        points, starts: recovery points and log start offsets.
    """

    def __init__(self, directory: Path, rng: random.Random, count: int) -> None:
        self.alone = directory / "alone"
        self.alone.mkdir()
        (self.alone / META_PROPERTIES).write_text("version=1\nnode.id=1\ncluster.id=c\n")
        write_checkpoints(self.alone)
        self.partitions = [TopicPartition("test", number) for number in range(count)]
        written = {each: write_partition(self.alone / each.directory, rng) for each in self.partitions}
        built = kidx("build", self.alone, "--in-place", "--snapshots", "--epochs")
        assert built.code == 0, built
        self.points = {each: _flushed(written[each], rng) for each in self.partitions}
        for each in self.partitions:
            kill(written[each], self.points[each], rng)
            (self.alone / each.directory / PARTITION_METADATA).write_text(
                "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n"
            )
        self.starts = {each: rng.choice([0, 0, rng.randint(0, self.points[each])]) for each in self.partitions}
        self._note_checkpoints({each: rng.randint(0, written[each].end) for each in self.partitions})
        self.trusted, self.read = directory / "trusted", directory / "read"
        for copy in (self.trusted, self.read):
            shutil.copytree(self.alone, copy)
        note_down([self.trusted])

    def _note_checkpoints(self, high_watermarks: dict[TopicPartition, int]) -> None:
        for name, offsets in (
            (RECOVERY_POINT_CHECKPOINT, self.points),
            (LOG_START_OFFSET_CHECKPOINT, self.starts),
            (HIGH_WATERMARK_CHECKPOINT, high_watermarks),
        ):
            (self.alone / name).write_bytes(offset_checkpoint(offsets))

    def recover(self, level: str, *arguments: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """What is said of both copies."""
        said = []
        for log_dir, trust in ((self.trusted, ["--trust-page-cache"]), (self.read, [])):
            keep = log_dir.with_name(f"{log_dir.name}-kept")
            cut = ("--truncate", "--keep", keep, "--accept-loss")
            ended = kidx("recover", log_dir, "--level", level, *cut, "--json", *arguments, *trust)
            assert ended.code in (0, 2, 3) and ended.out, ended
            said.append(ended.json)
        trusted, read = said
        assert trusted["untrusted"] == {}
        return trusted, read

    def take_away(self, partition: TopicPartition) -> None:
        for log_dir in (self.trusted, self.read):
            shutil.rmtree(log_dir / partition.directory)
        self.partitions.remove(partition)


def _flushed(partition: KilledPartition, rng: random.Random) -> int:
    """A recovery point: of a broker that was killed before it had flushed anything, has rolled, or has stopped."""
    return rng.choice([0, 0, rng.choice(list(partition.base_offsets)), rng.randint(0, partition.end)])


@pytest.mark.promised_alone("starts are simulated with both")
@pytest.mark.parametrize("level", ["checkpoint", "marker"])
def test_headers_tell_what_all_bytes_tell(
    level: str, kafka: Kafka, scratch: Path, rng: random.Random, exhaustive: bool, say: Say
) -> None:
    """Goal: with the page cache trusted a recovery refuses, cuts and drops the same as one that reads everything, and
    leaves the same files, byte by byte; but at the level of checkpoints, at which the other run leaves last segments to
    the broker. Kafka comes to the same logs, indexes and producers with either as by itself.

    Method: random logs of idempotent and transactional producers, with the side files that a broker has closed. Then
    what a kill leaves: an append that is whole or not, indexes that are open, or were being rebuilt, snapshots that are
    not yet there.
    """
    broker = _KilledBroker(scratch, rng, 500 if exhaustive else 20)
    trusted, read = broker.recover(level)
    assert _without(trusted["refused"], broker.trusted) == _without(read["refused"], broker.read)
    ends = Counter[str]()
    for each in list(broker.partitions):
        if any(f"{each.directory}:" in refusal or f"{each.directory}/" in refusal for refusal in trusted["refused"]):
            ends["refused"] += 1
            broker.take_away(each)
    assert ends["refused"] < len(broker.partitions) / 2
    trusted, read = broker.recover(level, "--apply")
    assert [_same(each) for each in trusted["partitions"]] == [_same(each) for each in read["partitions"]]
    assert trusted["kidx_bytes"] < read["kidx_bytes"] / 2
    for each in broker.partitions if level == "marker" else ():
        kept = ("",) if broker.starts[each] == 0 else _WITHOUT_PRODUCERS
        assert files_of(broker.trusted / each.directory, kept) == files_of(broker.read / each.directory, kept), each
    points = read_offset_checkpoint(broker.trusted / RECOVERY_POINT_CHECKPOINT) or {}
    cut = {Path(each["directory"]).name for each in trusted["partitions"] if each["cut"]}
    for each in broker.partitions:
        ends["cut" if each.directory in cut else "whole"] += 1
        start, clean = broker.starts[each], level == "marker"
        alone = load(kafka, broker.alone / each.directory, start, broker.points[each], clean=False)
        assert alone is not None, each
        for log_dir in (broker.trusted, broker.read):
            found = load(kafka, log_dir / each.directory, start, points.get(each, 0), clean=clean)
            assert found is not None, each
            assert (found.segments, found.ends, found.logs) == (alone.segments, alone.ends, alone.logs), each
            assert _told(start, found.producers) == _told(start, alone.producers), each
            _compare_indexes(start, found.indexes, alone.indexes)
            ends["with producers"] += bool(found.producers)
    say(f"{level}: {dict(ends)}")
    assert ends["cut"] and ends["whole"] and ends["with producers"]


def _compare_indexes(start: int, found: Mapping[str, bytes], alone: Mapping[str, bytes]) -> None:
    """Offset and time indexes are the same. Of transactions that began before the log start offset Kafka may know
    nothing, or where they go on behind it: these are aborted in what we find, and may not be in what Kafka makes.
    """
    assert found.keys() >= alone.keys()
    for name, content in found.items():
        if start == 0 or not name.endswith(TRANSACTION_INDEX_SUFFIX):
            assert content == alone[name], name
            continue
        ours, theirs = _aborted(content), _aborted(alone.get(name, b""))  # Kafka makes none where it knows of none
        assert theirs.keys() <= ours.keys(), name
        assert {key for key in ours.keys() - theirs.keys() if ours[key][0] >= start} == set(), name
        for key, offsets in theirs.items():
            known = zip(ours[key], offsets, strict=True)
            assert all(our == their or our < min(start, their) for our, their in known), (name, key, ours[key], offsets)


def _aborted(index: bytes) -> dict[tuple[int, int], tuple[int, int]]:
    """Of an index of aborted transactions: first offset and last stable offset, by producer and last offset."""
    entries = np.frombuffer(index, ABORTED_TRANSACTION)
    return {
        (each["producer_id"], each["last_offset"]): (int(each["first_offset"]), int(each["last_stable_offset"]))
        for each in entries
    }


def _told(start: int, producers: frozenset[Producer]) -> object:
    """What has to be known of producers. Kafka reads from the log start offset on where it has no snapshot, and knows
    nothing then of what they did before; a snapshot that was made of all segments tells more.
    """
    return producers if start == 0 else {each.producer_id for each in producers if each.last_offset >= start}


def _without(refusals: list[str], log_dir: Path) -> list[str]:
    return [refusal.replace(str(log_dir), "") for refusal in refusals]


def _same(partition: dict[str, Any]) -> dict[str, Any]:
    return {"name": Path(partition["directory"]).name, **{name: partition[name] for name in _SAME}}
