"""What a reading leaves out is told with its offsets, and so is what is asked for and not there."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from kidxlib.commands.export import export
from kidxlib.commands.seek import seek
from kidxlib.commands.verify import verify
from kidxlib.errors import CheckpointError, ClusterMetadataError, DamagedLogError, UsageError
from kidxlib.format.checkpoint_files import (
    CLEANER_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    EpochEntry,
    clean_shutdown,
    offset_checkpoint,
)
from kidxlib.format.layouts import ATTRIBUTE_TRANSACTIONAL, OFFSET_INDEX_ENTRY
from kidxlib.format.segment_files import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SnapshotId,
    kraft_snapshot_file,
    segment_file,
)
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.index.offset import OffsetPosition, read_last_entry
from kidxlib.indexing.source import PartitionDirectory, Source
from kidxlib.library.read import count, read
from kidxlib.log.metadata_image import ClusterMetadata, read_cluster_metadata
from kidxlib.log.metadata_replica import METADATA_DIRECTORY
from kidxlib.lookup.checkpoint_evidence import ReadOffsets
from kidxlib.reading import brokers_metadata, partition_ends, positions
from kidxlib.reading.brokers_metadata import BrokersMetadata, OnlyReplicas
from kidxlib.reading.left_out import WhyLeftOut, in_older_log_dirs
from kidxlib.reading.plan import ReadPlan, plan_reads
from kidxlib.reading.request import read_request
from kidxlib.reading.walk import Damage
from kidxlib.reading.who_wrote import who_wrote
from kidxlib.records.reader import Record
from kidxlib.run.context import existing_catalog_tables
from kidxlib.storage.location import Location
from kidxlib.storage.lock import LOCK_FILE, is_locked, locked
from kidxlib.storage.log_dir import CLEAN_SHUTDOWN_FILE, before_first_log, read_offset_checkpoint
from kidxlib.storage.opened_log import OpenedLog, opened_log
from kidxlib.terminal.exit_codes import ExitCode
from tests.faults.trees import write_log
from tests.support.cluster_metadata import (
    change,
    config,
    data,
    leader_change,
    of_broker,
    partition,
    put_metadata,
    snapshot,
    topic,
    topic_id,
    write_copy,
)
from tests.support.files import flip
from tests.support.logs import encoded
from tests.support.spark.jobs import kidx_build_here, run_here

_ID = topic_id("a")
_DIRECTORY = topic_id("b")


def _log_dir(place: Path, bases: tuple[int, ...] = (0, 100), /, **checkpoints: int) -> Path:
    """A log dir of partition t-0 with batches of ten records, in segments, of offsets 0 to 199."""
    for base, until in zip(bases, (*bases[1:], 200), strict=True):
        write_log(place / "t-0", base, _batches(base, until))
    for name, offset in checkpoints.items():
        (place / f"{name.replace('_', '-')}-offset-checkpoint").write_text(f"0\n1\nt 0 {offset}\n")
    return place


def _batches(start: int, end: int, key: bytes = b"k") -> bytes:
    """Of ten records each."""
    return b"".join(
        encoded.batch_v2([Record(offset, 1_000 * offset, key, b"v") for offset in range(first, first + 10)])
        for first in range(start, end, 10)
    )


def _plan(
    *places: Path, catalog: Path | None = None, read_offsets: ReadOffsets = read_offset_checkpoint, **options: Any
) -> ReadPlan:
    tables = None if catalog is None else existing_catalog_tables("catalog", str(catalog))
    return plan_reads(read_request(places, **options), goes_on=False, catalog=tables, read_offsets=read_offsets)


def _warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def _told(plan: ReadPlan) -> list[tuple[str, int, int | None, int | None, bool]]:
    return [(each.why, each.first_offset, each.end_offset, each.records, each.is_problem) for each in plan.left_out]


@pytest.mark.parametrize(
    ("checkpoints", "options", "told"),
    [
        ({}, {}, []),
        ({"replication": 200}, {}, []),
        ({"replication": 150}, {}, [(WhyLeftOut.BEYOND_HIGH_WATERMARK, 150, 200, 50, True)]),
        ({"replication": 50}, {}, [(WhyLeftOut.BEYOND_HIGH_WATERMARK, 50, 200, 150, True)]),
        ({"replication": 150}, {"to_log_end": False}, [(WhyLeftOut.BEYOND_HIGH_WATERMARK, 150, 200, 50, False)]),
        ({"replication": 150}, {"to_log_end": True}, []),
        ({"replication": 150}, {"offsets": (None, 150)}, []),
        ({"replication": 150}, {"offsets": (None, 160)}, [(WhyLeftOut.BEYOND_HIGH_WATERMARK, 150, 160, None, True)]),
        ({"replication": 150}, {"offsets": (170, 171)}, [(WhyLeftOut.BEYOND_HIGH_WATERMARK, 170, 171, None, True)]),
        (
            {"replication": 150},
            {"offsets": (190, 210), "to_log_end": False},
            [
                (WhyLeftOut.BEYOND_LOG_END, 200, 210, None, False),
                (WhyLeftOut.BEYOND_HIGH_WATERMARK, 190, 200, 10, True),
            ],
        ),
        ({"replication": 150}, {"times": (0, 140_000)}, []),
        ({"replication": 150}, {"times": (0, 155_000)}, [(WhyLeftOut.BEYOND_HIGH_WATERMARK, 150, 155, 5, True)]),
        ({"replication": 250}, {}, [(WhyLeftOut.ENDS_BELOW_HIGH_WATERMARK, 200, 250, None, True)]),
        ({}, {"offsets": (300, 301)}, [(WhyLeftOut.BEYOND_LOG_END, 300, 301, None, True)]),
        ({}, {"offsets": {"t-0": (200, None)}}, [(WhyLeftOut.BEYOND_LOG_END, 200, None, None, False)]),
        ({}, {"offsets": (190, 220)}, [(WhyLeftOut.BEYOND_LOG_END, 200, 220, None, False)]),
        ({}, {"offsets": (5, 5)}, []),
        ({}, {"offsets": {"t-0": (0, 5), "u-3": (0, None)}}, [(WhyLeftOut.NOT_ANYWHERE, 0, None, None, True)]),
        ({"log_start": 20}, {"offsets": (5, 15)}, [(WhyLeftOut.BELOW_LOG_START, 5, 15, None, True)]),
        ({"log_start": 20}, {"offsets": (5, 30)}, [(WhyLeftOut.BELOW_LOG_START, 5, 20, None, True)]),
        ({"log_start": 20}, {}, [(WhyLeftOut.HIDDEN_BELOW_LOG_START, 0, 20, None, False)]),
        ({"log_start": 120}, {"offsets": (None, 50)}, [(WhyLeftOut.HIDDEN_BELOW_LOG_START, 0, 50, None, False)]),
        ({"log_start": 20}, {"offsets": (20, None)}, []),
        ({"log_start": 20}, {"times": (0, 140_000)}, []),
        ({"log_start": 300}, {}, [(WhyLeftOut.LOG_START_ABOVE_END, 0, 200, None, True)]),
    ],
)
def test_offsets_that_are_not_read(
    checkpoints: dict[str, int], options: dict[str, Any], told: list[Any], tmp_path: Path
) -> None:
    assert _told(_plan(_log_dir(tmp_path, **checkpoints), **options)) == told


def test_a_log_under_another_name_is_named_where_its_offsets_are_missed(tmp_path: Path) -> None:
    """Between two logs, and below the high watermark: it may be all that is left of them."""
    log_dir = _log_dir(tmp_path / "logs", (0, 50, 100), replication=200)
    partition = log_dir / "t-0"
    for base_offset, place, suffix, first_word in (
        (50, partition, ".deleted", "in no log: "),
        (50, log_dir, "", "in no log: "),
        (100, partition, ".deleted", "missing: "),
    ):
        log = partition / segment_file(base_offset, LOG_SUFFIX)
        aside = log.rename(place / f"{log.name}{suffix}")
        ended = run_here(export, log_dir, "--output", tmp_path / f"{base_offset}{place.name}.jsonl")
        [line] = [each for each in ended.err.splitlines() if first_word in each]
        assert f"{aside} begins there: " in line and f"move it to {log}, with the other files of that offset" in line
        assert ended.code == 3
        aside.rename(log)


def test_what_lies_before_the_first_segment_is_elsewhere(tmp_path: Path) -> None:
    """As of a topic with tiered storage. Where leader epochs begin with the first segment, the broker has deleted what
    was before, and was killed before it wrote down the log start.
    """
    log_dir = _log_dir(tmp_path, (100,), log_start=40)
    epochs = log_dir / "t-0" / LEADER_EPOCH_CHECKPOINT
    for begins_at, is_elsewhere in ((None, True), (40, True), (100, False)):
        if begins_at is not None:
            epochs.write_text(f"0\n1\n0 {begins_at}\n")
        assert _told(_plan(log_dir)) == (
            [(WhyLeftOut.BEFORE_FIRST_SEGMENT, 40, 100, None, True)] if is_elsewhere else []
        )


def test_first_logs_that_are_lost_are_told(tmp_path: Path) -> None:
    """By the leader epochs, unless the checkpoint of log starts names the partition, or nothing of them is asked."""
    log_dir = _log_dir(tmp_path, (100,))
    (log_dir / "t-0" / LEADER_EPOCH_CHECKPOINT).write_text("0\n1\n0 40\n")
    # The file of log starts may be lost as well: a remark, unless somebody asks for offsets from there on.
    not_known = WhyLeftOut.FIRST_LOGS_NOT_KNOWN, 40, 100, None, False
    for content in (None, "no checkpoint"):
        if content is not None:
            (log_dir / LOG_START_OFFSET_CHECKPOINT).write_text(content)
        assert _told(_plan(log_dir)) == [not_known]
        assert _told(_plan(log_dir, offsets=(50, None))) == [(WhyLeftOut.FIRST_LOGS_NOT_KNOWN, 50, 100, None, True)]
        assert _told(_plan(log_dir, offsets=(100, None))) == []
        exported = run_here(export, log_dir, "--output", tmp_path / f"{content}.jsonl", "--json")
        is_malformed = content is not None
        assert exported.code == (ExitCode.PROBLEMS_FOUND if is_malformed else ExitCode.OK)
        assert [each["first_offset"] for each in exported.json["first_logs_not_known"]] == [40]
        assert exported.json["left_out"] == []
        assert exported.err.count("not known: 60 offsets of 1 partition before the first log, ") == 1
    (log_dir / LOG_START_OFFSET_CHECKPOINT).write_text("0\n0\n")
    lost, gone = (WhyLeftOut.FIRST_LOGS_MISSING, 40, 100, None, True), (WhyLeftOut.BELOW_LOG_START, 5, 40, None, True)
    cases: list[tuple[dict[str, Any], list[Any]]] = [
        ({}, [lost]),
        ({"offsets": (5, None)}, [lost, gone]),
        ({"offsets": (100, None)}, []),
        ({"times": (5, None)}, [lost]),
        ({"times": (None, 5)}, [lost]),
        ({"times": (110_000, None)}, []),  # the first batch that is there is older
    ]
    for options, told in cases:
        assert _told(_plan(log_dir, **options)) == told, options


def test_one_log_is_told_of_by_itself(tmp_path: Path) -> None:
    log_dir = _log_dir(tmp_path, replication=150)
    first, second = sorted((log_dir / "t-0").glob("*.log"))
    assert _told(_plan(first)) == []
    assert _told(_plan(second)) == [(WhyLeftOut.BEYOND_HIGH_WATERMARK, 150, 200, 50, True)]


@pytest.mark.parametrize("offsets", [None, (50, None)])
def test_first_logs_that_may_be_lost_are_a_warning(
    offsets: tuple[int, None] | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One, whether somebody asks for them or not."""
    log_dir = _log_dir(tmp_path, (100,))
    (log_dir / "t-0" / LEADER_EPOCH_CHECKPOINT).write_text("0\n1\n0 40\n")
    read(log_dir, offsets=offsets).read_all()
    assert sum(line.startswith("not known: ") for line in _warnings(caplog)) == 1, caplog.messages


