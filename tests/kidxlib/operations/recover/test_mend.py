"""`kidx recover --mend`: what it puts in place, what it keeps, and what it leaves as nothing tells what was there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import pytest

from kidxlib.format.checkpoint_files import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    clean_shutdown,
    offset_checkpoint,
)
from kidxlib.format.segment_files import LOG_SUFFIX
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.log.metadata_image import read_cluster_metadata
from kidxlib.log.metadata_replica import METADATA_DIRECTORY
from kidxlib.storage.log_dir import CLEAN_SHUTDOWN_FILE, PARTITION_METADATA, read_offset_checkpoint
from kidxlib.terminal.exit_codes import ExitCode
from tests.docs.log_dirs import put
from tests.docs.pages import PROJECT
from tests.kidxlib.operations.recover.plans import ENDS, NAME, planned, run_kidx, shown
from tests.support.cluster_metadata import topic_id
from tests.support.logs.batches import Batch

_EPOCHS: Final = f"{NAME}/{LEADER_EPOCH_CHECKPOINT}"
_ID_FILE: Final = f"append-time-0/{PARTITION_METADATA}"


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    return tmp_path / "kept"


@pytest.mark.parametrize("content", [bytes(30), b"", None, b"0\n2\n0 0\n"], ids=["NUL", "empty", "gone", "short"])
@pytest.mark.parametrize("is_clean", [False, True], ids=["killed", "stopped"])
def test_leader_epochs_are_those_of_the_log(
    log_dir: Path, kept: Path, content: bytes | None, *, is_clean: bool
) -> None:
    """The file has the bytes that it had, and the other one is kept. Neither a plan nor a second run changes any."""
    path = log_dir / _EPOCHS
    before = path.read_bytes()
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    if is_clean:
        (log_dir / CLEAN_SHUTDOWN_FILE).write_bytes(clean_shutdown(7))
    code, plan = planned(log_dir, "--mend", "--keep", kept)
    assert code == ExitCode.PROBLEMS_FOUND and str(path) in plan["mended"][0] and not plan["refused"], plan
    assert not kept.exists() and (path.read_bytes() if path.exists() else None) == content
    code, plan = planned(log_dir, "--mend", "--keep", kept, "--apply")
    assert code == 0 and plan["applied"] and path.read_bytes() == before, plan
    assert ((kept / _EPOCHS).read_bytes() if kept.exists() else None) == content
    assert planned(log_dir, "--mend", "--keep", kept, "--apply")[1]["mended"] == []
    assert run_kidx("verify", log_dir, "--this-dir-alone").return_value == 0


def test_recovery_points_after_a_full_read(log_dir: Path, kept: Path) -> None:
    (log_dir / RECOVERY_POINT_CHECKPOINT).write_bytes(bytes(300))
    assert planned(log_dir)[0] == ExitCode.USAGE
    code, plan = planned(log_dir, "--mend", "--keep", kept, "--apply", "--all")
    assert code == 0 and plan["start_bytes"] == sum(path.stat().st_size for path in log_dir.glob(f"*/*{LOG_SUFFIX}"))
    assert read_offset_checkpoint(log_dir / RECOVERY_POINT_CHECKPOINT) == ENDS
    assert (kept / log_dir.name / RECOVERY_POINT_CHECKPOINT).read_bytes() == bytes(300)


def _begin_late(log_dir: Path) -> Path:
    for path in (log_dir / NAME).glob(f"{0:020}*"):
        path.unlink()
    (log_dir / _EPOCHS).write_bytes(bytes(9))
    return log_dir / _EPOCHS


def test_a_log_that_begins_late_may_have_epochs_in_a_bucket(log_dir: Path, kept: Path) -> None:
    """Nobody knows here whether the topic is tiered."""
    path = _begin_late(log_dir)
    code, plan = planned(log_dir, "--mend", "--keep", kept, "--apply")
    assert code == ExitCode.USAGE and LEADER_EPOCH_CHECKPOINT in plan["refused"][0] and path.read_bytes() == bytes(9)


def test_a_log_that_begins_late_and_is_not_tiered(two: list[Path], kept: Path) -> None:
    """The cluster's metadata says so."""
    path = _begin_late(two[0])
    _, plan = planned(*two, "--mend", "--keep", kept, "--apply")
    assert plan["applied"] and path.read_bytes() == b"0\n1\n0 13697\n", plan


def test_a_topic_id_needs_somebody_who_confirms_it(two: list[Path], kept: Path) -> None:
    path = two[1] / _ID_FILE
    before = path.read_bytes()
    path.unlink()
    mend = ("--mend", "--keep", kept, "--apply")
    assert planned(*two)[0] == ExitCode.USAGE
    assert planned(*two, *mend)[0] == ExitCode.USAGE and not path.exists()
    assert planned(*two, *mend, "--accept-topic-id", "other")[0] == ExitCode.USAGE and not path.exists()
    code, plan = planned(*two, *mend, "--accept-topic-id", "append-time")
    assert code == 0 and path.read_bytes().split() == before.split(), plan
    assert run_kidx("verify", two[1], "--this-dir-alone").return_value == 0


