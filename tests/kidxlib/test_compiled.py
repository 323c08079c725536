"""Compiled code of a zip is found again wherever the zip lies, and nobody else's is run."""

from __future__ import annotations

import os
import stat
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


def start(library: Path, prefix: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the loop in a process of its own, without a temporary directory unless one is given."""
    kept = {name: value for name, value in os.environ.items() if name not in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME")}
    environment = {**kept, "PYTHONPATH": str(library), "PYTHONSAFEPATH": "1", "TMPDIR": "/no/such", **variables}
    return subprocess.run(
        [sys.executable, "-c", RUN, prefix], capture_output=True, text=True, check=False, env=environment
    )


def run(library: Path, prefix: Path, **variables: str) -> tuple[int, Path]:
    """How often compiled code was found, and where."""
    ended = start(library, prefix, **variables)
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


def others_folder(place: Path, kind: str) -> Path:
    """What somebody else may have put where this user's directory is to be."""
    path = place / f"kidx-compiled-{os.getuid()}"
    target = place / "elsewhere"
    target.mkdir()
    if kind == "link":
        path.symlink_to(target)
    else:
        path.mkdir()
        path.chmod(0o777 if kind == "writable" else 0o755)
        if kind == "of somebody else":
            os.chown(path, 65534, 65534)
    return path


@pytest.mark.parametrize("kind", ["writable", "link", "of somebody else"])
def test_what_others_can_write_is_not_run(kind: str, tmp_path: Path) -> None:
    """A directory that is new takes its place, for one run, and one line says so."""
    if kind == "of somebody else" and os.getuid() != 0:
        pytest.skip("needs root")
    others = others_folder(tmp_path, kind)
    hits, path = run(make_zip(tmp_path / "zip"), Path("/dev/null"), TMPDIR=str(tmp_path), HOME="/nonexistent")
    assert hits == 0 and path.parent.name.startswith("kidx-compiled-") and path.parent.parent == tmp_path, path
    assert others not in path.parents and not path.exists()
    assert not others.is_dir() or list(others.iterdir()) == []


@pytest.mark.parametrize("kind", ["writable", "writable by a group", "of somebody else", "sticky"])
def test_nothing_is_kept_where_others_could_rename_it(kind: str, tmp_path: Path) -> None:
    """They could put a directory of theirs in its place later. A sticky one is for all, as /tmp is."""
    if kind == "of somebody else" and os.getuid() != 0:
        pytest.skip("needs root")
    place = tmp_path / "temporary"
    place.mkdir()
    place.chmod({"writable": 0o777, "writable by a group": 0o770, "of somebody else": 0o755, "sticky": 0o1777}[kind])
    if kind == "of somebody else":
        os.chown(place, 65534, 65534)
    library = read_only_library(tmp_path)
    ended = start(library, Path("/dev/null"), TMPDIR=str(place), HOME="/proc/nonexistent")
    assert ended.returncode == 0, ended.stderr
    assert bool(list(place.iterdir())) == (kind == "sticky")
    assert (f"{place}: not sticky (chmod +t), and others can write there, or it is " in ended.stderr) == (
        kind != "sticky"
    )


def test_without_a_home_what_was_compiled_is_kept_in_a_directory_of_this_users(tmp_path: Path) -> None:
    """Of a library that lies in a folder: beside it and in the home nothing can be written."""
    library = read_only_library(tmp_path)
    found = [run(library, Path("/dev/null"), TMPDIR=str(tmp_path), HOME="/proc/nonexistent") for _ in range(2)]
    assert [hits for hits, _ in found] == [0, 1]
    own = tmp_path / f"kidx-compiled-{os.getuid()}"
    assert own in found[0][1].parents and stat.S_IMODE(own.stat().st_mode) == 0o700


def test_without_any_directory_it_is_compiled_at_each_start(tmp_path: Path) -> None:
    """And a line says so; numba alone would fail."""
    library = read_only_library(tmp_path)
    ended = start(library, Path("/dev/null"), HOME="/proc/nonexistent")
    assert ended.returncode == 0 and ended.stdout.split() == ["0", "None"], ended
    (line,) = ended.stderr.splitlines()
    assert line.startswith("no directory to keep compiled code in")


def read_only_library(folder: Path) -> Path:
    """The small library in a folder where nobody may make another one, not even root: a file stands in its way."""
    library = folder / "library"
    (library / "kidxlib").mkdir(parents=True)
    for name, text in (("__init__", ""), ("loop", LOOP), ("compiled", Path(kidxlib.compiled.__file__).read_text())):
        (library / "kidxlib" / f"{name}.py").write_text(text)
    (library / "kidxlib" / "__pycache__").touch()
    return library
