"""The disk of a broker that had all kinds of work: transactions, some open; topics compacted, tiered, deleted; records
deleted; groups of all kinds; a controller that was unregistered. No command says a false word of it, and what is made
of it is what the broker, its consumers and its tools have made.

Each run looks at a disk of the promised Kafka that is kept; `--exhaustive` lets brokers of both work, and starts them
again on what `kidx recover` has made.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kidxlib.audit.startup.metadata_log import read_to_end
from kidxlib.format import segment_files
from kidxlib.format.checkpoint_files import (
    CLEANER_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
)
from kidxlib.format.kafka_release import KAFKA_4_4
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.log.metadata_replica import METADATA_DIRECTORY
from kidxlib.storage.log_dir import read_offset_checkpoint
from kidxlib.terminal.exit_codes import ExitCode
from tests.faults.processes import kidx
from tests.kafka.crashed import INDEX_SUFFIXES, RECOVERED, SKIPPED
from tests.kafka.dumps import assert_as_kafka
from tests.kafka.live_disk import DELETED, LOCAL, UNREGISTERED, Consumed, Disk, Worked, keep, unpack, worked
from tests.kafka.reading import Seen, read_all, wait_until_read
from tests.support.kafka.broker import Broker
from tests.support.kafka.classes import Kafka
from tests.support.kafka.dump import KafkaDump
from tests.support.kafka.jars import BESIDE, PROMISED, release_of
from tests.support.kafka.tiered import METADATA_TOPIC, tiered_twin
from tests.support.kafka.tiered import PARTITIONS as IN_BUCKET
from tests.support.logs.snapshots import producers_in

_DECODERS: Final = {
    "__consumer_offsets": "--offsets-decoder",
    "__transaction_state": "--transaction-log-decoder",
    "__share_group_state": "--share-group-state-decoder",
    "__cluster_metadata": "--cluster-metadata-decoder",
    METADATA_TOPIC: "--remote-log-metadata-decoder",
}
#: What consumers get is compared as these.
_ROW: Final = ("offset", "timestamp", "key", "value")


@pytest.fixture(scope="module")
def live(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, kafka: Kafka, broker_version: str
) -> Worked | None:
    """Brokers that have worked; None where the kept disk stands for them. `--record` keeps their disk."""
    exhaustive, record = (bool(request.config.getoption(option)) for option in ("--exhaustive", "--record"))
    if not exhaustive and not record:
        return None
    done = worked(tmp_path_factory.mktemp("live"), kafka)
    if record and broker_version == PROMISED:
        keep(done.disk)
    return done


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory, live: Worked | None, broker_version: str) -> Disk:
    if live is not None:
        return live.disk
    if broker_version != PROMISED:
        pytest.skip(f"no disk of Kafka {broker_version} is kept; --exhaustive makes one")
    return unpack(tmp_path_factory.mktemp("kept"), broker_version)


def test_it_has_all_of_that(disk: Disk) -> None:
    """Else the other tests show little."""
    metadata = read_to_end(disk.log_dir / METADATA_DIRECTORY)
    assert metadata is not None and metadata.topics.keys() >= {*_DECODERS} - {"__cluster_metadata"}
    is_newer = release_of(disk.version) >= KAFKA_4_4
    assert (KAFKA_4_4 in {record.since for record in metadata.newer_records}) == is_newer
    assert (UNREGISTERED in metadata.controllers) != is_newer
    starts = read_offset_checkpoint(disk.log_dir / LOG_START_OFFSET_CHECKPOINT) or {}
    assert {place: starts[TopicPartition(*place)] for place in DELETED} == DELETED
    cleaned = read_offset_checkpoint(disk.log_dir / CLEANER_CHECKPOINT) or {}
    assert cleaned[TopicPartition("compacted", 0)] > 1000
    committed, uncommitted = (disk.consumed[isolation] for isolation in ("read_committed", "read_uncommitted"))
    is_open = [name for name in committed if committed[name].end < uncommitted[name].end]
    assert is_open and {name.rpartition("-")[0] for name in is_open} == {"transactions"}
    assert list(disk.log_dir.glob(f"*/*{segment_files.TRANSACTION_INDEX_SUFFIX}"))


def test_nothing_is_wrong_with_it(disk: Disk) -> None:
    """Neither a finding nor a warning, neither with the log dir nor with the bucket, at any level."""
    found = kidx("verify", disk.log_dir, "--deep-iteration", "--json")
    assert (found.code, found.err) == (0, ""), found.err
    assert {each["verdict"] for each in found.json["files"]} == {"whole", "identical", "safe"}
    assert not found.json["not_compared"] and not found.json["log_dir_failures"]
    for level in ("listing", "indexes", "full"):
        of_bucket = ("verify-tiered", disk.bucket, "--tiered-metadata", disk.log_dir, "--level", level, "--json")
        tiered = kidx(*of_bucket)
        assert (tiered.code, tiered.json["findings"]) == (0, []), tiered
        assert tiered.json["segments"]["COPY_SEGMENT_FINISHED"]["segments"] > 10


def test_what_another_kafka_would_do_is_told(disk: Disk) -> None:
    """A node of 4.3 ends over a controller that was unregistered, and over a `metadata.version` of 4.4."""
    is_newer = release_of(disk.version) >= KAFKA_4_4
    for version in (PROMISED, BESIDE):
        found = kidx("verify", disk.log_dir, "--kafka-version", version)
        is_refused = is_newer and version == BESIDE
        assert (found.code == ExitCode.PROBLEMS_FOUND) == is_refused, found
        assert ("which Kafka knows since 4.4; Kafka 4.3, as --kafka-version says" in found.out) == is_refused


def test_files_are_rebuilt_byte_for_byte(disk: Disk, tmp_path: Path) -> None:
    """Index files where the broker was not restarted within the segment, where it counted the interval from zero;
    transaction indexes of all; snapshots and epochs as far as records tell them.
    """
    built = kidx("build", disk.log_dir, "--index-dir", tmp_path, "--snapshots", "--epochs")
    assert built.code == 0, built
    compared = 0
    for path in _files(disk, INDEX_SUFFIXES):
        name = path.relative_to(disk.log_dir)
        if str(name.with_suffix("")) in disk.interrupted and path.suffix != segment_files.TRANSACTION_INDEX_SUFFIX:
            continue
        assert (tmp_path / name).read_bytes() == path.read_bytes(), name
        compared += 1
    made = {path.relative_to(tmp_path) for path in tmp_path.rglob(f"*{segment_files.TRANSACTION_INDEX_SUFFIX}")}
    assert made == {path.relative_to(disk.log_dir) for path in _files(disk, (segment_files.TRANSACTION_INDEX_SUFFIX,))}
    assert compared > 80
    # A first log has no state before it: where that is in the bucket, no snapshot of it is made.
    snapshots = [path for path in tmp_path.rglob(f"*{segment_files.SNAPSHOT_SUFFIX}")]
    for path in snapshots:
        theirs = producers_in((disk.log_dir / path.relative_to(tmp_path)).read_bytes())
        assert theirs <= producers_in(path.read_bytes()), path  # a broker forgets producers after a day
    assert len(snapshots) > 30
    epochs = [directory / LEADER_EPOCH_CHECKPOINT for directory in _partitions(disk)]
    same = {
        path.parent.name
        for path in epochs
        if (tmp_path / path.parent.name / path.name).read_bytes() == path.read_bytes()
    }
    # By batches, the first epoch begins before the records that were deleted; a broker that loads the file cuts it.
    unlike = {*DELETED, ("compacted", 0)}
    assert {f"{topic}-{partition}" for topic, partition in LOCAL if (topic, partition) not in unlike} <= same


def _files(disk: Disk, suffixes: tuple[str, ...]) -> Iterator[Path]:
    for directory in _partitions(disk):
        yield from (path for path in sorted(directory.iterdir()) if path.suffix in suffixes)


def _partitions(disk: Disk) -> list[Path]:
    """The directories of partitions, without those that wait to be deleted."""
    return [path.parent for path in sorted(disk.log_dir.glob("*/partition.metadata")) if path.parent.suffix == ""]


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_an_export_has_what_consumers_got(disk: Disk, isolation: str, tmp_path: Path) -> None:
    """Of the log dir, and of the bucket; not what was deleted."""
    consumed = disk.consumed[isolation]
    found = {}
    for number, (place, partitions, more) in enumerate(
        ((disk.log_dir, LOCAL, ()), (disk.bucket, IN_BUCKET, ("--tiered-metadata", disk.log_dir)))
    ):
        output = tmp_path / f"{number}.parquet"
        topics = "|".join(sorted({topic for topic, _ in partitions}))
        asked = ("export", place, "--output", output, "--topics", topics, "--isolation", isolation, *more)
        exported = kidx(*asked)
        assert exported.code == 0, exported
        table = pq.read_table(output)
        table = table.set_column(
            table.schema.get_field_index("timestamp"), "timestamp", table["timestamp"].cast(pa.int64())
        )
        for topic, partition in partitions:
            name = f"{topic}-{partition}"
            found[name] = _consumed(table, topic, partition, consumed[name].end)
    assert found == consumed


def _consumed(table: pa.Table, topic: str, partition: int, end: int) -> Consumed:
    rows = (
        tuple(row[name] for name in _ROW)
        for row in table.select(["topic", "partition", *_ROW]).to_pylist()
        if (row["topic"], row["partition"]) == (topic, partition)
    )
    return Consumed.of(rows, end)


def test_it_is_dumped_and_decoded_as_kafkas_own_tool_does(disk: Disk, kafka: Kafka, tmp_path: Path) -> None:
    """Each file of each partition; logs with their records, and those of Kafka's own topics decoded."""
    copy, shown, dumped = tmp_path / "copy", b"", 0
    kafka_dump = KafkaDump(kafka, tmp_path)
    for directory in _partitions(disk):
        shutil.copytree(directory, copy)
        decoder = _DECODERS.get(directory.name.rpartition("-")[0])
        for path in sorted(copy.iterdir()):
            if path.suffix in (".log", ".checkpoint"):
                options: tuple[str, ...] = ("--deep-iteration",) if decoder is None else (decoder,)
            elif path.suffix in (*INDEX_SUFFIXES, ".snapshot"):
                options = ()
            else:
                continue
            assert_as_kafka(kafka_dump, path, options)
            if decoder is not None and options:
                shown += b"\n".join(kafka_dump(decoder, "--files", str(path)).lines)
            dumped += 1
        shutil.rmtree(copy)
    assert dumped > 150
    is_newer = release_of(disk.version) >= KAFKA_4_4
    for said, is_said in (
        (b'"groupId":"flow"', True),
        (b'"groupId":"sharers"', True),
        (b"RemoteLogSegmentMetadata", True),
        (b'"UNREGISTER_CONTROLLER_RECORD"', is_newer),
        (b'"transactionStatus":"Ongoing"', is_newer),
        (b'"transactionStatus":1', not is_newer),
    ):
        assert (said in shown) == is_said, said


