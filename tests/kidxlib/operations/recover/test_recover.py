"""What a plan says of log dirs: nothing that is missing, or that stands beside, is called well, and `verify` agrees."""

from __future__ import annotations

import itertools
import json
import os
import shlex
import shutil
import string
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest
from rich.filesize import decimal

from kidxlib.format.checkpoint_files import (
    HIGH_WATERMARK_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    clean_shutdown,
    offset_checkpoint,
)
from kidxlib.format.layouts import MAGIC_AT
from kidxlib.format.segment_files import BOOTSTRAP_SNAPSHOT, LOG_SUFFIX, OFFSET_INDEX_SUFFIX, segment_file
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.log.metadata_replica import METADATA_DIRECTORY
from kidxlib.operations.recover import forecast
from kidxlib.records.batch_headers import batches
from kidxlib.storage.lock import LOCK_FILE
from kidxlib.storage.log_dir import CLEAN_SHUTDOWN_FILE, META_PROPERTIES, PARTITION_METADATA
from kidxlib.storage.opened_log import opened_log
from kidxlib.terminal.exit_codes import ExitCode
from tests.docs.pages import PROJECT
from tests.faults.disks import mounted, remount
from tests.faults.processes import kidx
from tests.kidxlib.operations.recover.plans import ENDS, LAST, NAME, PARTITION, planned, run_kidx, shown
from tests.support import cluster_metadata
from tests.support.cluster_metadata import change
from tests.support.logs import golden


def _set_recovery_point(log_dir: Path, offset: int) -> None:
    (log_dir / RECOVERY_POINT_CHECKPOINT).write_bytes(offset_checkpoint({**ENDS, PARTITION: offset}))


def _lose_partition(log_dir: Path) -> None:
    """After a crash recovery points may be 0 still; the high watermark tells."""
    shutil.rmtree(log_dir / NAME)
    _set_recovery_point(log_dir, 0)


def _lose_logs(log_dir: Path) -> None:
    for path in (log_dir / NAME).glob("0*"):
        path.unlink()


def _tear(log_dir: Path) -> None:
    os.truncate(log_dir / NAME / LAST, (log_dir / NAME / LAST).stat().st_size - 30)


def _lose_last_segment(log_dir: Path) -> None:
    for path in (log_dir / NAME).glob("*13697*"):
        path.unlink()


def _flip(log_dir: Path) -> None:
    with (log_dir / NAME / LAST).open("r+b") as log:
        log.seek(2_000)
        log.write(b"\xff" * 8)


def _write(name: str, content: bytes) -> Callable[[Path], object]:
    return lambda log_dir: (log_dir / name).write_bytes(content)


#: What is done to a log dir; words of the refusal; and whether a broker comes over it by itself after an unclean stop.
_DAMAGES: Final[Mapping[str, tuple[Callable[[Path], object], Sequence[str], bool]]] = {
    "epochs are NUL": (
        _write(f"{NAME}/{LEADER_EPOCH_CHECKPOINT}", bytes(64)),
        (LEADER_EPOCH_CHECKPOINT, "takes the log dir out of use"),
        False,
    ),
    "a foreign directory": (lambda log_dir: (log_dir / "lost").mkdir(), ("/lost: ", "does not start beside it"), False),
    "a file with another name": (_write(f"{NAME}/copy.log", b""), ("copy.log", "is no offset"), False),
    "no metadata of a partition": (
        lambda log_dir: (log_dir / NAME / PARTITION_METADATA).unlink(),
        ("no partition.metadata", "(-stray)"),
        False,
    ),
    "a partition is gone": (
        _lose_partition,
        (f"{NAME}: no such directory", "up to 19999", "makes an empty log"),
        False,
    ),
    "its logs are gone": (_lose_logs, (f"{NAME}: no segment is there", "up to 19999"), True),
    "its last log is empty": (
        _write(f"{NAME}/{LAST}", b""),
        (f"{NAME}: the log ends at offset 13697, below the high watermark 20000",),
        True,
    ),
    "its last segment is gone": (_lose_last_segment, ("ends at offset 13697, below the high watermark",), True),
    "its end is torn": (_tear, (f"{NAME}: ", "below the high watermark 20000"), True),
    "meta.properties is empty": (_write(META_PROPERTIES, b""), (META_PROPERTIES,), False),
}


@pytest.mark.parametrize("damage", _DAMAGES)
@pytest.mark.parametrize("is_clean", [False, True], ids=["killed", "stopped"])
def test_what_is_damaged_is_no_0(log_dir: Path, damage: str, *, is_clean: bool) -> None:
    """After a clean stop the same is found as after an unclean one, and the last line says what is true then."""
    do, parts, recovers = _DAMAGES[damage]
    do(log_dir)
    if is_clean:
        (log_dir / CLEAN_SHUTDOWN_FILE).write_bytes(clean_shutdown(7))
    code, plan = planned(log_dir)
    assert code == ExitCode.USAGE and plan["stopped_cleanly"] == is_clean, plan
    found = " ".join(plan["refused"])
    if not (is_clean and damage == "its end is torn"):
        assert [part for part in parts if part not in found] == [], plan["refused"]
    assert plan["recovers_by_itself"] == (recovers and not is_clean), plan["refused"]
    last = shown(log_dir).splitlines()[-1]
    assert ("the broker recovers by itself" in last) == (recovers and not is_clean), last
    verified = run_kidx("verify", log_dir)
    assert verified.return_value == ExitCode.PROBLEMS_FOUND, verified.output


def _lose(pattern: str) -> Callable[[Path], None]:
    def lose(directory: Path) -> None:
        for path in directory.glob(pattern):
            path.unlink()

    return lose


def _shorten(directory: Path) -> None:
    """A log ends early, with a whole batch, and its index knows of more."""
    path = directory / f"{84:020}.log"
    with opened_log(str(path)) as opened:
        os.truncate(path, list(itertools.islice(batches(opened.log(use_mmap=False)), 10))[-1].next_position)


def _empty(directory: Path) -> None:
    """A log of no bytes beside an index of many."""
    os.truncate(directory / f"{84:020}.log", 0)


