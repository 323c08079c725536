"""What kidx says of the files that a node reads before it serves, compared with what nodes did with them."""

from __future__ import annotations

import contextlib
import json
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner
from confluent_kafka import KafkaException, TopicPartition

from kidxlib.audit.startup.last_stop import last_stops
from kidxlib.audit.startup.metadata_log import metadata_at_start
from kidxlib.audit.startup.obstacles import Effect, Obstacle, obstacles_in_partition
from kidxlib.cli.main import kidx
from kidxlib.format.kafka_release import KAFKA_4_4, METADATA_VERSION, OLDEST, KafkaRelease
from kidxlib.format.layouts import ATTRIBUTE_TRANSACTIONAL
from kidxlib.format.segment_files import LOG_SUFFIX
from kidxlib.records.batch_headers import batches
from kidxlib.records.reader import Record
from kidxlib.storage.opened_log import LogFile
from tests.kafka.reading import consumer_of
from tests.kafka.recordings import Recordings
from tests.kafka.start_disk import DAMAGES, LOG_DIRS, SETTINGS, Disk, unpack
from tests.support.cluster_metadata import change, of_controller
from tests.support.kafka.broker import Broker, BrokerRun
from tests.support.kafka.jars import release_of
from tests.support.logs import encoded
from tests.support.logs.batches import Batch, encode

#: A node that finds no controller gives up by itself after a minute.
_DEADLINE_SECONDS: Final = 150
#: How long the log dirs have to stay as they are for a node to be done with them.
_QUIET_SECONDS: Final = 3.0
_EXCEPTION: Final = re.compile(r"^(?:Caused by: )?(?:[a-z]\w*\.)+([A-Z]\w*(?:Exception|Error))(?:: .*)?$")
#: What a node says on its way, or not, as it happens.
_NOISE: Final = {"ClosedChannelException", "CompletionException", "NotControllerException", "TimeoutException"}
#: The log start and end of each partition.
UNDAMAGED: Final = {
    **{f"orders-{number}": [0, 10] for number in range(4)},
    **{f"ledger-{number}": [0, 5] for number in range(2)},
}
#: In place of the offsets of a partition that consumers do not get.
NOT_SERVED: Final = "not served"
_OFFLINE: Final = re.compile(r"Stopping serving logs in dir (\S+)")
_UNIQUE: Final = re.compile(r"\.([0-9a-f]{32})-(delete|future|stray)$")


def start_node(disk: Disk, version: str, isolation_level: str = "read_uncommitted") -> dict[str, Any]:
    """Start a node on a disk, and stop it once it has done what it does.

    Args:
        isolation_level: of the consumers that ask for offsets; with `read_committed` the log end is the last stable
            offset.

    Returns:
        As JSON: whether it `serves`; of one that does not, `ended_by`, the exceptions; `offline` log dirs; `folders`,
        by log dir those that it has made or renamed, or whose logs have changed, with the bytes of these (None: gone);
        `offsets`, of partitions of which consumers do not get what was there: the log start and end, or
        `NOT_SERVED`.
    """
    broker = Broker(
        disk.directory / "node",
        {**SETTINGS, "log.dirs": ",".join(str(disk.directory / name) for name in LOG_DIRS)},
        version=version,
        format_with=None,
    )
    before = {name: _folders(disk.directory / name) for name in LOG_DIRS}
    run = broker._run()
    offsets: dict[str, list[int] | str] = {}
    try:
        serves = run.wait_until_started(_DEADLINE_SECONDS)
        if serves:
            _wait_until_quiet(disk, run)
            offsets = _offsets(broker, isolation_level)
            serves = run._process.poll() is None
    finally:
        run._process.terminate()
        try:
            run._process.wait(30)
        finally:
            run.kill()
    lines = run.lines()
    found: dict[str, Any] = {
        "serves": serves,
        "offline": sorted({Path(match[1]).name for match in filter(None, map(_OFFLINE.search, lines))}),
        "folders": {name: _changed(before[name], _folders(disk.directory / name)) for name in LOG_DIRS},
    }
    if serves:
        found["offsets"] = {name: each for name, each in offsets.items() if each != UNDAMAGED[name]}
    else:
        found["ended_by"] = sorted(set(filter(None, map(_exception, lines))) - _NOISE)
    return found


