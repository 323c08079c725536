"""Small logs are copied if they are in memory, and else read as large ones: the page cache is left as it was."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from kidxlib.errors import LogChangedError
from kidxlib.storage import opened_log
from kidxlib.storage.log_bytes import WholeLog
from kidxlib.storage.opened_log import SMALL_BYTES, OpenedTogether
from tests.support import page_cache

_CONTENTS = (b"", b"some", os.urandom(60_000), os.urandom(4096 * 5))


@pytest.fixture
def logs(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / f"{number}.log" for number in range(len(_CONTENTS))]
    for path, content in zip(paths, _CONTENTS, strict=True):
        path.write_bytes(content)
    return paths


def _opened(logs: list[Path], room: int) -> tuple[list[bytes], list[bool]]:
    """The bytes of the logs, and which of them are mapped."""
    contents, are_mapped = [], []
    with OpenedTogether(np.empty(room, np.uint8)) as opened:
        assert [opened.open(str(path), use_mmap=True) for path in logs] == list(range(len(logs)))
        for number, log in enumerate(opened.logs):
            assert isinstance(log, WholeLog) and log.size == opened.versions[number].size
            contents.append(log.read(0, log.size))
            are_mapped.append(log.is_mapped)
            opened.ensure_unchanged(number)
    return contents, are_mapped


@pytest.mark.parametrize("room", [0, 70_000, 10**6])
def test_all_have_their_bytes(logs: list[Path], room: int) -> None:
    """Whatever there is room for, where the kernel tells what is in memory, and each log stands behind the others."""
    contents, are_mapped = _opened(logs, room)
    assert contents == list(_CONTENTS)
    if not any(_opened(logs, 10**6)[1]):  # the kernel tells what is in memory
        assert are_mapped[2:] == [room < 60_000, room < 80_480]


def test_where_the_kernel_does_not_tell_they_are_mapped(logs: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opened_log, "_CACHESTAT", -1)
    contents, are_mapped = _opened(logs, 10**6)
    assert contents == list(_CONTENTS) and all(are_mapped[1:])


def test_the_page_cache_stays_as_it_was(logs: list[Path]) -> None:
    if not page_cache.drop(logs[2]):
        pytest.skip("the file system of the temporary directory keeps its files in memory, or does not tell")
    os.sync()
    assert _opened(logs, 10**6)[0] == list(_CONTENTS)
    assert page_cache.resident(logs[2]) == ()
    assert len(page_cache.resident(logs[3])) == 5


def test_a_log_that_changes_while_it_is_mapped(logs: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was copied is not used any more: what becomes of it later is another log."""
    with OpenedTogether(np.empty(60_000, np.uint8)) as opened:
        copied, mapped = (opened.open(str(path), use_mmap=True) for path in logs[2:])
        for path in logs[2:]:
            with path.open("ab") as file:
                file.write(b"more")
        assert copied is not None and mapped is not None
        with pytest.raises(LogChangedError, match="20480 bytes before the scan, 20484 after"):
            opened.ensure_unchanged(mapped)
        if not opened.logs[copied].is_mapped:  # type: ignore[attr-defined]
            opened.ensure_unchanged(copied)


def test_a_large_one_is_left(logs: list[Path]) -> None:
    os.truncate(logs[0], SMALL_BYTES + 1)
    with OpenedTogether(np.empty(10, np.uint8)) as opened:
        assert opened.open(str(logs[0]), use_mmap=True) is None
        assert opened.logs == []
    with pytest.raises(FileNotFoundError), OpenedTogether(np.empty(10, np.uint8)) as opened:
        opened.open(str(logs[0].with_name("missing")), use_mmap=True)