#: What a partition has lost that keeps no broker from starting, by its topic, and the reason that says so after a kill.
_LOSSES: Final[Mapping[str, tuple[Callable[[Path], object], str | None]]] = {
    "segment": (_lose("*5797.*"), "gap"),
    "end-of-log": (_shorten, "gap"),
    "empty-log": (_empty, "gap"),
    "first-segment": (_lose(f"{0:020}.*"), "first-logs-missing"),
    "epochs": (_lose(LEADER_EPOCH_CHECKPOINT), "missing-epoch"),
    "foreign-epochs": (_write(LEADER_EPOCH_CHECKPOINT, b"0\n1\n57 100\n"), "missing-epoch"),
    "log-start": (_write(LEADER_EPOCH_CHECKPOINT, b"0\n1\n0 100\n"), None),
}


@pytest.fixture(scope="module")
def lossy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Partitions of four segments, of which the broker had flushed all, and deleted nothing."""
    log_dir, name = tmp_path_factory.mktemp("recover-missing") / "logs", "txn-mixed-0"
    shutil.copytree(golden.SAMPLES / name, log_dir / name)
    assert not run_kidx("build", log_dir, "--in-place", "--snapshots", "--epochs").return_value
    for letter, (topic, (lose, _)) in zip(string.ascii_lowercase, _LOSSES.items(), strict=False):
        partition = Path(shutil.copytree(log_dir / name, log_dir / f"{topic}-0"))
        (partition / PARTITION_METADATA).write_text(f"version: 0\ntopic_id: {letter * 21}A\n")
        lose(partition)
    shutil.rmtree(log_dir / name)
    (log_dir / META_PROPERTIES).write_text("version=1\nnode.id=1\ncluster.id=c\n")
    for name in (RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT):
        points = offset_checkpoint({TopicPartition(topic, 0): 5_891 for topic in _LOSSES})
        (log_dir / name).write_bytes(points)
    return log_dir


@pytest.mark.parametrize("is_clean", [False, True], ids=["killed", "stopped"])
def test_what_is_missing_is_named_as_verify_names_it(
    lossy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_clean: bool
) -> None:
    """A broker starts over it, so nothing is refused. After a clean stop its checkpoint of log starts is not there."""
    log_dir = Path(shutil.copytree(lossy, tmp_path / "logs"))
    name, content = (CLEAN_SHUTDOWN_FILE, clean_shutdown(7)) if is_clean else (LOG_START_OFFSET_CHECKPOINT, b"0\n0\n")
    (log_dir / name).write_bytes(content)
    code, plan = planned(log_dir)
    files = json.loads(run_kidx("verify", log_dir, "--json").stdout)["files"]
    broken = [
        each for each in files if each["file"] in ("gap", LEADER_EPOCH_CHECKPOINT) and each["verdict"] == "broken"
    ]
    found = {each["topic"]: each["reason"] for each in plan["gaps"]}
    found |= {Path(each["directory"]).name[:-2]: each["reason"] for each in plan["leader_epochs"]}
    assert {each["topic"]: each["reason"] for each in broken} == found
    expected = {topic: reason for topic, (_, reason) in _LOSSES.items() if reason is not None}
    expected |= {"log-start": "log-start-lost"} if is_clean else {}
    assert found == {topic: why for topic, why in expected.items() if not is_clean or topic != "first-segment"}
    assert plan["refused"] == [] and code == ExitCode.PROBLEMS_FOUND
    text = shown(log_dir)
    assert [Path(each["directory"]).name for each in plan["first_logs_not_known"]] == ["first-segment-0"] * is_clean
    line = (
        "not known: first logs of 1 partition, where leader-epoch-checkpoint begins: first-segment-0 (offsets 0 to 83)"
    )
    assert text.count(line) == is_clean
    monkeypatch.setattr(forecast, "_READ_BYTES_MAX", 0)  # of large partitions what is not there at all is told still
    few = {Path(each["directory"]).name[:-2] for each in planned(log_dir)[1]["leader_epochs"]}
    assert few == {"epochs"} | (set() if is_clean else {"first-segment"})
    broken = [] if is_clean else broken
    for each in broken:
        assert f"{each['reason']}: {each['detail']}" in text and f"  {each['consequence']}\n" in text
    assert is_clean or ("it starts without what is missing" in text and "finds what else is missing" in text), text


def test_a_log_that_was_cut_amid_a_batch(lossy: Path, tmp_path: Path) -> None:
    """Below the recovery point, where the broker does not look. Its index knows of more, and nothing stands behind."""
    log_dir = Path(shutil.copytree(lossy, tmp_path / "logs"))
    for topic in _LOSSES:
        if topic != "epochs":
            shutil.rmtree(log_dir / f"{topic}-0")
    log = log_dir / "epochs-0" / f"{84:020}.log"
    os.truncate(log, 3_000)
    [gap] = planned(log_dir)[1]["gaps"]
    assert 84 < gap["first_offset"] < gap["last_offset"] == 5_796


@pytest.mark.parametrize("replicas", [[1], [1, 2]], ids=["the only replica", "two replicas"])
@pytest.mark.parametrize(("size", "end"), [(466_975, 19_840), (466_999, 19_840), (0, 13_697)])
def test_an_index_that_knows_of_more_than_its_log(two: list[Path], size: int, end: int, replicas: list[int]) -> None:
    """Above all checkpoints, as a power cut leaves it: other replicas have what is lost, and of the only one nobody."""
    log_dir, _ = two
    os.truncate(log_dir / NAME / LAST, size)
    for name in (RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT):
        (log_dir / name).write_bytes(offset_checkpoint({PARTITION: 13_697}))
    if len(replicas) > 1:
        topic_id = (log_dir / NAME / PARTITION_METADATA).read_text().split()[-1]
        grown = change("PartitionChangeRecord", partitionId=0, topicId=topic_id, replicas=replicas, isr=replicas)
        with (log_dir / METADATA_DIRECTORY / segment_file(0, LOG_SUFFIX)).open("ab") as log:
            log.write(cluster_metadata.data(10, [grown]))
    code, plan = planned(*two)
    verified = json.loads(run_kidx("verify", *two, "--json").stdout)
    [found] = [each for each in verified["files"] if each["file"] == LOG_SUFFIX and each["reason"] is not None]
    is_only, text = len(replicas) == 1, shown(*two)
    said = f"{found['detail']}; {found['consequence']}".replace(",", "")
    assert (found["verdict"], "19999" in said) == ("broken" if is_only else "torn", True)
    assert ("no other node has a replica: look for a copy" in said) == is_only
    assert [each["reason"] for each in plan["shorter_logs"]] == ["shorter-than-its-index"] * is_only
    assert f"ends at offset {end}, its .index has an entry for offset 19999 at byte" in text
    assert ("by the cluster's metadata no other node has a replica: look for a copy" in text) == is_only
    assert plan["refused"] == [] and (code == ExitCode.PROBLEMS_FOUND) == (is_only or size == 466_999), text


def test_a_symbolic_link_to_nowhere(log_dir: Path) -> None:
    """No start helps: its disk is not there."""
    (log_dir / NAME).rename(log_dir.parent / "elsewhere")
    (log_dir / NAME).symlink_to(log_dir.parent / "elsewhere")
    assert any("a symbolic link" in each for each in planned(log_dir)[1]["refused"])
    (log_dir.parent / "elsewhere").rename(log_dir.parent / "gone")
    code, plan = planned(log_dir)
    assert code == ExitCode.USAGE and not plan["recovers_by_itself"]
    assert not any("let the broker start by itself" in each for each in plan["refused"]), plan["refused"]


def test_folders_that_are_set_aside_are_noted(log_dir: Path) -> None:
    """Nobody looks at their logs: that the broker drops nothing is not said of them."""
    for number in range(2):
        aside = log_dir / f"gone-{number}.{'0' * 32}-stray"
        shutil.copytree(log_dir / NAME, aside)
    held = sum(path.stat().st_size for path in aside.glob("*.log"))
    [noted] = [each for each in planned(log_dir)[1]["noted"] if each.startswith("-")]
    assert noted.startswith(f"-stray: 2 directories, {decimal(2 * held)} of logs, the largest {log_dir}/gone-0."), noted
    assert f"\nnoted: {noted}\n" in shown(log_dir)


def test_a_torn_log_behind_a_marker(log_dir: Path) -> None:
    """The broker would append behind it. The marker has to go: with its epoch the controller takes all for written."""
    _set_recovery_point(log_dir, 13_697)
    (log_dir / HIGH_WATERMARK_CHECKPOINT).write_bytes(offset_checkpoint(dict.fromkeys(ENDS, 0)))
    _tear(log_dir)
    (log_dir / CLEAN_SHUTDOWN_FILE).write_bytes(clean_shutdown(7))
    for arguments in ((), ("--all",), ("--apply",), ("--apply", "--accept-loss")):
        code, plan = planned(log_dir, *arguments)
        assert code == ExitCode.USAGE and not plan["applied"], plan
        assert "appends after it: remove that file in all log dirs" in plan["refused"][0]
    (log_dir / NAME / LAST).with_suffix(".index").unlink()  # then the broker reads and cuts the segment
    [refused] = planned(log_dir)[1]["refused"]
    assert "it cuts that off all the same: remove that file" in refused and "appends after" not in refused
    files = json.loads(run_kidx("verify", log_dir, "--json").stdout)["files"]
    [torn] = [each for each in files if each["reason"] == "batch-overruns-file"]
    assert "reads the segment after a clean stop, too" in torn["consequence"] and "appends" not in torn["consequence"]
    (log_dir / CLEAN_SHUTDOWN_FILE).unlink()
    assert planned(log_dir, "--apply")[0] == ExitCode.PROBLEMS_FOUND


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_log_start_above_all_that_is_known_of_the_log(log_dir: Path, is_clean: bool) -> None:
    """The checkpoint is wrong, and not the marker: without that the broker deletes the same. Nothing accepts it. Where
    the high watermark is above, too, the log has lost its end.
    """
    if is_clean:
        (log_dir / CLEAN_SHUTDOWN_FILE).write_bytes(clean_shutdown(7))
    (log_dir / LOG_START_OFFSET_CHECKPOINT).write_bytes(offset_checkpoint({PARTITION: 30_000}))
    for options in ((), ("--accept-loss",)):
        code, plan = planned(log_dir, *options)
        [refused] = plan["refused"]
        assert code == ExitCode.USAGE and f"{LOG_START_OFFSET_CHECKPOINT} is wrong" in refused, plan
        assert "below the log start offset 30000" in refused and CLEAN_SHUTDOWN_FILE not in refused
    assert (
        f"begins an empty log at 30000; {LOG_START_OFFSET_CHECKPOINT} is wrong: by"
        in run_kidx("verify", log_dir).output
    )
    (log_dir / HIGH_WATERMARK_CHECKPOINT).write_bytes(offset_checkpoint({**ENDS, PARTITION: 30_000}))
    [refused] = planned(log_dir)[1]["refused"]
    assert CLEAN_SHUTDOWN_FILE not in refused and LOG_START_OFFSET_CHECKPOINT not in refused
    assert planned(log_dir, "--accept-loss")[0] == ExitCode.PROBLEMS_FOUND


def test_all_reads_after_a_clean_stop_too(log_dir: Path) -> None:
    (log_dir / CLEAN_SHUTDOWN_FILE).write_bytes(clean_shutdown(7))
    assert planned(log_dir)[0] == 0 and planned(log_dir, "--all")[0] == 0
    assert "the broker drops nothing of what is there: 2 partitions looked at, the ends of their logs alone" in shown(
        log_dir
    )
    _flip(log_dir)
    assert planned(log_dir)[0] == 0
    code, plan = planned(log_dir, "--all")
    assert code == ExitCode.USAGE and f"segment {int(LAST[:-4])}" in plan["refused"][0], plan


def test_an_empty_partition_of_which_nothing_is_known(log_dir: Path) -> None:
    """A broker was killed as it made it: that keeps nobody from making the others ready, and is told."""
    (log_dir / "new-0").mkdir()
    shutil.copy(log_dir / NAME / PARTITION_METADATA, log_dir / "new-0")
    (log_dir / "new-0" / PARTITION_METADATA).write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAg\n")
    code, plan = planned(log_dir, "--apply")
    assert code == ExitCode.PROBLEMS_FOUND and plan["applied"]
    assert "new-0: no segment is there" in plan["noted"][0]


def _damage_first_segment(log_dir: Path) -> None:
    """A batch of it is damaged: the second one is whole, and goes with it."""
    _set_recovery_point(log_dir, 0)
    with (log_dir / NAME / f"{0:020}.log").open("r+b") as log:
        log.seek(2_000)
        log.write(b"\xff" * 8)


def test_records_of_whole_segments_that_go_are_counted(log_dir: Path) -> None:
    _damage_first_segment(log_dir)
    code, plan = planned(log_dir)
    [partition] = [each for each in plan["partitions"] if each["dropped"]]
    assert code == ExitCode.USAGE and partition["dropped"][1]["records"] == 20_000 - 13_697


def test_of_a_whole_segment_that_goes_with_a_batch_of_no_magic_nobody_knows_the_records(log_dir: Path) -> None:
    """A broker does not read it, and so it does not fail on it."""
    _damage_first_segment(log_dir)
    path = log_dir / NAME / LAST
    with opened_log(str(path)) as opened:
        *_, last = batches(opened.log(use_mmap=False))
    with path.open("r+b") as file:
        file.seek(last.position + MAGIC_AT)
        file.write(b"\xca")
    code, plan = planned(log_dir)
    [partition] = [each for each in plan["partitions"] if each["dropped"]]
    assert code == ExitCode.USAGE and partition["dropped"][1]["records"] is None
    assert not any("found magic" in refused for refused in plan["refused"]), plan["refused"]


def test_all_obstacles_are_named(log_dir: Path) -> None:
    for damage in ("epochs are NUL", "a foreign directory", "a file with another name", "meta.properties is empty"):
        _DAMAGES[damage][0](log_dir)
    code, plan = planned(log_dir, log_dir.parent / "not-mounted")
    assert code == ExitCode.USAGE
    for part in (LEADER_EPOCH_CHECKPOINT, "/lost: ", "copy.log", META_PROPERTIES, "not-mounted: no such directory"):
        assert any(part in refused for refused in plan["refused"]), part


def test_a_tiered_partition_that_cannot_be_looked_at_is_refused_by_itself(tmp_path: Path) -> None:
    """`payments-0` leads to itself; the others have a plan, an audit and a build."""
    log_dir = Path(shutil.copytree(PROJECT / "samples" / "tiered" / "log-dir", tmp_path / "log-dir"))
    (log_dir / "payments-0").symlink_to("payments-0")
    code, plan = planned(log_dir)
    path = f"{log_dir}/payments-0: Too many levels of symbolic links"
    assert code == ExitCode.USAGE
    assert f"{path}; it has remote segments, and what a leader does to these is not known" in plan["refused"]
    assert any(f"{log_dir}/readings-1/{LEADER_EPOCH_CHECKPOINT}: it is missing" in each for each in plan["refused"])
    for command in (["verify", str(log_dir)], ["build", str(log_dir), "--index-dir", str(tmp_path / "index")]):
        ended = run_kidx(*command, "--json")
        unlistable = {"directory": f"{log_dir}/payments-0", "reason": "Too many levels of symbolic links"}
        assert (ended.return_value, json.loads(ended.stdout)["unlistable"]) == (ExitCode.PROBLEMS_FOUND, [unlistable])


def test_a_log_dir_that_nobody_names(two: list[Path]) -> None:
    """It is said at each level, also where the log dir with the metadata is the one that is missing."""
    assert planned(*two)[0] == 0
    for options in ((), ("--level", "marker"), ("--apply",)):
        code, plan = planned(two[0], *options)
        assert code == ExitCode.USAGE and "broker 1 has 1 more log dir (directory.id yyy" in plan["refused"][0]
        code, plan = planned(two[1], *options)
        assert code == ExitCode.USAGE and f"none of the log dirs has {METADATA_DIRECTORY}" in plan["refused"][0]
    elsewhere: tuple[tuple[str | Path, ...], ...] = (("--this-dir-alone",), ("--cluster-metadata", two[0]))
    for named in elsewhere:
        code, plan = planned(two[1], *named)
        noted = any("sets all partitions aside" in each for each in plan["noted"])
        assert (noted and code == 0) or "1 more log dir" in plan["refused"][0], plan
    assert planned(two[0], "--this-dir-alone", "--apply")[0] == planned(two[1], "--this-dir-alone")[0] == 0
    for log_dir in two:
        assert planned(log_dir, "--this-dir-alone", "--level", "marker")[0] == ExitCode.USAGE


def test_metadata_that_tells_nothing(two: list[Path]) -> None:
    """An empty copy, which a broker fetches anew, says of other log dirs as little as none."""
    for path in (two[0] / METADATA_DIRECTORY).iterdir():
        path.unlink()
    code, plan = planned(two[0], "--apply")
    [refused] = plan["refused"]
    assert code == ExitCode.USAGE and "neither a .log nor a snapshot" in refused and "which others" in refused
    assert planned(two[0], "--this-dir-alone")[0] == 0


#: What is done to the log of the metadata, and to its directory; words of the line; the exit codes of `recover` and
#: `verify`.
_OF_METADATA: Final[Mapping[str, tuple[Callable[[Path], object], str, int, int]]] = {
    "empty": (
        lambda log: os.truncate(log, 0),
        "no topic is in the cluster's metadata, which ends at offset 0; 2 directories",
        2,
        3,
    ),
    "empty, and a file knows more": (
        lambda log: log.rename(log.with_name(f"{6:020}.snapshot")) and log.write_bytes(b""),
        f"ends at offset 0, and {6:020}.snapshot knows offset 5; 2 directories",
        2,
        3,
    ),
    "an older copy": (
        lambda log: log.with_name(f"{9:020}.snapshot").write_bytes(b""),
        f"ends at offset 6, and {9:020}.snapshot knows offset 8; as it starts, node 1, the quorum's only voter",
        3,
        3,
    ),
    "torn": (
        lambda log: log.write_bytes(log.read_bytes() + bytes(30)),
        "ends at offset 6, and 30 bytes follow that are no whole batch, perhaps of an append that was broken off",
        3,
        0,
    ),
    "torn by a clean stop": (
        lambda log: (
            log.write_bytes(log.read_bytes() + bytes(30)),
            (log.parents[1] / CLEAN_SHUTDOWN_FILE).write_bytes(clean_shutdown(7)),
        ),
        "ends at offset 6, and 30 bytes follow that are no whole batch; as it starts, node 1, the quorum's only voter",
        3,
        3,
    ),
}


@pytest.mark.parametrize("damage", _OF_METADATA)
def test_metadata_that_has_lost_something_is_one_line(two: list[Path], damage: str) -> None:
    """With the cause, and what this node loses with it; not one for each partition that it would set aside."""
    do, words, code, of_verify = _OF_METADATA[damage]
    [log] = (two[0] / METADATA_DIRECTORY).glob("*.log")
    do(log)
    ended = run_kidx("recover", *two)
    [line] = [each for each in ended.output.splitlines() if "the cluster's metadata ends" in each or words in each]
    assert words in line and "restore the directory" in line and "-stray" in line
    assert (ended.return_value, ended.output.count("refused: ")) == (code, code == ExitCode.USAGE)
    assert words in run_kidx("verify", *two).output
    assert of_verify != ExitCode.PROBLEMS_FOUND or run_kidx("verify", *two).return_value == of_verify


def test_an_only_voter_whose_metadata_is_at_hand_elsewhere(two: list[Path], tmp_path: Path) -> None:
    """A copy helps the plan, and not the node. Where it is the node's `metadata.log.dir`, the node has it."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (two[0] / METADATA_DIRECTORY).rename(elsewhere / METADATA_DIRECTORY)
    given = ("--cluster-metadata", elsewhere)
    assert planned(*two, *given)[0] == ExitCode.PROBLEMS_FOUND
    assert "warning: node 1 has __cluster_metadata-0 in none of these log dirs; " in shown(*two, *given)
    copied = Path(shutil.copytree(two[0], tmp_path / "copied"))  # a copy of a log dir at hand, and with the metadata
    shutil.copytree(elsewhere / METADATA_DIRECTORY, copied / METADATA_DIRECTORY)
    for place in (elsewhere, copied / METADATA_DIRECTORY):
        verified = run_kidx("verify", *two, "--cluster-metadata", place)
        assert (
            verified.return_value == ExitCode.PROBLEMS_FOUND
            and "node 1 has __cluster_metadata-0 in none" in verified.output
        ), place
    (elsewhere / META_PROPERTIES).write_text(
        f"version=1\nnode.id=1\ncluster.id=c\ndirectory.id={cluster_metadata.topic_id('z')}\n"
    )
    assert planned(*two, *given)[0] == 0 and "in none of these log dirs" not in shown(*two, *given)