def test_lines_say_which_and_what_to_do(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log_dir = _log_dir(tmp_path, replication=150)
    assert read(log_dir).read_all().num_rows == count(log_dir) == 150
    assert {*_warnings(caplog)} == {
        "not read: 50 offsets (50 records) of 1 partition beyond the high watermark that replication-offset-checkpoint "
        "has: t-0 150 to 199 (the high watermark is 150); --to-log-end (in Python to_log_end=True, in Spark "
        "toLogEnd=true) reads them"
    }
    [line] = _plan(log_dir, offsets=(300, 301)).problems
    assert line == "asked for and not there: offsets beyond the log end: t-0 300 (the log ends at 200)"


@pytest.fixture
def held_lock(tmp_path: Path) -> Iterator[Path]:
    """A log dir whose lock another process holds."""
    held = (
        "import fcntl, sys; file = open(sys.argv[1], 'w'); fcntl.lockf(file, fcntl.LOCK_EX); print(flush=True); input()"
    )
    log_dir = tmp_path / "held"
    log_dir.mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", held, log_dir / LOCK_FILE], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield log_dir
        process.communicate(b"\n")


def test_a_lock_is_looked_at_and_not_taken(held_lock: Path, tmp_path: Path) -> None:
    assert is_locked(held_lock) and not is_locked(tmp_path)
    assert not (tmp_path / LOCK_FILE).exists()
    with locked(tmp_path):  # by this very process
        assert not is_locked(tmp_path)
    with (tmp_path / LOCK_FILE).open("w") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        (tmp_path / LOCK_FILE).chmod(0o400)


def test_first_logs_that_are_marked_to_be_deleted(held_lock: Path, tmp_path: Path) -> None:
    """A broker that runs may be about to cut the epochs there; one that has stopped has done so."""
    for log_dir, lost in ((held_lock, None), (tmp_path, (EpochEntry(4, 5), 100))):
        directory = log_dir / "t-0"
        directory.mkdir()
        (directory / f"{5:020}.log.deleted").touch()
        (directory / f"{100:020}.log").touch()
        (directory / LEADER_EPOCH_CHECKPOINT).write_text("0\n1\n4 5\n")
        assert before_first_log(directory) == lost


def _of_node(log_dir: Path, node_id: object = 1, cluster: str = "c", more: str = "") -> None:
    (log_dir / "meta.properties").write_text(f"version=1\nnode.id={node_id}\ncluster.id={cluster}\n{more}")


def _of_broker(log_dir: Path, replicas: list[int], *, topic_id: str = _ID, has_metadata: bool = True) -> Path:
    _of_node(log_dir)
    (log_dir / "t-0" / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}\n")
    if has_metadata:
        values = [topic("t", _ID), partition(_ID, 0, replicas, [_DIRECTORY] * len(replicas))]
        put_metadata(log_dir, values)
    return log_dir


def test_of_the_only_replica_all_is_read(tmp_path: Path) -> None:
    """Of a log dir that is stopped, whose metadata says so; also where that is in another log dir of the broker."""
    log_dir = _of_broker(_log_dir(tmp_path / "a", replication=150), [1])
    plan = _plan(log_dir)
    assert _told(plan) == [] and [read.wanted.last_offset for read in plan.reads] == [2**63 - 1] * 2
    assert plan.notes == (
        "read to the end of the log, 50 offsets beyond the high watermark that replication-offset-checkpoint has, as "
        "no broker runs on this log dir and the cluster's metadata has no other replica: 1 partition",
        "not read, as brokers keep them for themselves: __cluster_metadata",
    )
    assert _told(_plan(log_dir, to_log_end=False)) == [(WhyLeftOut.BEYOND_HIGH_WATERMARK, 150, 200, 50, False)]
    other = tmp_path / "other"
    other.mkdir()
    (log_dir / "__cluster_metadata-0").rename(other / "__cluster_metadata-0")
    shutil.copy(log_dir / "meta.properties", other)
    assert _told(_plan(log_dir)) and not _told(_plan(log_dir, other))


@pytest.mark.parametrize("why", ["replicas", "a replica since", "id", "no metadata", "running"])
def test_otherwise_it_is_not(why: str, tmp_path: Path, held_lock: Path) -> None:
    log_dir = _of_broker(
        _log_dir(tmp_path / "a", replication=150),
        [1, 2] if why == "replicas" else [1],
        topic_id=_DIRECTORY if why == "id" else _ID,
        has_metadata=why != "no metadata",
    )
    if why == "a replica since":  # the last snapshot, up to which alone it is known what is committed
        [before, after] = (
            [topic("t", _ID), partition(_ID, 0, each, [_DIRECTORY] * len(each))] for each in ([1], [1, 2])
        )
        log = leader_change(0, [1, 2, 3]) + data(1, [*before, after[1]])
        write_copy(log_dir / "__cluster_metadata-0", {0: log}, {(3, 0): snapshot(before, 0)})
    if why == "running":
        log_dir = log_dir.rename(held_lock / "logs").rename(held_lock.with_name("moved"))
        shutil.copytree(log_dir, held_lock, dirs_exist_ok=True)
        log_dir = held_lock
    [told, *others] = _told(_plan(log_dir))
    assert told == (WhyLeftOut.BEYOND_HIGH_WATERMARK, 150, 200, 50, True)
    assert [each[0] for each in others] == ([WhyLeftOut.OTHER_TOPIC_ID] if why == "id" else [])


def test_log_dirs_of_a_broker_are_read_together(tmp_path: Path) -> None:
    """In the order of partitions. A partition is in one of them."""
    first, second = _log_dir(tmp_path / "a"), _log_dir(tmp_path / "b")
    (second / "t-0").rename(second / "s-0")
    rows = read([first, second], columns=["topic", "offset"]).read_all()
    assert rows["topic"].to_pylist() == ["s"] * 200 + ["t"] * 200 and count([second, first]) == 400
    (second / "s-0").rename(second / "t-0")
    with pytest.raises(UsageError, match=f"t-0 is in {first} and in {second}; expected log dirs of one broker"):
        read([first, second]).read_all()
    with pytest.raises(UsageError, match="a log beside other paths; expected it alone"):
        read([first, max((second / "t-0").glob("*.log"))]).read_all()


@pytest.mark.parametrize("sign", ["marker", "leader epochs"])
def test_log_dirs_of_two_stops_are_told(sign: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The marker of an older one: what was written since is missing. Leader epochs: it may be so, and is no problem."""
    a, b = (_log_dir(tmp_path / name) for name in "ab")
    (a / "t-0").rename(a / "s-0")
    for log_dir, directory_id in ((a, _ID), (b, _DIRECTORY)):
        _of_node(log_dir, more=f"directory.id={directory_id}\n")
    values = [topic("t", _ID), partition(_ID, 0, [1], [_DIRECTORY])]
    values += [change("PartitionChangeRecord", partitionId=0, topicId=_ID, leader=1)] * 2
    put_metadata(a, values)
    if sign == "marker":
        for log_dir, epoch in ((a, 9), (b, 7)):
            (log_dir / CLEAN_SHUTDOWN_FILE).write_bytes(clean_shutdown(epoch))
        told = f"{b}/{CLEAN_SHUTDOWN_FILE}: brokerEpoch 7, and that of {a} is 9: the broker did not stop with the two"
    else:
        (b / "t-0" / LEADER_EPOCH_CHECKPOINT).write_text("0\n1\n0 0\n")
        told = f"{b}: it may be an older copy than the cluster's metadata: the newest leader epoch of t-0 is 0 there"
    of_t = f"in an older log dir: 1 partition: t-0; {told}" if sign == "marker" else told
    assert count([a, b]) == 400
    assert [record.message.startswith(of_t) for record in caplog.records] == [True]
    for topics, is_older in (("t", sign == "marker"), ("s", False)):
        ended = run_here(export, a, b, "--topics", topics, "--output", tmp_path / f"{topics}.arrow", "--json")
        assert (ended.code, f"warning: {of_t if topics == 't' else told}" in ended.err) == (3 if is_older else 0, True)
        assert [each["why"] for each in ended.json["left_out"]] == ["older-log-dir"] * is_older
    [note] = who_wrote([a, b], "t-0", 5).notes
    assert note.startswith(of_t)
    verified = run_here(verify, a, b)
    assert (verified.out + verified.err).count(told) == 1


def _cut(log_dir: Path, kept: int, *, index: tuple[float, ...] = (4, 8)) -> Path:
    """The last log, of ten batches, cut after some of them; its index has entries for batches by their numbers, and
    then the room that a killed broker leaves.
    """
    log = max((log_dir / "t-0").glob(f"*{LOG_SUFFIX}"))
    size = log.stat().st_size // 10
    entries = np.array([(10 * int(each) + 9, int(each * size)) for each in index], OFFSET_INDEX_ENTRY)
    log.with_suffix(OFFSET_INDEX_SUFFIX).write_bytes(entries.tobytes() + bytes(80))
    os.truncate(log, kept * size)
    return log


@pytest.mark.parametrize("kept", [0, 3, 6, 8, 8.5], ids=lambda kept: f"{kept} batches")
def test_offsets_that_an_index_knows_and_its_log_lacks(kept: float, tmp_path: Path) -> None:
    """Cut at the byte of the last entry, before or behind it; what is below the high watermark is not told twice."""
    log_dir = _log_dir(tmp_path)
    log = _cut(log_dir, int(kept))
    if kept == 8.5:
        with log.open("ab") as file:
            file.write(encoded.batch_v2([Record(180, 1, b"k", b"v")])[:40])
    end = 100 + 10 * int(kept)
    assert _told(_plan(log_dir)) == [(WhyLeftOut.ENDS_BEFORE_INDEX, end, 190, None, True)]
    assert _told(_plan(log_dir, to_log_end=False)) == [(WhyLeftOut.ENDS_BEFORE_INDEX, end, 190, None, False)]
    assert _told(_plan(log_dir, offsets=(100, end))) == []
    (log_dir / "replication-offset-checkpoint").write_text("0\n1\nt 0 185\n")
    whys = {why: (first, until) for why, first, until, *_ in _told(_plan(log_dir))}
    assert whys == {WhyLeftOut.ENDS_BELOW_HIGH_WATERMARK: (end, 185), WhyLeftOut.ENDS_BEFORE_INDEX: (185, 190)}


@pytest.mark.parametrize(
    ("kept", "index"),
    [(9, (4, 8)), (6, (5, 4, 8)), (6, (4, 4, 8)), (6, (4.5, 4.7, 8)), (6, ())],
    ids=["leads no further", "goes back", "stands still", "is of another log", "is empty"],
)
def test_an_index_that_tells_nothing(kept: int, index: tuple[float, ...], tmp_path: Path) -> None:
    log_dir = _log_dir(tmp_path)
    _cut(log_dir, kept, index=index)
    assert _told(_plan(log_dir)) == []


def test_a_log_that_grows_meanwhile_lacks_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker has appended since the log was listed, and made an entry of it."""
    log_dir = _log_dir(tmp_path)
    content = max((log_dir / "t-0").glob(f"*{LOG_SUFFIX}")).read_bytes()
    log = _cut(log_dir, 6)

    def appended(index: Path, base_offset: int) -> OffsetPosition | None:
        log.write_bytes(content)
        return read_last_entry(index, base_offset)

    monkeypatch.setattr(partition_ends, "read_last_entry", appended)
    assert _told(_plan(log_dir)) == []


@pytest.mark.parametrize(("replicas", "is_problem"), [([1], True), ([1, 2], False)])
def test_other_replicas_have_what_an_index_alone_knows(replicas: list[int], is_problem: bool, tmp_path: Path) -> None:
    """Or a leader has let this one truncate it: old entries stay in an index until the broker closes it."""
    log_dir = _of_broker(_log_dir(tmp_path / "logs", replication=150), replicas)
    _cut(log_dir, 6)
    told = {why: is_told for why, _, _, _, is_told in _told(_plan(log_dir))}
    assert told.pop(WhyLeftOut.ENDS_BEFORE_INDEX) is is_problem
    assert told == ({} if is_problem else {WhyLeftOut.BEYOND_HIGH_WATERMARK: True})
    if is_problem:
        assert [each["first_offset"] for each in _exported(log_dir, "--to-log-end")["left_out"]] == [160]


def _exported(log_dir: Path, *options: str) -> dict[str, Any]:
    """What `kidx export --json` says, with exit code 3 where it says that something is left out."""
    output = log_dir.parent / "exported.parquet"
    ended = run_here(export, log_dir, "--output", output, "--json", *options)
    assert ended.code == (ExitCode.PROBLEMS_FOUND if ended.json["left_out"] else ExitCode.OK), ended.err
    return ended.json


def test_an_open_transaction_ends_what_is_committed(tmp_path: Path) -> None:
    log_dir = _log_dir(tmp_path)
    batch = encoded.batch_v2([Record(200, 1, b"k", b"v")], attributes=ATTRIBUTE_TRANSACTIONAL, producer_id=7)
    with max((log_dir / "t-0").glob("*.log")).open("ab") as file:
        file.write(batch)
    plan = _plan(log_dir, isolation="read_committed")
    assert _told(plan) == [(WhyLeftOut.BEYOND_LAST_STABLE_OFFSET, 200, None, None, False)]


def test_a_gap_between_logs_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Not of a topic whose logs lack records within, as the cleaner leaves them; nor where that cannot be told."""
    log_dir = _log_dir(tmp_path, (0, 50, 100))
    directory = log_dir / "t-0"
    (directory / segment_file(50, LOG_SUFFIX)).unlink()
    assert read(log_dir).read_all().num_rows == 150
    assert [record.message for record in caplog.records] == [
        "in no log: 50 offsets of 1 partition between two logs: t-0 50 to 99 (the next log begins at 100); unless the "
        "topic is compacted, a segment is missing: kidx verify looks for who has it"
    ]
    for offsets, told in (((0, 50), ""), ((45, 51), "50 to 99"), ((49, None), "50 to 99"), ((70, None), "70 to 99")):
        caplog.clear()
        read(log_dir, offsets=offsets).read_all()
        assert [re.findall("t-0 ([^(]+) ", record.message) for record in caplog.records] == ([[told]] if told else [])
    caplog.clear()
    first = directory / segment_file(0, LOG_SUFFIX)
    content = first.read_bytes()
    first.write_bytes(content[: len(content) // 5] + content[2 * (len(content) // 5) :])
    assert read(log_dir).read_all().num_rows == 140 and not caplog.records


@pytest.mark.parametrize("known", [False, True], ids=["no catalog", "catalog"])
@pytest.mark.parametrize(
    ("times", "rows", "is_told"),
    [
        ((60_000, 90_000), 0, True),  # all of it, and nothing else
        ((20_000, 60_000), 30, True),
        ((90_000, 120_000), 20, True),
        ((0, None), 150, True),
        ((None, 49_000), 49, False),  # the batches on both sides have newer records
        ((120_000, 150_000), 30, False),
        ((None, 50_000), 50, True),  # the last batch before it goes on to 49 s
    ],
)
def test_a_gap_between_logs_is_told_where_times_in_it_may_be_wanted(
    times: tuple[int | None, int | None],
    rows: int,
    is_told: bool,
    known: bool,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """By the batches on both sides; also where a catalog tells that the logs there hold nothing that is wanted."""
    log_dir, catalog = _log_dir(tmp_path / "logs", (0, 50, 100, 150)), tmp_path / "catalog"
    if known:
        kidx_build_here(log_dir, "--index-dir", tmp_path / "index", "--catalog", catalog)
    (log_dir / "t-0" / segment_file(50, LOG_SUFFIX)).unlink()
    between = "/".join("" if each is None else str(each) for each in times)
    told = _exported(log_dir, "--times", between, *(["--catalog", str(catalog)] if known else []))
    assert (told["rows"], [(each["first_offset"], each["why"]) for each in told["left_out"]]) == (
        rows,
        [(50, WhyLeftOut.BETWEEN_LOGS)] if is_told else [],
    )
    assert count(log_dir, times=times, catalog=catalog if known else None) == rows
    assert [record.message.startswith("in no log: 50 offsets") for record in caplog.records] == [True] * is_told


@pytest.mark.parametrize("known_by", ["policy", "policy without compact", "cleaner", "the name"])
def test_a_short_read_of_a_compacted_topic_tells_of_no_gap(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, known_by: str
) -> None:
    """The records that are read lack none; but the topic's policy, or the cleaner's checkpoint, is known."""
    log_dir = _log_dir(tmp_path, (0, 50, 100))
    (log_dir / "t-0" / segment_file(50, LOG_SUFFIX)).unlink()
    cleaned = {TopicPartition("t", 0): 100} if known_by != "policy" else {TopicPartition("u", 0): 100}
    (log_dir / CLEANER_CHECKPOINT).write_bytes(offset_checkpoint(cleaned))
    if known_by == "the name":
        (log_dir / "t-0").rename(log_dir / "__consumer_offsets-0")
    elif known_by != "cleaner":
        _of_node(log_dir)
        policy = config("t", "cleanup.policy", "compact, delete" if known_by == "policy" else "delete")
        put_metadata(log_dir, [topic("t", _ID), policy])
    topics = "__consumer_offsets" if known_by == "the name" else ".*"
    assert read(log_dir, topics=topics, offsets=(45, 105)).read_all().num_rows == 10
    told = [record.message for record in caplog.records if "in no log" in record.message]
    assert len(told) == (known_by == "policy without compact"), told


def _count_with_catalog(log_dir: Path) -> int:
    """No log is opened: the catalog tells where they end."""
    catalog = log_dir.parent / "catalog"
    kidx_build_here(log_dir, "--index-dir", log_dir.parent / "index", "--catalog", catalog)
    assert all(read.records is not None for read in _plan(log_dir, catalog=catalog).reads)
    return count(log_dir, catalog=catalog)


#: Each gives how many records it has met.
_WAYS: Final[Mapping[str, Callable[[Path], int]]] = {
    "count": count,
    "count, with a catalog": _count_with_catalog,
    "batches": lambda log_dir: 10 * read(log_dir, mode="batches").read_all().num_rows,
}


@pytest.mark.parametrize("way", _WAYS)
def test_each_way_of_reading_tells_a_gap(way: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log_dir = _log_dir(tmp_path / "logs", (0, 50, 100))
    (log_dir / "t-0" / segment_file(50, LOG_SUFFIX)).unlink()
    assert _WAYS[way](log_dir) == 150
    [said] = _warnings(caplog)
    assert said.startswith("in no log: 50 offsets of 1 partition between two logs: t-0 50 to 99 (")


def _with_a_foreign_log(place: Path, *, lacks: bool = False) -> Path:
    """The log dir, and in it a log of another partition, of offsets 50 to 109 and with other keys. It overlaps the logs
    of 40 and 100, or that of 100 alone, if the log dir `lacks` the other.
    """
    log_dir = _log_dir(place, (0, 40, 100))
    write_log(log_dir / "t-0", 50, _batches(50, 110, b"x"))
    if lacks:
        (log_dir / "t-0" / segment_file(40, LOG_SUFFIX)).unlink()
    return log_dir


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize(
    ("lacks", "offsets", "refused"),
    [
        (False, (0, None), [(50, 110)]),
        (False, (70, 80), [(50, 110)]),
        (False, (105, None), [(50, 110)]),
        (False, (150, None), []),
        (True, (0, None), [(50, 110), (100, 200)]),
        (True, (70, 80), [(50, 110)]),
        (True, (105, None), [(100, 200)]),
        (True, (150, None), [(100, 200)]),
    ],
)
def test_records_of_another_partitions_log_are_not_read(
    lacks: bool, offsets: tuple[int, int | None], refused: list[tuple[int, int]], isolation: str, tmp_path: Path
) -> None:
    """The log that does not fit is refused; where nobody can tell which one that is, all of them are."""
    log_dir = _with_a_foreign_log(tmp_path, lacks=lacks)
    start, end = offsets
    met: list[Damage] = []
    found = read(log_dir, offsets=offsets, isolation=isolation, on_damage=met.append).read_all()
    own = range(start, min(end or 200, 40 if lacks else 200))
    assert found["offset"].to_pylist() == [*own] and set(found["key"].to_pylist()) <= {b"k"}
    assert [(each.first_offset, each.next_offset) for each in met] == refused
    if refused:
        with pytest.raises(
            DamagedLogError, match="overlap, with offsets 50 to 199" if lacks else "without it: it may be"
        ):
            read(log_dir, offsets=offsets, isolation=isolation).read_all()
    else:
        assert read(log_dir, offsets=offsets, isolation=isolation).read_all().num_rows == len(own)


def test_a_header_with_a_wrong_offset_makes_no_log_another_partitions(tmp_path: Path) -> None:
    """Checksums do not cover it. What stands before and after such a batch is read."""
    log_dir = _log_dir(tmp_path, (0, 40, 100))
    log = log_dir / "t-0" / segment_file(40, LOG_SUFFIX)
    flip(log, -log.stat().st_size // 6 + 6, bits=0x40)  # of the last batch, 16,384 more
    met: list[Damage] = []
    assert read(log_dir, on_damage=met.append).read_all().num_rows == 190
    assert [each.first_offset for each in met] == [90]


def test_logs_whose_ends_no_index_tells_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No overlap is looked for ahead: a plan opens none of them, and reading ends where it meets the overlap."""
    log_dir, opened = _with_a_foreign_log(tmp_path), list[str]()
    monkeypatch.setattr(positions, "_NEAR_BYTES", 0)

    def opening(path: str) -> AbstractContextManager[OpenedLog]:
        opened.append(path)
        return opened_log(path)

    for module in (positions, partition_ends):
        monkeypatch.setattr(module, "opened_log", opening)
    assert len(_plan(log_dir).reads) == 4 and _plan(log_dir, offsets=(50, None)).reads and not opened
    with pytest.raises(DamagedLogError, match="offsets 50 to 59, and the partition's next log begins at 50: the two"):
        read(log_dir).read_all()


def test_an_export_lacks_another_partitions_log_and_says_so(tmp_path: Path) -> None:
    log_dir, output = _with_a_foreign_log(tmp_path / "logs"), tmp_path / "all.jsonl"
    ended = run_here(export, log_dir, "--skip-damage", "--output", output)
    assert ended.code == ExitCode.PROBLEMS_FOUND and len(output.read_text().splitlines()) == 200
    assert (
        "it may be another partition's; kidx verify tells more; not exported: offsets 50 to 109 of that log"
        in ended.err
    )


@pytest.mark.parametrize("catalog", [False, True])
@pytest.mark.parametrize(
    ("lacks", "certain"),
    [
        (False, {"--offset": (20, 45, 150), "--timestamp": (20_000, 70_000, 150_000, -1, -2, -3)}),
        (True, {"--offset": (20,), "--timestamp": (20_000, -2)}),
    ],
)
def test_an_answer_out_of_another_partitions_log_is_not_certain(
    lacks: bool, certain: Mapping[str, tuple[int, ...]], catalog: bool, tmp_path: Path
) -> None:
    log_dir = _with_a_foreign_log(tmp_path / "logs", lacks=lacks)
    place: tuple[str | Path, ...] = (log_dir,)
    if catalog:
        kidx_build_here(log_dir, "--index-dir", tmp_path / "index", "--catalog", tmp_path / "catalog")
        place = ("--catalog", tmp_path / "catalog")
    for option, targets in {
        "--offset": (20, 45, 70, 150),
        "--timestamp": (20_000, 70_000, 150_000, -1, -2, -3),
    }.items():
        for target in targets:
            ended = run_here(seek, *place, "--topic", "t", "--partition", "0", option, str(target), "--json")
            [answer] = json.loads(ended.out)["answers"]
            is_certain = target in certain[option]
            assert answer["answered"] is is_certain, (option, target)
            assert ("another partition's" in (answer["note"] or "")) is not is_certain, (option, target)
            assert is_certain or ended.code == ExitCode.PROBLEMS_FOUND


@pytest.mark.parametrize(
    ("question", "is_told"),
    [
        (("--timestamp", "-2"), True),
        (("--timestamp", "20000"), True),
        (("--timestamp", "70000"), False),
        (("--timestamp", "-1"), False),
        (("--offset", "40"), True),
        (("--offset", "50"), False),
    ],
)
def test_an_answer_at_a_log_start_says_what_the_logs_have_below_it(
    question: tuple[str, str], is_told: bool, tmp_path: Path
) -> None:
    """As after `kafka-delete-records`; an export says it, too."""
    log_dir = _log_dir(tmp_path, log_start=50)
    ended = run_here(seek, log_dir, "--topic", "t", "--partition", "0", *question, "--json")
    note = ended.json["answers"][0]["note"] or ""
    assert ("the log start is 50, by log-start-offset-checkpoint: no consumer gets what the logs" in note) is is_told


def test_checkpoints_are_read_once_for_all_partitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a seek of all, and by a read that begins below all first logs."""
    for number in range(3):
        _log_dir(tmp_path / str(number), (100,), log_start=0)
        (tmp_path / str(number) / "t-0").rename(tmp_path / f"t-{number}")
    (tmp_path / "0" / LOG_START_OFFSET_CHECKPOINT).rename(tmp_path / LOG_START_OFFSET_CHECKPOINT)
    met = list[Location]()

    def reading(path: Location) -> Mapping[TopicPartition, int] | None:
        met.append(path)
        return read_offset_checkpoint(path)

    monkeypatch.setattr(brokers_metadata, "read_offset_checkpoint", reading)
    run_here(seek, tmp_path, "--topic", "t", "--timestamp", "1")
    assert met.count(tmp_path / LOG_START_OFFSET_CHECKPOINT) == 1
    _plan(tmp_path, read_offsets=reading)
    assert met.count(tmp_path / LOG_START_OFFSET_CHECKPOINT) == 2


def test_a_checkpoint_that_cannot_be_read_is_told_and_ends_nothing(tmp_path: Path) -> None:
    """As after a power loss: without it reading goes from the first segment to the end."""
    log_dir = _log_dir(tmp_path)
    for name in ("replication", "log-start", "recovery-point"):
        (log_dir / f"{name}-offset-checkpoint").write_bytes(bytes(20))
    plan = _plan(log_dir)
    assert [line.partition("; ")[2] for line in plan.problems] == [
        "without it logs are read from their first segments on",
        "without it logs are read to their ends",
    ]
    assert count(log_dir) == 200


def test_partitions_without_a_directory_are_told(tmp_path: Path) -> None:
    """Such as the metadata gives to a log dir that is read; and such as are in others of the broker."""
    other = topic_id("c")

    def planned(asked: str, *log_dirs: str) -> ReadPlan:
        (next(tmp_path.glob("t-*")) / "partition.metadata").write_text(f"version: 0\ntopic_id: {_ID}\n")
        _of_node(tmp_path, more="".join(f"directory.id={each}\n" for each in log_dirs))
        return _plan(tmp_path, topics=re.compile(asked))

    _log_dir(tmp_path)
    values = [
        *(topic("t", _ID), topic("u", other)),
        *(partition(_ID, number, [1], [directory]) for number, directory in enumerate((_DIRECTORY, _DIRECTORY, other))),
        partition(other, 0, [2], [other]),
    ]
    put_metadata(tmp_path, values)
    found = planned(".*", _DIRECTORY).left_out
    assert [(each.partition.directory, each.why, each.is_problem) for each in found] == [
        ("t-1", WhyLeftOut.NO_DIRECTORY, True),
        ("t-2", WhyLeftOut.NO_DIRECTORY, True),  # the broker has said of no other log dir
    ]
    values.append(of_broker("RegisterBrokerRecord", 1, [_DIRECTORY, other]))
    put_metadata(tmp_path, values)
    found = planned(".*", _DIRECTORY).left_out
    assert [(each.partition.directory, each.why, each.is_problem) for each in found] == [
        ("t-1", WhyLeftOut.NO_DIRECTORY, True),
        ("t-2", WhyLeftOut.OTHER_LOG_DIR, False),
    ]
    assert all(each.is_problem for each in planned("t", _DIRECTORY).left_out)
    assert not planned("__.*|u", _DIRECTORY).left_out
    nowhere = [each for each in planned("t|nowhere", _DIRECTORY).left_out if each.why is WhyLeftOut.NOT_ANYWHERE]
    assert [(each.partition.directory, each.is_problem) for each in nowhere] == [("nowhere-0", True)]
    aside = tmp_path / f"t-1.{'0' * 32}-delete"
    for its_id, is_it in ((_ID, True), (other, False)):  # or of a topic of that name that was deleted before
        aside.mkdir(exist_ok=True)
        (aside / "partition.metadata").write_text(f"version: 0\ntopic_id: {its_id}\n")
        assert [each.aside for each in planned("t", _DIRECTORY).left_out] == [str(aside) if is_it else None, None]
    shutil.rmtree(aside)
    (tmp_path / "t-0").rename(tmp_path / "t-1")
    shutil.rmtree(tmp_path / "__cluster_metadata-0")
    for asked in (".*", "t"):  # another log dir has the metadata: numbers alone tell
        plan = planned(asked, _DIRECTORY)
        found = plan.left_out
        assert [(each.partition.directory, each.why, each.is_problem) for each in found] == [
            ("t-0", WhyLeftOut.NOT_IN_LOG_DIRS, asked == "t")
        ]
        assert "no __cluster_metadata-0 in it, so that another log dir of its broker has that" in " ".join(plan.notes)


@pytest.mark.parametrize("further", ["a", "b"])
@pytest.mark.parametrize("by", ["offset", "epoch"])
def test_of_several_nodes_copies_of_the_metadata_that_which_goes_furthest_counts(
    tmp_path: Path, further: str, by: str
) -> None:
    """By its epoch, and then by its end. One that cannot be read counts no more than one that is not there."""
    log_dirs = tmp_path / "a", tmp_path / "b"
    for node_id, log_dir in enumerate(log_dirs, start=1):
        is_further = log_dir.name == further
        topics = ["t", "u"] if is_further else ["t", *"vwxyz"] if by == "epoch" else ["t"]
        values = [topic(name, topic_id(name)) for name in topics]
        records = [Record(1 + number, 0, None, value) for number, value in enumerate(values)]
        later = encoded.batch_v2(records, leader_epoch=int(by == "epoch" and is_further))
        write_copy(log_dir / METADATA_DIRECTORY, {0: leader_change(0, [1, 2]) + later})
        _of_node(log_dir, node_id)

    def topics_of(log_dir: Path, known: bool) -> set[str]:
        copies: dict[Location, ClusterMetadata] = {
            each: read_cluster_metadata(each / METADATA_DIRECTORY) for each in log_dirs if known
        }
        metadata = BrokersMetadata(log_dirs, copies).metadata_of(log_dir)
        assert metadata is not None
        return set(metadata.to_end.topics)

    assert all(topics_of(log_dir, known) == {"t", "u"} for log_dir in log_dirs for known in (False, True))
    lower = next(log_dir for log_dir in log_dirs if log_dir.name != further)
    write_copy(lower / METADATA_DIRECTORY, {}, {(50, 9): b"torn"})
    with pytest.raises(ClusterMetadataError):
        BrokersMetadata([lower]).metadata_of(lower)
    assert topics_of(lower, known=False) == {"t", "u"}
    _, [said] = in_older_log_dirs(BrokersMetadata(log_dirs), ())
    torn = lower / METADATA_DIRECTORY / kraft_snapshot_file(SnapshotId(50, 9))
    assert said.startswith(f"{torn}: no whole snapshot, ")
    assert f"; {tmp_path / further / METADATA_DIRECTORY} counts instead, as of offset " in said


def test_beside_a_copy_of_the_metadata_that_cannot_be_read_no_replica_is_the_only_one(tmp_path: Path) -> None:
    """It may have been the newest, and name others."""
    log_dir, controller = _of_broker(_log_dir(tmp_path / "a"), [1]), tmp_path / "controller"
    write_copy(controller / METADATA_DIRECTORY, {}, {(50, 9): b"torn"})
    source = Source("a", log_dir)
    directory = PartitionDirectory(source, TopicPartition("t", 0), log_dir / "t-0")
    for cluster, is_only in (("c", False), ("another", True)):
        _of_node(controller, 9, cluster)
        brokers = BrokersMetadata([log_dir, controller])
        assert OnlyReplicas(brokers).holds(directory) == is_only
        _, said = in_older_log_dirs(brokers, ())
        counts = f"{log_dir / METADATA_DIRECTORY} counts instead, as of offset 3, 1970-01-01T00:00:00.000Z: what was"
        assert [counts in line for line in said] == [True] * (not is_only)


def test_a_log_dir_that_does_not_say_whose_it_is_counts_in_the_cluster_that_has_its_topics(tmp_path: Path) -> None:
    """In a catalog of two clusters, a damaged `meta.properties` of one says nothing of the other. Where its copy of the
    metadata has no topic of either, it may be of both.
    """
    brokers = {name: tmp_path / name for name in ("one", "two")}
    for letter, (name, log_dir) in zip("ab", brokers.items(), strict=True):
        put_metadata(log_dir, [topic("t", topic_id(letter))])
        _of_node(log_dir, cluster=name)
    unknown = tmp_path / "unknown"
    for letter, told_by in (("a", ["one"]), ("b", ["two"]), ("c", ["one", "two"])):
        values = [topic("t", topic_id(letter))]
        put_metadata(unknown, values)
        (unknown / "meta.properties").write_text("version=1\nnode.id=two\n")
        known = BrokersMetadata([unknown, *brokers.values()])
        assert [name for name, log_dir in brokers.items() if known.unread_copies(log_dir)] == told_by
    with pytest.raises(CheckpointError, match="expected a number"):
        known.metadata_of(unknown)


@pytest.mark.parametrize("way", ["read", "count", "batches"])
def test_each_way_of_reading_tells_what_is_not_there(
    way: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A partition that the metadata gives to the log dir; and a log dir in which nothing is."""
    log_dir, empty = _of_broker(_log_dir(tmp_path / "logs"), [1]), tmp_path / "empty"
    values = [topic("t", _ID), *(partition(_ID, number, [1], [_DIRECTORY]) for number in range(2))]
    put_metadata(log_dir, values)
    if way in _WAYS:
        _WAYS[way](log_dir)
    else:
        read(log_dir).read_all()
    no_directory = "no directory of 1 partition that the cluster's metadata gives to this broker: t-1; "
    [said] = _warnings(caplog)
    assert said == f"{no_directory}look for a copy of it"
    caplog.clear()
    empty.mkdir()
    shutil.rmtree(log_dir / METADATA_DIRECTORY)
    assert read([log_dir, empty]).read_all().num_rows == 200
    [said] = _warnings(caplog)
    assert said.startswith(f"{log_dir}: no {METADATA_DIRECTORY} in it, ") and f"nothing is in {empty}: is the" in said


def test_directories_that_are_set_aside_are_told(tmp_path: Path) -> None:
    """They have records, and their names are no partition's: what a copy of such a name has is read."""
    log_dir = _log_dir(tmp_path / "logs")
    for name, aside in (("t-1", "delete"), ("t-2", "stray"), ("t-3", "stray"), ("t-4", "future")):
        shutil.copytree(log_dir / "t-0", log_dir / f"{name}.{'0' * 32}-{aside}")
    for name in ("t-0.bak", "t-00", "u-0.bak", "t-1.bak"):
        (log_dir / name).mkdir()
    assert [note for note in _plan(log_dir).notes if "not read" in note] == [
        f"{log_dir}: not read: {which}; to read one, copy it to a directory called <topic>-<partition>, and name that"
        for which in (
            "2 directories (partition that Kafka set aside (-stray))",
            "1 directory (partition that Kafka is deleting (-delete))",
            "1 directory (partition that Kafka is moving here (-future))",
            "2 directories with a partition's name and more (t-0.bak, t-00)",
        )
    ]
    copy = tmp_path / "t-2"
    (log_dir / f"t-2.{'0' * 32}-stray").rename(copy)
    assert count(copy) == 200
