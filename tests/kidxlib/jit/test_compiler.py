"""Compiled code is taken again wherever it lies, if nothing has changed that went into it; nobody else's is run."""

from __future__ import annotations

import ast
import json
import os
import stat
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from kidxlib.jit import compiler
from kidxlib.jit.compiler import PACKAGE, ROOT

#: The modules that are tested, by their names without suffix.
JIT: Final = {f"jit/{path.stem}": path.read_text() for path in Path(compiler.__file__).parent.glob("*.py")}
#: A small library beside them. `prefix` stands for a Python environment that cannot be written.
LOOP: Final = """
from kidxlib.jit.compiler import njit

@njit("int64(int64)", cache=True)
def twice(number):
    return 2 * number
"""
RUN: Final = """
from kidxlib.loop import twice
assert twice(21) == 42
print(sum(twice.stats.cache_hits.values()), twice.stats.cache_path)
"""


#: Starts processes that have numba imported, and warm, as that takes most of a process that compiles one loop. They
#: have neither the library nor any setting.
STARTER: Final = """
import atexit, json, os, sys, traceback
import numba

@numba.njit("int64(int64)")
def warm(number):
    return number + 1

for line in sys.stdin:
    asked = json.loads(line)
    child = os.fork()
    if child == 0:
        break
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
else:
    sys.exit()
for number, path in ((1, asked["out"]), (2, asked["err"])):
    os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
os.environ.clear()
os.environ.update(asked["environment"])
numba.config.reload_config()
sys.path[0], sys.prefix, sys.dont_write_bytecode = asked["library"], asked["prefix"], True
failed = False
try:
    exec(asked["code"], {})
except Exception:
    traceback.print_exc()
    failed = True
atexit._run_exitfuncs()
sys.stdout.flush()
os._exit(failed)  # to take all modules down one by one takes longer than the rest
"""


@dataclass(frozen=True, slots=True)
class Ended:
    returncode: int
    stdout: str
    stderr: str


class Starter:
    """Processes of their own, each with its environment and its copy of the library."""

    def __init__(self, server: subprocess.Popen[str], directory: Path) -> None:
        self._server, self._said = server, {name: str(directory / name) for name in ("out", "err")}

    def run(self, code: str, library: Path, prefix: Path, environment: dict[str, str]) -> Ended:
        """Run this code, and wait for its end."""
        assert self._server.stdin is not None and self._server.stdout is not None
        asked = {"code": code, "library": str(library), "prefix": str(prefix), "environment": environment}
        self._server.stdin.write(json.dumps({**asked, **self._said}) + "\n")
        self._server.stdin.flush()
        returncode = int(self._server.stdout.readline())
        return Ended(returncode, *(Path(self._said[name]).read_text() for name in ("out", "err")))


@pytest.fixture(scope="module")
def starter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Starter]:
    command = [sys.executable, "-c", STARTER]
    without = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**without, "PYTHONSAFEPATH": ""}
    ) as server:
        yield Starter(server, tmp_path_factory.mktemp("said"))


def make_zip(directory: Path, loop: str = LOOP) -> Path:
    directory.mkdir()
    path = directory / "kidx.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in {"__init__": "", "loop": loop, **JIT}.items():
            archive.writestr(zipfile.ZipInfo(f"kidxlib/{name}.py"), text)
    return path