def test_a_partition_that_the_metadata_alone_knows(two: list[Path]) -> None:
    """No checkpoint tells how far its only replica went: it may have had any records. One that had none is noted."""
    shutil.rmtree(two[1] / "append-time-0")
    for name in (RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT):
        (two[1] / name).write_bytes(offset_checkpoint({}))
    line = f"{two[1]}/append-time-0: no such directory; the cluster's metadata as of "
    code, plan = planned(*two)
    assert code == ExitCode.USAGE and plan["refused"][0].startswith(line) and not plan["noted"]
    code, plan = planned(*two, "--accept-loss")
    assert code == ExitCode.PROBLEMS_FOUND and not plan["refused"] and plan["accepted"][0].startswith(line)
    assert f"\nloses: {line}" in shown(*two, "--accept-loss")
    (two[1] / HIGH_WATERMARK_CHECKPOINT).write_bytes(offset_checkpoint({TopicPartition("append-time", 0): 0}))
    code, plan = planned(*two)
    assert code == ExitCode.PROBLEMS_FOUND and not plan["refused"] and "append-time-0" in plan["noted"][0]


@pytest.mark.parametrize("left", [[], ["lost+found"], ["records"]])
def test_a_disk_that_is_not_mounted(two: list[Path], left: list[str]) -> None:
    """Nobody is told to write into a file that is not there: the disk has it."""
    shutil.rmtree(two[1])
    for name in left:
        (two[1] / name).mkdir(parents=True)
    two[1].mkdir(exist_ok=True)
    words = "is not in" if left == ["records"] else "is the disk mounted?"
    code, plan = planned(*two)
    assert code == ExitCode.USAGE and ("is the disk mounted?" in plan["refused"][0]) == (left != ["records"])
    said = run_kidx("verify", *two)
    [failed] = [each for each in said.output.splitlines() if each.startswith("fail: broker 1 has 1 more log dir")]
    assert said.return_value == ExitCode.PROBLEMS_FOUND and words in failed and "write" not in failed


