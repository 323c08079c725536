"""The gates of an audit, each tried against a planted problem of each kind that it is there for: none passes.

docs/safety.md sums them up.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kidxlib.audit import partition
from kidxlib.audit.finding import Verdict
from kidxlib.audit.partition import audit_partition, partition_audits
from kidxlib.audit.segment import AuditedSegment, audit_segment
from kidxlib.audit.startup import obstacles
from kidxlib.audit.startup.loader import simulate_startup
from kidxlib.audit.startup.simulation import StartupSimulation
from kidxlib.cli.main import kidx
from kidxlib.errors import UsageError
from kidxlib.format import segment_files
from kidxlib.format.checkpoint_files import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from kidxlib.index.search_kernel import OFFSET_ENTRY_BYTES
from kidxlib.indexing.plan import find_segments
from kidxlib.indexing.source import IndexPlace, parse_topics, source_at
from kidxlib.log.metadata_image import read_cluster_metadata
from kidxlib.records.reader import Record
from kidxlib.recovery.options import OptionsOfTopic, RecoverOptions
from kidxlib.storage.location import Listed, Location
from kidxlib.storage.log_dir import CLEAN_SHUTDOWN_FILE
from kidxlib.storage.small_files import small_file
from kidxlib.terminal.exit_codes import ExitCode
from tests.docs.log_dirs import put
from tests.faults.trees import write_log
from tests.support.audits import audited, problems_of, show_summary, sound_copies, summarised, verified
from tests.support.cluster_metadata import config, put_metadata, topic, topic_id
from tests.support.files import flip
from tests.support.logs import encoded, golden
from tests.support.logs.batches import Batch, batch_positions

_DIRECTORY = "txn-mixed-0"
_FIRST, _LARGE, _SMALL, _ACTIVE, _END = 0, 84, 5797, 5891, 10333


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log dir with all its files that a broker left with an unclean stop, all that it had flushed."""
    log_dir = sound_copies(tmp_path_factory.mktemp("sound"), _DIRECTORY)
    for name in (RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT):
        _checkpoint(log_dir, name, _END)
    return log_dir


@pytest.fixture
def log_dir(sound: Path, tmp_path: Path) -> Path:
    """A copy of it, to be changed."""
    return Path(shutil.copytree(sound, tmp_path / "logs"))


def _checkpoint(log_dir: Path, name: str, offset: int, partition: str = "txn-mixed 0") -> None:
    (log_dir / name).write_text(f"0\n1\n{partition} {offset}\n")


def _log(log_dir: Path, base_offset: int) -> Path:
    return log_dir / _DIRECTORY / segment_files.segment_file(base_offset, segment_files.LOG_SUFFIX)


def _flip(base_offset: int, where: float) -> Callable[[Path], None]:
    """Change a byte in a log, that far into it."""

    def plant(log_dir: Path) -> None:
        path = _log(log_dir, base_offset)
        flip(path, int(where * (path.stat().st_size - 1)), bits=0x40)

    return plant


def _shorter(base_offset: int, by: int) -> Callable[[Path], None]:
    return lambda log_dir: os.truncate(path := _log(log_dir, base_offset), path.stat().st_size - by)


def _longer(base_offset: int, tail: bytes) -> Callable[[Path], None]:
    return lambda log_dir: _append(_log(log_dir, base_offset), tail)


def _append(path: Path, tail: bytes) -> None:
    with path.open("ab") as file:
        file.write(tail)


def _after_clean_stop(plant: Callable[[Path], None]) -> Callable[[Path], None]:
    def planted(log_dir: Path) -> None:
        (log_dir / CLEAN_SHUTDOWN_FILE).touch()
        plant(log_dir)

    return planted


def _flushed_to(offset: int, plant: Callable[[Path], None]) -> Callable[[Path], None]:
    def planted(log_dir: Path) -> None:
        _checkpoint(log_dir, RECOVERY_POINT_CHECKPOINT, offset)
        plant(log_dir)

    return planted


def _emptied(base_offset: int) -> Callable[[Path], None]:
    return lambda log_dir: os.truncate(_log(log_dir, base_offset), 0)


def _removed(base_offset: int) -> Callable[[Path], None]:
    return lambda log_dir: _log(log_dir, base_offset).unlink()


def _at_batch(base_offset: int, number: int) -> Callable[[Path], None]:
    """End a log where one of its batches starts."""

    def plant(log_dir: Path) -> None:
        path = _log(log_dir, base_offset)
        os.truncate(path, batch_positions(path.read_bytes())[number])

    return plant


def _piece_of_next_batch(size: int) -> Callable[[Path], None]:
    """What an append leaves that was not finished: the last batch with the next offset, so much of it."""

    def plant(log_dir: Path) -> None:
        data = _log(log_dir, _ACTIVE).read_bytes()
        batch = data[batch_positions(data)[-1] :]
        _append(_log(log_dir, _ACTIVE), (_END.to_bytes(8) + batch[8:])[:size])

    return plant


def _last_batch_twice(log_dir: Path) -> None:
    data = _log(log_dir, _SMALL).read_bytes()
    _append(_log(log_dir, _SMALL), data[batch_positions(data)[-1] :])


def _size_of_last_batch(more: int) -> Callable[[Path], None]:
    def plant(log_dir: Path) -> None:
        path = _log(log_dir, _ACTIVE)
        data = bytearray(path.read_bytes())
        at = batch_positions(data)[-1] + 8
        data[at : at + 4] = (int.from_bytes(data[at : at + 4]) + more).to_bytes(4)
        path.write_bytes(data)

    return plant


