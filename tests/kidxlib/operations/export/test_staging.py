"""What an export leaves that is killed as it gives its parts their place is not taken for another one's."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Final

import pytest

from kidxlib.operations.export.staging import FinishedPart, PlannedExport, Staging

_PARTS: Final = 2


def _begun(output: Path, asked: dict[str, str]) -> Staging:
    staging = Staging(output, ".parquet")
    staging.directory.mkdir()
    staging.keep_plan(asked, PlannedExport([[]] * _PARTS, (), ()))
    for number in range(_PARTS):
        written = staging.part(number).with_suffix(".tmp")
        written.write_text(f"rows of {asked}")
        staging.finish(number, FinishedPart(1, 0, (), ()), written)
    return staging


def test_a_kill_amid_its_end_leaves_no_part_for_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At each of its steps: the same export goes on, or begins anew; another one is refused, or finds no part."""
    unlink = Path.unlink
    for killed_at in itertools.count():
        staging, left = _begun(tmp_path / f"{killed_at}.parquet", {"topics": "a"}), killed_at

        def unlink_or_die(path: Path) -> None:
            nonlocal left
            if not left:
                raise KeyboardInterrupt
            left -= 1
            unlink(path)

        with monkeypatch.context() as patch:
            patch.setattr(Path, "unlink", unlink_or_die)
            try:
                staging.become(tmp_path / f"{killed_at}.parquet")
            except KeyboardInterrupt:
                pass
            else:
                break
        if staging.plan({"topics": "a"}) is None:
            assert [staging.finished(number) for number in range(_PARTS)] == [None] * _PARTS
    assert killed_at > _PARTS