def _changed(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int | None]:
    gone = dict.fromkeys(before.keys() - after.keys())
    return dict(sorted(({name: size for name, size in after.items() if before.get(name) != size} | gone).items()))


def _exception(line: str) -> str | None:
    match = _EXCEPTION.match(line)
    return None if match is None else match[1]


def _wait_until_quiet(disk: Disk, run: BrokerRun) -> None:
    before, since = None, time.monotonic()
    while time.monotonic() - since < _QUIET_SECONDS and run._process.poll() is None:
        now = [_folders(disk.directory / name) for name in LOG_DIRS]
        if now != before:
            before, since = now, time.monotonic()
        time.sleep(0.2)


def _folders(log_dir: Path) -> dict[str, int]:
    """The folders of a log dir, each with the bytes of its logs."""
    if not log_dir.is_dir():
        return {}
    return {
        _UNIQUE.sub(r".…-\2", path.name): sum(log.stat().st_size for log in path.glob("*.log"))
        for path in sorted(log_dir.iterdir())
        if path.is_dir() and not path.name.startswith("__")
    }


def _offsets(broker: Broker, isolation_level: str) -> dict[str, list[int] | str]:
    consumer, found = consumer_of(broker.bootstrap, isolation_level), dict[str, list[int] | str]()
    for name in UNDAMAGED:
        topic, _, number = name.rpartition("-")
        partition = TopicPartition(topic, int(number))
        try:
            found[name] = list(consumer.get_watermark_offsets(partition, timeout=3.0, cached=False))
        except KafkaException:  # which of several errors it is depends on how far the node has come
            found[name] = NOT_SERVED
    consumer.close()
    return found


#: What is told by other findings than obstacles: of the partition's own audit, or of what is not there.
_TOLD_OTHERWISE: Final = {
    "log dir: gone",
    "log dir: a file",
    "log dir: the metadata's log is in the other one",
    "log dir: no metadata's log",
    "partition: its folder is gone",
    "partition: its folder is gone, and there was no recovery point",
    "partition: its folder is empty",
    "partition: its log is missing",
    "-delete: of a partition that is not there else",
    "-stray: of a partition that is not there else",
}


#: Nothing is missed at this start; but a folder is served by nobody, or the start after this one fails.
_NOTHING_MISSED: Final = {
    "topic: a folder copied under a name that no topic has",
    "-future: in one log dir with the partition, which the metadata has elsewhere",
}


#: Only the older version ends over these; the newer ones read all of the log.
_OLDER_ALONE_ENDS: Final = {"a renamed .checkpoint: the latest", "a renamed .checkpoint: all"}


@pytest.mark.parametrize("case", DAMAGES)
def test_a_node_does_what_kidx_says(case: str, recordings: Recordings, tmp_path: Path) -> None:
    disk = _damaged(case, tmp_path)
    for version in recordings.versions("starts"):
        effects = {obstacle.effect for obstacle in _obstacles(disk, release_of(version))}
        did = recordings.of("starts", case, _starting(partial(_damaged, case), version), kafka=version, seed=0)
        if case in _TOLD_OTHERWISE:
            assert Effect.LOG_DIR not in effects
            continue
        if case in _OLDER_ALONE_ENDS:
            assert Effect.ENDS in effects and did["serves"] == (release_of(version) > OLDEST)
            continue
        assert (Effect.ENDS in effects) == (not did["serves"]), (version, did)
        if did["serves"]:
            is_served = any(did["offsets"].get(name) != NOT_SERVED for name in ("orders-0", "orders-3", "ledger-0"))
            is_out_of_use = bool(did["offline"]) or (Effect.LOG_DIR in effects and not is_served)
            assert (Effect.LOG_DIR in effects) == is_out_of_use, (version, did)
            stray = any(name.endswith("-stray") for folders in did["folders"].values() for name in folders)
            loses = stray or bool(did["offsets"])
            assert bool(effects) == (loses or case in _NOTHING_MISSED), (version, effects, did)


def _starting(make: Callable[[Path], Disk], version: str, **more: str) -> Callable[[], Any]:
    """Starts a node on a disk that is made in a directory of its own."""

    def start() -> Any:
        with tempfile.TemporaryDirectory() as directory:
            return start_node(make(Path(directory)), version, **more)

    return start


