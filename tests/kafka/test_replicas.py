"""Replicas of three real brokers, compared by what a catalog of their log dirs says."""

from __future__ import annotations

import itertools
import random
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import google_crc32c
import pytest
from confluent_kafka import Producer
from confluent_kafka.cimpl import NewTopic

from kidxlib.format import layouts
from kidxlib.format.segment_files import LOG_SUFFIX, segment_file
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.operations.compare.catalog_replica_verdict import LogPlace, ReplicaRelation, ReplicaVerdict
from kidxlib.operations.compare.catalog_replicas import compare_catalog_replicas
from kidxlib.records.batch_headers import BatchHeader
from kidxlib.storage.log_dir import read_checkpoints
from kidxlib.tables.delta_tables import DeltaTables
from kidxlib.terminal.exit_codes import ExitCode
from tests.faults.processes import kidx
from tests.kafka.crashed import batches_of
from tests.kafka.reading import TIMEOUT_SECONDS
from tests.support.kafka.admin import make_topics, wait_until
from tests.support.kafka.broker import Broker
from tests.support.kafka.cluster import Cluster

_SETTINGS: Final = {
    "min.insync.replicas": 2,
    "broker.session.timeout.ms": 3_000,
    "broker.heartbeat.interval.ms": 500,
    "replica.high.watermark.checkpoint.interval.ms": 100,
    "log.cleaner.backoff.ms": 100,
    "log.cleaner.dedupe.buffer.size": 2 * 1024 * 1024,  # of which all is cleared each time
}
_CONFIG: Final = {"internal.segment.bytes": "32768"}
_COMPACTED: Final = {**_CONFIG, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
#: `written` is written until one broker is killed, `late` also after that.
_TOPICS: Final = {"written": 3, "late": 3, "compacted": 1}
_REPLICAS: Final = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
_RECORDS: Final = 900
_KILLED: Final = 3


@dataclass(frozen=True, slots=True)
class _Fleet:
    """Log dirs of brokers that lie still.

    Attributes:
        log_dirs: by the name of the broker.
        late: how many offsets of each partition of `late` the killed broker has not.
    """

    log_dirs: dict[str, Path]
    late: dict[int, int]

    def copy(self, directory: Path) -> _Fleet:
        """One to be spoilt."""
        copied = {name: directory / name for name in self.log_dirs}
        for name, log_dir in self.log_dirs.items():
            shutil.copytree(log_dir, copied[name])
        return _Fleet(copied, self.late)

    def verdicts(self, catalog: Path) -> dict[tuple[str, int], list[ReplicaVerdict]]:
        """What is said of each partition, from a new catalog."""
        sources = [part for name, log_dir in self.log_dirs.items() for part in ("--source", f"{name}={log_dir}")]
        built = kidx("build", *sources, "--index-dir", catalog / "index", "--catalog", catalog / "tables")
        assert built.code == ExitCode.OK, built
        found: dict[tuple[str, int], list[ReplicaVerdict]] = {}
        for verdict in compare_catalog_replicas(DeltaTables(str(catalog / "tables"))):
            if verdict.topic in _TOPICS:
                found.setdefault((verdict.topic, verdict.partition), []).append(verdict)
        return found

    def logs(self, name: str, topic: str, partition: int) -> list[Path]:
        return sorted((self.log_dirs[name] / f"{topic}-{partition}").glob(f"*{LOG_SUFFIX}"))


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory, broker_version: str) -> Iterator[_Fleet]:
    """Three brokers, one of which is killed before the others."""
    directory = tmp_path_factory.mktemp("replicas")
    cluster = Cluster(directory / "cluster", _SETTINGS, broker_version)
    with cluster.running():
        topics = [
            NewTopic(
                topic,
                count,
                replica_assignment=_REPLICAS[:count],
                config=_COMPACTED if topic == "compacted" else _CONFIG,
            )
            for topic, count in _TOPICS.items()
        ]
        make_topics(cluster.bootstrap, topics)
        ends = _write(cluster, dict.fromkeys(_TOPICS, _RECORDS))
        _wait_for(cluster, ends, list(cluster.brokers))
        wait_until(lambda: all(map(_is_cleaned, cluster.brokers.values())), "a log is not cleaned")
        cluster.kill(_KILLED)
        later = _write(cluster, {"late": _RECORDS})
        _wait_for(cluster, later, [node for node in cluster.brokers if node != _KILLED])
    log_dirs = {f"broker-{node}": broker.log_dir for node, broker in cluster.brokers.items()}
    yield _Fleet(log_dirs, {number: end - ends[topic, number] for (topic, number), end in later.items()})