@pytest.mark.parametrize("kind", ["delete", "stray", "future"])
def test_a_folder_under_another_name_may_be_the_only_copy(two: list[Path], kind: str) -> None:
    """One line joins it with the partition that is missing, and nothing accepts it; but one of an earlier topic."""
    name = "append-time-0"
    aside = two[kind != "future"] / f"{name}.{'0' * 32}-{kind}"
    (two[1] / name).rename(aside)
    for options in ((), ("--accept-loss",)):
        code, plan = planned(*two, *options)
        [refused] = plan["refused"]
        assert code == ExitCode.USAGE and str(aside) in refused and "rename" in refused, plan
    verified = run_kidx("verify", *two)
    [line] = [each for each in verified.output.splitlines() if each.startswith(f"fail: {two[1]}/{name}: ")]
    assert verified.return_value == ExitCode.PROBLEMS_FOUND
    assert f"it is there as {aside}: rename that to {aside.parent / name}" in line
    (aside / PARTITION_METADATA).write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAg\n")
    assert f"it is there as {aside}" not in shown(*two)


@pytest.mark.parametrize(
    ("renamed", "becomes"), [("{}.bak", "does not start beside it"), (".{}", "takes it for another")]
)
def test_a_folder_that_somebody_has_renamed_may_be_the_only_copy(two: list[Path], renamed: str, becomes: str) -> None:
    """As one that a broker has set aside: it is joined with the partition that is missing, and nothing accepts it."""
    place = two[1] / "append-time-0"
    aside = place.rename(two[0] / renamed.format(place.name))
    code, plan = planned(*two, "--accept-loss")
    [refused] = [each for each in plan["refused"] if each.startswith(f"{place}: ")]
    assert code == ExitCode.USAGE
    assert (
        f"it is there as {aside}: rename that to {two[0] / place.name} before the broker starts, which {becomes}"
        in refused
    )