def start(starter: Starter, library: Path, prefix: Path, **variables: str) -> Ended:
    """Run the loop in a process of its own, without a temporary directory unless one is given."""
    kept = {name: value for name, value in os.environ.items() if name not in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME")}
    return starter.run(RUN, library, prefix, {**kept, "TMPDIR": "/no/such", **variables})


def run(starter: Starter, library: Path, prefix: Path, **variables: str) -> tuple[int, Path]:
    """How often compiled code was found, and where."""
    ended = start(starter, library, prefix, **variables)
    assert ended.returncode == 0, ended.stderr
    hits, path = ended.stdout.split(maxsplit=1)
    return int(hits), Path(path.strip())


@pytest.mark.parametrize("where", ["environment", "variable", "temporary"])
def test_two_copies_of_a_zip_share_what_was_compiled(where: str, starter: Starter, tmp_path: Path) -> None:
    """As two executors have them; another zip does not."""
    directory = tmp_path / "kept"
    directory.mkdir()
    prefix = directory if where == "environment" else Path("/dev/null")
    variables = {"variable": {"NUMBA_CACHE_DIR": str(directory)}, "temporary": {"TMPDIR": str(directory)}}.get(
        where, {}
    )
    found = [
        run(starter, make_zip(tmp_path / name), prefix, HOME=str(tmp_path), **variables) for name in ("first", "second")
    ]
    assert [hits for hits, _ in found] == [0, 1]
    assert found[0][1] == found[1][1] and directory in found[0][1].parents
    changed = run(starter, make_zip(tmp_path / "changed", f"{LOOP}#"), prefix, HOME=str(tmp_path), **variables)
    assert changed[0] == 0 and changed[1] != found[0][1]
    assert not (tmp_path / ".cache").exists()


#: A loop whose module says nothing of what it does: that stands in modules that it imports, one of them in a package.
LOOP_OF_OTHERS: Final = """
from kidxlib import (
    numbers,
)
from kidxlib.jit.compiler import njit

@njit("int64(int64)", cache=True)
def twice(number):
    return numbers.add(number, number)
"""
NUMBERS: Final = """
from kidxlib.jit.compiler import njit
from kidxlib.format.layouts import MORE

@njit
def add(one, other):
    return one + other + MORE
"""
RUN_OF_OTHERS: Final = """
from kidxlib.loop import twice
print(twice(21), sum(twice.stats.cache_hits.values()), twice.stats.cache_path)
"""


def zipped(directory: Path, target: Path) -> Path:
    with zipfile.ZipFile(target, "w") as archive:
        for source in sorted(directory.rglob("*.py")):
            archive.write(source, source.relative_to(directory))
    return target


@pytest.mark.parametrize("where", ["tree", "variable", "home", "temporary", "zip"])
def test_what_is_compiled_in_is_looked_at_too(where: str, starter: Starter, tmp_path: Path) -> None:
    """A helper of a helper changes: its size and its time of change do not."""
    library, kept = tmp_path / "library", tmp_path / "kept"
    kept.mkdir()
    of_place = {"variable": "NUMBA_CACHE_DIR", "home": "XDG_CACHE_HOME"}
    environment = {name: value for name, value in os.environ.items() if name not in of_place.values()}
    environment |= {"HOME": "/proc/nonexistent", "TMPDIR": str(kept)}
    if where in of_place:
        environment[of_place[where]] = str(kept)

    def run_with(more: int) -> list[str]:
        sources = {"__init__": "", "loop": LOOP_OF_OTHERS, "numbers": NUMBERS, "format/__init__": ""}
        sources |= JIT
        sources["format/layouts"] = f"MORE = {more}\n"
        for name, text in sources.items():
            source = library / "kidxlib" / f"{name}.py"
            source.parent.mkdir(parents=True, exist_ok=True)
            source.write_text(text)
            os.utime(source, (315532800, 315532800))  # 1980, where a zip's time begins
        if where != "tree":
            (library / "kidxlib" / "__pycache__").touch()
        path = zipped(library, tmp_path / "kidx.zip") if where == "zip" else library
        ended = starter.run(RUN_OF_OTHERS, path, Path("/dev/null"), environment)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout.split()

    first, again, changed, back = (run_with(more) for more in (0, 0, 3, 3))
    assert [first[:2], again[:2], changed[:2], back[:2]] == [["42", "0"], ["42", "1"], ["45", "0"], ["45", "1"]]
    assert Path(first[2]).is_relative_to(library if where == "tree" else kept)


def _imported(source: Path) -> set[Path]:
    """Our modules that a module imports, as Python's own parser says."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{source}: line {node.lineno}: a relative import"
            names |= {str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)}
    paths = (ROOT.joinpath(*name.split(".")) for name in names if name.partition(".")[0] == PACKAGE.name)
    files = (file for path in paths for file in (path.with_suffix(".py"), path / "__init__.py"))
    return {file for file in files if file.is_file()}


def test_no_import_escapes_the_stamp() -> None:
    """In no module, compiled or not: each may be imported by a compiled one tomorrow."""
    missed = {source: _imported(source) - set(compiler._read(source)[1]) for source in PACKAGE.rglob("*.py")}
    assert {source: files for source, files in missed.items() if files} == {}


@pytest.mark.parametrize(
    "line",
    [
        "import kidxlib.java",
        "import kidxlib.java as java",
        "    import kidxlib.java",
        "from kidxlib import java, times",
    ],
)
def test_an_import_in_any_form_counts(line: str, tmp_path: Path) -> None:
    source = tmp_path / "loop.py"
    source.write_text(f"if True:\n{line}\n")
    assert PACKAGE / "java.py" in compiler._read(source)[1]


def others_directory(place: Path, kind: str) -> Path:
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
def test_what_others_can_write_is_not_run(kind: str, starter: Starter, tmp_path: Path) -> None:
    """A directory that is new takes its place, for one run, and one line says so."""
    if kind == "of somebody else" and os.getuid() != 0:
        pytest.skip("needs root")
    others = others_directory(tmp_path, kind)
    hits, path = run(starter, make_zip(tmp_path / "zip"), Path("/dev/null"), TMPDIR=str(tmp_path), HOME="/nonexistent")
    assert hits == 0 and path.parent.name.startswith("kidx-compiled-") and path.parent.parent == tmp_path, path
    assert others not in path.parents and not path.exists()
    assert not others.is_dir() or list(others.iterdir()) == []


@pytest.mark.parametrize("kind", ["writable", "writable by a group", "of somebody else", "sticky"])
def test_nothing_is_kept_where_others_could_rename_it(kind: str, starter: Starter, tmp_path: Path) -> None:
    """They could put a directory of theirs in its place later. A sticky one is for all, as /tmp is."""
    if kind == "of somebody else" and os.getuid() != 0:
        pytest.skip("needs root")
    place = tmp_path / "temporary"
    place.mkdir()
    place.chmod({"writable": 0o777, "writable by a group": 0o770, "of somebody else": 0o755, "sticky": 0o1777}[kind])
    if kind == "of somebody else":
        os.chown(place, 65534, 65534)
    library = read_only_library(tmp_path)
    ended = start(starter, library, Path("/dev/null"), TMPDIR=str(place), HOME="/proc/nonexistent")
    assert ended.returncode == 0, ended.stderr
    assert bool(list(place.iterdir())) == (kind == "sticky")
    assert (f"{place}: not sticky (chmod +t), and others can write there, or it is " in ended.stderr) == (
        kind != "sticky"
    )


def test_without_a_home_what_was_compiled_is_kept_in_a_directory_of_this_users(
    starter: Starter, tmp_path: Path
) -> None:
    """Of a library that lies in a directory: beside it and in the home nothing can be written."""
    library = read_only_library(tmp_path)
    found = [run(starter, library, Path("/dev/null"), TMPDIR=str(tmp_path), HOME="/proc/nonexistent") for _ in range(2)]
    assert [hits for hits, _ in found] == [0, 1]
    own = tmp_path / f"kidx-compiled-{os.getuid()}"
    assert own in found[0][1].parents and stat.S_IMODE(own.stat().st_mode) == 0o700


def test_without_any_directory_it_is_compiled_at_each_start(starter: Starter, tmp_path: Path) -> None:
    """And a line says so; numba alone would fail."""
    library = read_only_library(tmp_path)
    ended = start(starter, library, Path("/dev/null"), HOME="/proc/nonexistent")
    assert ended.returncode == 0 and ended.stdout.split() == ["0", "None"], ended
    (line,) = ended.stderr.splitlines()
    assert line.startswith("no directory to keep compiled code in")


def read_only_library(directory: Path) -> Path:
    """The small library in a directory where nobody may make another one, not even root: a file stands in its way."""
    library = directory / "library"
    (library / "kidxlib" / "jit").mkdir(parents=True)
    for name, text in {"__init__": "", "loop": LOOP, **JIT}.items():
        (library / "kidxlib" / f"{name}.py").write_text(text)
    (library / "kidxlib" / "__pycache__").touch()
    return library
