"""Files and objects that are read whole, and index files without the room at their end."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kidxlib.storage.small_files import filled_file, lines_of, small_file
from kidxlib.storage.store.s3 import ObjectPath
from tests.support.object_store import BUCKET, ObjectStore


def test_a_file_is_read_whole(tmp_path: Path) -> None:
    content = bytes(range(256)) * 4096
    (tmp_path / "file").write_bytes(content)
    assert small_file(tmp_path / "file") == content


def test_room_for_more_entries_is_left_out(tmp_path: Path) -> None:
    """A broker keeps it at the end of an active segment's index; a file may end amid an entry."""
    for count in (0, 1, 2, 5, 1000):
        entries = b"\0\0\0\7" * 2 * count
        for rest in (b"", bytes(8), bytes(80_000), bytes(3)):
            (tmp_path / "index").write_bytes(entries + rest)
            assert filled_file(tmp_path / "index", 8) == entries


def test_lines_are_those_of_bytes_that_are_no_text_too(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"0\n\xff 1\r\n2")
    assert lines_of(tmp_path / "file") == ["0", "\ufffd 1", "2"]


def test_a_file_larger_than_any_of_kafka_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(OSError, match="larger than 2,147,483,647 bytes"):
        small_file(tmp_path / "file")


def test_a_pipe_that_nobody_writes_to_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="not a regular file"):
        small_file(tmp_path / "pipe")
    with pytest.raises(OSError, match="not a regular file"):
        filled_file(tmp_path / "pipe", 8)
    assert set(os.listdir("/proc/self/fd")) == before


def test_a_directory_and_what_is_not_there_are_errors(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="not a regular file"):
        small_file(tmp_path)
    with pytest.raises(FileNotFoundError):
        small_file(tmp_path / "not there")


def test_an_object_is_read_as_a_file_is(store: ObjectStore) -> None:
    store.put("small/file", b"0\n1\n")
    assert lines_of(ObjectPath(f"{BUCKET}/small/file")) == ["0", "1"]
    assert filled_file(ObjectPath(f"{BUCKET}/small/file"), 8) == b"0\n1\n"
    with pytest.raises(FileNotFoundError):
        small_file(ObjectPath(f"{BUCKET}/small/not there"))