def _size_in_the_middle(log_dir: Path) -> None:
    path = _log(log_dir, _ACTIVE)
    data = bytearray(path.read_bytes())
    positions = batch_positions(data)
    at = positions[len(positions) // 2]
    data[at + 8 : at + 12] = (len(data) - at + 1).to_bytes(4)
    path.write_bytes(data)


def _magic(log_dir: Path) -> None:
    path = _log(log_dir, _SMALL)
    data = bytearray(path.read_bytes())
    data[16] = 3
    path.write_bytes(data)


def _unreadable(log_dir: Path) -> None:
    _log(log_dir, _LARGE).unlink()
    _log(log_dir, _LARGE).mkdir()


def _other_base_offset(log_dir: Path) -> None:
    """A log under the name of the segment before it."""
    shutil.copyfile(_log(log_dir, _SMALL), _log(log_dir, _LARGE))


def _swapping(log_dir: Path) -> None:
    """As a broker that ends amid a swap leaves a segment; a bit of its log has flipped since."""
    _flip(_SMALL, 0.5)(log_dir)
    for path in (log_dir / _DIRECTORY).glob(segment_files.segment_file(_SMALL, ".*")):
        if path.suffix != segment_files.SNAPSHOT_SUFFIX:
            path.rename(path.with_name(f"{path.name}.swap"))


def _swap_of(log_dir: Path, size: Callable[[bytes], int]) -> None:
    """A file that a broker puts in the place of the large log as it starts."""
    content = _log(log_dir, _LARGE).read_bytes()
    Path(f"{_log(log_dir, _LARGE)}{segment_files.SWAP_SUFFIX}").write_bytes(content[: size(content)])


def _half_of_the_batches(content: bytes) -> int:
    return next(at for at in batch_positions(content) if at >= len(content) // 2)


def _cut_swap_with_its_index(log_dir: Path) -> None:
    """The last entry of the index leads behind the end of the swap, so that a start finds no offset in it."""
    _swap_of(log_dir, _half_of_the_batches)
    index = log_dir / _DIRECTORY / segment_files.segment_file(_LARGE, segment_files.OFFSET_INDEX_SUFFIX)
    shutil.copyfile(index, f"{index}{segment_files.SWAP_SUFFIX}")


def _swap_of_wrappers(log_dir: Path) -> None:
    """Of two messages each, with the offset of the second one; the swap has one of the two."""
    messages = [encoded.message(Record(offset, 0, None, b"value"), 1) for offset in range(2)]
    content = [encoded.wrapper(messages, offset, magic=1, codec=1, compress=encoded.gzip) for offset in (1, 3)]
    _directory("old-0", **{f"{0:020d}.log": b"".join(content), f"{0:020d}.log.swap": content[0]})(log_dir)


def _compacted(log_dir: Path) -> None:
    _checkpoint(log_dir, name="cleaner-offset-checkpoint", offset=84, partition="txn-mixed 0")
    _swap_of(log_dir, _half_of_the_batches)


def _empty_directory(log_dir: Path) -> None:
    (log_dir / "orders-3").mkdir()


def _directory(name: str, **files: bytes) -> Callable[[Path], None]:
    """A directory in the log dir, and what is in it."""

    def plant(log_dir: Path) -> None:
        (log_dir / name).mkdir()
        for file, content in files.items():
            (log_dir / name / file.replace("_", "-")).write_bytes(content)

    return plant


def _file(name: str, content: bytes = b"") -> Callable[[Path], None]:
    """A file in the log dir."""

    def plant(log_dir: Path) -> None:
        (log_dir / name).write_bytes(content)

    return plant


def _in_partition(name: str, content: bytes = b"") -> Callable[[Path], None]:
    return _file(f"{_DIRECTORY}/{name}", content)


def _with_topic_ids(second: str, topic_id: str) -> Callable[[Path], None]:
    """Two partitions with their ids, the second one's another copy of the first."""

    def plant(log_dir: Path) -> None:
        _in_partition("partition.metadata", _metadata("A" * 21 + "g"))(log_dir)
        shutil.copytree(log_dir / _DIRECTORY, log_dir / second)
        (log_dir / second / "partition.metadata").write_bytes(_metadata(topic_id))
        points = f"0\n2\ntxn-mixed 0 {_END}\n{' '.join(second.rsplit('-', 1))} {_END}\n"
        for name in (RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT):
            (log_dir / name).write_text(points)

    return plant


def _metadata(topic_id: str) -> bytes:
    return f"version: 0\ntopic_id: {topic_id}".encode()


def _base_offset_of_last_batch(log_dir: Path) -> None:
    """A bit of it flips: no checksum is over it."""
    path = _log(log_dir, _ACTIVE)
    flip(path, batch_positions(path.read_bytes())[-1] + 5, bits=0x40)


def _leader_epoch(base_offset: int) -> Callable[[Path], None]:
    """All batches of a segment get a later one, which no checksum covers either."""

    def plant(log_dir: Path) -> None:
        path = _log(log_dir, base_offset)
        data = bytearray(path.read_bytes())
        for at in batch_positions(data):
            data[at + 12 : at + 16] = (5).to_bytes(4)
        path.write_bytes(data)

    return plant


def _without_topic_id(meta_properties: bytes) -> Callable[[Path], None]:
    def plant(log_dir: Path) -> None:
        (log_dir / _DIRECTORY / "partition.metadata").unlink()
        _file("meta.properties", meta_properties)(log_dir)

    return plant


def _twice(log_dir: Path) -> None:
    shutil.copytree(log_dir / _DIRECTORY, log_dir / f"{_DIRECTORY}0")


def _padded_time_index(base_offset: int) -> Callable[[Path], None]:
    """As a broker has it while it writes the segment."""

    def plant(log_dir: Path) -> None:
        os.truncate(
            log_dir / _DIRECTORY / segment_files.segment_file(base_offset, segment_files.TIME_INDEX_SUFFIX),
            12 * 100_000,
        )

    return plant


def _nothing(log_dir: Path) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Planted:
    """A problem, and what is said of it.

    Attributes:
        gate: options of `kidx verify`.
        says: stands in its output.
    """

    gate: tuple[str, ...]
    name: str
    plant: Callable[[Path], None]
    says: str
    code: int = 3


_FLIPS = [
    Planted(
        (),
        f"a bit of the {which} segment flipped, {how}",
        plant(_flip(base_offset, where)),
        f"broken: {_DIRECTORY} {base_offset} .log: ",
    )
    for which, base_offset in (("first", _FIRST), ("middle", _LARGE), ("last", _ACTIVE))
    for where, how, plant in (
        (0.01, "1% into it", lambda plant: plant),
        (0.5, "50% into it, clean stop", _after_clean_stop),
        (0.999, "99.9% into it", lambda plant: plant),
    )
]
_OFFLINE = "a broker that starts takes the log dir out of use, and ends if it has no other"
_NO_OFFSET = "is no offset; a broker that starts ends with an error (NumberFormatException)"
_OFFSET_CHECKPOINTS = (
    RECOVERY_POINT_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    CLEANER_CHECKPOINT,
)
_JUNK = b"junk\n"
_SHORT = b"0\n3\ntxn-mixed 0 7\n"
_NO_NUMBER = b"0\n1\ntxn-mixed 0 x\n"
#: What keeps a broker from starting, and what is like it and does not.
_NO_START = [
    Planted(
        (), "lost+found", _directory("lost+found"), "lost+found: a directory whose name is not <topic>-<partition>"
    ),
    Planted((), "a partition number that is none", _directory("orders-x"), "orders-x: a directory whose name"),
    Planted((), "a directory for nothing", _directory("orders-delete"), "orders-delete: a directory whose name"),
    Planted(
        (), "tiered storage's indexes", _directory("remote-log-index-cache"), "start-up simulation valid for Kafka", 0
    ),
    Planted((), "a partition that goes", _directory("a-0.b-delete"), "start-up simulation valid for Kafka", 0),
    *(
        Planted(
            (),
            f"epochs of a partition that goes, {moved}",
            _directory(f"a-0.b-{moved}", leader_epoch_checkpoint=_JUNK),
            f"a-0.b-{moved}/leader-epoch-checkpoint: line 1: 'junk', expected a number; {_OFFLINE}",
        )
        for moved in ("delete", "future", "stray")
    ),
    Planted((), "a copy of a log", _in_partition(f"{0:020d} (copy).log"), f"'{0:020d} (copy)' {_NO_OFFSET}"),
    Planted((), "an offset that is too large", _in_partition(f"{'9' * 20}.log"), f"'{'9' * 20}' {_NO_OFFSET}"),
    Planted((), "an index without an offset", _in_partition("old.index"), f"old.index: 'old' {_NO_OFFSET}"),
    Planted((), "a snapshot without an offset", _in_partition("foo.snapshot"), f"foo.snapshot: 'foo' {_NO_OFFSET}"),
    Planted(
        (),
        "a log of a short name",
        _in_partition("1.log"),
        f"a log whose name is not {1:020d}.log; a broker that starts takes it for that one, and opens that; what "
        f"follows is not simulated; {1:020d}.log is not there: rename the file to that",
    ),
    Planted(
        (),
        "no metadata in it",
        _in_partition("partition.metadata", b"garbage"),
        f"expected '<name>: <value>'; {_OFFLINE}",
    ),
    Planted(
        (),
        "no topic id, KRaft",
        _without_topic_id(b"version=1\nnode.id=1\n"),
        f"{_DIRECTORY}: no partition.metadata; a broker that starts sets the directory aside (-stray)",
    ),
    Planted(
        (),
        "no topic id, ZooKeeper",
        _without_topic_id(b"version=0\nbroker.id=1\n"),
        "start-up simulation valid for Kafka",
        0,
    ),
    Planted(
        (), "its topic id", _with_topic_ids("txn-mixed-1", "A" * 21 + "g"), "start-up simulation valid for Kafka", 0
    ),
    Planted(
        (), "another topic id", _with_topic_ids("txn-mixed-1", "A" * 21 + "w"), "a topic has one; of the directory"
    ),
    Planted((), "another topic's id", _with_topic_ids("other-0", "A" * 21 + "g"), "no two topics have one; the partit"),
    Planted((), "a partition under two names", _twice, f"{_DIRECTORY}0: to a broker it is {_DIRECTORY}, as "),
    Planted((), "metadata of no bytes", _in_partition("partition.metadata"), "line 1: not there"),
    *(
        Planted((), f"{name} of {what}", _file(name, content), f"{name}: {says}; {_OFFLINE}")
        for name in _OFFSET_CHECKPOINTS
        for what, content, says in (
            ("junk", _JUNK, "line 1: 'junk', expected a number"),
            ("fewer lines than it says", _SHORT, "line 2: 3 entries announced, 1 found"),
            ("other bytes", b"0\n1\n\xff 0 7\n", "byte 4: not UTF-8"),
        )
    ),
    Planted(
        (),
        "a high watermark that is no number",
        _file(HIGH_WATERMARK_CHECKPOINT, _NO_NUMBER),
        "line 3: 'txn-mixed 0 x', expected other numbers; a broker that starts does not get",
    ),
    Planted(
        (),
        "a recovery point that is no number",
        _file(RECOVERY_POINT_CHECKPOINT, _NO_NUMBER),
        "(partitions after a clean stop: 0",  # a broker takes 0, and reads it all
        0,
    ),
    Planted((), "a checkpoint of no bytes", _file(RECOVERY_POINT_CHECKPOINT), "start-up simulation valid for Kafka", 0),
    Planted(
        (),
        "a checkpoint that is none",
        _directory(LOG_START_OFFSET_CHECKPOINT),
        "not read: not a regular file; what a broker takes from it is not known",
    ),
]
_CASES = [
    Planted((), "nothing", _nothing, "│ .log │     4 │    0 │    0 │      0 │", 0),
    Planted(("--fail-on", "safe"), "nothing", _nothing, "│ .log │     4 │    0 │    0 │      0 │", 0),
    Planted(("--require-tiering",), "nothing", _nothing, "ready for tiering", 0),
    *_FLIPS,
    Planted((), "an unfinished append", _piece_of_next_batch(70), "torn: txn-mixed-0 5891 .log: batch-overruns", 0),
    Planted((), "an unfinished header", _piece_of_next_batch(11), "torn: txn-mixed-0 5891 .log: trailing-bytes", 0),
    Planted(("--fail-on", "torn"), "an unfinished append", _piece_of_next_batch(70), "torn: txn-mixed-0 5891 .log: "),
    Planted(("--fail-on", "safe"), "an unfinished append", _piece_of_next_batch(70), "torn: txn-mixed-0 5891 .log: "),
    Planted(("--fail-on", "torn"), "an unfinished header", _piece_of_next_batch(11), "torn: txn-mixed-0 5891 .log: "),
    Planted(("--fail-on", "torn"), "zeros after the last batch", _longer(_ACTIVE, bytes(5000)), "torn: "),
    Planted(("--fail-on", "torn"), "5 zeros after the last batch", _longer(_ACTIVE, bytes(5)), "torn: "),
    Planted((), "random bytes after the last batch", _longer(_ACTIVE, b"\x93" * 300), "broken: "),
    Planted((), "a few random bytes after the last batch", _longer(_ACTIVE, b"\x93\x01\xff"), "broken: "),
    Planted((), "a torn end, flushed", _shorter(_ACTIVE, 9), "ends-below-recovery-point"),
    Planted((), "a torn end, clean stop", _after_clean_stop(_longer(_ACTIVE, bytes(50))), "appends at byte"),
    Planted(
        (), "what recovery would do, clean stop", _after_clean_stop(_flip(_LARGE, 0.5)), "and deletes 2 segments after"
    ),
    Planted(
        (), "all that is lost", _flushed_to(1, _flip(_LARGE, 0.999)), "; after it 824,024 bytes with 4,536 records"
    ),
    Planted((), "all that would be lost", _flip(_LARGE, 0.999), "; after it 824,024 bytes"),
    Planted((), "a torn end of a segment that is not the last", _longer(_LARGE, bytes(50)), "only the last segment"),
    Planted((), "a size field that is too large, last batch", _size_of_last_batch(64), "broken: "),
    Planted((), "a size field that is too large, with batches after", _size_in_the_middle, "broken: "),
    Planted((), "the last batch is gone", _at_batch(_ACTIVE, -1), "ends-below-recovery-point"),
    Planted(
        (),
        "the last batch is gone, as far as the high watermark knows",
        _flushed_to(6000, _at_batch(_ACTIVE, -1)),
        "ends-below-high-watermark",
    ),
    Planted((), "the last segment is gone", _removed(_ACTIVE), "ends-below-recovery-point"),
    Planted((), "a middle segment's log is gone", _removed(_SMALL), ".log: missing"),
    Planted((), "a middle log of no bytes", _emptied(_LARGE), "shorter-than-its-index"),
    Planted((), "a middle log that ends at half", _at_batch(_LARGE, 100), "shorter-than-its-index"),
    Planted((), "the last log of no bytes", _emptied(_ACTIVE), "ends-below-rec"),
    Planted(
        (),
        "the log start is above the log's end",
        partial(_checkpoint, name=LOG_START_OFFSET_CHECKPOINT, offset=_END + 1),
        "ends-below-log-start",
    ),
    Planted(
        (),
        "a time index with room, clean stop",
        _after_clean_stop(_padded_time_index(_ACTIVE)),
        "broken: txn-mixed-0 5891 .timeindex: preallocated: ",
    ),
    Planted((), "a time index with room", _padded_time_index(_ACTIVE), "safe: txn-mixed-0 5891 .timeindex: preall", 0),
    Planted(
        (), "a closed time index with room", _padded_time_index(_LARGE), "broken: txn-mixed-0 84 .timeindex: fails-"
    ),
    Planted((), "a segment of a later leader epoch", _leader_epoch(_LARGE), "leader-epochs-go-back"),
    Planted(
        ("--fail-on", "safe"),
        "the last batch's base offset, clean stop",
        _after_clean_stop(_base_offset_of_last_batch),
        "safe: txn-mixed-0 5891 .log: ends-above-recovery-point",
    ),
    Planted((), "a log amid a swap", _after_clean_stop(_swapping), ".log: not-checked"),
    Planted(
        (),
        "a swap that ends earlier",
        partial(_swap_of, size=_half_of_the_batches),
        "broken: txn-mixed-0 84 .log: swap-lacks-records: 00000000000000000084.log.swap takes its place when a broker",
    ),
    Planted(
        (), "a swap that is cut off", partial(_swap_of, size=lambda content: len(content) - 9), "log.swap is damaged: "
    ),
    Planted(
        (),
        "a swap of no bytes",
        partial(_swap_of, size=lambda content: 0),
        "84 .log: swap-lacks-records: 00000000000000000084.log.swap takes its place when a broker starts, and has no "
        "records; what it replaces has",
    ),
    Planted((), "a swap of 20 bytes", partial(_swap_of, size=lambda content: 20), "log.swap is damaged: "),
    Planted((), "a cut swap with its index", _cut_swap_with_its_index, "broken: txn-mixed-0 84 .log: swap-lacks-rec"),
    Planted(
        (),
        "a swap of old wrappers",
        _swap_of_wrappers,
        "broken: old-0 0 .log: swap-lacks-records: 00000000000000000000.log.swap takes its place when a broker starts, "
        "and has records up to offset 1; what it replaces has records up to offset 3; records were not compared: ",
    ),
    Planted((), "a swap that is as long", partial(_swap_of, size=len), "│ .log │     4 │    0 │    0 │", 0),
    Planted(("--fail-on", "safe"), "a swap of the cleaner", _compacted, "safe: txn-mixed-0 84 .log: swapped-in: "),
    Planted((), "the same without the option", _compacted, "safe: txn-mixed-0 84 .log: swapped-in: ", 0),
    Planted((), "a batch stands twice", _last_batch_twice, "offsets-not-increasing"),
    Planted((), "segments overlap", _other_base_offset, "overlaps-segment-before"),
    Planted((), "a magic that nobody writes", _magic, "unknown-magic"),
    Planted((), "a log that cannot be read", _unreadable, "broken: txn-mixed-0 84 .log: cannot-read"),
    Planted((), "a partition's directory without segments", _empty_directory, "no segment is there"),
    Planted(
        (),
        "a partition's directory is gone",
        partial(_checkpoint, name=RECOVERY_POINT_CHECKPOINT, offset=7, partition="orders 3"),
        "orders-3: no segment is there, though the broker's checkpoints say that it had offsets up to 6",
    ),
    *_NO_START,
    Planted((), "an empty log dir", lambda log_dir: shutil.rmtree(log_dir / _DIRECTORY), "no partition directory", 2),
    Planted(("--require-tiering",), "a bit flipped", _flip(_LARGE, 0.5), "84: .log is broken: crc-mismatch"),
    Planted(("--require-tiering",), "a torn end", _longer(_LARGE, bytes(50)), "84: .log is broken: size-too-small"),
    Planted(("--require-tiering",), "a batch stands twice", _last_batch_twice, "5797: .log is broken: offsets-not"),
    Planted(("--require-tiering",), "a log of no bytes", _emptied(_LARGE), ".log is broken"),
    Planted(("--require-tiering",), "a log that cannot be read", _unreadable, "84: .log is broken: cannot-read"),
]


@pytest.mark.parametrize("planted", _CASES, ids=lambda case: " ".join((*case.gate, case.name)))
def test_no_gate_passes_what_it_is_there_for(
    planted: Planted, log_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the functions that `kidx verify` and the job verify_index both print and end with."""
    planted.plant(log_dir)
    tiering = "--require-tiering" in planted.gate
    fail_on = Verdict(planted.gate[1]) if "--fail-on" in planted.gate else Verdict.BROKEN
    if planted.code == ExitCode.USAGE:
        with pytest.raises(UsageError, match=planted.says):
            audited(log_dir)
        return
    summary = summarised(log_dir, tiering=tiering)
    show_summary(summary)
    shown = capsys.readouterr().out
    assert planted.says in shown, shown
    assert summary.fails(fail_on) == (planted.code == ExitCode.PROBLEMS_FOUND), shown


@pytest.mark.parametrize(("is_gone", "found"), [(True, {}), (False, {f"{_LARGE:020d}.log": ("broken", "cannot-read")})])
def test_a_swap_that_cannot_be_read_after_the_simulation_ends_no_audit(
    is_gone: bool,
    found: dict[str, tuple[str, str]],
    log_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A running broker has given it its name by then; or its blocks cannot be read, here as it is a directory."""
    _swap_of(log_dir, _half_of_the_batches)
    swap = Path(f"{_log(log_dir, _LARGE)}{segment_files.SWAP_SUFFIX}")

    def simulated(*arguments: Any, **options: Any) -> StartupSimulation:
        simulation = simulate_startup(*arguments, **options)
        swap.unlink()
        if not is_gone:
            swap.mkdir()
        return simulation

    monkeypatch.setattr(partition, "simulate_startup", simulated)
    assert problems_of(audited(log_dir).files) == found


@pytest.mark.parametrize(("policy", "reason"), [("delete, compact", "swapped-in"), ("delete", "swap-lacks-records")])
def test_a_list_of_policies_may_have_blanks(policy: str, reason: str, log_dir: Path, tmp_path: Path) -> None:
    _swap_of(log_dir, _half_of_the_batches)
    records = [topic("txn-mixed", topic_id("t")), config("txn-mixed", "cleanup.policy", policy)]
    copy = put_metadata(tmp_path / "metadata", records)
    options, sources = RecoverOptions(), [source_at(str(log_dir), "it")]
    index_place = IndexPlace(index_dir=None, by_source=False)
    plan = find_segments(sources, parse_topics(".*"), index_place, lambda _: OptionsOfTopic(options))
    audits, _ = partition_audits(
        plan,
        sources,
        lambda _: OptionsOfTopic(options),
        clean_shutdown=None,
        tiering=False,
        metadata={"it": read_cluster_metadata(copy)},
    )
    read = [audit_segment(task, True, deep=False, clean_shutdown=False) for task in plan.scan_tasks()]
    [audit] = audits.values()
    findings = audit_partition(audit, map(AuditedSegment.for_partition, read)).findings
    assert reason in {each.finding.reason for each in findings}


def test_a_checkpoint_that_another_user_owns_cannot_be_judged(
    log_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever runs this: root may read them all."""

    def refused(path: Location | Listed) -> bytes:
        if str(path).endswith(f"/{RECOVERY_POINT_CHECKPOINT}"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return small_file(path)

    monkeypatch.setattr(obstacles, "small_file", refused)
    summary = summarised(log_dir)
    show_summary(summary)
    reported = f"fail: {log_dir}/{RECOVERY_POINT_CHECKPOINT}: not readable by this user; what a broker takes from it"
    assert f"{reported} is not known" in capsys.readouterr().out
    assert summary.fails(Verdict.BROKEN)


def test_a_file_that_this_user_cannot_read_is_told_once(
    log_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever runs this: root may read them all."""
    secret = log_dir / _DIRECTORY / "partition.metadata"

    def refused(path: Location | Listed) -> bytes:
        if str(path) == str(secret):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return small_file(path)

    monkeypatch.setattr(obstacles, "small_file", refused)
    monkeypatch.setattr(os, "access", lambda path, mode: str(path) != str(secret))
    summary = summarised(log_dir)
    show_summary(summary)
    reported = [line for line in capsys.readouterr().out.splitlines() if str(secret) in line]
    assert reported == [f"fail: {secret}: not readable by this user; what a broker takes from it is not known"]
    assert summary.fails(Verdict.BROKEN)


@pytest.mark.parametrize("mode", [0o600, 0o444])
@pytest.mark.parametrize("of_root", [True, False])
def test_a_file_that_the_log_dirs_owner_cannot_use_is_told_to_root_too(
    log_dir: Path, mode: int, of_root: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """After a restore as root: whoever audits may read it all. Of an owner without a name no groups are known."""
    if os.getuid() != 0:
        pytest.skip("needs root")
    user = 54321
    for path in (log_dir, *log_dir.rglob("*")):
        os.chown(path, user, user)
    assert not summarised(log_dir).fails(Verdict.BROKEN)
    log = _log(log_dir, _LARGE)
    os.chown(log, *((0, 0) if of_root else (user, user)))
    log.chmod(mode)
    summary = summarised(log_dir)
    show_summary(summary)
    shown = capsys.readouterr().out
    if not of_root and mode == 0o600:
        assert not summary.fails(Verdict.BROKEN), shown
        return
    owner = 0 if of_root else user
    reported = (
        f"fail: {log}: of user {owner}, group {owner}, mode {mode:03o}; the log dir's owner, user {user}, needs rw; "
    )
    assert f"{reported}{_OFFLINE}" in shown
    assert summary.fails(Verdict.BROKEN)


def test_what_a_log_dir_fails_for_is_told_once_and_segments_all_the_same(
    log_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of two partitions; of each there is also what becomes of its segments, and what it fails for itself."""
    shutil.copytree(golden.SAMPLES / "compacted-0", log_dir / "compacted-0")
    (log_dir / "lost+found").mkdir()
    _in_partition("old.index")(log_dir)
    rows = audited(log_dir)
    show_summary(summarised(log_dir))
    shown = capsys.readouterr().out
    assert shown.count("fail: ") == 2 and shown.count(f"fail: {log_dir}/lost+found: ") == 1, shown
    assert {row.topic for row in rows.startup} == {"compacted", "txn-mixed"}
    assert len(rows.startup) == len(list(log_dir.rglob("*.log")))
    [failure] = [row.failure for row in rows.partitions if row.topic == "txn-mixed"]
    assert failure is not None and len(failure.split("\n")) == 1


def test_beside_a_partition_that_was_given_alone_anything_may_lie(log_dir: Path) -> None:
    """The directory above need not be a log dir."""
    (log_dir / "lost+found").mkdir()
    assert not summarised(log_dir / _DIRECTORY).fails(Verdict.BROKEN)


def test_an_archive_may_hold_other_directories(sound: Path, tmp_path: Path) -> None:
    """No broker is to start there: none has left a file of its own."""
    shutil.copytree(sound / _DIRECTORY, tmp_path / _DIRECTORY)
    (tmp_path / "manifests").mkdir()
    assert not summarised(tmp_path).fails(Verdict.BROKEN)
    (tmp_path / CLEAN_SHUTDOWN_FILE).touch()
    assert summarised(tmp_path).fails(Verdict.BROKEN)


@pytest.mark.parametrize(
    ("plant", "says"),
    [
        (_removed(_LARGE), "broken: txn-mixed-0 84 .log: missing"),
        (_removed(_SMALL), "broken: txn-mixed-0 5797 .log: missing"),
        (_emptied(_LARGE), "broken: txn-mixed-0 84 .log: shorter-than-its-index"),
        (_at_batch(_LARGE, 100), "broken: txn-mixed-0 84 .log: shorter-than-its-index"),
    ],
)
def test_an_index_directory_tells_too_what_has_vanished(
    plant: Callable[[Path], None], says: str, log_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """After a clean stop a broker looks at none of it; the indexes in a directory of their own know."""
    index_dir = tmp_path / "indexes"
    (index_dir / _DIRECTORY).mkdir(parents=True)
    for path in (log_dir / _DIRECTORY).glob("*index"):
        path.rename(index_dir / _DIRECTORY / path.name)
    assert not summarised(log_dir, index_dir).fails(Verdict.BROKEN)
    _after_clean_stop(plant)(log_dir)
    summary = summarised(log_dir, index_dir)
    show_summary(summary)
    assert says in capsys.readouterr().out
    assert summary.fails(Verdict.BROKEN)


@pytest.mark.parametrize(
    ("plant", "fail_on", "says", "code"),
    [
        (_removed(_ACTIVE), Verdict.BROKEN, "broken: txn-mixed-0 5891 .log: missing: its .index is there", 3),
        (_removed(_FIRST), Verdict.BROKEN, "safe: txn-mixed-0 0 .log: gone: its .index is there", 0),
        (_removed(_FIRST), Verdict.SAFE, "deleted by retention, or is lost", 3),
    ],
    ids=["last", "first", "first, --fail-on safe"],
)
def test_an_index_directory_knows_how_a_log_that_no_checkpoint_knows_began_and_ended(
    plant: Callable[[Path], None],
    fail_on: Verdict,
    says: str,
    code: int,
    sound: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """An archive; retention deletes at the beginning, and leaves files in an index directory until they are removed."""
    log_dir = tmp_path / "logs"
    shutil.copytree(golden.SAMPLES / _DIRECTORY, log_dir / _DIRECTORY)
    plant(log_dir)
    summary = summarised(log_dir, sound)
    show_summary(summary)
    assert says in capsys.readouterr().out
    assert summary.fails(fail_on) == (code == ExitCode.PROBLEMS_FOUND)


def test_a_log_that_was_begun_and_indexed_during_an_audit_is_not_missing(sound: Path, tmp_path: Path) -> None:
    """The broker rolls a segment once the directory is listed, and a build indexes it before its partition's turn."""
    shutil.copytree(golden.SAMPLES / _DIRECTORY, tmp_path / _DIRECTORY)
    options, index_place = RecoverOptions(), IndexPlace(index_dir=sound, by_source=False)
    sources = [source_at(str(tmp_path), "it")]
    plan = find_segments(sources, parse_topics(".*"), index_place, lambda _: OptionsOfTopic(options))
    audits, _ = partition_audits(plan, sources, lambda _: OptionsOfTopic(options), clean_shutdown=None, tiering=False)
    listed = [audit_segment(task, True, deep=False, clean_shutdown=False) for task in plan.scan_tasks()[:-1]]
    [audit] = audits.values()
    found = audit_partition(audit, map(AuditedSegment.for_partition, listed))
    assert not [each for each in found.findings if each.finding.reason == "missing"]


def test_an_index_directory_of_before_compaction_is_no_loss(tmp_path: Path) -> None:
    """The cleaner has merged segments into the one before: their files in the index directory are left over."""
    log_dir, index_dir = tmp_path / "logs", tmp_path / "indexes"
    shutil.copytree(golden.SAMPLES / "compacted-0", log_dir / "compacted-0")
    assert CliRunner().invoke(kidx, ["build", str(log_dir), "--index-dir", str(index_dir)]).exit_code == 0
    second = sorted((log_dir / "compacted-0").glob("*.log"))[1]
    second.unlink()
    rows = audited(log_dir, index_dir, clean_shutdown=True).files
    [found] = [row for row in rows if row.base_offset == int(second.stem) and row.file == segment_files.LOG_SUFFIX]
    assert (found.verdict, found.reason) == ("safe", "missing")
    assert "compaction may have merged it" in (found.consequence or "")


def test_a_large_batch_after_a_wrong_size_is_found(tmp_path: Path) -> None:
    """Larger than what is looked at, at a time: what follows the wrong size field is no unfinished append."""
    batch = encoded.batch_v2([Record(offset=0, timestamp=0, key=None, value=bytes(9 << 20))])
    data = bytearray(b"".join(offset.to_bytes(8) + batch[8:] for offset in range(4)))
    at = len(batch) + 8
    data[at : at + 4] = (900_000_000).to_bytes(4)
    write_log(tmp_path / "orders-0", 0, bytes(data))
    [log] = [row for row in audited(tmp_path).files if row.file == segment_files.LOG_SUFFIX]
    assert (log.verdict, log.reason, log.position) == ("broken", "batch-overruns-file", len(batch))


def test_a_repair_does_not_pass_a_broken_log(log_dir: Path) -> None:
    """Whether there is an index to repair or not."""
    repair = ["build", str(log_dir), "--in-place", "--repair"]
    assert CliRunner().invoke(kidx, repair, standalone_mode=False).return_value == ExitCode.OK
    _flip(_LARGE, 0.999)(log_dir)
    os.truncate(log_dir / _DIRECTORY / segment_files.segment_file(_SMALL, segment_files.TIME_INDEX_SUFFIX), 12)
    for files in ("broken: 1 index file in 1 partition", "broken: 0 index files in 0 partitions"):
        ended = CliRunner().invoke(kidx, repair, standalone_mode=False)
        assert ended.return_value == ExitCode.PROBLEMS_FOUND
        assert files in ended.stderr
        assert f"broken, and no repair of index files mends it: {_log(log_dir, _LARGE)}; " in ended.stderr


def test_a_log_that_a_broker_has_begun_is_whole(tmp_path: Path) -> None:
    """It has room for its indexes, and nothing in them: so a kill leaves each partition that had no record since."""
    shutil.copytree(golden.SAMPLES / "plain-zstd-0", tmp_path / "plain-zstd-0")
    assert CliRunner().invoke(kidx, ["build", str(tmp_path), "--in-place"]).exit_code == ExitCode.OK
    begun = tmp_path / "plain-zstd-0" / segment_files.segment_file(20_000, segment_files.LOG_SUFFIX)
    begun.touch()
    room = {segment_files.OFFSET_INDEX_SUFFIX: 10_485_760, segment_files.TIME_INDEX_SUFFIX: 10_485_756}
    for suffix, size in room.items():
        begun.with_suffix(suffix).touch()
        os.truncate(begun.with_suffix(suffix), size)
    summary = summarised(tmp_path)
    assert (summary.logs(Verdict.WHOLE), summary.fails(Verdict.TORN)) == (3, False)


@pytest.mark.parametrize("room", [0, 8_000], ids=["trimmed", "with room"])
@pytest.mark.parametrize(("kept", "end"), [(466_975, 19_840), (0, 13_697)], ids=["between two batches", "nothing"])
def test_a_last_log_that_ends_before_its_index_is_torn(
    kept: int, end: int, room: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is there is whole, and nothing but the index tells that it was more; a kill leaves the index untrimmed."""
    shutil.copytree(golden.SAMPLES / "plain-zstd-0", tmp_path / "plain-zstd-0")
    assert CliRunner().invoke(kidx, ["build", str(tmp_path), "--in-place"]).exit_code == ExitCode.OK
    log = tmp_path / "plain-zstd-0" / segment_files.segment_file(13_697, segment_files.LOG_SUFFIX)
    os.truncate(log, kept)
    index = log.with_suffix(segment_files.OFFSET_INDEX_SUFFIX)
    os.truncate(index, index.stat().st_size + room)
    summary = summarised(tmp_path)
    assert (summary.logs(Verdict.TORN), summary.fails(Verdict.TORN)) == (1, True)
    show_summary(summary)
    out = capsys.readouterr().out
    assert f"torn: plain-zstd-0 13697 .log: shorter-than-its-index at byte {kept}: " in out
    missing = f"  offsets from {end} up to 19999 or above are missing, and a broker that starts goes on without them"
    assert f"{missing}: look for them on another replica" in out


def test_an_archive_without_indexes_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A start rebuilds what a log tells; that a segment was recovered for want of its index keeps those after it."""
    shutil.copytree(golden.SAMPLES / "txn-mixed-0", tmp_path / "txn-mixed-0")
    with (tmp_path / "txn-mixed-0" / segment_files.segment_file(84, segment_files.LOG_SUFFIX)).open("r+b") as log:
        log.seek(1_047_252)
        log.write(b"xx")
    show_summary(summarised(tmp_path))
    lines = capsys.readouterr().out.splitlines()
    assert "broken: 4 segments without an .index (the first: txn-mixed-0 0)" in lines
    assert not any(f".{suffix}: missing: no such file" in line for line in lines for suffix in ("index", "timeindex"))
    lacks = lines.index("broken: txn-mixed-0 84 .txnindex: missing: not there, recovery writes 22 entries")
    assert lines[lacks + 1].endswith("; the next start here rebuilds the file from the log")
    assert any(line.endswith("as no .index is beside the log; the segments after it stay") for line in lines)
    assert not any(line.startswith("delete: ") for line in lines)


def test_a_repair_says_which_index_knows_more_than_its_log(tmp_path: Path) -> None:
    """A log that ends with a whole batch, where a broker had appended more: nothing else tells."""
    log_dir, index_dir, sources = tmp_path / "logs", tmp_path / "index", ["--index-dir", str(tmp_path / "index")]
    shutil.copytree(golden.SAMPLES / "txn-mixed-0", log_dir / "txn-mixed-0")
    assert CliRunner().invoke(kidx, ["build", str(log_dir), *sources]).exit_code == ExitCode.OK
    os.truncate(sorted((log_dir / "txn-mixed-0").glob("*.log"))[-1], 698_578)
    ended = CliRunner().invoke(kidx, ["build", str(log_dir), *sources, "--repair"], standalone_mode=False)
    assert (
        f"made to fit its log: {sorted(index_dir.rglob('*.index'))[-1]}: 165 entries, recovery writes 143; entry 164 "
        "is OffsetPosition(offset=10319, position=801462); if a broker had that offset, look for it on a replica"
    ) in ended.stderr


@pytest.mark.parametrize("entries", [36, 37], ids=["not in its index", "in its index"])
def test_a_torn_batch_that_was_whole_is_called_so(
    entries: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An index that knows the batch was written after it had been appended, and reached the disk before it."""
    shutil.copytree(golden.SAMPLES / "plain-zstd-0", tmp_path / "logs" / "plain-zstd-0")
    built = CliRunner().invoke(kidx, ["build", str(tmp_path / "logs"), "--in-place"])
    assert built.exit_code == ExitCode.OK, built.output
    log = tmp_path / "logs" / "plain-zstd-0" / f"{13697:020d}.log"
    os.truncate(log, log.stat().st_size - 100)
    os.truncate(log.with_suffix(".index"), entries * OFFSET_ENTRY_BYTES)
    show_summary(summarised(tmp_path / "logs"))
    line = next(each for each in capsys.readouterr().out.splitlines() if "truncates the log" in each)
    was_whole = "; its .index says that offsets 19,840 to 19,999 were appended there: look for them on another replica"
    assert line.endswith("11,741 bytes that are no whole batch" + (was_whole if entries == 37 else ""))


def test_a_log_of_another_partition_is_named_where_it_overlaps(tmp_path: Path) -> None:
    """Also at the sound log behind it, which the overlap is found at."""
    for base_offset in (0, 2, 3):
        put(tmp_path / "t-0", base_offset, [Batch()] * 3)
    found = verified(tmp_path, code=3)["files"]
    told = {row["base_offset"]: row["consequence"] for row in found if row["reason"] == "overlaps-segment-before"}
    named = "; 00000000000000000002.log is the one in between: its offsets 2 to 4 are in other logs, too"
    assert sorted(told) == [2, 3] and all(named in each for each in told.values())
