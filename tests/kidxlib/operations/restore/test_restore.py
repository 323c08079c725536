"""Plans of a restore, and what comes of them: who leads, what is refused, what is lost, and what is copied."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from kidxlib.format import layouts
from kidxlib.format.checkpoint_files import (
    HIGH_WATERMARK_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from kidxlib.format.checksums import crc32c
from kidxlib.format.kafka_release import METADATA_VERSION
from kidxlib.format.segment_files import BOOTSTRAP_SNAPSHOT, LOG_SUFFIX, OFFSET_INDEX_SUFFIX
from kidxlib.log.metadata_replica import METADATA_DIRECTORY
from kidxlib.operations.restore.new_nodes import UNFINISHED
from kidxlib.records.batch_headers import BatchHeader, batches
from kidxlib.storage.location import overlapping_directory
from kidxlib.storage.lock import LOCK_FILE
from kidxlib.storage.log_dir import CLEAN_SHUTDOWN_FILE, META_PROPERTIES, PARTITION_METADATA
from kidxlib.storage.opened_log import LogFile
from kidxlib.terminal.exit_codes import ExitCode
from tests.faults.disks import mounted
from tests.faults.processes import kidx
from tests.support.cluster_metadata import (
    change,
    config,
    data,
    leader_change,
    partition,
    topic,
    write_copy,
)
from tests.support.restored import PARTITION as _PARTITION
from tests.support.restored import TOPIC_ID as _TOPIC_ID
from tests.support.restored import WITHOUT_TRANSACTIONS
from tests.support.restored import contents_of as _contents
from tests.support.restored import formatted_log_dir as _new
from tests.support.restored import id_of as _id
from tests.support.restored import killed_log_dir as _old
from tests.support.restored import write_folder as _folder
from tests.support.restored import write_properties as _properties
from tests.support.spark.jobs import Ended, kidx_here
from tests.support.unlistable import unlistable_directory

_EPOCH_AT: Final = 12
_CRC_COVERS_AT: Final = 70
_CRC_AT: Final = 17
_CRC_FROM: Final = 21
_BASE_TIMESTAMP_AT: Final = 27


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return _old(tmp_path, 1)


@pytest.fixture
def new(tmp_path: Path) -> dict[int, Path]:
    return {1: _new(tmp_path, 1)}


def _restore(old: Sequence[Path], new: dict[int, Path], *options: str, controller: Path | None = None) -> Ended:
    brokers = [word for node, log_dir in new.items() for word in ("--broker", f"{node}={log_dir}")]
    controllers = ("--controller", controller or next(iter(new.values())))
    return kidx_here("restore", *old, *brokers, *controllers, *options, "--json")


def _applied(old: Sequence[Path], new: dict[int, Path], *options: str) -> Ended:
    planned = _restore(old, new, *options)
    assert planned.out, planned
    ended = _restore(old, new, *options, "--apply", planned.json["plan"])
    assert ended.out and ended.json["applied"], ended
    return ended


def _write_metadata(log_dir: Path, values: Sequence[bytes]) -> None:
    level = change("FeatureLevelRecord", name=METADATA_VERSION, featureLevel=30)
    write_copy(log_dir / METADATA_DIRECTORY, {0: leader_change(0, [9]) + data(1, [*values, level])})


def _logs(log_dir: Path) -> list[Path]:
    return sorted((log_dir / _PARTITION).glob(f"*{LOG_SUFFIX}"))


def _last_batch(log_dir: Path) -> BatchHeader:
    log = LogFile(str(_logs(log_dir)[-1]))
    try:
        return list(batches(log))[-1]
    finally:
        log.close()


def _shorten(log_dir: Path) -> int:
    """Take the last batch away. Return where the log ends then."""
    last = _last_batch(log_dir)
    os.truncate(_logs(log_dir)[-1], last.position)
    return last.offset_field


def _write(log_dir: Path, at: int, content: bytes) -> int:
    """Write into the last batch. Return its first offset."""
    last = _last_batch(log_dir)
    with _logs(log_dir)[-1].open("r+b") as log:
        log.seek(last.position + at)
        log.write(content)
    return last.offset_field


def _set_epoch(log_dir: Path, epoch: int) -> int:
    """Give the last batch another leader epoch, which its checksum does not cover."""
    return _write(log_dir, _EPOCH_AT, epoch.to_bytes(4, "big"))


def _change_time(log_dir: Path) -> None:
    """Give the last batch another time, and the checksum for it."""
    last = _last_batch(log_dir)
    _write(log_dir, _BASE_TIMESTAMP_AT, (last.base_timestamp - 1).to_bytes(8, "big"))
    batch = _logs(log_dir)[-1].read_bytes()[last.position : last.position + last.size]
    _write(log_dir, _CRC_AT, crc32c(batch[_CRC_FROM:]).to_bytes(4, "big"))


def _damage(log_dir: Path) -> int:
    return _write(log_dir, _CRC_COVERS_AT, b"\xff" * 4)


def _unformatted(old: Path, new: Path) -> str:
    (new / META_PROPERTIES).unlink()
    return "not formatted"


def _not_empty(old: Path, new: Path) -> str:
    (new / "a-topic-0").mkdir()
    return "it is not empty (a-topic-0 is in it)"


def _broken_off(old: Path, new: Path) -> str:
    (new / UNFINISHED).touch()
    return "a restore into it was broken off"


def _of_old_cluster(old: Path, new: Path) -> str:
    _properties(new, 1, "old")
    return "the id of the old cluster"


def _of_other_node(old: Path, new: Path) -> str:
    _properties(new, 7, "new")
    return "node.id is 7, and --broker says 1"


def _of_no_new_cluster(old: Path, new: Path) -> str:
    text = (new / META_PROPERTIES).read_text()
    (new / META_PROPERTIES).write_text(text.replace("cluster.id", "was.id"))
    return "no cluster.id in it"


def _with_a_copied_id(old: Path, new: Path) -> str:
    text = (new / META_PROPERTIES).read_text()
    (new / META_PROPERTIES).write_text(text.replace(_id(new.name), _id(old.name)))
    return "a copied meta.properties"


def _without_topic_id(old: Path, new: Path) -> str:
    (old / _PARTITION / PARTITION_METADATA).unlink()
    return "nobody knows which topic it is"


def _set_aside(old: Path, new: Path) -> str:
    _folder(old, f"gone-0.{'0' * 32}-stray", _id("gone"))
    return "rename it to gone-0 in a copy"


def _two_ids(old: Path, new: Path) -> str:
    _folder(old, "txn-mixed-1", _id("other"))
    return "directories with several topic ids"


def _tiered(old: Path, new: Path) -> str:
    _folder(old, "__remote_log_metadata-0", _id("remote"))
    return "name its bucket with --bucket"


@pytest.mark.parametrize(
    "spoil",
    [
        *(_unformatted, _not_empty, _broken_off, _of_old_cluster, _of_other_node, _with_a_copied_id),
        _of_no_new_cluster,
        *(_without_topic_id, _set_aside, _two_ids, _tiered),
    ],
)
def test_what_is_refused(tmp_path: Path, spoil: Callable[[Path, Path], str]) -> None:
    old, new, controller = _old(tmp_path, 1), _new(tmp_path, 1), _new(tmp_path, 9)
    expected = spoil(old, new)
    before = _contents(tmp_path)
    ended = _restore([old], {1: new}, controller=controller)
    assert ended.code == ExitCode.USAGE and _contents(tmp_path) == before
    assert any(expected in line for line in ended.json["refused"]), ended.json["refused"]


def _copied(path: Path, name: str, *, node: int | None = None, directory: str | None = None) -> Path:
    """A copy of a formatted directory, of another node or with an id of its own if these are given."""
    copy = path.with_name(name)
    shutil.copytree(path, copy)
    text = (copy / META_PROPERTIES).read_text()
    if node is not None:
        text = text.replace("node.id=9", f"node.id={node}")
    if directory is not None:
        text = text.replace(_id(path.name), _id(directory))
    (copy / META_PROPERTIES).write_text(text)
    return copy


def test_each_controller_is_named_once(old: Path, new: dict[int, Path], tmp_path: Path) -> None:
    """Of two directories with one node id, or one directory id, only one can be in the cluster."""
    first = _new(tmp_path, 9)
    (tmp_path / "link").symlink_to(first)

    def refused(second: Path) -> list[str]:
        ended = _restore([old], new, "--controller", str(second), controller=first)
        assert ended.code == (ExitCode.USAGE if ended.json["refused"] else ExitCode.OK)
        return list(ended.json["refused"])

    assert refused(_copied(first, "well", node=8, directory="well")) == []
    [twice] = refused(tmp_path / "link")
    assert twice == f"--controller {first}: named twice; name each controller's directory once"
    of_node = refused(copy := _copied(first, "copy", directory="own"))
    assert [line.partition(": one of the two is a copy")[0] for line in of_node] == [
        f"--controller {copy}: node.id is 9, as in {first}"
    ]
    [of_id] = refused(other := _copied(first, "other", node=8))
    assert of_id.startswith(f"{other}: directory.id {_id(first.name)}, as {first} has it: a copied meta.properties")
    [of_broker] = refused(_copied(first, "broker", node=8, directory=new[1].name))
    assert f"as {new[1]} has it" in of_broker
    combined = _restore([old], {9: first}, controller=first)
    assert combined.json["refused"] == [], "a broker's log dir may have the metadata of its own controller"


def test_a_bind_mount_of_a_controllers_directory_is_the_same_one(
    old: Path, new: dict[int, Path], tmp_path: Path
) -> None:
    first = _new(tmp_path, 9)
    with mounted(tmp_path / "mounted", first, "none", "bind") as second:
        ended = _restore([old], new, "--controller", str(second), controller=first)
        once = f"--controller {second}: named twice, also as {first}; name each controller's directory once"
        assert ended.json["refused"] == [once]


def test_a_source_is_never_a_target(tmp_path: Path) -> None:
    old, controller = _old(tmp_path, 1), _new(tmp_path, 9)
    inside = old / "inside"
    _new(tmp_path, 1).rename(inside)
    before = _contents(tmp_path)
    new = _new(tmp_path, 1)
    before |= _contents(new)
    for broker, metadata in ((old, controller), (inside, controller), (new, inside)):
        for options in ([], ["--apply", "0123456789ab"]):
            ended = _restore([old], {1: broker}, *options, controller=metadata)
            assert ended.code == ExitCode.USAGE
            (controller / LOCK_FILE).unlink(missing_ok=True)
            (new / LOCK_FILE).unlink(missing_ok=True)
            assert _contents(tmp_path) == before, "not even a lock in a source"
            assert any("where nothing is written" in line for line in ended.json["refused"])


def test_another_path_of_a_source_is_no_target(tmp_path: Path) -> None:
    """A bind mount has a path that does not tell."""
    old = _old(tmp_path, 1)
    _new(tmp_path, 1).rename(inside := old / "in side")
    elsewhere = tmp_path / "else where"

    def is_refused(new: Path) -> bool:
        ended = _restore([old], {1: new}, controller=controller)
        return f"{new}: it is, holds or lies in {old}, a source" in "".join(ended.json["refused"])

    controller = _new(tmp_path, 9)
    with mounted(elsewhere, old, "none", "bind"):
        assert is_refused(elsewhere / inside.name) and is_refused(elsewhere)
        assert overlapping_directory(old, [elsewhere / inside.name]) == elsewhere / inside.name
        assert overlapping_directory(tmp_path / "new", [old]) is None
    with mounted(elsewhere, inside, "none", "bind"):
        assert is_refused(elsewhere), "a directory of the source under another name"
        assert overlapping_directory(elsewhere / "not" / "there", [old]) == old
        assert overlapping_directory(old, [elsewhere / "below"]) == elsewhere / "below"


def _twice(old: Path) -> list[str]:
    return [str(old), str(old)]


def _one_partition(old: Path) -> list[str]:
    return [str(old / _PARTITION)]


def _with_a_disk_of_nobody(old: Path) -> list[str]:
    _folder(old.parent / "nobody", "another-0", _id("another"))
    return [f"{old},{old.parent / 'nobody'}"]


def _of_no_cluster(old: Path) -> list[str]:
    """Of another node, and with the id that the new log dirs have, for all that anybody knows."""
    other = _old(old.parent, 2)
    text = (other / META_PROPERTIES).read_text()
    (other / META_PROPERTIES).write_text(text.replace("cluster.id", "was.id"))
    return [str(old), str(other)]


def _not_utf_8(old: Path) -> list[str]:
    return [str(shutil.copytree(old, os.fsdecode(bytes(old) + b"\xff")))]


@pytest.mark.parametrize(
    "named, says",
    [
        (_twice, "one copy of each"),
        (_one_partition, "one partition's directory; expected a broker's log dir: name"),
        (_with_a_disk_of_nobody, "no meta.properties there says which broker's it is"),
        (_of_no_cluster, "no cluster.id in it"),
        (_not_utf_8, "bytes that are not UTF-8"),
    ],
)
def test_what_is_no_source(named: Callable[[Path], list[str]], says: str, old: Path, new: dict[int, Path]) -> None:
    _restore([Path(text) for text in named(old)], new).assert_one_line(ExitCode.USAGE, says)


def test_a_directory_that_cannot_be_listed_is_not_one_without_an_id(old: Path, new: dict[int, Path]) -> None:
    """No `kidx recover --mend` puts anything right on a disk that fails."""
    with unlistable_directory() as failing:
        (old / "failing-0").symlink_to(failing)
        refused = _restore([old], new)
    assert refused.code == ExitCode.USAGE
    [line] = (line for line in refused.json["refused"] if "failing-0" in line)
    assert f"nothing in {old / 'failing-0'} can be looked at" in line and "--mend" not in line


def test_a_partition_behind_a_symlink_is_copied(old: Path, new: dict[int, Path], tmp_path: Path) -> None:
    """Nothing is written through it, and nothing has to be."""
    (old / _PARTITION).rename(elsewhere := tmp_path / "elsewhere")
    (old / _PARTITION).symlink_to(elsewhere)
    before = _contents(elsewhere)
    assert _applied([old], new).code == ExitCode.OK and _contents(elsewhere) == before
    assert not (new[1] / _PARTITION).is_symlink()
    assert [log.read_bytes() for log in _logs(new[1])] == [log.read_bytes() for log in _logs(old)]


def test_no_old_node_is_to_start(old: Path, new: dict[int, Path]) -> None:
    """Whatever `kidx recover` would say: it would set its directories aside."""
    shutil.copy(log := _logs(old)[0], f"{log}.swap")
    [line] = _restore([old], new).json["refused"]
    assert "let it start by itself; but start no old node: restore this partition from another copy" in line


def test_too_few_replicas_are_told(old: Path, new: dict[int, Path]) -> None:
    """Nobody writes to a partition with fewer replicas than `min.insync.replicas`."""
    values = [topic("txn-mixed", _TOPIC_ID), partition(_TOPIC_ID, 0, [1, 2, 3], [])]
    for more, says in (
        ([], "1 replica of 3: give it more (kafka-reassign-partitions) before you rely on it"),
        ([config("txn-mixed", "min.insync.replicas", "2")], "1 replica of 3, and min.insync.replicas=2: nobody writes"),
    ):
        _write_metadata(old, [*values, *more])
        [line] = _restore([old], new).json["too_few_replicas"]
        assert line.startswith(f"topic txn-mixed: {says}")


def test_a_partition_on_two_disks_of_a_broker(old: Path, new: dict[int, Path], tmp_path: Path) -> None:
    """Neither is taken by a guess, as they may be of two topics, or one of them old."""
    second = tmp_path / "second"
    other = _folder(second, _PARTITION, _id("older"))
    _properties(second, 1, "old")
    refused = _restore([Path(f"{old},{second}")], new)
    [line] = refused.json["refused"]
    assert refused.code == ExitCode.USAGE
    assert line.startswith(f"{other}: {old} has that partition too") and f"compare {old / _PARTITION} {other}" in line
    (other / PARTITION_METADATA).write_text(f"version: 0\ntopic_id: {_TOPIC_ID}\n")
    until = ("--propose-until", "1000", "--until-offsets", str(tmp_path / "ends"))
    proposed = kidx("restore", f"{old},{second}", *until, "--json")
    assert (proposed.code, proposed.json["ends"]) == (ExitCode.OK, []), "no end is proposed for either"


def test_a_checkpoint_that_cannot_be_read_is_told(old: Path, new: dict[int, Path]) -> None:
    """Nobody knows without it that a log is too short."""
    assert "warning" not in _restore([old], new).err
    (old / HIGH_WATERMARK_CHECKPOINT).write_text("0\n2\n")
    (old / RECOVERY_POINT_CHECKPOINT).unlink()
    planned = _restore([old], new)
    torn, missing = (line for line in planned.err.splitlines() if line.startswith("warning: "))
    assert planned.code == ExitCode.OK
    assert f"{old / HIGH_WATERMARK_CHECKPOINT}: cannot be read" in torn
    assert f"{old / RECOVERY_POINT_CHECKPOINT}: missing" in missing


def test_producer_snapshots_that_cannot_be_read_are_told(old: Path, new: dict[int, Path]) -> None:
    """Of topics that are restored and of others: nothing else may name the ids of producers whose records are gone."""
    other = _folder(old, "other-0", _id("other"))
    part = ("--topics", "txn-mixed")
    assert "warning" not in _restore([old], new, *part).err
    restored, left_out = (old / _PARTITION / "00000000000000000000.snapshot", other / "00000000000000000007.snapshot")
    restored.write_bytes(b"torn")
    left_out.symlink_to(other)
    [warning] = (line for line in _restore([old], new, *part).err.splitlines() if line.startswith("warning: "))
    assert warning.startswith(f"warning: {left_out}: not a regular file (and 1 more producer snapshot); producer ids")
    assert warning.endswith("restart all producers before they write to the new cluster")


def test_the_longest_log_leads_and_a_shorter_one_catches_up(tmp_path: Path) -> None:
    """Else the shorter one would lead where its broker starts first, and the others would cut their logs."""
    old, new = [_old(tmp_path, node) for node in (1, 2, 3)], {node: _new(tmp_path, node) for node in (1, 2, 3)}
    end = _shorten(old[0])
    plan = _applied(old, new).json
    [planned] = plan["topics"][0]["partitions"]
    assert (planned["leader"], sorted(planned["replicas"]), planned["in_sync"]) == (2, [1, 2, 3], [2, 3])
    ends = {each["node_id"]: each["end_offset"] for each in plan["replicas"]}
    assert ends[1] == end < ends[2] == ends[3]
    assert {node: (log_dir / HIGH_WATERMARK_CHECKPOINT).read_text() for node, log_dir in new.items()} == {
        node: f"0\n1\n{_PARTITION.replace('-0', ' 0')} {end}\n" for node, end in ends.items()
    }
    assert [_logs(log_dir)[-1].read_bytes() for log_dir in new.values()] == [
        _logs(log_dir)[-1].read_bytes() for log_dir in old
    ]


def test_replicas_that_disagree_have_to_be_accepted(tmp_path: Path) -> None:
    """The leader is the one with the later epoch, and the other begins empty."""
    old, new = [_old(tmp_path, node) for node in (1, 2)], {node: _new(tmp_path, node) for node in (1, 2)}
    offset = _set_epoch(old[1], 5)
    refused = _restore(old, new)
    assert refused.code == ExitCode.USAGE
    assert any(f"offsets {offset}" in line and "--accept-divergence" in line for line in refused.json["refused"])
    applied = _applied(old, new, "--accept-divergence")
    assert applied.code == ExitCode.PROBLEMS_FOUND
    [planned] = applied.json["topics"][0]["partitions"]
    assert (planned["leader"], planned["in_sync"], planned["leader_epoch"]) == (2, [2], 6)
    assert not (new[1] / _PARTITION).exists() and (new[2] / _PARTITION).is_dir()


@pytest.mark.parametrize(
    ("replicas", "in_sync", "other", "leader", "why"),
    [
        ((), (), 1, 2, "more replicas agree with the leader"),
        ((), (), 2, 1, "more replicas agree with the leader"),
        ((3, 1, 2), (3, 1, 2), 3, 3, "by the metadata the leader led last"),
        ((9, 1, 2, 3), (9, 2), 2, 2, "by the metadata the leader was in sync, and this one not"),
        ((9, 1, 2, 3), (1, 2, 3), 1, 2, "more replicas agree with the leader"),
    ],
)
def test_which_leads_of_logs_that_end_alike_and_disagree(
    replicas: tuple[int, ...], in_sync: tuple[int, ...], other: int, leader: int, why: str, tmp_path: Path
) -> None:
    """Node `other` has another batch than the two others."""
    old, new = [_old(tmp_path, node) for node in (1, 2, 3)], {node: _new(tmp_path, node) for node in (1, 2, 3)}
    _change_time(old[other - 1])
    if replicas:
        values = [topic("txn-mixed", _TOPIC_ID), partition(_TOPIC_ID, 0, replicas, [])]
        values.append(change("PartitionChangeRecord", topicId=_TOPIC_ID, partitionId=0, isr=list(in_sync)))
        _write_metadata(old[0], values)
    planned = _restore(old, new).json
    assert planned["topics"][0]["partitions"][0]["leader"] == leader
    assert planned["disagreements"] and all(
        line.endswith(f"both end alike, and {why}") for line in planned["disagreements"]
    )


def test_of_two_that_disagree_nothing_tells_which_is_right(tmp_path: Path) -> None:
    old, new = [_old(tmp_path, node) for node in (1, 2)], {node: _new(tmp_path, node) for node in (1, 2)}
    _change_time(old[0])
    [line] = _restore(old, new).json["disagreements"]
    assert line.endswith("both end alike, and nothing tells which is right: the one of the lower node id leads")


@pytest.mark.parametrize("epochs", [True, False], ids=["by its epochs", "without epochs"])
def test_a_replica_that_has_lost_its_first_log_does_not_lead(epochs: bool, tmp_path: Path) -> None:
    """Nor is it copied: if it led later, the others would delete their first logs."""
    old, new = [_old(tmp_path, node) for node in (1, 2, 3)], {node: _new(tmp_path, node) for node in (1, 2, 3)}
    _logs(old[0])[0].unlink()
    if not epochs:
        (old[0] / _PARTITION / LEADER_EPOCH_CHECKPOINT).unlink()
    planned = _restore(old, new)
    [restored] = planned.json["topics"][0]["partitions"]
    assert (planned.code, restored["leader"], restored["in_sync"]) == (ExitCode.OK, 2, [2, 3])
    [why] = (each["why"] for each in planned.json["replicas"] if each["node_id"] == 1)
    assert why == "begins empty: it has lost logs before offset 84"


def test_first_logs_that_only_a_shorter_replica_has_are_missed(tmp_path: Path) -> None:
    old, new = [_old(tmp_path, node) for node in (1, 2)], {node: _new(tmp_path, node) for node in (1, 2)}
    _logs(old[0])[0].unlink()
    alone = _restore(old[:1], {1: new[1]})
    begins = "leader-epoch-checkpoint begins at offset 0, and the logs at 84: offsets 0 to 83 are in no log"
    assert (alone.code, alone.json["gaps"]) == (ExitCode.PROBLEMS_FOUND, [f"{_PARTITION} of broker 1: {begins}"])
    _shorten(old[1])
    refused = _restore(old, new)
    assert refused.code == ExitCode.USAGE
    [lost] = refused.json["lost"]
    assert lost.startswith(f"{_PARTITION}: broker 1: {old[0] / _PARTITION} has lost offsets 0 to 83, and broker 2: ")


def test_an_index_tells_of_a_log_that_is_shorter_or_missing(tmp_path: Path) -> None:
    """Where no checkpoint does. Another replica that ends alike leads."""
    old, new = [_old(tmp_path, node) for node in (1, 2)], {node: _new(tmp_path, node) for node in (1, 2)}
    end, last = min(_shorten(log_dir) for log_dir in old), _logs(old[0])[-1]
    base_offset = int(last.stem)
    entry = np.array([(end + 9 - base_offset, 900_000)], layouts.OFFSET_INDEX_ENTRY)
    last.with_suffix(OFFSET_INDEX_SUFFIX).write_bytes(entry.tobytes())
    given = {"version": 1, "partitions": [{"topic": "txn-mixed", "partition": 0, "offset": base_offset}]}
    (until := tmp_path / "until").write_text(json.dumps(given))
    assert _restore(old[:1], {1: new[1]}, "--until-offsets", str(until)).json["gaps"] == [], "it ends before that"
    for says in (
        f"ends at offset {end}, its .index has an entry for offset {end + 9} at byte 900000",
        f"{last.stem}.index has no log beside it, and the logs end at {base_offset}",
    ):
        alone = _restore(old[:1], {1: new[1]})
        assert alone.code == ExitCode.PROBLEMS_FOUND and alone.json["gaps"][0].endswith(says)
        assert _restore(old, new).json["topics"][0]["partitions"][0]["leader"] == 2
        for log_dir in old:
            _logs(log_dir)[-1].unlink()


def test_a_replica_with_a_gap_does_not_lead(tmp_path: Path) -> None:
    old, new = [_old(tmp_path, node) for node in (1, 2)], {node: _new(tmp_path, node) for node in (1, 2)}
    _logs(old[0])[1].unlink()
    planned = _restore(old, new).json
    assert planned["topics"][0]["partitions"][0]["leader"] == 2 and planned["gaps"] == []


def test_a_damaged_replica_does_not_lead(tmp_path: Path) -> None:
    old, new = [_old(tmp_path, node) for node in (1, 2)], {node: _new(tmp_path, node) for node in (1, 2)}
    _damage(old[0])
    [planned] = _restore(old, new).json["topics"][0]["partitions"]
    assert (planned["leader"], planned["in_sync"]) == (2, [2])


def test_what_is_lost_has_to_be_accepted_and_the_source_keeps_it(old: Path, new: dict[int, Path]) -> None:
    _damage(old)
    before = _contents(old)
    refused = _restore([old], new)
    assert refused.code == ExitCode.USAGE and any("--accept-loss" in line for line in refused.json["refused"])
    applied = _applied([old], new, "--accept-loss")
    assert applied.code == ExitCode.PROBLEMS_FOUND and applied.json["lost"] and applied.json["cut"]
    of_copy, of_source = _logs(new[1])[-1].read_bytes(), _logs(old)[-1].read_bytes()
    assert of_copy == of_source[: len(of_copy)] and len(of_copy) < len(of_source)
    assert {name: content for name, content in _contents(old).items() if name in before} == before


def test_an_end_that_consumers_have_seen_is_missed(tmp_path: Path) -> None:
    """The line of a broker that has lost the folder counts, too."""
    old, new = [_old(tmp_path, node) for node in (1, 2)], {1: _new(tmp_path, 1)}
    shutil.rmtree(old[1] / _PARTITION)
    _folder(old[1], "another-0", _id("another"))
    (old[1] / HIGH_WATERMARK_CHECKPOINT).write_text("0\n1\ntxn-mixed 0 1000000\n")
    refused = _restore(old, new)
    assert refused.code == ExitCode.USAGE and any("to 999999 are in no log" in line for line in refused.json["refused"])


def test_a_partition_that_only_a_checkpoint_names_is_missed(old: Path, new: dict[int, Path]) -> None:
    """Without metadata nothing else tells of it. A topic that is not asked for is not missed."""
    (old / HIGH_WATERMARK_CHECKPOINT).write_text(f"0\n2\n{_PARTITION.replace('-0', ' 0')} 0\nlost 0 500\n")
    refused = _restore([old], new)
    [lost] = refused.json["lost"]
    assert refused.code == ExitCode.USAGE and lost.startswith(f"lost-0: {HIGH_WATERMARK_CHECKPOINT} in {old} names it")
    assert _restore([old], new, "--topics", "txn-mixed").json["lost"] == []
    assert _applied([old], new, "--accept-loss").code == ExitCode.PROBLEMS_FOUND


def test_a_second_disk_that_is_not_mounted_is_missed(old: Path, new: dict[int, Path], tmp_path: Path) -> None:
    """A broker's log dir has `meta.properties`, also where it has no partition."""
    second = tmp_path / "second"
    second.mkdir()
    both = [Path(f"{old},{second}")]
    refused = _restore(both, new)
    assert (refused.code, refused.out) == (ExitCode.USAGE, "")
    assert refused.err.startswith(f"error: {second}: no partition directory, and nothing can be restored from it")
    assert refused.err.rstrip().endswith("is the disk mounted?")
    _properties(second, 1, "old")
    assert _restore(both, new).code == ExitCode.OK