@pytest.mark.parametrize("stop", ["of no broker", "killed", "stopped"])
def test_what_no_checkpoint_tells_is_said(log_dir: Path, stop: str) -> None:
    """A file that is gone, or a line of it, would have told of an end that is missing. A broker makes the files as it
    starts, and a clean stop writes the lines, but of log starts: these are lost then.
    """
    (log_dir / HIGH_WATERMARK_CHECKPOINT).unlink()
    (log_dir / RECOVERY_POINT_CHECKPOINT).write_bytes(offset_checkpoint({PARTITION: 13_697}))
    missing = f"{log_dir}/{HIGH_WATERMARK_CHECKPOINT}: missing (2 partitions)"
    without = f"{log_dir}/{RECOVERY_POINT_CHECKPOINT}: has no line for 1 partition, as append-time-0"
    if stop == "of no broker":
        (log_dir / META_PROPERTIES).unlink()
    else:
        _lose_last_segment(log_dir)
    if stop == "stopped":
        (log_dir / CLEAN_SHUTDOWN_FILE).write_bytes(clean_shutdown(7))
    code, plan = planned(log_dir)
    verified, said = run_kidx("verify", log_dir, "--json", "--this-dir-alone"), shown(log_dir)
    lost = [[], [missing], [without, missing]][("of no broker", "killed", "stopped").index(stop)]
    for found in (plan, json.loads(verified.stdout)):
        assert [each.split(", though")[0] for each in found["lost_checkpoints"]] == lost
        told = [each.split(": it is not")[0] for each in found["not_compared"]]
        assert told == [each for each in (without, missing) if each not in lost]
    assert (verified.return_value == ExitCode.PROBLEMS_FOUND) == bool(lost)
    assert all(f"broken: {each}\n" in said for each in plan["lost_checkpoints"])
    assert all(f"not compared: {each}\n" in said for each in plan["not_compared"])
    if stop == "killed":
        assert code == ExitCode.PROBLEMS_FOUND and "it starts without what is missing" in said
        assert "though a broker makes the file as it starts" in plan["lost_checkpoints"][0]


