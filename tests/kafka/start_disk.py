"""A small real disk of a KRaft node that has stopped, and damages to it: each to one of the files that a node reads
before it serves.

The disk is kept in `recorded/start-disk.tar.gz`, so that each run of the tests looks at the bytes that brokers were
started on. `python -m tests.kafka.start_disk` makes another one, with which all recordings have to be made anew.

Node 1 is broker and controller, and has two log dirs. Node 2 is a broker: it has one topic's partition, and has gone.
"""

from __future__ import annotations

import re
import shutil
import tarfile
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from confluent_kafka import Producer
from confluent_kafka.cimpl import NewTopic

from kidxlib.format.checkpoint_files import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from kidxlib.format.kafka_release import METADATA_VERSION
from kidxlib.format.layouts import HEADER_SIZE_UP_TO_MAGIC
from kidxlib.format.segment_files import SnapshotId, kraft_snapshot_file
from kidxlib.log.metadata_replica import METADATA_DIRECTORY
from kidxlib.storage.log_dir import CLEAN_SHUTDOWN_FILE, META_PROPERTIES, PARTITION_METADATA
from tests.kafka.reading import TIMEOUT_SECONDS
from tests.support.cluster_metadata import change, snapshot
from tests.support.kafka.admin import make_topics
from tests.support.kafka.broker import Broker, free_ports

#: The release whose brokers can start on the disk, and all later ones.
RELEASE: Final = "3.9"
LOG_DIRS: Final = ("data", "data-b")
#: What lies beside the log dirs: the partition of node 2.
SPARE: Final = "spare"
SETTINGS: Final = {
    "metadata.log.max.record.bytes.between.snapshots": 1_500,
    "metadata.log.max.snapshot.interval.ms": 0,
    "log.index.size.max.bytes": 4096,
    "num.recovery.threads.per.data.dir": 1,
    "log.initial.task.delay.ms": 1_000_000,
}
_ARCHIVE: Final = Path(__file__).parent / "recorded" / "start-disk.tar.gz"
_RECORDS: Final = 5


def unpack(directory: Path) -> Disk:
    """Put the log dirs, and what lies beside them, into a directory."""
    with tarfile.open(_ARCHIVE) as archive:
        archive.extractall(directory, filter="data")
    return Disk(directory)


class Disk:
    """An unpacked disk.

    Attributes:
        a, b: its two log dirs; the first has the metadata.
        metadata: the directory of the metadata's log.
        spare: what lies beside the log dirs.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.a, self.b = (directory / name for name in LOG_DIRS)
        self.metadata, self.spare = self.a / METADATA_DIRECTORY, directory / SPARE

    @property
    def snapshots(self) -> list[Path]:
        """The metadata's, the latest last."""
        return sorted(self.metadata.glob("*.checkpoint"))


Damage: TypeAlias = Callable[[Disk], object]
#: Where the log begins once its first segment is gone: where a batch begins, and a snapshot ends.
_SECOND_SEGMENT: Final = 40
#: The `metadata.version` of the disk: 3.9-IV0.
_LEVEL: Final = 21
_UNKNOWN_ID: Final = "AAAAAAAAAAAAAAAAAAAAAg"


def _removed(path: Path) -> Path:
    """A file, or a directory with all that is in it."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    return path


def _directory(path: Path) -> Path:
    path.mkdir()
    return path


def _emptied(path: Path) -> Path:
    path.write_bytes(b"")
    return path


def _zeroed(path: Path) -> Path:
    path.write_bytes(bytes(path.stat().st_size))
    return path


def _torn(path: Path) -> Path:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) * 2 // 3])
    return path


def _cut(path: Path, size: int) -> Path:
    path.write_bytes(path.read_bytes()[:size])
    return path


def _flipped(path: Path) -> Path:
    """One bit in the middle."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)
    return path


def _replaced(path: Path, old: str, new: str) -> Path:
    """By a regular expression, which has to be found."""
    text, count = re.subn(old, new, path.read_text())
    assert count, (path, old)
    path.write_text(text)
    return path


def _split_metadata(disk: Disk) -> Path:
    """Let the metadata's log have two segments, as after a roll; the first one."""
    log = disk.metadata / "00000000000000000000.log"
    content, position = log.read_bytes(), 0
    while (base := int.from_bytes(content[position : position + 8])) < _SECOND_SEGMENT:
        position += 12 + int.from_bytes(content[position + 8 : position + 12])
    assert base == _SECOND_SEGMENT
    log.write_bytes(content[:position])
    (disk.metadata / f"{_SECOND_SEGMENT:020d}.log").write_bytes(content[position:])
    return log