def test_no_source_was_in_sync(old: Path, new: dict[int, Path]) -> None:
    """Where the last that was in sync is lost, records that it had acknowledged may be in no log."""
    values = [topic("txn-mixed", _TOPIC_ID), partition(_TOPIC_ID, 0, [1, 2], [])]
    shrunk = change("PartitionChangeRecord", topicId=_TOPIC_ID, partitionId=0, isr=[2])
    for metadata, is_lost in ((values, False), ([*values, shrunk], True)):
        _write_metadata(old, metadata)
        planned = _restore([old], new)
        assert (planned.code == ExitCode.USAGE) == is_lost, planned
        assert any("only brokers 2 were in sync" in line for line in planned.json["lost"]) == is_lost


def test_a_topic_that_was_made_again_after_the_metadata_is_not_said_to_be_nowhere(tmp_path: Path) -> None:
    """Its directory is there, with another id than the metadata has; which of them counts, newer metadata would say."""
    old, new = [_old(tmp_path, node) for node in (1, 2)], {node: _new(tmp_path, node) for node in (1, 2)}
    directory = old[0] / _PARTITION
    for topic_id, made_again in ((_id("before"), old), (_TOPIC_ID, old[1:])):
        for log_dir in old:
            of_log_dir = _id("after") if log_dir in made_again else topic_id
            (log_dir / _PARTITION / PARTITION_METADATA).write_text(f"version: 0\ntopic_id: {of_log_dir}\n")
        values = [topic("txn-mixed", topic_id), partition(topic_id, 0, [1, 2], [])]
        _write_metadata(old[0], values)
        planned = _restore(old, new).json
        assert [line.partition(":")[0] for line in planned["left_out"]] == [
            str(each / _PARTITION) for each in made_again
        ]
        if old[0] in made_again:
            [lost] = planned["lost"]
            assert lost.startswith(f"{_PARTITION}: no source has a directory of topic id {topic_id}, ")
            assert f"{directory} is left out, whose records are those of the topic if it was made again" in lost
    [leader, other] = planned["replicas"]
    assert leader["from"] == str(directory) and planned["lost"] == []
    assert other["why"] == "begins empty: no source has its directory of this topic id"


