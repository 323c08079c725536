"""What keeps a broker from starting before it comes to logs, compared with the classes of Kafka that find it."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import pytest
from py4j.protocol import Py4JJavaError

from kidxlib.audit.startup.directories import obstacles_in_log_dir
from kidxlib.audit.startup.obstacles import Thrown, accepted_offsets, obstacles_in_partition
from kidxlib.format import checkpoint_files, topic_partition
from kidxlib.storage.log_dir import PARTITION_METADATA
from tests.conftest import Say
from tests.support.kafka.classes import Kafka, error_of
from tests.support.logs.random_logs import write_random_log

_ID: Final = b"AAAAAAAAAAAAAAAAAAAAAg"
#: Of these checkpoints and metadata files are put together, well and badly.
_WORDS: Final = [b"0", b"1", b"2", b"-1", b"+1", b"00", b"x", b"a", b"99999999999999999999", b"4294967296", b"7", b"3"]
_GAPS: Final = [b" ", b" ", b" ", b"  ", b"\t", b"\x0b", b"\xc2\xa0"]
_ENDS: Final = [b"\n", b"\n", b"\n", b"\r\n", b"\r", b"\n\n", b"\xff\n"]
_METADATA: Final = [
    b"version: 0\ntopic_id: " + _ID,
    b"version: 5\nid: " + _ID + b"\nmore",
    b"version: 0\ntopic_id: " + _ID + b"==\n",
    b"",
    b"garbage",
    b"version: 0",
    b"version: x\ntopic_id: " + _ID,
    b"version: -1\ntopic_id: " + _ID,
    b"version:0\ntopic_id: " + _ID,
    b"version: 0\ntopic_id: short",
    b"version: 0\ntopic_id: " + b"A" * 22,
    b"version: 0\ntopic_id: " + b"A" * 21 + b"B",
    b"version: 0\ntopic_id: " + _ID + b"=",
    b"version: 0\ntopic_id: " + _ID + b"AA",
    b"version: 0\ntopic_id: " + _ID + b" ",
    b"version: 0\ntopic_id: a: " + _ID,
    b"version: 0\n\ntopic_id: " + _ID,
    b"version: 0\ntopic_id: \xff" + _ID,
]


def _thrown(act: Callable[..., object], *arguments: object) -> Thrown | None:
    """How Kafka fails, if it does: a storage exception stands for an `IOException`, which has marked the log dir."""
    try:
        act(*arguments)
    except Py4JJavaError as error:
        return Thrown.IO if error_of(error).name == "KafkaStorageException" else Thrown.OTHER
    return None


def _reported(failures: Iterable[str]) -> Thrown | None:
    [*reported] = (thrown for failure in failures for thrown in Thrown if thrown in failure)
    return reported[0] if reported else None


def _random_checkpoint(fields: int, rng: random.Random) -> bytes:
    """As often as not of a right form, so that what is wrong is one thing."""
    count = rng.randrange(4)
    lines = [b"0", str(count).encode()]
    lines += [b"a 0 5" if fields == 3 else str(10 + number).encode() + b" 7" for number in range(count)]
    for _ in range(rng.randrange(3)):
        at = rng.randrange(len(lines))
        lines[at] = rng.choice(_GAPS).join(rng.choices(_WORDS, k=rng.choice([1, fields, fields, rng.randrange(4)])))
    if rng.random() < 0.2:  # not amid a number: for as many entries as the second line says Kafka makes room
        del lines[rng.randrange(len(lines)) :]
    return b"".join(line + rng.choice(_ENDS if rng.random() < 0.2 else [b"\n"]) for line in lines)


def test_directories_are_partitions_as_to_kafka(kafka: Kafka, rng: random.Random) -> None:
    """Of names put together from what such names are made of."""
    log = kafka.gateway.jvm.org.apache.kafka.storage.internals.log.UnifiedLog
    file = kafka.gateway.jvm.java.io.File
    parts = ["a", "-", "-", ".", "0", "7", "00", "+", " ", "-delete", "-future", "-stray", "é", "٣", "2147483648", "-0"]
    found = {"".join(rng.choices(parts, k=rng.randint(1, 6))) for _ in range(400)}
    for name in sorted({*found, "lost+found", "lost+found-0", "remote-log-index-cache", "a-0.b-delete", "a-delete"}):
        if name.strip(".") == "":
            continue
        try:
            theirs = log.parseTopicPartitionName(file(f"/{name}"))
            expected = theirs.topic(), theirs.partition()
        except Py4JJavaError as error:
            assert error_of(error).name == "KafkaException"
            expected = None
        ours = topic_partition.loaded_as(name)
        assert (ours and (ours.topic, ours.partition)) == expected, name


def test_checkpoints_are_read_as_by_kafka(kafka: Kafka, scratch: Path, rng: random.Random, say: Say) -> None:
    """The offsets that it takes, and how it fails: what marks the log dir, and what does not."""
    kafkas, java = kafka.gateway.jvm.org.apache.kafka.storage.internals, kafka.gateway.jvm.java.io.File
    path = scratch / checkpoint_files.HIGH_WATERMARK_CHECKPOINT  # of which either is reported as a failure
    counts: dict[str, int] = {}
    for _ in range(600):
        path.write_bytes(_random_checkpoint(3, rng))
        channel = kafkas.log.LogDirFailureChannel(1)
        checkpoint = kafkas.checkpoint.OffsetCheckpointFile(java(str(path)), channel)
        thrown = _thrown(checkpoint.read)
        ours = accepted_offsets(scratch, path.name)
        reported = _reported([str(ours.failure)]) if ours.failure else None
        assert (ours.failure is not None) == (thrown is not None), path.read_bytes()
        assert (reported is Thrown.IO) == (thrown is Thrown.IO) == channel.hasOfflineLogDir(str(scratch))
        if thrown is None:
            theirs = {str(each.getKey().toString()): each.getValue() for each in checkpoint.read().entrySet()}
            assert {partition.directory: offset for partition, offset in ours.by_partition.items()} == theirs
        counts[str(thrown and thrown.name)] = counts.get(str(thrown and thrown.name), 0) + 1
    assert len(counts) == 3, counts
    say(f"offset checkpoints, by what Kafka throws: {counts}")


def test_epochs_and_topic_ids_are_read_as_by_kafka(kafka: Kafka, scratch: Path, rng: random.Random) -> None:
    """Loaded with the log that they belong to."""
    directory = scratch / "test-0"
    for content in _METADATA:
        _hold_directory(kafka, directory, PARTITION_METADATA, content)
    for _ in range(150):
        _hold_directory(kafka, directory, checkpoint_files.LEADER_EPOCH_CHECKPOINT, _random_checkpoint(2, rng))


@pytest.mark.parametrize(
    "name",
    [
        "00000000000000000000 (copy).log",
        "99999999999999999999.log",
        "old.index",
        "old.timeindex",
        "old.txnindex",
        "foo.snapshot",
        ".snapshot",
        "foo.cleaned",
        "foo.index.swap",
        "foo.log.deleted",
        "foo.log.old",
        "5.index",
        "5.snapshot",
        "-5.txnindex",
        "notes",
    ],
)
def test_names_are_offsets_as_to_kafka(name: str, kafka: Kafka, scratch: Path) -> None:
    _hold_directory(kafka, scratch / "test-0", name, b"")


def _hold_directory(kafka: Kafka, directory: Path, name: str, content: bytes) -> None:
    """Let Kafka load such a directory with a sound log and this file: a new one, as the log of the one before may still
    flush its epochs (`LeaderEpochFileCache`), and would put them in the place of this file.
    """
    directory = Path(tempfile.mkdtemp(dir=directory.parent)) / directory.name
    write_random_log(directory, random.Random(1))
    (directory / name).write_bytes(content)
    reported = _reported(map(str, obstacles_in_partition(directory)))

    def load() -> None:
        with kafka.opened_log(directory):
            pass

    assert reported == _thrown(load), (name, content)


_JUNK: Final = b"junk\n"


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("notes", b""),
        ("lost+found/", b""),
        ("lost+found-0/", b""),
        ("remote-log-index-cache/", b""),
        ("a-0.b-delete/leader-epoch-checkpoint", b"0\n0\n"),
        ("a-0.b-delete/leader-epoch-checkpoint", _JUNK),
        ("a-0.b-future/leader-epoch-checkpoint", _JUNK),
        ("a-0.b-stray/leader-epoch-checkpoint", b"0\n1\n0 x\n"),
        ("a-0.b-delete/foo.snapshot", b""),
        (checkpoint_files.RECOVERY_POINT_CHECKPOINT, _JUNK),
        (checkpoint_files.RECOVERY_POINT_CHECKPOINT, b"0\n3\na 0 7\n"),
        (checkpoint_files.RECOVERY_POINT_CHECKPOINT, b"0\n1\na 0 x\n"),
        (checkpoint_files.LOG_START_OFFSET_CHECKPOINT, _JUNK),
        (checkpoint_files.LOG_START_OFFSET_CHECKPOINT, b""),
    ],
)
def test_a_log_dir_is_taken_as_by_log_manager(path: str, content: bytes, kafka: Kafka, scratch: Path) -> None:
    """Kafka's `LogManager` starts on it: it throws, marks the log dir as failed, or does neither."""
    log_dir = scratch / "logs"
    log_dir.mkdir()
    write_random_log(log_dir / "test-0", random.Random(1))
    planted = log_dir / path
    (planted if path.endswith("/") else planted.parent).mkdir(exist_ok=True)
    if not path.endswith("/"):
        planted.write_bytes(content)
    read = [
        accepted_offsets(log_dir, name)
        for name in (checkpoint_files.RECOVERY_POINT_CHECKPOINT, checkpoint_files.LOG_START_OFFSET_CHECKPOINT)
    ]
    reported = [str(each.failure) for each in read if each.failure is not None]
    reported += map(str, obstacles_in_log_dir(log_dir))
    ended, offline = kafka.start_log_manager(log_dir)
    assert bool(reported) == (ended or offline), reported
    assert offline == any(Thrown.IO in failure for failure in reported), reported