def test_meta_properties_that_is_missing_is_told_its_id(two: list[Path]) -> None:
    """The metadata knows in which log dir the partitions are; and that log dir is not said to be another one."""
    (two[1] / META_PROPERTIES).unlink()
    told = f"the cluster's metadata has for this one, {cluster_metadata.topic_id('y')}. "
    assert told in shown(*two)
    code, plan = planned(*two)
    [refused] = plan["refused"]
    assert code == ExitCode.USAGE and META_PROPERTIES in refused and plan["unknown"] == []
    (two[1] / BOOTSTRAP_SNAPSHOT).touch()  # which tells verify that a node was there
    assert run_kidx("verify", *two).output.count(told) == 1


@pytest.mark.parametrize("log", ["its own", "the other's", "nobody knows"])
def test_another_topics_id(two: list[Path], log: str) -> None:
    """Where the log ends, and what checkpoints say, tells whether the folder is a copy, or the file is wrong."""
    other = two[1] / "append-time-0"
    if log == "the other's":
        shutil.rmtree(two[0] / NAME)
        shutil.copytree(other, two[0] / NAME)
    if log == "nobody knows":
        for name in (RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT):
            (two[0] / name).write_bytes(offset_checkpoint({}))
    topic_id = (two[0] / NAME / PARTITION_METADATA).read_text().split()[-1]
    shutil.copy(other / PARTITION_METADATA, two[0] / NAME)
    words = {
        "its own": f"that of {NAME}: it ends at 20000, as the checkpoints say; write 'topic_id: {topic_id}' into",
        "the other's": "move the directory away: it is a copy of append-time-0, which ends at 8000, too",
        "nobody knows": f"if the log in it is that of {NAME}, write 'topic_id: {topic_id}'",
    }
    for each in words:
        assert (words[each] in shown(*two)) == (each == log), shown(*two)


def test_the_directory_of_one_partition_is_no_log_dir(log_dir: Path) -> None:
    """Also beside a log dir. A log dir whose own name ends in a number is one."""
    [partition, other] = [log_dir / each.directory for each in ENDS]
    assert f"name {log_dir}" in kidx("recover", partition).err
    code, plan = planned(log_dir, partition)
    assert code == ExitCode.USAGE and str(partition) in plan["refused"][0]
    numbered = log_dir.rename(log_dir.with_name("kafka-0"))
    assert planned(numbered)[0] == 0
    assert kidx("recover", numbered / other.name).code == ExitCode.USAGE


def test_both_log_dirs_have_a_partition(two: list[Path]) -> None:
    """Whichever of them is mounted read-only meanwhile."""
    shutil.copytree(two[0] / NAME, two[1] / NAME)
    code, plan = planned(*two)
    assert code == ExitCode.USAGE and "Duplicate log directories" in " ".join(plan["refused"])


def test_a_read_only_disk(whole: Path, tmp_path: Path) -> None:
    """A plan reads, and writes nothing; what it says is what it says of a disk that can be written. `--apply` is
    refused with the reason, and with all that is refused besides.
    """
    with mounted(tmp_path / "disk", "tmpfs", "tmpfs", "size=64m") as disk:
        log_dir = Path(shutil.copytree(whole, disk / "logs"))
        (log_dir / LOCK_FILE).touch()
        remount(disk, "ro")
        assert planned(log_dir)[0] == 0
        assert "takes the log dir out of use" in planned(log_dir)[1]["plan_only"][0]
        code, plan = planned(log_dir, "--apply")
        assert code == ExitCode.USAGE and "--apply: " in plan["refused"][0] and not plan["applied"]
        assert planned(log_dir, "--apply", "--or-leave")[0] == 0
        assert "the broker starts by itself" not in shown(log_dir, "--apply", "--or-leave")


def test_of_zookeepers_a_plan_is_made(log_dir: Path) -> None:
    (log_dir / META_PROPERTIES).write_text("version=0\nbroker.id=1\ncluster.id=c\n")
    code, plan = planned(log_dir)
    assert code == 0 and "of a broker with ZooKeeper" in plan["plan_only"][0]
    code, plan = planned(log_dir, "--apply")
    assert code == ExitCode.USAGE and plan["recovers_by_itself"] and "ZooKeeper" in plan["refused"][0]


