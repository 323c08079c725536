"""The one way in which a log is opened for writing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kidxlib.errors import LogNotCutError
from kidxlib.operations.recover.log_cutter import cut_log
from kidxlib.storage.location import Directory

_LOG = "00000000000000000000.log"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    (tmp_path / "t-0").mkdir()
    path = tmp_path / "t-0" / _LOG
    path.write_bytes(b"0123456789")
    return path


def test_the_first_bytes_stay(tmp_path: Path, log: Path) -> None:
    cut_log(Directory(str(tmp_path), "t-0"), _LOG, size=10, to=4)
    assert log.read_bytes() == b"0123"
    cut_log(Directory(str(tmp_path), "t-0"), _LOG, size=4, to=0)
    assert log.read_bytes() == b""


@pytest.mark.parametrize(
    ("size", "to", "found"),
    [(11, 4, "found 10 bytes, expected a file of 11"), (10, 10, "found 10 bytes"), (10, 11, "found 10 bytes")],
)
def test_a_log_of_another_size_is_left(tmp_path: Path, log: Path, size: int, to: int, found: str) -> None:
    with pytest.raises(LogNotCutError, match=found):
        cut_log(Directory(str(tmp_path), "t-0"), _LOG, size=size, to=to)
    assert log.read_bytes() == b"0123456789"


def test_a_log_with_another_name_is_left(tmp_path: Path, log: Path) -> None:
    os.link(log, tmp_path / "backup")
    with pytest.raises(LogNotCutError, match="2 names"):
        cut_log(Directory(str(tmp_path), "t-0"), _LOG, size=10, to=4)
    assert log.read_bytes() == b"0123456789"


def test_no_link_is_followed(tmp_path: Path, log: Path) -> None:
    (tmp_path / "links-0").symlink_to(log.parent)
    (tmp_path / "s-0").mkdir()
    (tmp_path / "s-0" / _LOG).symlink_to(log)
    for directory in ("links-0", "s-0"):
        with pytest.raises(LogNotCutError, match="a part of the path is a symbolic link"):
            cut_log(Directory(str(tmp_path), directory), _LOG, size=10, to=4)
    assert log.read_bytes() == b"0123456789"
