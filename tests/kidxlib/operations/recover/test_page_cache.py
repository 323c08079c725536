"""When a note of a log dir holds: the same boot, mount, directory and a kernel that has told of no error since; which
messages of the kernel say that something was lost.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kidxlib.audit.startup.last_stop import PartitionStop
from kidxlib.errors import UntrustedError
from kidxlib.format.segment_files import LOG_SUFFIX, OFFSET_INDEX_SUFFIX, SNAPSHOT_SUFFIX, TIME_INDEX_SUFFIX
from kidxlib.format.topic_partition import parse_partition_directory
from kidxlib.library.recover_directory import recover_file
from kidxlib.operations.recover.forecast import forecast_partition
from kidxlib.operations.recover.page_cache import (
    NOTE,
    KernelMessage,
    ensure_no_kernel_errors,
    ensure_page_cache_kept,
    last_kernel_message_number,
    mount_of,
    note_page_cache,
    parse_message,
)
from kidxlib.operations.recover.read_logs import LogReader
from kidxlib.recovery.options import RecoverOptions
from kidxlib.recovery.partition_fold import Producers
from kidxlib.storage.log_dir import META_PROPERTIES
from tests.faults.disks import cut_power, make_image, mounted
from tests.support.logs.golden import SAMPLES

_OLD = KernelMessage(7, 0, 6, "EXT4-fs (sda1): mounted filesystem")


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    try:
        mount_of(tmp_path)
        last_kernel_message_number()
    except UntrustedError as error:
        pytest.skip(f"nothing is trusted here: {error}")
    return _log_dir(tmp_path / "logs")


def _log_dir(path: Path) -> Path:
    path.mkdir()
    (path / META_PROPERTIES).write_text("version=1\nnode.id=1\n")
    return path


def _refused(log_dir: Path) -> str:
    with pytest.raises(UntrustedError) as raised:
        ensure_page_cache_kept(log_dir)
    return str(raised.value)


def test_a_note_holds_as_long_as_nothing_happens(log_dir: Path) -> None:
    assert f"{log_dir / NOTE}: missing" in _refused(log_dir)
    note_page_cache([log_dir])
    ensure_page_cache_kept(log_dir)
    assert os.stat(log_dir / NOTE).st_uid == os.stat(log_dir / META_PROPERTIES).st_uid
    note_page_cache([log_dir])
    ensure_page_cache_kept(log_dir)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda note: note | {"boot_id": "00000000-0000-0000-0000-000000000000"}, "the host has started again since"),
        (lambda note: note | {"mount_id": note["mount_id"] + 1}, "the file system was mounted again since"),
        (lambda note: note | {"file_system": "xfs"}, "another file system"),
        (lambda note: note | {"directory": [note["directory"][0], 1]}, "a copy of the one that it was made for"),
        (lambda note: note | {"version": 2}, "version 2, expected 1"),
        (lambda note: {name: note[name] for name in note if name != "kernel_log"}, "not readable: 'kernel_log'"),
        (lambda note: note | {"kernel_log": note["kernel_log"] + 1_000_000}, "whether there were errors is not known"),
        (lambda note: [], "not readable"),
    ],
)
def test_anything_else_is_refused(log_dir: Path, change: Callable[[dict[str, Any]], Any], why: str) -> None:
    note_page_cache([log_dir])
    noted = json.loads((log_dir / NOTE).read_text())
    (log_dir / NOTE).write_text(json.dumps(change(noted)))
    assert why in _refused(log_dir)


def test_a_copy(log_dir: Path, tmp_path: Path) -> None:
    note_page_cache([log_dir])
    shutil.copytree(log_dir, tmp_path / "copy")
    assert "a copy of the one that it was made for" in _refused(tmp_path / "copy")


def test_a_mount_that_goes_and_comes_back(log_dir: Path, tmp_path: Path) -> None:
    """The same file system, at the same place, in the same boot: between the two it was not there. Through another
    mount, as in a container, nothing is known of this one.
    """
    place = tmp_path / "mounted"
    with mounted(place, log_dir, "none", "bind"):
        note_page_cache([place])
        ensure_page_cache_kept(place)
        assert "mounted again since" in _refused(log_dir)
        subprocess.run(["mount", "-o", "remount,bind,noatime", place], check=True)
        ensure_page_cache_kept(place)
    with mounted(place, log_dir, "none", "bind"):
        assert "mounted again since" in _refused(place)


def test_a_file_system_in_memory_and_layers_of_others(log_dir: Path, tmp_path: Path) -> None:
    with mounted(tmp_path / "tmpfs", "none", "tmpfs", "size=1m"):
        inside = _log_dir(tmp_path / "tmpfs" / "logs")
        note_page_cache([inside])
        ensure_page_cache_kept(inside)
        for name in ("upper", "work"):
            (tmp_path / "tmpfs" / name).mkdir()
        layers = f"lowerdir={log_dir.parent},upperdir={tmp_path}/tmpfs/upper,workdir={tmp_path}/tmpfs/work"
        overlay = tmp_path / "overlay"
        with mounted(overlay, "none", "overlay", layers), pytest.raises(UntrustedError, match="on overlay; expected"):
            note_page_cache([overlay / "logs"])


def test_a_file_system_of_the_kernel() -> None:
    with pytest.raises(UntrustedError, match=r"/proc: on proc; expected one of ext2, "):
        mount_of(Path("/proc"))


def test_an_error_of_the_device_itself(log_dir: Path, tmp_path: Path) -> None:
    """A real one: the power of a file system is cut. It refuses to be read then, and the kernel tells of it; a log dir
    on another device is not concerned.
    """
    image = make_image(tmp_path / "image")
    note_page_cache([log_dir])
    with mounted(tmp_path / "disk", image, "ext4", "loop"):
        inside = _log_dir(tmp_path / "disk" / "logs")
        note_page_cache([inside])
        ensure_page_cache_kept(inside)
        cut_power(tmp_path / "disk")
        assert "error" in _refused(inside)
    ensure_page_cache_kept(log_dir)


def test_a_message_as_the_device_gives_it() -> None:
    line = b"6,339,5140900,-,caller=T1;NET: Registered PF_INET\\x09family\n SUBSYSTEM=net\n DEVICE=n1\n"
    assert parse_message(line) == KernelMessage(339, 0, 6, "NET: Registered PF_INET\\x09family")
    assert parse_message(b"30,5,1,-;systemd[1]: Started").facility == 3


@pytest.mark.parametrize(
    ("level", "text"),
    [
        (3, "Buffer I/O error on dev sda1, logical block 7, lost async page write"),
        (4, "EXT4-fs warning (device sda1): ext4_end_bio:343: I/O error 10 writing to inode 12 starting block 34"),
        (2, "EXT4-fs error (device sda1): ext4_journal_check_start:84: comm java: Detected aborted journal"),
        (2, "EXT4-fs (sda1): Remounting filesystem read-only"),
        (1, "XFS (nvme1n1): Log I/O Error (0x2) detected at xlog_ioend_work. Shutting down filesystem."),
        (6, "blk_update_request: critical medium error, dev sda, sector 5"),
        (3, "Memory failure: 0x1234: recovery action for dirty LRU page: Failed"),
        (3, "something that nobody has thought of"),
    ],
)
def test_errors(level: int, text: str) -> None:
    error = KernelMessage(8, 0, level, text)
    with pytest.raises(UntrustedError, match="the kernel's log has an error: "):
        ensure_no_kernel_errors([_OLD, error], 7)
    ensure_no_kernel_errors([_OLD, error], 8)  # it was there before


@pytest.mark.parametrize(
    ("facility", "level", "text"),
    [
        (0, 3, "Out of memory: Killed process 4711 (java) total-vm:33554432kB, anon-rss:1kB"),
        (0, 3, "Memory cgroup out of memory: Killed process 4711 (java) total-vm:1kB"),
        (0, 4, "java invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0"),
        (3, 3, "systemd[1]: kafka.service: Failed with result 'oom-kill'."),
        (0, 6, "EXT4-fs (sdb1): mounted filesystem with ordered data mode"),
    ],
)
def test_what_loses_no_page(facility: int, level: int, text: str) -> None:
    ensure_no_kernel_errors([_OLD, KernelMessage(8, facility, level, text)], 7)


@pytest.mark.parametrize("numbers", [[], [9, 10], [3, 4]])
def test_a_log_that_does_not_reach_back(numbers: list[int]) -> None:
    """Messages were overwritten, or it is another kernel's."""
    with pytest.raises(UntrustedError, match="whether there were errors is not known"):
        ensure_no_kernel_errors([KernelMessage(number, 0, 6, "") for number in numbers], 7)
    ensure_no_kernel_errors([KernelMessage(number, 0, 6, "") for number in (8, 9)], 7)


