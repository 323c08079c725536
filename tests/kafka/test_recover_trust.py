"""Disks of killed brokers, a real one and random ones, recovered by headers alone, as the kernel has all of them."""

from __future__ import annotations

import random
import shutil
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from kidxlib.format import layouts
from kidxlib.format.checkpoint_files import (
    HIGH_WATERMARK_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    offset_checkpoint,
)
from kidxlib.format.layouts import ABORTED_TRANSACTION, BATCH_V2
from kidxlib.format.segment_files import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    parse_snapshot,
    segment_file,
)
from kidxlib.format.topic_partition import TopicPartition, parse_partition_directory
from kidxlib.operations.recover.page_cache import NOTE, note_page_cache
from kidxlib.storage.log_dir import META_PROPERTIES, PARTITION_METADATA, read_offset_checkpoint
from kidxlib.terminal.exit_codes import ExitCode
from tests.conftest import Say
from tests.faults.processes import kidx, refused_kidx
from tests.kafka.crashed import Crashed, Started, killed_broker, logs_of, partition_directory, started, why_untrusted
from tests.kafka.loaded import files_of, load
from tests.kafka.traffic import PARTITIONS, TOPICS
from tests.support.cluster_metadata import write_checkpoints
from tests.support.kafka.broker import Broker
from tests.support.kafka.classes import Kafka
from tests.support.logs.batches import FILLER, Batch, control
from tests.support.logs.snapshots import Producer

_PRODUCERS: Final = 3
#: Entries of an index that are allocated, and not written.
_UNUSED_MOST: Final = 400


@dataclass(slots=True)
class _Traffic:
    """What idempotent and transactional producers, and others, append one batch after the other."""

    rng: random.Random
    timestamp: int
    offset: int = 0
    epoch: int = 0
    sequences: dict[int, int] = field(default_factory=dict)
    open: set[int] = field(default_factory=set)

    def appended(self) -> Batch:
        """The next batch, of one record or more."""
        self.timestamp += self.rng.choice([-3, 0, 1, 500])
        self.epoch += self.rng.random() < 0.05
        producer = self.rng.randrange(_PRODUCERS)
        if producer in self.open and self.rng.random() < 0.4:
            self.open.discard(producer)
            key = self.rng.choice([layouts.CONTROL_TYPE_ABORT, layouts.CONTROL_TYPE_COMMIT])
            return self._batch(1, **{**control(key.to_bytes(4)), "producer_id": producer})
        count = self.rng.randint(1, 4)
        body = FILLER[: self.rng.choice([30, 700, 3_000])]
        if self.rng.random() < 0.3:
            return self._batch(count, body=body)
        transactional = producer in self.open or self.rng.random() < 0.4
        if transactional:
            self.open.add(producer)
        sequence = self.sequences.get(producer, 0)
        self.sequences[producer] = sequence + count
        return self._batch(
            count,
            body=body,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=sequence,
            attributes=layouts.ATTRIBUTE_TRANSACTIONAL if transactional else 0,
        )

    def _batch(self, count: int, **fields: Any) -> Batch:
        self.offset += count
        return Batch(
            **{"records": count, **fields},
            last_offset_delta=count - 1,
            timestamp=self.timestamp,
            base_timestamp=self.timestamp,  # a marker's record has none of its own
            leader_epoch=self.epoch,
        )


@dataclass(frozen=True, slots=True)
class KilledPartition:
    """A partition, and what its broker was about to do.

    Attributes:
        base_offsets: of its segments.
        end: the offset after all whole batches that were written before the last append.
        in_flight: the bytes of the last append that the kernel has: batches, the last of them perhaps in part.
    """

    directory: Path
    base_offsets: Sequence[int]
    end: int
    in_flight: bytes


def write_partition(directory: Path, rng: random.Random) -> KilledPartition:
    """The logs as they were before the last append."""
    directory.mkdir()
    an_hour_ago_ms = int(time.time() * 1000) - 3_600_000  # Kafka forgets producers after a day
    traffic, segments = _Traffic(rng, an_hour_ago_ms), [(0, b"")]
    for _ in range(rng.randint(1, 60)):
        if rng.random() < 0.12 and segments[-1][1]:
            segments.append((traffic.offset, b""))
        batch = traffic.appended()
        segments[-1] = segments[-1][0], segments[-1][1] + batch.encode(traffic.offset - 1)
    for base_offset, content in segments:
        (directory / segment_file(base_offset, LOG_SUFFIX)).write_bytes(content)
    end = traffic.offset
    in_flight = b"".join(traffic.appended().encode(traffic.offset - 1) for _ in range(rng.randint(0, 2)))
    if in_flight and rng.random() < 0.6:
        in_flight = in_flight[: rng.randrange(len(in_flight))]
    return KilledPartition(directory, [base_offset for base_offset, _ in segments], end, in_flight)