def test_a_log_of_a_broker_that_is_gone_goes_to_another(tmp_path: Path) -> None:
    old, new = [_old(tmp_path, node) for node in (1, 2)], {2: _new(tmp_path, 2)}
    _shorten(old[1])
    planned = _restore(old, new)
    [replica] = planned.json["replicas"]
    assert planned.code == ExitCode.OK
    assert (replica["node_id"], replica["leader"], replica["from"]) == (2, True, str(old[0] / _PARTITION))


def test_another_plan_is_not_applied(old: Path, new: dict[int, Path]) -> None:
    plan = _restore([old], new).json["plan"]
    _shorten(old)
    _restore([old], new, "--apply", plan).assert_one_line(ExitCode.USAGE, f"--apply {plan}", "by now")
    assert not (new[1] / _PARTITION).exists() and not (new[1] / UNFINISHED).exists()


def test_two_files_that_are_written_are_not_one(old: Path, new: dict[int, Path], tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    files = "--scan-cache", str(tmp_path / "file"), "--reset-offsets", str(link / "file")
    _restore([old], new, *files).assert_one_line(ExitCode.USAGE, "--scan-cache and --reset-offsets", "name two files")
    assert not (tmp_path / "file").exists()


def test_copies_are_files_of_their_own(old: Path, new: dict[int, Path]) -> None:
    """A broker appends to logs, and cuts them in place: a hard link would change the source. The marker has the epoch
    with which the controller takes the stop for an unclean one.
    """
    _applied([old], new)
    assert not (new[1] / UNFINISHED).exists()
    assert (new[1] / CLEAN_SHUTDOWN_FILE).read_text() == '{"version":0,"brokerEpoch":-1}'
    for source, copy in zip(_logs(old), _logs(new[1]), strict=True):
        one, other = source.stat(), copy.stat()
        assert source.read_bytes() == copy.read_bytes() and one.st_ino != other.st_ino
        assert (one.st_nlink, other.st_nlink) == (1, 1) and one.st_mtime_ns == other.st_mtime_ns
    again = _restore([old], new)
    assert again.code == ExitCode.USAGE  # what was restored is not written over


def test_no_topic_is_deleted_by_a_guess(old: Path, new: dict[int, Path], tmp_path: Path) -> None:
    """What nobody says gets the value with which nothing is removed, held or not; what is proven is held at first."""
    configs = tmp_path / "configs"
    configs.write_text(
        "All configs for topic txn-mixed are:\n"
        "  cleanup.policy=compact sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:cleanup.policy=compact}\n"
        "  retention.ms=1000 sensitive=false synonyms={STATIC_BROKER_CONFIG:log.retention.ms=1000}\n"
        "  retention.bytes=5 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.bytes=5}\n"
        "  max.compaction.lag.ms=9 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:max.compaction.lag.ms=9}\n"
    )

    def values(*options: str) -> dict[str, str | None]:
        [described] = _restore([old], new, *options).json["topics"]
        return {config["name"]: config["value"] for config in described["configs"]}

    nothing = {"retention.ms": "-1", "retention.bytes": "-1", "unclean.leader.election.enable": "false"}
    assert values() == values("--no-hold-retention") == {"cleanup.policy": "delete", **nothing}
    described = ("--topic-configs", str(configs))
    held = {"cleanup.policy": "compact", "min.compaction.lag.ms": str(2**63 - 1), "max.compaction.lag.ms": None}
    assert values(*described) == {**nothing, **held}
    proven = {"cleanup.policy": "compact", "retention.bytes": "5", "max.compaction.lag.ms": "9"}
    assert values(*described, "--no-hold-retention") == {**nothing, **proven}
    lifted = [line.partition("txn-mixed ")[2] for line in _restore([old], new, *described).json["lift"]]
    assert lifted == [
        "--add-config retention.bytes=5,max.compaction.lag.ms=9",
        "--delete-config retention.ms,min.compaction.lag.ms",
    ]


def test_a_part_of_the_topics(old: Path, new: dict[int, Path]) -> None:
    """What is left out has a line, and is not in the metadata, where it would be served empty."""
    for name in ("left", "__transaction_state"):
        _folder(old, f"{name}-0", _id(name))
    _write_metadata(old, [record for name in ("txn-mixed", "left", "nowhere") for record in _topic_of(name)])
    _restore([old], new, "--topics", "txn").assert_one_line(ExitCode.USAGE, "--topics txn: no topic", "txn-mixed")
    applied = _applied([old], new, "--topics", "txn.*")
    assert applied.code == ExitCode.OK
    assert [topic["topic"] for topic in applied.json["topics"]] == ["txn-mixed"]
    assert [line.partition(":")[0] for line in applied.json["left_out"]] == [
        *("topic __transaction_state", "topic left", "topic nowhere")
    ]
    assert "add |__transaction_state to --topics" in applied.json["left_out"][0]
    assert sorted(path.name for path in new[1].iterdir() if path.is_dir()) == [_PARTITION]
    assert b"txn-mixed" in (restored := (new[1] / BOOTSTRAP_SNAPSHOT).read_bytes())
    assert not any(name in restored for name in (b"left", b"nowhere", b"__transaction_state"))


def _topic_of(name: str) -> list[bytes]:
    topic_id = _TOPIC_ID if name == "txn-mixed" else _id(name)
    return [topic(name, topic_id), partition(topic_id, 0, [1], [])]


@pytest.mark.parametrize("hold", [(), ("--no-hold-retention",)], ids=["held", "retention not held"])
def test_no_unclean_election_whatever_is_proven(
    hold: tuple[str, ...], old: Path, new: dict[int, Path], tmp_path: Path
) -> None:
    """A shorter replica whose broker starts first would lead. The setting comes back with the others."""
    name = "unclean.leader.election.enable"
    configs = tmp_path / "configs"
    of_topic = f"synonyms={{DYNAMIC_TOPIC_CONFIG:{name}=true}}"
    configs.write_text(f"All configs for topic txn-mixed are:\n  {name}=true sensitive=false {of_topic}\n")
    restored = _restore([old], new, "--topic-configs", str(configs), *hold).json
    assert {config["value"] for config in restored["topics"][0]["configs"] if config["name"] == name} == {"false"}
    assert any(f"--add-config {name}=true" in line for line in restored["lift"])


def test_a_replica_that_begins_after_a_given_end_is_copied_empty(tmp_path: Path) -> None:
    old = [_old(tmp_path, node) for node in (1, 2)]
    for log_dir in old:
        _folder(log_dir, WITHOUT_TRANSACTIONS, _id("another"), WITHOUT_TRANSACTIONS)
    (old[1] / LOG_START_OFFSET_CHECKPOINT).write_text("0\n1\nplain-zstd 0 400\n")
    (tmp_path / "until.json").write_text('{"partitions": [{"topic": "plain-zstd", "partition": 0, "offset": 171}]}')
    new = {node: _new(tmp_path, node) for node in (1, 2)}
    applied = _applied(old, new, "--until-offsets", str(tmp_path / "until.json"), "--accept-loss")
    [of_second] = [
        each for each in applied.json["replicas"] if (each["partition"], each["node_id"]) == (WITHOUT_TRANSACTIONS, 2)
    ]
    assert of_second["start_offset"] == of_second["end_offset"] == 171
