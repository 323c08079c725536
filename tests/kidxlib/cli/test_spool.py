"""What is put into the scratch directory comes back, and a scratch directory that cannot be used is one line."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from kidxlib.cli.spool import Spool
from kidxlib.errors import KidxError
from kidxlib.storage.scratch import scratch_directory


def test_objects_come_back_in_any_order(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, rng: random.Random) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with scratch_directory() as scratch:
        assert scratch.parent == tmp_path
        items = [(number, rng.randbytes(rng.randrange(300_000))) for number in range(20)]
        with Spool(scratch / "a") as first, Spool(scratch / "b") as second:
            spooled = [(item, rng.choice([first, second]).append(item)) for item in items]
            rng.shuffle(spooled)
            assert [place.read() for _, place in spooled] == [item for item, _ in spooled]
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_one_line() -> None:
    with Spool(Path("/dev/full")) as spool, pytest.raises(KidxError, match=r"^/: cannot keep .*No space left"):
        spool.append(1)


def test_a_scratch_directory_that_cannot_be_made_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "away"))
    with pytest.raises(KidxError, match=r"away: cannot keep .*No such file.*; set TMPDIR"), scratch_directory():
        pass


def test_an_error_within_is_not_taken_for_one_of_the_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with pytest.raises(PermissionError, match="of another file"), scratch_directory():
        raise PermissionError("of another file")
