"""What `kidx recover --truncate` may cut, what has to be accepted for it, and what is kept."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from kidxlib.format.checkpoint_files import HIGH_WATERMARK_CHECKPOINT, RECOVERY_POINT_CHECKPOINT
from kidxlib.format.segment_files import LOG_SUFFIX, TIME_INDEX_SUFFIX
from kidxlib.storage.lock import LOCK_FILE
from kidxlib.storage.log_dir import META_PROPERTIES
from kidxlib.terminal.exit_codes import ExitCode
from tests.support.audits import sound_copies
from tests.support.cluster_metadata import write_checkpoints
from tests.support.spark.jobs import Ended, kidx_here

_PARTITION: Final = "txn-mixed-0"


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A killed broker's log dir with one partition, all files of which are whole."""
    log_dir = tmp_path_factory.mktemp("sound") / "logs"
    log_dir.mkdir()
    (log_dir / META_PROPERTIES).write_text("version=1\nnode.id=1\ncluster.id=c\n")
    write_checkpoints(log_dir)
    return sound_copies(log_dir, _PARTITION)


@pytest.fixture
def log_dir(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "logs"))


def _recover(log_dir: Path, *arguments: str) -> Ended:
    return kidx_here("recover", log_dir, *arguments)


def _truncate(log_dir: Path, *arguments: str) -> Ended:
    return _recover(log_dir, "--truncate", "--keep", str(log_dir.parent / "kept"), "--level", "marker", *arguments)


def _logs(log_dir: Path) -> list[Path]:
    return sorted((log_dir / _PARTITION).glob(f"*{LOG_SUFFIX}"))


def _torn(log_dir: Path) -> None:
    log = _logs(log_dir)[-1]
    os.truncate(log, log.stat().st_size - 20)


def _damaged(log_dir: Path) -> None:
    with _logs(log_dir)[-2].open("r+b") as log:
        log.seek(100)
        log.write(b"\xff" * 8)


def _end(log_dir: Path) -> int:
    """Where the log ends that a broker keeps."""
    [partition] = _recover(log_dir, "--json").json["partitions"]
    return int(partition["log_end_offset"])


def _checkpoint(log_dir: Path, name: str, offset: int) -> None:
    topic, _, number = _PARTITION.rpartition("-")
    (log_dir / name).write_text(f"0\n1\n{topic} {number} {offset}\n")


def _files(log_dir: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in log_dir.rglob("*") if path.is_file() and path.name != LOCK_FILE}


@pytest.mark.parametrize("damage", [_torn, _damaged])
@pytest.mark.parametrize("name", [HIGH_WATERMARK_CHECKPOINT, RECOVERY_POINT_CHECKPOINT])
def test_what_consumers_may_have_seen_has_to_be_accepted(
    log_dir: Path, damage: Callable[[Path], None], name: str
) -> None:
    """That is what lies below the high watermark, or was flushed."""
    damage(log_dir)
    end = _end(log_dir)
    _checkpoint(log_dir, HIGH_WATERMARK_CHECKPOINT, end)
    assert _truncate(log_dir).code == ExitCode.PROBLEMS_FOUND
    if name == RECOVERY_POINT_CHECKPOINT and damage is _damaged:
        end = int(_logs(log_dir)[-2].stem)  # the broker reads only from the segment on that holds it
        _checkpoint(log_dir, HIGH_WATERMARK_CHECKPOINT, 1)
    _checkpoint(log_dir, name, end + 1)
    refused = _truncate(log_dir)
    assert refused.code == ExitCode.USAGE and "--accept-loss goes on without" in refused.out
    assert _truncate(log_dir, "--accept-loss").code == ExitCode.PROBLEMS_FOUND


@pytest.mark.parametrize("level", ["checkpoint", "marker"])
def test_what_was_cut_is_not_cut_again(log_dir: Path, level: str) -> None:
    """The same command goes well again, as after a kill, and says what is lost. One that accepts nothing is refused, as
    the log ends below the high watermark still, and the line says what to type.
    """
    _torn(log_dir)
    _checkpoint(log_dir, HIGH_WATERMARK_CHECKPOINT, _end(log_dir) + 1)
    for said in ("cut off: ", "below the high watermark"):
        options = ("--truncate", "--keep", str(log_dir.parent / "kept"), "--level", level)
        ended = _recover(log_dir, *options, "--accept-loss", "--apply")
        assert ended.code == ExitCode.PROBLEMS_FOUND and said in ended.out, ended
    files = _files(log_dir)
    refused = _recover(log_dir, "--apply")
    assert refused.code == ExitCode.USAGE and "--accept-loss goes on without" in refused.out, refused
    assert "cuts it" not in refused.out and "copy the partition" not in refused.out
    accepted = _recover(log_dir, "--accept-loss")
    assert accepted.code == ExitCode.PROBLEMS_FOUND and "refused" not in accepted.out and _files(log_dir) == files


def test_where_no_high_watermark_was_noted_whole_batches_count_as_seen(log_dir: Path) -> None:
    _torn(log_dir)
    assert _truncate(log_dir).code == ExitCode.PROBLEMS_FOUND
    _damaged(log_dir)
    assert _truncate(log_dir).code == ExitCode.USAGE


