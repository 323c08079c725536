"""A run is alive as long as its heartbeat is renewed; folders go by that, however old they are."""

from __future__ import annotations

import errno
import os
import threading
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest

from kidxlib.storage import scratch
from kidxlib.storage.scratch import DEAD_AFTER, HEARTBEAT, beating, beating_in, sweep_folders
from tests.support.leftovers import age

_WAIT_SECONDS: Final = 60.0


class Beats:
    """Counts beats, of which one fails."""

    def __init__(self, fails: int) -> None:
        self.count, self._fails = 0, fails
        self.fifth = threading.Event()

    def __call__(self) -> None:
        self.count += 1
        if self.count == 5:
            self.fifth.set()
        if self.count == self._fails:
            raise OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.fixture(autouse=True)
def _many_beats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "PERIOD", timedelta(milliseconds=1))


def test_it_is_renewed_until_the_context_is_left() -> None:
    """One beat that fails is made up for by the next."""
    beats, threads = Beats(fails=3), threading.active_count()
    with pytest.raises(ValueError, match="the run fails"), beating(beats):
        assert beats.count and beats.fifth.wait(_WAIT_SECONDS)
        raise ValueError("the run fails")
    assert threading.active_count() == threads


def test_where_the_first_cannot_be_written_the_run_does_not_begin(tmp_path: Path) -> None:
    threads = threading.active_count()
    with pytest.raises(FileNotFoundError), beating_in(tmp_path / "not there"):
        pytest.fail("it has begun")
    assert threading.active_count() == threads


def test_folders_go_by_their_heartbeat_and_others_by_their_age(tmp_path: Path) -> None:
    """A folder of twelve days with a young heartbeat stays, and a new one whose heartbeat stands still goes. No link is
    followed.
    """
    names = ("kidx-alive", "kidx-dead", "kidx-old", "kidx-young", "other-dead")
    folders = {name: tmp_path / name for name in names}
    for name, folder in folders.items():
        (folder / "of").mkdir(parents=True)
        (folder / "of" / "a run").touch()
        if name.endswith(("alive", "dead")):
            (folder / HEARTBEAT).touch()
    (tmp_path / "kidx-link").symlink_to(folders["other-dead"])
    (tmp_path / "kidx-file").touch()
    for name in ("kidx-alive", "kidx-old", "kidx-file"):
        age(folders.get(name, tmp_path / name), timedelta(days=12))
    for name in ("kidx-dead", "other-dead"):
        age(folders[name] / HEARTBEAT, DEAD_AFTER + timedelta(minutes=1))
    alive = folders["kidx-alive"] / HEARTBEAT
    age(alive, DEAD_AFTER - timedelta(minutes=1))

    sweep_folders(tmp_path, prefix="kidx-")
    assert {path.name for path in tmp_path.iterdir()} == {*names, "kidx-link", "kidx-file"} - {"kidx-dead"}
    yesterday = os.stat(alive).st_mtime_ns - 24 * 3600 * 10**9
    sweep_folders(tmp_path, unmarked_before_ns=yesterday)
    left = {"kidx-alive", "kidx-young", "kidx-link", "kidx-file"}
    assert {path.name for path in tmp_path.iterdir()} == left
    sweep_folders(tmp_path / "not there", unmarked_before_ns=yesterday)