def kill(partition: KilledPartition, recovery_point: int, rng: random.Random) -> None:
    """Make of a partition with all side files, closed, what a broker leaves that is killed: amid work, or as it
    recovers after an earlier kill, from the recovery point on.
    """
    directory, last = partition.directory, partition.base_offsets[-1]
    with (directory / segment_file(last, LOG_SUFFIX)).open("ab") as log:
        log.write(partition.in_flight)
        if rng.random() < 0.1:
            log.write(bytes(rng.randrange(1, 5_000)))  # log.preallocate
    for path in _snapshots_above(directory, last):
        path.unlink()  # that of the end a broker takes as it stops
    _keep_open(directory, last, rng)
    if rng.random() < 0.3:
        _recover_in_part(partition, recovery_point, rng)
    if rng.random() < 0.1:
        (directory / LEADER_EPOCH_CHECKPOINT).unlink(missing_ok=True)


def _recover_in_part(partition: KilledPartition, recovery_point: int, rng: random.Random) -> None:
    """A broker that recovers has come to some segment: its indexes are being written, and later snapshots are gone."""
    directory = partition.directory
    first = bisect_right(partition.base_offsets, recovery_point) - 1
    reached = rng.choice(list(partition.base_offsets[first:]))
    _keep_open(directory, reached, rng)
    (directory / segment_file(reached, TRANSACTION_INDEX_SUFFIX)).unlink(missing_ok=True)
    for path in _snapshots_above(directory, reached):
        path.unlink()


def _keep_open(directory: Path, base_offset: int, rng: random.Random) -> None:
    """Indexes that are open have room at their ends, and perhaps not yet all entries; a broker that makes them anew may
    have written none.
    """
    for suffix, layout in (
        (OFFSET_INDEX_SUFFIX, layouts.OFFSET_INDEX_ENTRY),
        (TIME_INDEX_SUFFIX, layouts.TIME_INDEX_ENTRY),
    ):
        path = directory / segment_file(base_offset, suffix)
        entries = len(path.read_bytes()) // layout.itemsize
        kept = rng.choice([entries, max(entries - 1, 0), rng.randint(0, entries)])
        unused = rng.randrange(1, _UNUSED_MOST)
        path.write_bytes(path.read_bytes()[: kept * layout.itemsize] + bytes(unused * layout.itemsize))


def _snapshots_above(directory: Path, offset: int) -> Iterator[Path]:
    for path in list(directory.glob(f"*{SNAPSHOT_SUFFIX}")):
        of_snapshot = parse_snapshot(path.name)
        if of_snapshot is not None and of_snapshot > offset:
            yield path


#: Files that do not depend on what was before the log start offset.
_WITHOUT_PRODUCERS: Final = (LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, LEADER_EPOCH_CHECKPOINT)