def _write(cluster: Cluster, topics: dict[str, int]) -> dict[tuple[str, int], int]:
    """Write so many records to topics; the offsets at which their partitions end then."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 2, "log_level": 2})
    rng, ends = random.Random(len(topics)), dict[tuple[str, int], int]()
    for topic, count in topics.items():
        for number in range(count):
            value, partition = rng.randbytes(rng.randint(10, 500)), number % _TOPICS[topic]
            producer.produce(topic, value, b"%d" % rng.randrange(40), partition=partition)
            if number % 40 == 39:
                assert producer.flush(TIMEOUT_SECONDS) == 0
        for partition in range(_TOPICS[topic]):

            def note(error: object, message: object, place: tuple[str, int] = (topic, partition)) -> None:
                assert error is None, error
                ends[place] = message.offset() + 1  # type: ignore[attr-defined]

            producer.produce(topic, b"the last one", b"last", partition=partition, on_delivery=note)
    assert producer.flush(TIMEOUT_SECONDS) == 0
    return ends


def _wait_for(cluster: Cluster, ends: dict[tuple[str, int], int], nodes: Sequence[int]) -> None:
    """Wait until all checkpoints of brokers say that these offsets are committed."""

    def are_committed() -> bool:
        watermarks = [read_checkpoints(cluster.brokers[node].log_dir).high_watermarks or {} for node in nodes]
        return all(found.get(TopicPartition(*place)) == end for place, end in ends.items() for found in watermarks)

    wait_until(are_committed, f"not all are committed: {ends}")


def _is_cleaned(broker: Broker) -> bool:
    return TopicPartition("compacted", 0) in (read_checkpoints(broker.log_dir).cleaner_offsets or {})


def test_replicas_are_the_same_and_one_is_behind(fleet: _Fleet, tmp_path: Path) -> None:
    """Partitions whose replicas brokers brought in sync are the same; of a topic that went on without one of the
    brokers, its replicas alone are behind; a compacted one is not compared by digests.
    """
    found = fleet.verdicts(tmp_path)
    assert sorted(found) == [(topic, number) for topic in sorted(_TOPICS) for number in range(_TOPICS[topic])]
    for (topic, number), verdicts in found.items():
        assert len(verdicts) == 2 and all(each.difference is None and each.epochs is None for each in verdicts)
        by_source = {each.source: each for each in verdicts}
        if topic == "written":
            assert {each.verdict for each in verdicts} == {ReplicaRelation.SAME}, verdicts
            assert {each.undecided_offsets for each in verdicts} == {0} and verdicts[0].has_majority
        elif topic == "late":
            behind, other = by_source.pop(f"broker-{_KILLED}"), *by_source.values()
            assert (behind.verdict, behind.behind_offsets) == (ReplicaRelation.BEHIND, fleet.late[number])
            assert (other.verdict, other.undecided_offsets) == (ReplicaRelation.SAME, 0)
        else:
            assert {each.compacted for each in verdicts} == {"cleaner-offset-checkpoint names it"}
            assert {each.verdict for each in verdicts} <= {ReplicaRelation.SAME, ReplicaRelation.NOT_COMPARABLE}


def test_a_record_that_is_another_on_one_broker_is_found(fleet: _Fleet, tmp_path: Path, rng: random.Random) -> None:
    """A batch of which a byte of a value was flipped and the checksum computed anew, so that nothing else can tell it,
    is found on its broker, with its offset and its place in both logs.
    """
    spoilt = fleet.copy(tmp_path / "logs")
    name, number = rng.choice(list(spoilt.log_dirs)), rng.randrange(_TOPICS["written"])
    log = rng.choice([each for each in spoilt.logs(name, "written", number) if each.stat().st_size])
    batch = rng.choice(batches_of(log))
    _change_a_value(log, batch)
    found = spoilt.verdicts(tmp_path / "catalog")
    differing = [each for verdicts in found.values() for each in verdicts if each.verdict is ReplicaRelation.DIFFERS]
    [verdict] = differing
    others = [each for each in spoilt.log_dirs if each != name]
    assert (verdict.topic, verdict.partition, verdict.source) == ("written", number, name)
    assert sorted(verdict.agreeing) == others and verdict.has_majority and verdict.compared_with in others
    difference = verdict.difference
    assert difference is not None and (difference.offset, difference.ranges) == (batch.offset_field, 1)
    assert difference.first_offset <= batch.offset_field <= difference.last_offset
    assert difference.place == LogPlace(log_path=str(log), position=batch.position)
    assert difference.other_place is not None
    other = Path(difference.other_place.log_path)
    assert other in spoilt.logs(verdict.compared_with, "written", number)
    assert {each.position: each for each in batches_of(other)}[
        difference.other_place.position
    ].offset_field == batch.offset_field


def test_segments_that_are_cut_differently_are_the_same(fleet: _Fleet, tmp_path: Path, rng: random.Random) -> None:
    cut = fleet.copy(tmp_path / "logs")
    for number in range(_TOPICS["written"]):
        _cut_again(cut.logs("broker-2", "written", number), rng)
        assert [each.name for each in cut.logs("broker-2", "written", number)] != [
            each.name for each in cut.logs("broker-1", "written", number)
        ]
    found = cut.verdicts(tmp_path / "catalog")
    for number in range(_TOPICS["written"]):
        assert {each.verdict for each in found["written", number]} == {ReplicaRelation.SAME}
        assert {each.undecided_offsets for each in found["written", number]} == {0}


def _change_a_value(log: Path, batch: BatchHeader) -> None:
    """Flip a bit of the batch's last value, and give the batch its new checksum."""
    content = bytearray(log.read_bytes())
    content[batch.next_position - 2] ^= 1  # before the record's number of headers
    covered = batch.position + layouts.field_position(layouts.BATCH_V2, "attributes")
    checksum = google_crc32c.value(bytes(content[covered : batch.next_position]))
    content[covered - 4 : covered] = checksum.to_bytes(4)
    log.write_bytes(content)


def _cut_again(logs: Sequence[Path], rng: random.Random) -> None:
    """Put the batches of a partition's logs into other segments."""
    whole = [
        (batch.offset_field, log.read_bytes()[batch.position : batch.next_position])
        for log in logs
        for batch in batches_of(log)
    ]
    for file in logs[0].parent.glob("0*"):
        file.unlink()
    cuts = sorted(rng.sample(range(1, len(whole)), 4))
    for start, end in itertools.pairwise([0, *cuts, len(whole)]):
        path = logs[0].parent / segment_file(whole[start][0], LOG_SUFFIX)
        path.write_bytes(b"".join(data for _, data in whole[start:end]))
