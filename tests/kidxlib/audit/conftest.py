"""The partition that audits of damaged files are tried on."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from kidxlib.cli.main import kidx
from tests.support.logs import golden


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The partition that damages are made from, with all its index and auxiliary files."""
    log_dir = tmp_path_factory.mktemp("sound")
    directory = Path(shutil.copytree(golden.SAMPLES / "txn-mixed-0", log_dir / "txn-mixed-0"))
    built = CliRunner().invoke(kidx, ["build", str(log_dir), "--in-place", "--snapshots", "--epochs"])
    assert built.exit_code == 0
    return directory


@pytest.fixture
def tree(sound: Path, tmp_path: Path) -> Path:
    """A log dir with that partition, to be changed."""
    shutil.copytree(sound, tmp_path / "logs" / sound.name)
    return tmp_path / "logs"