def _damaged(case: str, directory: Path) -> Disk:
    disk = unpack(directory)
    DAMAGES[case](disk)
    return disk


def _obstacles(disk: Disk, kafka: KafkaRelease | None = None) -> Iterator[Obstacle]:
    """For a node's Kafka; None for the one that it has registered."""
    log_dirs = [log_dir for log_dir in (disk.a, disk.b) if log_dir.is_dir()]
    for stop in last_stops(log_dirs, None, metadata_at_start(disk.metadata), kafka).values():
        yield from stop.obstacles
    for log_dir in log_dirs:
        for directory in log_dir.iterdir():
            if directory.is_dir() and not directory.name.endswith(("-future", "-delete", "-stray")):
                yield from obstacles_in_partition(directory)


#: A node ends over these, and no file in its log dirs says where it looks (`metadata.log.dir`).
_TOLD_BY_SERVER_PROPERTIES: Final = {"log dir: the metadata's log is in the other one"}
#: Consumers miss nothing; replicas that compare epochs do.
_WITHOUT_EPOCHS: Final = {"leader-epoch-checkpoint: missing", "leader-epoch-checkpoint: empty"}
#: Consumers miss nothing, as snapshots have their topics; what an only voter had behind its snapshot is gone.
_WITHOUT_END_OF_METADATA: Final = {
    f"the metadata's .log: {damage}" for damage in ("empty", "NUL", "torn", "missing", "NUL behind its end")
}


#: The node starts, and nobody can tell which ends were lost.
_WITHOUT_CHECKPOINTS: Final = {
    "recovery-point-offset-checkpoint: missing",
    "log-start-offset-checkpoint: missing",
    "replication-offset-checkpoint: missing",
    "replication-offset-checkpoint: empty",
}


@pytest.mark.parametrize("case", DAMAGES)
def test_recover_agrees(case: str, recordings: Recordings, tmp_path: Path) -> None:
    """A plan ends with 0 only where nothing keeps the node from starting, and nothing is missed; each obstacle that
    `verify` names is one of its lines.
    """
    disk = _damaged(case, tmp_path)
    did = recordings.known("starts", case, kafka=recordings.versions("starts")[-1])
    result = CliRunner().invoke(
        kidx, ["recover", str(disk.a), str(disk.b), "--json", "--processes", "1"], standalone_mode=False
    )
    assert result.exception is None, result.exception
    plan, obstacles = json.loads(result.stdout), [str(each) for each in _obstacles(disk)]
    assert [each for each in obstacles if each not in plan["refused"]] == []
    if case in _TOLD_BY_SERVER_PROPERTIES:
        return
    assert [each["reason"] for each in plan["leader_epochs"]] == ["missing-epoch"] * (case in _WITHOUT_EPOCHS)
    is_well = (
        did["serves"] and not did["offline"] and not did["offsets"] and not obstacles and not plan["leader_epochs"]
    ) and case not in _WITHOUT_END_OF_METADATA
    assert plan["lost_checkpoints"] or case not in _WITHOUT_CHECKPOINTS
    is_well = is_well and not plan["lost_checkpoints"]
    assert (result.return_value == 0) == is_well, (plan, did)


@pytest.mark.parametrize("is_left", [True, False], ids=["an older one is left", "none is left"])
def test_producer_snapshots_are_missing(recordings: Recordings, tmp_path: Path, *, is_left: bool) -> None:
    """A clean stop leaves one at the log's end. Of a node that finds none, consumers of what is committed get the
    records of an open transaction, where kidx says so and nowhere else.
    """
    case = f"producer snapshots: {'an older one' if is_left else 'none'} is left"
    make = partial(_with_open_transaction, is_left=is_left)
    for version in recordings.versions("starts"):
        start = _starting(make, version, isolation_level="read_committed")
        did = recordings.of("starts", case, start, kafka=version, seed=0)
        assert did["serves"] and did["offsets"] == ({} if is_left else {"orders-0": [0, 11]}), did
    disk = make(tmp_path)
    for command in ("recover", "verify"):
        arguments = [command, str(disk.a), str(disk.b), "--processes", "1"]
        ended = CliRunner().invoke(kidx, arguments, standalone_mode=False)
        said = "1 open transaction (from offset 10 on) are served as if committed" in ended.output
        assert said == (ended.return_value != 0) == (not is_left), ended.output