def _without_snapshots(log_dir: Path) -> str:
    """Remove all producer snapshots of a partition after a clean stop; what is refused, as `verify` says it too."""
    for path in (log_dir / NAME).glob("*.snapshot"):
        path.unlink()
    (log_dir / CLEAN_SHUTDOWN_FILE).write_bytes(clean_shutdown(7))
    code, plan = planned(log_dir)
    [refused] = plan["refused"]
    assert code == ExitCode.USAGE and not plan["recovers_by_itself"], plan
    verified = run_kidx("verify", log_dir)
    assert verified.return_value == ExitCode.PROBLEMS_FOUND and f"fail: {refused}" in verified.output.splitlines()
    return str(refused)


def test_no_producer_snapshot_after_a_clean_stop(log_dir: Path) -> None:
    refused = _without_snapshots(log_dir)
    assert f"{NAME}: no producer snapshot after a clean stop; a broker that starts forgets 1 producer" in refused
    what, command = refused.rsplit(": kidx ", 1)
    assert what.endswith("make it from the log")
    assert run_kidx(*shlex.split(command)).return_value == ExitCode.OK
    assert planned(log_dir)[0] == run_kidx("verify", log_dir, "--this-dir-alone").return_value == ExitCode.OK


def test_no_producer_snapshot_of_a_log_that_begins_later(log_dir: Path) -> None:
    """Nobody can make one that is right; but a broker learns from the log what is left."""
    (log_dir / LOG_START_OFFSET_CHECKPOINT).write_bytes(offset_checkpoint({PARTITION: 1}))
    for path in (log_dir / NAME).glob("00000000000000000000.*"):
        path.unlink()
    assert "remove .kafka_cleanshutdown in all log dirs" in _without_snapshots(log_dir)
    (log_dir / CLEAN_SHUTDOWN_FILE).unlink()
    assert planned(log_dir, "--apply")[0] == run_kidx("verify", log_dir, "--this-dir-alone").return_value == ExitCode.OK


def test_a_marker_beside_a_log_that_was_cut(log_dir: Path) -> None:
    """The broker takes the last segment for empty, as its index knows of bytes that are gone, and would write the
    offsets of whole batches anew. Without the marker it keeps them; what is gone all the same can be accepted.
    """
    log, end = log_dir / NAME / LAST, 0
    with opened_log(str(log)) as opened:
        for batch in itertools.islice(batches(opened.log(use_mmap=False)), 10):
            end, position = batch.last_offset + 1, batch.next_position
    os.truncate(log, position + 30)
    marker = log_dir / CLEAN_SHUTDOWN_FILE
    marker.write_bytes(clean_shutdown(7))
    for options in ((), ("--accept-loss",), ("--accept-loss", "--level", "marker")):
        code, plan = planned(log_dir, *options)
        [refused] = plan["refused"]
        assert code == ExitCode.USAGE and refused.startswith(f"{log_dir}/{NAME}: 30 bytes that are no whole batch")
        assert "is recovered" not in refused, "it looks for nothing"
        assert f"whole batches end at offset {end}, and the broker takes 13697 for the log end offset" in refused
        remedy, gone = refused.split("appends after it: ")[1].split(". ", 1)
        assert remedy.startswith("remove that file in all") and f"keeps offsets 13697 to {end - 1}" in remedy
        assert gone.startswith(f"Offsets {end} to 19999 are gone all the same")
    marker.unlink()
    assert planned(log_dir)[0] == ExitCode.USAGE
    code, plan = planned(log_dir, "--accept-loss")
    lost = {"directory": f"{log_dir}/{NAME}", "from_offset": end, "to_offset": 19_999}
    assert code == ExitCode.PROBLEMS_FOUND and lost.items() <= plan["loses"][0].items(), plan
    said = shown(log_dir, "--accept-loss")
    assert f"loses: {log_dir}/{NAME}: offsets {end} to 19999: " in said and "the broker drops: " in said


def test_each_loss_that_is_accepted_has_a_line(log_dir: Path) -> None:
    """After a clean stop, too; and options that do nothing are said to do nothing."""
    (log_dir / CLEAN_SHUTDOWN_FILE).write_bytes(clean_shutdown(7))
    _lose_last_segment(log_dir)
    shutil.rmtree(log_dir / "append-time-0")
    said = shown(log_dir, "--accept-loss", "--truncate", "--keep", log_dir.parent / "kept", "--apply")
    assert f"loses: {log_dir}/{NAME}: offsets 13697 to 19999: " in said
    assert f"loses: {log_dir}/append-time-0: offsets 0 to 7999: no such directory" in said
    assert "--truncate: nothing is cut off, and nothing goes to --keep: " in said
    assert "else --level checkpoint with --accept-loss goes on" in shown(log_dir, "--accept-loss", "--level", "marker")


_NOT_READ: Final = "a broker that starts reads no log that has an .index, and takes these and their indexes as they are"


@pytest.mark.parametrize(
    ("sign", "found", "does"),
    [
        ("recovery point", f"1 partition with records from the recovery point on (the first: {NAME})", _NOT_READ),
        ("preallocated", "2 partitions with a last segment whose index files are still preallocated", _NOT_READ),
        ("zeros", f"1 partition with zeros from the recovery point on, and no records (the first: {NAME})", _NOT_READ),
        (
            "zeros without .index",
            f"1 partition with zeros from the recovery point on, and no records (the first: {NAME})",
            "a broker that starts reads the last segment of 1 partition all the same, as its .index is missing, and "
            f"cuts off what is no whole batch (the first: {NAME}); remove",
        ),
        (
            "records without .index, preallocated",
            f"1 partition with records from the recovery point on (the first: {NAME}), and 2 partitions with a last",
            f"(the first: {NAME}), and takes the others and their indexes as they are; remove",
        ),
    ],
)
def test_a_marker_that_no_clean_stop_has_written(log_dir: Path, sign: str, found: str, does: str) -> None:
    """Each sign is enough; `verify` says the same, and both end with a problem. What the broker does all the same to a
    segment without an `.index` is told.
    """
    (log_dir / CLEAN_SHUTDOWN_FILE).write_bytes(clean_shutdown(7))
    (log_dir / LOG_START_OFFSET_CHECKPOINT).write_bytes(b"0\n0\n")
    assert planned(log_dir)[0] == run_kidx("verify", log_dir, "--this-dir-alone").return_value == 0
    last = log_dir / NAME / LAST
    if sign.startswith("rec"):
        _set_recovery_point(log_dir, 13_697)
    if "preallocated" in sign:
        for name in ENDS:
            path = max((log_dir / name.directory).glob("*.timeindex"))
            os.truncate(path, path.stat().st_size + 12 * 100)
    if sign.startswith("zeros"):
        last = log_dir / NAME / segment_file(ENDS[PARTITION], LOG_SUFFIX)
        last.write_bytes(bytes(1_000))
        last.with_suffix(OFFSET_INDEX_SUFFIX).touch()
    if "without .index" in sign:
        last.with_suffix(OFFSET_INDEX_SUFFIX).unlink()
    code, _ = planned(log_dir)
    says = f": {log_dir}/{CLEAN_SHUTDOWN_FILE}: it says that the broker stopped cleanly, and that is not so: {found}"
    verified = run_kidx("verify", log_dir)
    assert verified.return_value == ExitCode.PROBLEMS_FOUND
    assert code == (ExitCode.USAGE if sign.startswith("zeros") else ExitCode.PROBLEMS_FOUND)
    said = shown(log_dir)
    for line, output in ((f"warning{says}", said), (f"fail{says}", verified.output)):
        assert line in output and does in output, output
    if code == ExitCode.PROBLEMS_FOUND:
        recovers = "1 segment" if "without" in sign else "nothing"
        assert f"the broker believes the marker, and recovers {recovers} as it starts" in said
    (log_dir / CLEAN_SHUTDOWN_FILE).unlink()
    assert planned(log_dir)[0] == (ExitCode.PROBLEMS_FOUND if sign.startswith("zeros") else 0)