def test_what_is_cut_is_kept(log_dir: Path, tmp_path: Path) -> None:
    """The end of the log, and all files of the segment after it. Other bytes that were kept before are not replaced."""
    _damaged(log_dir)
    *_, damaged, last = _logs(log_dir)
    of_last = {path.name: path.read_bytes() for path in last.parent.glob(f"{last.stem}.*")}
    log = damaged.read_bytes()
    kept = tmp_path / "kept" / _PARTITION
    kept.mkdir(parents=True)
    (kept / last.name).write_bytes(b"of another day")
    ended = _truncate(log_dir, "--apply", "--accept-loss", "--json")
    assert ended.code == ExitCode.PROBLEMS_FOUND, ended
    [partition] = ended.json["partitions"]
    assert partition["cut"] and ended.json["applied"]
    cut_to = damaged.stat().st_size
    assert damaged.read_bytes() == log[:cut_to] and not last.exists()
    found = _files(kept)
    assert found.pop(f"{damaged.name}.from-{cut_to}") == log[cut_to:]
    assert found.pop(last.name) == b"of another day" and found.pop(f"{last.name}.1") == of_last.pop(last.name)
    assert {name: content for name, content in found.items() if name in of_last} == of_last


def test_what_the_broker_drops_amid_a_log_is_kept(log_dir: Path, tmp_path: Path) -> None:
    """Without an index it recovers a segment as it loads it, and keeps those after it: nothing is cut here."""
    _damaged(log_dir)
    damaged = _logs(log_dir)[-2]
    damaged.with_suffix(".index").unlink()
    log = damaged.read_bytes()
    keep = ("--truncate", "--keep", str(tmp_path / "kept"), "--apply", "--accept-loss")
    ended = _recover(log_dir, *keep)
    assert ended.code == ExitCode.PROBLEMS_FOUND and "; not cut, but a copy goes to --keep" in ended.out, ended
    assert "--truncate: nothing is cut off: " in ended.out, "and not that nothing is kept"
    assert damaged.read_bytes() == log
    [copy] = (tmp_path / "kept" / _PARTITION).glob(f"{damaged.name}*")
    assert log.endswith(copy.read_bytes()) and copy.name == f"{damaged.name}.from-{len(log) - copy.stat().st_size}"


def test_zeros_take_no_space_where_they_are_kept(log_dir: Path, tmp_path: Path) -> None:
    log = _logs(log_dir)[-1]
    size = log.stat().st_size
    os.truncate(log, size + 16 * 1024 * 1024)
    assert _truncate(log_dir, "--apply").code == ExitCode.PROBLEMS_FOUND
    status = (tmp_path / "kept" / _PARTITION / f"{log.name}.from-{size}").stat()
    assert (log.stat().st_size, status.st_size) == (size, 16 * 1024 * 1024)
    assert status.st_blocks * 512 < 1024 * 1024


def test_what_is_not_cut(log_dir: Path, tmp_path: Path) -> None:
    """A log with another name; anything, where what is cut would be kept in a log dir, or nowhere."""
    _torn(log_dir)
    before = _files(log_dir)
    os.link(_logs(log_dir)[-1], tmp_path / "backup")
    refused = _truncate(log_dir, "--apply")
    assert refused.code == ExitCode.USAGE and "2 names (hard links)" in refused.out
    for arguments, part in (
        (("--truncate", "--keep", str(log_dir / "kept")), "a broker's log dir; name a directory outside of it"),
        (("--truncate",), "needed by --truncate and by --mend"),
        (("--keep", str(tmp_path / "kept")), "needed by --truncate and by --mend"),
    ):
        wrong = _recover(log_dir, *arguments, "--apply")
        wrong.assert_one_line(ExitCode.USAGE, part)
    assert _files(log_dir) == before and not (tmp_path / "kept").exists()


def test_a_partition_that_is_a_link_is_refused(log_dir: Path, tmp_path: Path) -> None:
    (log_dir / _PARTITION).rename(tmp_path / _PARTITION)
    (log_dir / _PARTITION).symlink_to(tmp_path / _PARTITION)
    refused = _recover(log_dir, "--apply")
    assert refused.code == ExitCode.USAGE and "a symbolic link" in refused.out


def test_all_is_looked_at_where_recovery_points_cannot_be_trusted(log_dir: Path) -> None:
    """Damage below the recovery point is no matter to a broker, nor to us. With --all it is refused, or cut as by a
    broker that has no recovery point.
    """
    assert _recover(log_dir, "--apply").code == 0
    with _logs(log_dir)[1].open("r+b") as log:
        log.seek(1000)
        log.write(b"\xff" * 8)
    assert _recover(log_dir, "--level", "marker").code == 0
    refused = _recover(log_dir, "--level", "marker", "--all")
    assert refused.code == ExitCode.USAGE and "a broker does not look there" in refused.out
    assert "damaged, where the broker does not look: " in refused.out
    left = _recover(log_dir, "--all", "--accept-loss", "--json")
    [partition] = left.json["partitions"]
    assert left.code == ExitCode.PROBLEMS_FOUND and partition["left_to_the_broker"]
    assert all(each["unseen"] for each in partition["dropped"])
    damaged = _logs(log_dir)[1]
    cut = _truncate(log_dir, "--all", "--apply", "--accept-loss")
    assert cut.code == ExitCode.PROBLEMS_FOUND, cut
    assert _logs(log_dir)[-1] == damaged and damaged.stat().st_size < 1000


def test_all_of_a_sound_log_dir_is_read(log_dir: Path) -> None:
    """Also partitions of which a broker reads the last segment alone: an index that is lost before it is mended."""
    assert _recover(log_dir, "--apply").code == 0
    time_index = _logs(log_dir)[1].with_suffix(TIME_INDEX_SUFFIX)
    content = time_index.read_bytes()
    time_index.unlink()  # which a broker does not mend
    assert _recover(log_dir, "--apply").code == 0 and not time_index.exists()
    assert _recover(log_dir, "--apply", "--all").code == 0 and time_index.read_bytes() == content
