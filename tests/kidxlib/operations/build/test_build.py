"""A build without --index-dir goes on where the last one wrote, or says that it would not."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from kidxlib.cli.main import kidx
from kidxlib.errors import UsageError
from tests.support.logs.golden import SAMPLES


def _build(*options: str) -> None:
    source = ["--source", f"sample={SAMPLES}", "--topics", "plain-.*", "--catalog", "catalog"]
    CliRunner().invoke(kidx, ["build", *source, *options], catch_exceptions=False, standalone_mode=False)


@pytest.mark.parametrize("options", [(), ("--dry-run",)])
def test_index_files_are_not_made_anew_elsewhere(
    options: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _build("--index-dir", "mine")
    with pytest.raises(UsageError, match=f"its last build wrote to {tmp_path}/mine, and this one would .*; give"):
        _build(*options)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["catalog", "mine"]
    _build("--index-dir", "other", *options)
    _build("--index-dir", "mine", *options)