@pytest.mark.exhaustive("starts brokers on the disk of one that was killed")
@pytest.mark.parametrize("level", ["checkpoint", "marker"])
def test_a_killed_twin_is_recovered(live: Worked | None, level: str, tmp_path: Path) -> None:
    """At both levels consumers get what they get from a broker that was let recover by itself."""
    assert live is not None
    alone, ours = (tiered_twin(live.killed, tmp_path / name) for name in ("alone", "ours"))
    recovered = kidx("recover", ours.log_dir, "--apply", "--level", level, "--json")
    assert recovered.code == 0 and recovered.json["applied"], recovered
    assert recovered.json["start_bytes_now"] < recovered.json["start_bytes"] / 3
    assert kidx("verify", ours.log_dir, "--json").code == 0
    (by_itself, read_again, skips), (of_ours, read_of_ours, skips_ours) = map(_started, (alone, ours))
    assert of_ours.differences(by_itself) == []
    assert (skips, skips_ours) == (0, int(level == "marker")) and sum(read_again.values()) > sum(read_of_ours.values())
    assert max(read_of_ours.values(), default=0) <= (level == "checkpoint")


def _started(broker: Broker) -> tuple[Seen, dict[str, int], int]:
    """What consumers get, how many segments of each partition the broker has read again, and in how many log dirs it
    has found a clean stop.
    """
    with broker.running() as run:
        wait_until_read(broker.bootstrap, IN_BUCKET)
        seen = read_all(broker.bootstrap, [*LOCAL, *IN_BUCKET])
    again: dict[str, int] = {}
    for found in filter(None, map(RECOVERED.search, run.lines())):
        again[found[1]] = again.get(found[1], 0) + 1
    again.pop(METADATA_DIRECTORY, None)
    return seen, again, len(list(filter(None, map(SKIPPED.search, run.lines()))))