def _end_early(replica: Path) -> None:
    [log] = replica.glob(f"*{LOG_SUFFIX}")
    os.truncate(log, log.stat().st_size * 2 // 3)


def _hold_other_batches(replica: Path) -> None:
    """Those of another topic, at the same offsets."""
    put(replica, 0, [Batch(timestamp=1)] * 50)


def _begin_behind(replica: Path) -> None:
    [log] = replica.glob(f"*{LOG_SUFFIX}")
    log.unlink()
    put(replica, ENDS[TopicPartition("append-time", 0)], [Batch(timestamp=1)] * 50)


def _damage(replica: Path) -> None:
    [log] = replica.glob(f"*{LOG_SUFFIX}")
    with log.open("r+b") as file:
        file.seek(log.stat().st_size // 2)
        file.write(b"?" * 8)


def _be_cleaned(replica: Path) -> None:
    """To its end: what two brokers have left of it tells nothing."""
    (replica.parent / CLEANER_CHECKPOINT).write_bytes(offset_checkpoint(ENDS))


def _have_another_id(replica: Path) -> None:
    (replica / PARTITION_METADATA).write_text(f"version: 0\ntopic_id: {topic_id('z')}\n")


#: What is done to a replica; whether it confirms the id then; and what is said.
_REPLICAS: Final[Mapping[str, tuple[Callable[[Path], object], bool, str]]] = {
    "whole": (lambda replica: None, True, "in common, and no other ones there"),
    "it ends early": (_end_early, True, "in common, and no other ones there"),
    "other batches": (_hold_other_batches, False, "has other batches at offsets 0–"),
    "no common offsets": (_begin_behind, False, "has no batch in common"),
    "damaged": (_damage, False, "cannot be compared to its end: "),
    "compacted": (_be_cleaned, False, "has no batch in common with it above what a cleaner has worked on"),
    "another topic id": (_have_another_id, False, f"has topic id {topic_id('z')}, and the metadata "),
    "no topic id": (lambda replica: (replica / PARTITION_METADATA).unlink(), False, "has no topic id that can be read"),
    "no such partition": (shutil.rmtree, False, "has no append-time-0"),
}


@pytest.mark.parametrize("case", _REPLICAS)
def test_a_replica_confirms_a_topic_id(two: list[Path], kept: Path, tmp_path: Path, case: str) -> None:
    """By the same batches at the same offsets, at least one, and by no other ones."""
    change, confirms, said = _REPLICAS[case]
    other = tmp_path / "other-broker"
    (other / NAME).mkdir(parents=True)
    replica = Path(shutil.copytree(two[1] / "append-time-0", other / "append-time-0"))
    change(replica)
    path = two[1] / _ID_FILE
    before = path.read_bytes()
    path.unlink()
    mend: list[str | Path] = [*two, "--mend", "--keep", kept, "--replica", other]
    code, plan = planned(*mend, "--apply")
    assert said in " ".join(plan["mended"] + plan["not_mended"]), plan
    assert (code == 0 and path.exists() and path.read_bytes().split() == before.split()) == confirms, plan
    if case == "other batches":
        assert planned(*mend, "--accept-topic-id", "append-time")[1]["mended"] == []


def test_a_log_dir_confirms_nothing_of_itself(two: list[Path], kept: Path) -> None:
    with pytest.raises(AssertionError, match="it is a log dir of this broker"):
        planned(*two, "--mend", "--keep", kept, "--replica", two[1])


def test_what_was_mended_is_said_where_another_thing_is_refused_then(log_dir: Path, kept: Path) -> None:
    """Only with its leader epochs a partition is looked at, and then its end is not there. A file with the name of a
    partition is none.
    """
    (log_dir / _EPOCHS).write_bytes(bytes(30))
    for path in (log_dir / NAME).glob("*13697*"):
        path.unlink()
    (log_dir / "orders-0").touch()
    (log_dir / "orders-1-future").touch()
    mend = ("--mend", "--keep", kept, "--apply")
    out = shown(log_dir, *mend)
    assert "mended: 1 file" in out and "below the high watermark 20000" in out, out
    assert "nothing but what was mended was changed" in out and "nothing was changed" not in out


def test_a_topic_id_that_is_not_mended_is_in_json(two: list[Path], kept: Path) -> None:
    (two[1] / _ID_FILE).unlink()
    [why] = planned(*two, "--mend", "--keep", kept)[1]["not_mended"]
    assert why.startswith(f"{two[1] / _ID_FILE}: not mended: the metadata has the partition here")


def _elsewhere(two: list[Path]) -> None:
    shutil.copytree(two[1] / "append-time-0", two[0] / f"append-time-0.{'0' * 32}-future")


def _of_a_later_epoch(two: list[Path]) -> None:
    """As of a topic that was made again since: its leader epochs begin anew."""
    [log] = (two[1] / "append-time-0").glob(f"*{LOG_SUFFIX}")
    content = bytearray(log.read_bytes())
    content[12:16] = (5).to_bytes(4)  # of the first batch; no checksum covers it
    log.write_bytes(content)


def _of_another_place(two: list[Path]) -> None:
    (two[1] / "append-time-0").rename(two[0] / "append-time-0")


@pytest.mark.parametrize("damage", [_elsewhere, _of_a_later_epoch, _of_another_place])
def test_a_topic_id_that_something_speaks_against(
    two: list[Path], kept: Path, damage: Callable[[list[Path]], object]
) -> None:
    damage(two)
    [path] = [path for log_dir in two for path in log_dir.glob(_ID_FILE)]
    path.unlink()
    mend = ("--mend", "--keep", kept, "--apply", "--accept-topic-id", "append-time")
    assert planned(*two, *mend)[0] == ExitCode.USAGE and not path.exists()
    assert planned(two[1], *mend, "--this-dir-alone")[1]["mended"] == []


@pytest.mark.parametrize("name", ["quorum-state", HIGH_WATERMARK_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT])
def test_what_nothing_tells_is_not_made(two: list[Path], kept: Path, name: str) -> None:
    path = two[0] / (METADATA_DIRECTORY if name == "quorum-state" else "") / name
    path.write_bytes(bytes(40))
    planned(*two, "--mend", "--keep", kept, "--apply", "--set-aside-snapshot")
    assert path.read_bytes() == bytes(40)


def test_a_snapshot_that_cannot_be_read(two: list[Path], kept: Path) -> None:
    """It is set aside where the log leads to the same end, and somebody says so; not where the log begins with it."""
    directory = two[0] / METADATA_DIRECTORY
    end = read_cluster_metadata(directory).end_offset
    path = directory / f"{end - 1:020}-0000000000.checkpoint"
    path.write_bytes(bytes(99))
    mend = ("--mend", "--keep", kept, "--apply")
    planned(*two, *mend)
    assert path.exists()
    code, plan = planned(*two, *mend, "--set-aside-snapshot")
    assert code == 0 and not path.exists() and (kept / METADATA_DIRECTORY / path.name).read_bytes() == bytes(99), plan
    later = directory / f"{end + 5:020}-0000000000.checkpoint"
    later.write_bytes(bytes(99))
    _, plan = planned(*two, *mend, "--set-aside-snapshot")
    assert later.exists() and plan["mended"] == []


def test_a_disk_without_room_for_what_is_kept(log_dir: Path, tmp_path: Path) -> None:
    """Nothing is put in place of what could not be kept."""
    (log_dir / _EPOCHS).write_bytes(bytes(30))
    (tmp_path / "file").touch()
    with pytest.raises(AssertionError, match="cannot keep"):
        planned(log_dir, "--mend", "--keep", tmp_path / "file" / "kept", "--apply")
    assert (log_dir / _EPOCHS).read_bytes() == bytes(30)


def test_high_watermarks_stay(log_dir: Path, kept: Path) -> None:
    (log_dir / HIGH_WATERMARK_CHECKPOINT).write_bytes(offset_checkpoint(dict.fromkeys(ENDS, 5)))
    planned(log_dir, "--mend", "--keep", kept, "--apply")
    assert set((read_offset_checkpoint(log_dir / HIGH_WATERMARK_CHECKPOINT) or {}).values()) == {5}


def test_epochs_of_remote_segments_come_before_those_of_the_log(tmp_path: Path, kept: Path) -> None:
    """A leader without them deletes these segments: `test_tiered_epochs.py` has what brokers did."""
    log_dir = tmp_path / "log-dir"
    shutil.copytree(PROJECT / "samples" / "tiered" / "log-dir", log_dir)
    topics = read_cluster_metadata(log_dir / METADATA_DIRECTORY).topics
    for topic, number, end in (("payments", 0, 340), ("readings", 0, 300), ("readings", 1, 300)):
        partition = log_dir / f"{topic}-{number}"
        partition.mkdir()
        (partition / PARTITION_METADATA).write_text(f"version: 0\ntopic_id: {topics[topic]}\n")
        (partition / f"{end:020}{LOG_SUFFIX}").write_bytes(b"")
        (partition / LEADER_EPOCH_CHECKPOINT).write_bytes(b"")
    code, plan = planned(log_dir, "--this-dir-alone")
    refused = [each for each in plan["refused"] if LEADER_EPOCH_CHECKPOINT in each]
    assert code == ExitCode.USAGE and len(refused) == 3, plan
    # The sample has no `__transaction_state-0`, which its metadata knows.
    code, plan = planned(log_dir, "--this-dir-alone", "--mend", "--keep", kept, "--accept-loss", "--apply")
    assert plan["applied"] and not plan["refused"], plan
    for partition in log_dir.glob("*s-?"):
        assert (partition / LEADER_EPOCH_CHECKPOINT).read_bytes() == b"0\n1\n0 0\n", partition