def _first_snapshot(disk: Disk) -> Path:
    """In place of all snapshots one of offset 0, as `kafka-storage format` of Kafka 4.4 writes it."""
    for path in disk.snapshots:
        path.unlink()
    path = disk.metadata / kraft_snapshot_file(SnapshotId(0, 0))
    path.write_bytes(snapshot([change("FeatureLevelRecord", name=METADATA_VERSION, featureLevel=_LEVEL)], 0))
    return path


def _without_first_segment(disk: Disk) -> Path:
    for path in [_split_metadata(disk), *disk.metadata.glob("*.index"), *disk.metadata.glob("*.timeindex")]:
        path.unlink()
    return disk.metadata


def _moved(path: Path, suffix: str, to: Path | None = None, number: int = 0) -> Path:
    """Give a partition's directory the name that Kafka gives it while it is moved."""
    return path.rename((to or path.parent) / f"{path.name}.{number:032x}-{suffix}")


def _copied(path: Path, to: Path) -> Path:
    shutil.copytree(path, to)
    return to


def _of_id(directory: Path, topic_id: str) -> Path:
    return _replaced(directory / PARTITION_METADATA, "topic_id: .*", f"topic_id: {topic_id}")


def _shorter(directory: Path) -> Path:
    """The log ends two batches earlier, as one that is still being copied."""
    log = directory / "00000000000000000000.log"
    log.write_bytes(log.read_bytes()[: log.stat().st_size * 3 // 5])
    return log


def _unclean(disk: Disk) -> Disk:
    for log_dir in (disk.a, disk.b):
        (log_dir / CLEAN_SHUTDOWN_FILE).unlink()
    return disk


_SPOIL: Final[Mapping[str, Callable[[Path], object]]] = {
    "empty": _emptied,
    "NUL": _zeroed,
    "torn": _torn,
    "missing": _removed,
    "another bit": _flipped,
}


def _each(file: str, path: Callable[[Disk], Path], how: Sequence[str]) -> dict[str, Damage]:
    """A file spoilt in some ways."""

    def damage(spoil: Callable[[Path], object]) -> Damage:
        return lambda disk: spoil(path(disk))

    return {f"{file}: {each}": damage(_SPOIL[each]) for each in how}


def _rewritten(file: str, path: Callable[[Disk], Path], changes: Mapping[str, tuple[str, str]]) -> dict[str, Damage]:
    """A text file in which something is replaced."""

    def damage(old: str, new: str) -> Damage:
        return lambda disk: _replaced(path(disk), old, new)

    return {f"{file}: {what}": damage(old, new) for what, (old, new) in changes.items()}


def _of_meta_properties() -> dict[str, Damage]:
    def first(disk: Disk) -> Path:
        return disk.a / META_PROPERTIES

    def second(disk: Disk) -> Path:
        return disk.b / META_PROPERTIES

    return {
        **_each("meta.properties", first, ["empty", "NUL", "missing"]),
        **_each("meta.properties of the other log dir", second, ["empty", "NUL", "missing"]),
        **_rewritten(
            "meta.properties",
            first,
            {
                "no node.id": ("node.id=1\n", ""),
                "node.id is no number": ("node.id=1", "node.id=one"),
                "no cluster.id": ("cluster.id=.*\n", ""),
                "no version": ("version=1\n", ""),
                "version 0": ("version=1", "version=0"),
                "version 2": ("version=1", "version=2"),
                "no directory.id": ("directory.id=.*\n", ""),
                "directory.id is no id": ("directory.id=.*", "directory.id=x"),
                "directory.id is reserved": ("directory.id=.*", "directory.id=AAAAAAAAAAAAAAAAAAAAAQ"),
                "another directory.id": ("directory.id=.*", "directory.id=BBBBBBBBBBBBBBBBBBBBBA"),
            },
        ),
        **_rewritten(
            "meta.properties of the other log dir",
            second,
            {
                "no node.id": ("node.id=1\n", ""),
                "no cluster.id": ("cluster.id=.*\n", ""),
                "version 2": ("version=1", "version=2"),
                "version 0 of the node": ("node.id=1\n((.*\n)*)version=1", r"broker.id=1\n\1version=0"),
                "directory.id is no id": ("directory.id=.*", "directory.id=x"),
                "another node.id": ("node.id=1", "node.id=3"),
                "another cluster.id": ("cluster.id=.*", "cluster.id=BBBBBBBBBBBBBBBBBBBBBA"),
                "no directory.id": ("directory.id=.*\n", ""),
                "another directory.id": ("directory.id=.*", "directory.id=BBBBBBBBBBBBBBBBBBBBBA"),
            },
        ),
        "meta.properties of both log dirs: another node.id": lambda disk: [
            _replaced(path, "node.id=1", "node.id=3") for path in (first(disk), second(disk))
        ],
        "meta.properties of the other log dir: one directory.id in both": lambda disk: shutil.copyfile(
            first(disk), second(disk)
        ),
    }


def _of_log_dirs() -> dict[str, Damage]:
    return {
        "log dir: gone": lambda disk: _removed(disk.b),
        "log dir: a file": lambda disk: (_removed(disk.b), disk.b.write_bytes(b"")),
        "log dir: lost+found": lambda disk: _directory(disk.b / "lost+found"),
        "log dir: the metadata's log in both": lambda disk: _copied(disk.metadata, disk.b / METADATA_DIRECTORY),
        "log dir: the metadata's log is in the other one": lambda disk: disk.metadata.rename(
            disk.b / METADATA_DIRECTORY
        ),
        "log dir: no metadata's log": lambda disk: _removed(disk.metadata),
        "log dir: .lock is a directory": lambda disk: _directory(disk.b / ".lock"),
    }


def _of_raft() -> dict[str, Damage]:
    def quorum_state(disk: Disk) -> Path:
        return disk.metadata / "quorum-state"

    def write_state(content: str) -> Damage:
        return lambda disk: quorum_state(disk).write_text(content)

    return {
        **_each("bootstrap.checkpoint", lambda disk: disk.a / "bootstrap.checkpoint", list(_SPOIL)),
        **_each("quorum-state", quorum_state, ["empty", "NUL", "torn", "missing"]),
        **_rewritten(
            "quorum-state",
            quorum_state,
            {
                "no data_version": (',"data_version":0', ""),
                "data_version 7": ('"data_version":0', '"data_version":7'),
                "other voters": ('"voterId":1', '"voterId":5'),
                "a higher epoch": ('"leaderEpoch":\\d+', '"leaderEpoch":9'),
                "a lower epoch": ('"leaderEpoch":\\d+', '"leaderEpoch":0'),
                "another leader": ('"leaderId":1', '"leaderId":5'),
                "no leaderEpoch": ('"leaderEpoch":\\d+,', ""),
            },
        ),
        "quorum-state: an empty object": write_state("{}"),
        "quorum-state: a list": write_state("[]"),
        "quorum-state: an empty line before it": lambda disk: quorum_state(disk).write_text(
            "\n" + quorum_state(disk).read_text()
        ),
    }


def _of_snapshots() -> dict[str, Damage]:
    def latest(disk: Disk) -> Path:
        return disk.snapshots[-1]

    return {
        **_each("the latest .checkpoint", latest, list(_SPOIL)),
        **_each("the .checkpoint of offset 0", _first_snapshot, ["empty", "NUL", "torn", "another bit"]),
        "the .checkpoint of offset 0: torn in its first batch": lambda disk: _cut(
            _first_snapshot(disk), HEADER_SIZE_UP_TO_MAGIC
        ),
        "the .checkpoint of offset 0: 16 bytes of it": lambda disk: _cut(
            _first_snapshot(disk), HEADER_SIZE_UP_TO_MAGIC - 1
        ),
        **_each("an older .checkpoint", lambda disk: disk.snapshots[0], ["empty", "NUL"]),
        "all .checkpoint: missing": lambda disk: [_removed(path) for path in disk.snapshots],
        "all .checkpoint: empty": lambda disk: [_emptied(path) for path in disk.snapshots],
        "a .checkpoint.part: of an end beyond the log": lambda disk: shutil.copyfile(
            latest(disk), disk.metadata / "00000000000000000999-0000000002.checkpoint.part"
        ),
        "a .checkpoint: of an end beyond the log": lambda disk: shutil.copyfile(
            latest(disk), disk.metadata / "00000000000000000999-0000000002.checkpoint"
        ),
        "a .checkpoint: empty, of an end beyond the log": lambda disk: (
            disk.metadata / "00000000000000000999-0000000002.checkpoint"
        ).write_bytes(b""),
        "a .checkpoint.deleted: left over": lambda disk: latest(disk).rename(f"{latest(disk)}.deleted"),
        "a .checkpoint: misnamed": lambda disk: (disk.metadata / "x.checkpoint").write_bytes(b""),
    }


def _set_aside(snapshot: Path) -> Path:
    """As somebody does who wants to have it out of the way, and leaves it where a node looks."""
    return snapshot.rename(snapshot.with_name(f"{snapshot.stem}-bad{snapshot.suffix}"))


def _of_renamed_snapshots() -> dict[str, Damage]:
    return {
        "a renamed .checkpoint: the latest": lambda disk: _set_aside(disk.snapshots[-1]),
        "a renamed .checkpoint: an older one": lambda disk: _set_aside(disk.snapshots[0]),
        "a renamed .checkpoint: all": lambda disk: [_set_aside(path) for path in disk.snapshots],
        "a renamed .checkpoint: all, and the log begins where one ends": lambda disk: (
            _without_first_segment(disk),
            [_set_aside(path) for path in disk.snapshots],
        ),
        "a renamed .checkpoint: the latest, of another epoch": lambda disk: disk.snapshots[-1].rename(
            disk.metadata / "00000000000000000078-0000000001.checkpoint"
        ),
        "a renamed .checkpoint: the latest, and the log begins where an older one ends": lambda disk: (
            _without_first_segment(disk),
            _set_aside(disk.snapshots[-1]),
        ),
        "a renamed .checkpoint: an older one, and the log begins there": lambda disk: (
            _without_first_segment(disk),
            _set_aside(disk.snapshots[-2]),
        ),
    }


def _of_metadata_log() -> dict[str, Damage]:
    def log(disk: Disk) -> Path:
        return disk.metadata / "00000000000000000000.log"

    return {
        **_each("the metadata's .log", log, list(_SPOIL)),
        "the metadata's .log: NUL behind its end": lambda disk: log(disk).write_bytes(
            log(disk).read_bytes() + bytes(5_000)
        ),
        "the metadata's .log: begins where a snapshot ends": _without_first_segment,
        "the metadata's .log: begins behind all snapshots": lambda disk: (
            _without_first_segment(disk),
            [_removed(path) for path in disk.snapshots],
        ),
        "the metadata's .log: begins behind the only snapshot that is left": lambda disk: (
            _without_first_segment(disk),
            [_removed(path) for path in disk.snapshots[1:]],
        ),
        "the metadata's .log: begins where a snapshot ends, and the latest is empty": lambda disk: (
            _without_first_segment(disk),
            _emptied(disk.snapshots[-1]),
        ),
        **_each(
            "the metadata's leader-epoch-checkpoint",
            lambda disk: disk.metadata / LEADER_EPOCH_CHECKPOINT,
            ["empty", "NUL", "torn", "missing"],
        ),
        **_each(
            "the metadata's partition.metadata",
            lambda disk: disk.metadata / PARTITION_METADATA,
            ["empty", "NUL", "missing"],
        ),
        "the metadata's partition.metadata: another id": lambda disk: _of_id(disk.metadata, _UNKNOWN_ID),
        "the metadata's directory: a misnamed file": lambda disk: (disk.metadata / "old.index").write_bytes(b""),
    }


def _of_log_manager() -> dict[str, Damage]:
    def in_b(name: str) -> Callable[[Disk], Path]:
        return lambda disk: disk.b / name

    def written(name: str, content: str) -> Damage:
        return lambda disk: (disk.b / name).write_text(content)

    damages: dict[str, Damage] = {
        **_each(CLEAN_SHUTDOWN_FILE, in_b(CLEAN_SHUTDOWN_FILE), ["empty", "NUL", "missing"]),
        f"{CLEAN_SHUTDOWN_FILE}: a directory": lambda disk: (
            _removed(disk.b / CLEAN_SHUTDOWN_FILE),
            _directory(disk.b / CLEAN_SHUTDOWN_FILE),
        ),
    }
    for name in (RECOVERY_POINT_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT, CLEANER_CHECKPOINT):
        damages |= {
            **_each(name, in_b(name), ["empty", "NUL", "missing"]),
            f"{name}: junk": written(name, "junk\n"),
            f"{name}: fewer lines than it says": written(name, "0\n3\norders 0 5\n"),
            f"{name}: an offset that is no number": written(name, "0\n1\norders 0 x\n"),
        }
    return damages


def _of_partitions() -> dict[str, Damage]:
    def orders(disk: Disk) -> Path:
        return disk.b / "orders-0"

    return {
        **_each(PARTITION_METADATA, lambda disk: orders(disk) / PARTITION_METADATA, ["empty", "NUL", "missing"]),
        f"{PARTITION_METADATA}: an id that the metadata does not have": lambda disk: _of_id(orders(disk), _UNKNOWN_ID),
        f"{PARTITION_METADATA}: another topic's id": lambda disk: shutil.copyfile(
            disk.b / "ledger-0" / PARTITION_METADATA, orders(disk) / PARTITION_METADATA
        ),
        f"{PARTITION_METADATA}: missing in the only partition of a topic": lambda disk: (
            _copied(disk.spare / "away-0", disk.a / "away-0"),
            _removed(disk.a / "away-0" / PARTITION_METADATA),
        ),
        "topic: deleted and made again, all partitions are old": lambda disk: [
            _of_id(path, _UNKNOWN_ID) for log_dir in (disk.a, disk.b) for path in log_dir.glob("orders-*")
        ],
        "topic: not in the metadata": lambda disk: _of_id(_copied(orders(disk), disk.b / "gone-0"), _UNKNOWN_ID),
        "topic: a folder copied under a name that no topic has": lambda disk: _copied(orders(disk), disk.b / "copy-0"),
        "topic: a folder copied over another topic's": lambda disk: (
            _removed(disk.b / "ledger-0"),
            _copied(orders(disk), disk.b / "ledger-0"),
        ),
        "topic: a folder copied under a number that the topic does not have": lambda disk: _copied(
            orders(disk), disk.b / "orders-9"
        ),
        "topic: a partition of another broker": lambda disk: _copied(disk.spare / "away-0", disk.b / "away-0"),
        **_each(
            LEADER_EPOCH_CHECKPOINT,
            lambda disk: orders(disk) / LEADER_EPOCH_CHECKPOINT,
            ["empty", "NUL", "torn", "missing"],
        ),
        "partition: its folder is gone": lambda disk: _removed(orders(disk)),
        "partition: its folder is gone, and there was no recovery point": lambda disk: (
            _removed(orders(disk)),
            _replaced(disk.b / RECOVERY_POINT_CHECKPOINT, r" \d+\n", " 0\n"),
            _unclean(disk),
        ),
        "partition: its folder is empty": lambda disk: [_removed(path) for path in orders(disk).iterdir()],
        "partition: its log is missing": lambda disk: _removed(orders(disk) / "00000000000000000000.log"),
        "partition: a misnamed file": lambda disk: (orders(disk) / "old.index").write_bytes(b""),
        "partition: twice in one log dir": lambda disk: _copied(orders(disk), disk.b / "orders-00"),
        "partition: in both log dirs": lambda disk: _copied(orders(disk), disk.a / "orders-0"),
        "partition: in another log dir than the metadata says": lambda disk: orders(disk).rename(disk.a / "orders-0"),
    }


def _of_moves() -> dict[str, Damage]:
    def orders(disk: Disk) -> Path:
        return disk.b / "orders-0"

    def copy(disk: Disk, suffix: str = "future", to: Path | None = None, number: int = 0) -> Path:
        """A copy of a partition with such a name, beside it or in another log dir."""
        return _moved(_copied(orders(disk), disk.spare / "orders-0"), suffix, to or disk.b, number)

    def to_a(disk: Disk) -> Path:
        return copy(disk, to=disk.a)

    return {
        "-future: alone, in the log dir that the metadata says": lambda disk: _moved(orders(disk), "future"),
        "-future: alone, in another log dir than the metadata says": lambda disk: _moved(
            orders(disk), "future", disk.a
        ),
        "-future: in one log dir with the partition": copy,
        "-future: in one log dir with the partition, which the metadata has elsewhere": lambda disk: _copied(
            orders(disk).rename(disk.a / "orders-0"), disk.a / f"orders-0.{0:032x}-future"
        ),
        "-future: the partition is where the metadata says, the copy is as long": to_a,
        "-future: the partition is where the metadata says, the copy is shorter": lambda disk: _shorter(to_a(disk)),
        "-future: the copy is where the metadata says": lambda disk: (
            copy(disk),
            orders(disk).rename(disk.a / "orders-0"),
        ),
        "-future: the copy is where the metadata says, and shorter": lambda disk: (
            _shorter(copy(disk)),
            orders(disk).rename(disk.a / "orders-0"),
        ),
        "-future: of a topic that the metadata does not have": lambda disk: _of_id(to_a(disk), _UNKNOWN_ID),
        "-future: without partition.metadata": lambda disk: _removed(to_a(disk) / PARTITION_METADATA),
        "-future: of a partition of another broker": lambda disk: _moved(disk.spare / "away-0", "future", disk.a),
        "-future: two of one partition": lambda disk: (to_a(disk), copy(disk, number=1)),
        "-delete: left over": lambda disk: copy(disk, "delete"),
        "-delete: of a partition that is not there else": lambda disk: _moved(orders(disk), "delete"),
        "-delete: its leader-epoch-checkpoint is NUL": lambda disk: _zeroed(
            copy(disk, "delete") / LEADER_EPOCH_CHECKPOINT
        ),
        "-delete: empty": lambda disk: _directory(disk.b / f"orders-0.{0:032x}-delete"),
        "-stray: left over": lambda disk: copy(disk, "stray"),
        "-stray: of a partition that is not there else": lambda disk: _moved(orders(disk), "stray"),
        "-stray: its leader-epoch-checkpoint is NUL": lambda disk: _zeroed(
            copy(disk, "stray") / LEADER_EPOCH_CHECKPOINT
        ),
    }


#: What is done to the disk, by words; first of all nothing.
DAMAGES: Final[Mapping[str, Damage]] = {
    "nothing": lambda disk: disk,
    "nothing: an unclean stop": _unclean,
    **_of_meta_properties(),
    **_of_log_dirs(),
    **_of_raft(),
    **_of_snapshots(),
    **_of_renamed_snapshots(),
    **_of_metadata_log(),
    **_of_log_manager(),
    **_of_partitions(),
    **_of_moves(),
}


def make(directory: Path) -> None:
    """Let brokers make a disk, and archive it."""
    ports = free_ports(3)
    voters = {"controller.quorum.voters": f"1@127.0.0.1:{ports[1]}"}
    node = Broker(
        directory / "1",
        {**SETTINGS, **voters},
        more_log_dirs=LOG_DIRS[1:],
        ports=(ports[0], ports[1]),
        format_with=["--release-version", RELEASE],
    )
    other = Broker(
        directory / "2",
        {
            **SETTINGS,
            **voters,
            "node.id": 2,
            "process.roles": "broker",
            "listeners": f"PLAINTEXT://127.0.0.1:{ports[2]}",
        },
        ports=(ports[2], ports[1]),
    )
    with node.running(), other.running():
        made = [
            NewTopic("orders", num_partitions=4, replica_assignment=[[1]] * 4),
            NewTopic("ledger", num_partitions=2, replica_assignment=[[1]] * 2),
            NewTopic("away", num_partitions=1, replica_assignment=[[2]]),
        ]
        make_topics(node.bootstrap, made)
        _produce(node, [("orders", each) for each in range(4)] + [("ledger", each) for each in range(2)])
        _produce(other, [("away", 0)])
    with node.running():
        _produce(node, [("orders", each) for each in range(4)])
        time.sleep(1)  # the controller takes a snapshot in its own time
    for log_dir in node.log_dirs:
        shutil.copytree(log_dir, directory / "disk" / log_dir.name)
    shutil.copytree(other.log_dir / "away-0", directory / "disk" / SPARE / "away-0")
    for lock in (directory / "disk").glob("*/.lock"):
        lock.unlink()
    _ARCHIVE.parent.mkdir(exist_ok=True)
    with tarfile.open(_ARCHIVE, "w:gz") as archive:
        for path in sorted((directory / "disk").iterdir()):
            archive.add(path, path.name, filter=of_nobody)


def of_nobody(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def _produce(broker: Broker, partitions: list[tuple[str, int]]) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    for _ in range(_RECORDS):
        for topic, partition in partitions:
            producer.produce(topic, partition=partition, key=b"key", value=b"value" * 4)
        producer.flush(TIMEOUT_SECONDS)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        make(Path(made))
