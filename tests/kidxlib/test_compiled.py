"""Compiled code of a zip is found again wherever the zip lies, and nobody else's is run."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Final

import pytest

import kidxlib.compiled

#: A small library beside the module itself. `prefix` stands for a Python environment that cannot be written.
LOOP: Final = """
from kidxlib.compiled import njit

@njit("int64(int64)", cache=True)
def twice(number):
    return 2 * number
"""
RUN: Final = """
import sys
sys.prefix = sys.argv[1]
from kidxlib.loop import twice
assert twice(21) == 42
print(sum(twice.stats.cache_hits.values()), twice.stats.cache_path)
"""


def make_zip(folder: Path, loop: str = LOOP) -> Path:
    folder.mkdir()
    path = folder / "kidx.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in (
            ("__init__", ""),
            ("loop", loop),
            ("compiled", Path(kidxlib.compiled.__file__).read_text()),
        ):
            archive.writestr(zipfile.ZipInfo(f"kidxlib/{name}.py"), text)
    return path


def run(library: Path, prefix: Path, **variables: str) -> tuple[int, Path]:
    """How often compiled code was found, and where."""
    kept = {name: value for name, value in os.environ.items() if name not in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME")}
    environment = {**kept, "PYTHONPATH": str(library), "PYTHONSAFEPATH": "1", "TMPDIR": "/no/such", **variables}
    ended = subprocess.run(
        [sys.executable, "-c", RUN, prefix], capture_output=True, text=True, check=False, env=environment
    )
    assert ended.returncode == 0, ended.stderr
    hits, path = ended.stdout.split(maxsplit=1)
    return int(hits), Path(path.strip())


@pytest.mark.parametrize("where", ["environment", "variable", "temporary"])
def test_two_copies_of_a_zip_share_what_was_compiled(where: str, tmp_path: Path) -> None:
    """As two executors have them; another zip does not."""
    folder = tmp_path / "kept"
    folder.mkdir()
    prefix = folder if where == "environment" else Path("/dev/null")
    variables = {"variable": {"NUMBA_CACHE_DIR": str(folder)}, "temporary": {"TMPDIR": str(folder)}}.get(where, {})
    found = [run(make_zip(tmp_path / name), prefix, HOME=str(tmp_path), **variables) for name in ("first", "second")]
    assert [hits for hits, _ in found] == [0, 1]
    assert found[0][1] == found[1][1] and folder in found[0][1].parents
    changed = run(make_zip(tmp_path / "changed", f"{LOOP}#"), prefix, HOME=str(tmp_path), **variables)
    assert changed[0] == 0 and changed[1] != found[0][1]
    assert not (tmp_path / ".cache").exists()


def test_what_others_can_write_is_not_run(tmp_path: Path) -> None:
    """Numba then keeps the code where it would without us: in the user's home."""
    others = tmp_path / f"kidx-compiled-{os.getuid()}"
    others.mkdir()
    others.chmod(0o777)
    _, path = run(make_zip(tmp_path / "zip"), Path("/dev/null"), TMPDIR=str(tmp_path), HOME=str(tmp_path / "home"))
    assert list(others.iterdir()) == [] and tmp_path / "home" in path.parents