@pytest.mark.parametrize("what", ["UnregisterControllerRecord", "metadata.version 33"])
def test_a_record_of_a_newer_kafka(what: str, recordings: Recordings, tmp_path: Path) -> None:
    """Behind the latest snapshot, in the metadata's log. A node ends over it where kidx, asked for the node's Kafka,
    says so; what the node has registered says 4.3.
    """
    make = partial(_with_newer_record, what)
    for version in recordings.versions("newer_records"):
        did = recordings.of("newer_records", what, _starting(make, version), kafka=version, seed=0)
        assert did["serves"] == (release_of(version) >= KAFKA_4_4), did
    disk = make(tmp_path)
    for options, is_named in (((), True), (("--kafka-version", "4.4.0"), False), (("--kafka-version", "3.9"), True)):
        for command in ("recover", "verify"):
            arguments = [command, str(disk.a), str(disk.b), "--processes", "1", *options]
            ended = CliRunner().invoke(kidx, arguments, standalone_mode=False)
            assert (what in ended.output) == (ended.return_value != 0) == is_named, ended.output


def _with_newer_record(what: str, directory: Path) -> Disk:
    disk = unpack(directory)
    log = max(disk.metadata.glob(f"*{LOG_SUFFIX}"))
    with contextlib.closing(LogFile(str(log))) as opened:
        *_, last = batches(opened)
    if what == "UnregisterControllerRecord":
        values = [of_controller(7, "CONTROLLER://127.0.0.1:9093"), change(what, controllerId=7)]
    else:
        values = [change("FeatureLevelRecord", name=METADATA_VERSION, featureLevel=33)]
    first = last.last_offset + 1
    written = [Record(first + at, last.max_timestamp, None, value) for at, value in enumerate(values)]
    with log.open("ab") as file:
        file.write(encoded.batch_v2(written, leader_epoch=last.partition_leader_epoch))
    return disk


def _with_open_transaction(directory: Path, *, is_left: bool) -> Disk:
    """A disk on which `orders-0` ends with a transaction that is open, behind its last producer snapshot."""
    disk = unpack(directory)
    partition = disk.b / "orders-0"
    batch = Batch(producer_id=77, producer_epoch=0, base_sequence=0, attributes=ATTRIBUTE_TRANSACTIONAL)
    with (partition / "00000000000000000000.log").open("ab") as log:
        log.write(b"".join(encode(10, [batch])))
    for snapshot in partition.glob("*.snapshot"):
        assert int(snapshot.stem) <= 10
        if not is_left:
            snapshot.unlink()
    return disk


#: What mends a damage besides `--mend`.
_MENDED: Final[Mapping[str, Sequence[str]]] = {
    "leader-epoch-checkpoint: NUL": (),
    "recovery-point-offset-checkpoint: junk": (),
    "partition.metadata: missing": ("--accept-topic-id", "orders"),
    "the latest .checkpoint: NUL": ("--set-aside-snapshot",),
}


@pytest.mark.parametrize("case", _MENDED)
def test_a_node_serves_all_of_a_mended_disk(case: str, recordings: Recordings, tmp_path: Path) -> None:
    """By itself it does not start on it, or not with all that is there."""
    for version in recordings.versions("mended"):
        start = _starting(partial(_damaged, case), version)
        before = recordings.of("starts", case, start, kafka=version, seed=0)
        assert not before["serves"] or before["offline"] or before["offsets"]
        start = _starting(partial(_mended, case), version)
        did = recordings.of("mended", case, start, kafka=version, seed=0)
        assert did["serves"] and not did["offline"] and not did["offsets"], did
    assert not list(_obstacles(_mended(case, tmp_path)))


def _mended(case: str, directory: Path) -> Disk:
    disk = _damaged(case, directory)
    mend = ["--mend", "--keep", str(directory / "kept"), *_MENDED[case], "--apply", "--json", "--processes", "1"]
    result = CliRunner().invoke(kidx, ["recover", str(disk.a), str(disk.b), *mend], standalone_mode=False)
    assert result.return_value == 0, (result.exception, result.output)
    return disk
