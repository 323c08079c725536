"""Systems that lack what Linux has: the library is imported there, and a command works or says in one line why not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.docs.pages import PROJECT

#: Hides modules, functions of `os` and of the C library, and /proc from a process, as if there were none.
HIDDEN: Final = """
import ctypes, os, sys

for name in ("fcntl", "grp", "pwd", "resource"):
    sys.modules[name] = None
for name in ("O_PATH", "O_TMPFILE", "listxattr", "memfd_create", "posix_fadvise", "posix_fallocate"):
    delattr(os, name)
del os.sched_getaffinity

def hide(event, arguments):
    if event in ("open", "os.listdir") and str(arguments[0]).startswith("/proc"):
        raise FileNotFoundError(2, "No such file or directory", arguments[0])
    if event == "ctypes.dlsym" and arguments[1] in ("statx", "syncfs"):
        raise AttributeError(arguments[1])

sys.addaudithook(hide)
"""
USES: Final = {
    "the library": """
import kidxlib
print(len([getattr(kidxlib, name) for name in kidxlib.__all__]), kidxlib.__version__)
""",
    "all modules": """
import importlib, pkgutil
import jobs, kidxlib
for package in (kidxlib, jobs):
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)
""",
    "kidx --help": """
sys.argv = ["kidx", "--help"]
from kidxlib.cli.main import main
main()
""",
}
_LOG_DIR: Final = PROJECT / "samples" / "kafka-logs"


#: Hides what the extras of pyproject.toml install.
_WITHOUT_EXTRAS: Final = """
import importlib, sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name in {"botocore", "deltalake", "pandas", "prometheus_client", "pydantic", "pyspark"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hidden())
"""


@pytest.mark.parametrize(
    "module",
    [
        *("audit.audit", "backend", "build.build", "compare.compare_places", "export.export", "recover.recover"),
        *("restore.check", "restore.restore", "seek.one_question"),
    ],
)
def test_what_needs_no_catalog_needs_no_extra(module: str) -> None:
    code = f"{_WITHOUT_EXTRAS}importlib.import_module('kidxlib.operations.{module}')"
    ended = subprocess.run((sys.executable, "-c", code), cwd=PROJECT, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stderr


@pytest.mark.parametrize("use", USES)
def test_nothing_that_linux_alone_has_is_needed_to_import(use: str) -> None:
    ended = subprocess.run(
        (sys.executable, "-c", HIDDEN + USES[use]), cwd=PROJECT, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stderr


@pytest.fixture
def elsewhere(tmp_path: Path) -> dict[str, str]:
    """The environment of processes, and of those that they start, from which all that is hidden."""
    directory = tmp_path / "hidden"
    directory.mkdir()
    (directory / "sitecustomize.py").write_text(HIDDEN)
    return {**os.environ, "PYTHONPATH": str(directory)}


def _kidx(environment: dict[str, str], *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    program = "from kidxlib.cli.main import main; main()"
    return subprocess.run(
        (sys.executable, "-c", program, *arguments),
        cwd=PROJECT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    "command",
    [
        ("seek", _LOG_DIR, "--topic", "plain-zstd", "--partition", "0", "--offset", "5"),
        ("recover", _LOG_DIR),
        ("verify", _LOG_DIR, "--json"),
    ],
    ids=lambda command: command[0],
)
def test_what_only_reads_says_the_same(command: tuple[str | Path, ...], elsewhere: dict[str, str]) -> None:
    there, here = _kidx(elsewhere, *command), _kidx(dict(os.environ), *command)
    assert (there.returncode, there.stdout) == (here.returncode, here.stdout), there.stderr


@pytest.mark.parametrize(
    "command",
    [
        ("build", _LOG_DIR, "--in-place"),
        ("build", "--source", f"it={_LOG_DIR}", "--catalog", "NEW", "--index-dir", "INDEX"),
        ("export", _LOG_DIR, "--topics", "plain-zstd", "--output", "NEW.parquet"),
    ],
    ids=["in-place", "catalog", "export"],
)
def test_what_needs_a_lock_is_refused(
    command: tuple[str | Path, ...], elsewhere: dict[str, str], tmp_path: Path
) -> None:
    inside = [tmp_path / word if isinstance(word, str) and word.isupper() else word for word in command]
    ended = _kidx(elsewhere, *inside)
    *_, last = ended.stderr.splitlines()
    assert ended.returncode == 2 and "Traceback" not in ended.stderr and "no lock can be taken" in last, ended.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"hidden"}
    assert not (_LOG_DIR / ".lock").exists()


def test_doctor_names_what_is_missing(elsewhere: dict[str, str]) -> None:
    ended = _kidx(elsewhere, "doctor")
    [problem] = [line for line in ended.stderr.splitlines() if line.startswith("system, parts of Linux: ")]
    assert ended.returncode == 3 and "Traceback" not in ended.stderr
    assert all(f"no {part}: " in problem for part in ("/proc", "fcntl", "posix_fadvise", "statx"))