#: What is said of both, in the plan of a partition.
_SAME: Final = ("log_end_offset", "start_bytes", "left_to_the_broker", "cut", "dropped")


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
        note_page_cache([self.trusted])

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
    """With the page cache trusted a recovery refuses, cuts and drops the same as one that reads everything, and leaves
    the same files, byte by byte; but at the level of checkpoints, at which the other run leaves last segments to the
    broker. Kafka comes to the same logs, indexes and producers with either as by itself. Random logs of idempotent and
    transactional producers, with the side files that a broker has closed. Then what a kill leaves: an append that is
    whole or not, indexes that are open, or were being rebuilt, snapshots that are not yet there.
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


_TRUST: Final = ("--apply", "--trust-page-cache", "--json")


@pytest.fixture(scope="module", autouse=True)
def _needs_a_kernel_that_tells(tmp_path_factory: pytest.TempPathFactory) -> None:
    if (why := why_untrusted(tmp_path_factory.getbasetemp())) is not None:
        pytest.skip(f"nothing is trusted here: {why}")


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory, broker_version: str) -> Broker:
    """A broker that was stopped, of which was noted then that all is right, and that was killed in its next run."""

    def note(broker: Broker) -> None:
        ended = kidx("recover", *broker.log_dirs, *_TRUST)
        assert ended.code == 0 and ended.json["stopped_cleanly"], ended

    return killed_broker(tmp_path_factory.mktemp("trust") / "broker", broker_version, before_last_run=note)


@pytest.fixture(scope="module")
def crashed(killed: Broker, tmp_path_factory: pytest.TempPathFactory) -> Crashed:
    return Crashed(killed, tmp_path_factory.mktemp("crashed"))


def _index_files(broker: Broker) -> set[str]:
    """Indexes that the broker went on with after it was stopped: it counts the interval from there, as no recovery
    does. They are right, and others.
    """
    return {
        f"{log.parent.name}/{log.with_suffix(suffix).name}"
        for topic, number in PARTITIONS
        for log in [_first_unflushed(broker, f"{topic}-{number}")]
        for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX)
    }


def _first_unflushed(broker: Broker, name: str) -> Path:
    partition = parse_partition_directory(name)
    assert partition is not None
    points = read_offset_checkpoint(partition_directory(broker, name).parent / RECOVERY_POINT_CHECKPOINT) or {}
    return [log for log in logs_of(broker, name) if int(log.stem) <= points[partition]][-1]


def _assert_same(found: Started, alone: Started, *, but: set[str]) -> None:
    """The same to consumers, and the same files but some indexes."""
    assert found.seen.differences(alone.seen) == [] and found.producers == alone.producers
    assert found.files.keys() == alone.files.keys()
    assert {name for name in alone.files if found.files[name] != alone.files[name]} <= but


def test_headers_are_enough(crashed: Crashed) -> None:
    """What comes of it is what the broker makes of it by itself. Indexes of segments that it had finished are its own,
    and right. The disk of the next test gets a marker.
    """
    broker = crashed.copy()
    note_page_cache(broker.log_dirs)  # it is a copy, of what the kernel has
    but = _index_files(broker)
    ended = kidx("recover", *broker.log_dirs, *_TRUST)
    assert ended.code == 0 and ended.json["untrusted"] == {}, ended
    assert ended.json["kidx_bytes"] < ended.json["start_bytes"] / 20
    found = started(broker)
    assert found.recovered == dict.fromkeys(crashed.alone.recovered, 1) and found.skipped == 0
    _assert_same(found, crashed.alone, but=but)


def test_a_note_outlives_the_kill(killed: Broker, crashed: Crashed) -> None:
    """The disk itself, with the note that was made before the broker was started, and then a new one."""
    but = _index_files(killed)
    copied = crashed.copy()
    refused = kidx("recover", *copied.log_dirs, "--trust-page-cache", "--json")
    assert refused.code == 0 and len(refused.json["untrusted"]) == len(copied.log_dirs), refused
    assert all("is a copy of the one that it was made for" in why for why in refused.json["untrusted"].values())
    notes = [(log_dir / NOTE).read_bytes() for log_dir in killed.log_dirs]
    twin = killed.copy(copied.directory / "before")
    ended = kidx("recover", *killed.log_dirs, *_TRUST, "--level", "marker")
    assert ended.code == 0 and ended.json["untrusted"] == {} and ended.json["applied"], ended
    assert [(log_dir / NOTE).exists() for log_dir in killed.log_dirs] == [True] * len(notes)
    verified = ("verify", "--topics", "|".join(TOPICS))  # the cluster's metadata the broker recovers always
    assert kidx(*verified, *killed.log_dirs).code == 0
    found = started(killed)
    assert found.recovered == {} and found.skipped == len(killed.log_dirs)
    _assert_same(found, crashed.alone, but=but)
    for log_dir, of_twin in zip(killed.log_dirs, twin.log_dirs, strict=True):  # for the tests that come after this
        shutil.rmtree(log_dir)
        shutil.copytree(of_twin, log_dir)


def test_what_lies_between_headers_is_not_read(killed: Broker, tmp_path: Path) -> None:
    """Bytes of records are changed, in a finished segment and in the last one. Who reads them, refuses; who is told to
    trust what the kernel has, does not look.
    """
    broker = killed.copy(tmp_path / "broker")
    for log in logs_of(broker, "plain-0")[-2:]:
        with log.open("r+b") as file:
            file.seek(BATCH_V2.itemsize + 5)
            file.write(b"\xff")
    refused = kidx("recover", *broker.log_dirs, "--json")
    assert refused.code == ExitCode.USAGE and "plain-0" in refused.json["refused"][0], refused
    note_page_cache(broker.log_dirs)
    assert kidx("recover", *broker.log_dirs, "--trust-page-cache", "--json").json["refused"] == []


def test_an_error_that_the_broker_tells_of(killed: Broker, tmp_path: Path) -> None:
    broker, log = killed.copy(tmp_path / "broker"), tmp_path / "server.log"
    note_page_cache(broker.log_dirs)
    log.write_text("INFO started\nERROR Error while flushing log for plain-0 in dir /data (LogDirFailureChannel)\n")
    ended = kidx("recover", *broker.log_dirs, "--trust-page-cache", "--broker-log", log, "--json")
    assert ended.code == 0 and len(ended.json["untrusted"]) == len(broker.log_dirs)
    assert all(f"{log}: line 2: ERROR Error while flushing" in why for why in ended.json["untrusted"].values())
    log.write_text("INFO started\n")
    ended = kidx("recover", *broker.log_dirs, "--trust-page-cache", "--broker-log", log, "--json")
    assert ended.json["untrusted"] == {}


def test_options_that_do_not_go_together(tmp_path: Path) -> None:
    both = refused_kidx("recover", tmp_path, "--trust-page-cache", "--all")
    both.assert_one_line(ExitCode.USAGE, "--all and --trust-page-cache")
    refused_kidx("recover", tmp_path, "--broker-log", "x").assert_one_line(ExitCode.USAGE, "--trust-page-cache looks")
