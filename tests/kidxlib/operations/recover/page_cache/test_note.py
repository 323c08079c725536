"""When a note of a log dir holds: the same boot, mount, directory and a kernel that has told of no error since."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kidxlib.errors import UntrustedError
from kidxlib.operations.recover.page_cache.kernel_log import last_message
from kidxlib.operations.recover.page_cache.mount import mount_of
from kidxlib.operations.recover.page_cache.note import NOTE, ensure_noted, note_down
from kidxlib.storage.log_dir import META_PROPERTIES
from tests.faults.disks import cut_power, make_image, mounted


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    try:
        mount_of(tmp_path)
        last_message()
    except UntrustedError as error:
        pytest.skip(f"nothing is trusted here: {error}")
    return _log_dir(tmp_path / "logs")


def _log_dir(path: Path) -> Path:
    path.mkdir()
    (path / META_PROPERTIES).write_text("version=1\nnode.id=1\n")
    return path


def _refused(log_dir: Path) -> str:
    with pytest.raises(UntrustedError) as raised:
        ensure_noted(log_dir)
    return str(raised.value)


def test_a_note_holds_as_long_as_nothing_happens(log_dir: Path) -> None:
    assert f"{log_dir / NOTE}: missing" in _refused(log_dir)
    note_down([log_dir])
    ensure_noted(log_dir)
    assert os.stat(log_dir / NOTE).st_uid == os.stat(log_dir / META_PROPERTIES).st_uid
    note_down([log_dir])
    ensure_noted(log_dir)


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
    note_down([log_dir])
    noted = json.loads((log_dir / NOTE).read_text())
    (log_dir / NOTE).write_text(json.dumps(change(noted)))
    assert why in _refused(log_dir)


def test_a_copy(log_dir: Path, tmp_path: Path) -> None:
    note_down([log_dir])
    shutil.copytree(log_dir, tmp_path / "copy")
    assert "a copy of the one that it was made for" in _refused(tmp_path / "copy")


def test_a_mount_that_goes_and_comes_back(log_dir: Path, tmp_path: Path) -> None:
    """The same file system, at the same place, in the same boot: between the two it was not there. Through another
    mount, as in a container, nothing is known of this one.
    """
    place = tmp_path / "mounted"
    with mounted(place, log_dir, "none", "bind"):
        note_down([place])
        ensure_noted(place)
        assert "mounted again since" in _refused(log_dir)
        subprocess.run(["mount", "-o", "remount,bind,noatime", place], check=True)
        ensure_noted(place)
    with mounted(place, log_dir, "none", "bind"):
        assert "mounted again since" in _refused(place)


def test_a_file_system_in_memory_and_layers_of_others(log_dir: Path, tmp_path: Path) -> None:
    with mounted(tmp_path / "tmpfs", "none", "tmpfs", "size=1m"):
        inside = _log_dir(tmp_path / "tmpfs" / "logs")
        note_down([inside])
        ensure_noted(inside)
        for name in ("upper", "work"):
            (tmp_path / "tmpfs" / name).mkdir()
        layers = f"lowerdir={log_dir.parent},upperdir={tmp_path}/tmpfs/upper,workdir={tmp_path}/tmpfs/work"
        overlay = tmp_path / "overlay"
        with mounted(overlay, "none", "overlay", layers), pytest.raises(UntrustedError, match="on overlay; expected"):
            note_down([overlay / "logs"])


def test_a_file_system_of_the_kernel() -> None:
    with pytest.raises(UntrustedError, match=r"/proc: on proc; expected one of ext2, "):
        mount_of(Path("/proc"))


def test_an_error_of_the_device_itself(log_dir: Path, tmp_path: Path) -> None:
    """A real one: the power of a file system is cut. It refuses to be read then, and the kernel tells of it; a log dir
    on another device is not concerned.
    """
    image = make_image(tmp_path / "image")
    note_down([log_dir])
    with mounted(tmp_path / "disk", image, "ext4", "loop"):
        inside = _log_dir(tmp_path / "disk" / "logs")
        note_down([inside])
        ensure_noted(inside)
        cut_power(tmp_path / "disk")
        assert "error" in _refused(inside)
    ensure_noted(log_dir)
