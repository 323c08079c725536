"""The partition that audits of damaged files are tried on."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.audits import sound_copies


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The partition that damages are made from, with all its index and auxiliary files."""
    return sound_copies(tmp_path_factory.mktemp("sound"), "txn-mixed-0") / "txn-mixed-0"


@pytest.fixture
def tree(sound: Path, tmp_path: Path) -> Path:
    """A log dir with that partition, to be changed."""
    shutil.copytree(sound, tmp_path / "logs" / sound.name)
    return tmp_path / "logs"
