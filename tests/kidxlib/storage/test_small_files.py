"""Small files are read whole; whatever else has their name is an error, and nothing waits for a pipe."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kidxlib.storage.s3 import ObjectPath
from kidxlib.storage.small_files import lines_of, small_file
from tests.support.object_store import BUCKET, ObjectStore


def test_a_file_is_read_whole(tmp_path: Path) -> None:
    content = bytes(range(256)) * 4096
    (tmp_path / "file").write_bytes(content)
    assert small_file(tmp_path / "file") == content


def test_lines_are_those_of_bytes_that_are_no_text_too(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"0\n\xff 1\r\n2")
    assert lines_of(tmp_path / "file") == ["0", "\ufffd 1", "2"]


def test_a_pipe_that_nobody_writes_to_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="not a regular file"):
        small_file(tmp_path / "pipe")
    assert set(os.listdir("/proc/self/fd")) == before


def test_a_directory_and_what_is_not_there_are_errors(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="not a regular file"):
        small_file(tmp_path)
    with pytest.raises(FileNotFoundError):
        small_file(tmp_path / "not there")


def test_an_object_is_read_as_a_file_is(store: ObjectStore) -> None:
    store.put("small/file", b"0\n1\n")
    assert lines_of(ObjectPath(f"{BUCKET}/small/file")) == ["0", "1"]
    with pytest.raises(FileNotFoundError):
        small_file(ObjectPath(f"{BUCKET}/small/not there"))