@pytest.mark.parametrize(
    "text",
    [
        "EXT4-fs (loop0): shut down requested (2)",
        "EXT4-fs error (device loop0): ext4_journal_check_start:84: comm java: Detected aborted journal",
        "Aborting journal on device loop0-8.",
        "Buffer I/O error on dev loop0, logical block 7, lost async page write",
        "I/O error, dev loop0, sector 8 op 0x1:(WRITE) flags 0x800 phys_seg 1 prio class 2",
    ],
)
def test_another_device(text: str) -> None:
    """What names a device is of no other one. Without a name, it may be of any."""
    error = KernelMessage(8, 0, 2, text)
    ensure_no_kernel_errors([_OLD, error], 7, frozenset({"sda", "sda1"}))
    for devices in (None, frozenset({"loop0"})):
        with pytest.raises(UntrustedError):
            ensure_no_kernel_errors([_OLD, error], 7, devices)
    with pytest.raises(UntrustedError):
        ensure_no_kernel_errors([_OLD, KernelMessage(8, 0, 2, "I/O error somewhere")], 7, frozenset({"sda"}))


def test_epochs_at_the_ends_are_those_that_another_look_finds(tmp_path: Path) -> None:
    """What is seen of logs of which the ends alone were read is the same where their ends are read for it again."""

    class Forgetting(dict[int, Any]):
        def update(self, *_: Any, **__: Any) -> None: ...

    kept = 0
    for sample in sorted(SAMPLES.iterdir()):
        partition = parse_partition_directory(sample.name)
        if partition is None:
            continue
        directory = tmp_path / sample.name
        shutil.copytree(sample, directory)
        stop, options = PartitionStop(False, 0, 0, 0), RecoverOptions()
        for log in directory.glob(f"*{LOG_SUFFIX}"):
            recovered = recover_file(log, options)
            log.with_suffix(OFFSET_INDEX_SUFFIX).write_bytes(recovered.offset_index)
            log.with_suffix(TIME_INDEX_SUFFIX).write_bytes(recovered.time_index)
            log.with_suffix(SNAPSHOT_SUFFIX).write_bytes(Producers().snapshot())
        reader = LogReader()
        found, again = (
            forecast_partition(partition, directory, options, stop, read_by, trusts=True)
            for read_by in (reader, LogReader(end_epochs=Forgetting()))
        )
        assert found.seen == again.seen
        assert set(reader.end_epochs) == (found.headers.kept if found.headers else set())
        kept += len(reader.end_epochs)
    assert kept