@pytest.mark.parametrize("epoch", [9, 7, -1])
def test_markers_of_two_stops(two: list[Path], epoch: int) -> None:
    """−1 is that of `kidx recover`, and tells nothing."""
    for log_dir, its in zip(two, (7, epoch), strict=True):
        (log_dir / CLEAN_SHUTDOWN_FILE).write_bytes(clean_shutdown(its))
    expected = f"{two[0]}/{CLEAN_SHUTDOWN_FILE}: brokerEpoch 7, and that of {two[1]} is 9: "
    code, plan = planned(*two)
    verified = run_kidx("verify", *two)
    if epoch != 9:
        assert code == 0 and not plan["refused"] and "brokerEpoch" not in verified.output
        return
    assert code == ExitCode.USAGE and plan["refused"][0].startswith(expected), plan
    assert verified.return_value == ExitCode.PROBLEMS_FOUND and f"fail: {expected}" in verified.output
    code, plan = planned(*two, "--accept-loss")
    assert code == ExitCode.PROBLEMS_FOUND and plan["accepted"][0].startswith(expected)
    assert f"loses: {expected}" in shown(*two, "--accept-loss")


@pytest.mark.parametrize("which", ["log dir", "metadata"])
def test_leader_epochs_tell_which_may_be_an_older_copy(two: list[Path], which: str) -> None:
    """The node led its partition for half a minute, until the stop, which left it without a leader. It is a remark, and
    never a refusal: a broker that loads an idle log removes the epochs in which nothing was written
    (`LogLoader`), and may die before it writes them again.
    """
    metadata, directory = two[0] / METADATA_DIRECTORY, two[1] / "append-time-0"
    [log] = metadata.glob("*.log")
    topic_id = (directory / PARTITION_METADATA).read_text().split()[-1]
    leaders = [change("PartitionChangeRecord", partitionId=0, topicId=topic_id, leader=each) for each in (1, -1)]
    if which == "metadata":
        (directory / LEADER_EPOCH_CHECKPOINT).write_bytes(b"0\n1\n3 8000\n")
    else:
        found, offset = log.read_bytes(), 6
        alive = ((seconds, change("NoOpRecord")) for seconds in range(1, 31, 4))
        for seconds, value in ((0, leaders[0]), *alive, (31, leaders[1])):
            found, offset = found + cluster_metadata.data(offset, [value], 1_000 * (1 + seconds)), offset + 1
        log.write_bytes(found)
    told = {
        "log dir": f"warning: {two[1]}: it may be an older copy than the cluster's metadata: the newest",
        "metadata": f"warning: {metadata}: the cluster's metadata may be an older copy than {two[1]}: the newest",
    }[which]
    code, plan = planned(*two)
    verified = run_kidx("verify", *two)
    for said in (shown(*two), verified.output):
        assert told in said and said.count("older copy") == 1, said
    assert not plan["refused"] and (code == 0 or which == "metadata")  # whose log has no such epoch


def test_a_checkpoint_that_has_a_topic_that_the_metadata_lacks(two: list[Path]) -> None:
    """A deletion that was cut short, or metadata of another time: a line for each topic. A directory tells itself."""
    named = {TopicPartition("ghost", 3): 500, TopicPartition("ghost", 4): 1, TopicPartition("renamed", 0): 5}
    for name in (RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT):
        points = {partition: ENDS[partition] for partition in ENDS if (two[1] / partition.directory).exists()}
        (two[1] / name).write_bytes(offset_checkpoint({**points, **named}))
    (two[1] / f"renamed-0.{'0' * 32}-delete").mkdir()
    told = (
        f"warning: {two[1]}: {RECOVERY_POINT_CHECKPOINT} and {HIGH_WATERMARK_CHECKPOINT}: 2 partitions of topic ghost "
        "(as ghost-3), which the cluster's metadata does not have, and no directory: a deletion that was cut short"
    )
    for said in (shown(*two), run_kidx("verify", *two).output):
        assert said.count(told) == 1 and "topic renamed" not in said, said


def test_a_lost_end_that_lies_loose_in_another_log_dir(two: list[Path], tmp_path: Path) -> None:
    """Each command looks in all log dirs that it was given."""
    log = two[0] / NAME / LAST
    loose = log.rename(two[1] / LAST)
    topic = NAME.rpartition("-")[0]
    for command, *options in (
        ("recover",),
        ("verify",),
        ("seek", "--topic", topic, "--partition", "0", "--timestamp", "-1"),
        ("export", "--topics", topic, "--output", str(tmp_path / "rows.arrow")),
    ):
        ended = kidx(command, *two, *options)
        said = f"{ended.out}{ended.err}"
        assert f"{loose} begins there: see by kidx dump" in said and f"move it to {log}" in said, said
