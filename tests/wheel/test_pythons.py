"""The library and its wheel on the other Pythons that it says it runs on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.conftest import Say
from tests.docs.pages import PROJECT
from tests.support.spark.jobs import clean_environment

_OTHERS: Final = sorted({"3.11", "3.12", "3.13", "3.14"} - {f"{sys.version_info.major}.{sys.version_info.minor}"})
_TESTS: Final = ("tests/kidxlib", "tests/wheel/test_wheel.py")


@pytest.mark.exhaustive("takes minutes for each Python")
@pytest.mark.parametrize("version", _OTHERS)
def test_the_tests_of_the_library_and_of_the_wheel_pass(version: str, tmp_path: Path, say: Say) -> None:
    """In a clone of this repository, set up with that Python: what is not committed is not tested."""
    python = next(_pythons(version), None)
    if python is None:
        pytest.skip(f"no Python {version} here")
    checkout = tmp_path / "checkout"
    subprocess.run(("git", "clone", "--quiet", PROJECT, checkout), check=True)
    (checkout / ".jars").mkdir()  # its own, as a set-up removes the class archive of packages that were there before
    for jars in (PROJECT / ".jars").iterdir():
        if jars.is_dir():
            (checkout / ".jars" / jars.name).symlink_to(jars)
    environment = {**clean_environment(), "KIDX_PYTHON": python}
    subprocess.run((checkout / "setup.sh", "dev"), check=True, env=environment)
    ended = subprocess.run(
        (
            checkout / ".venv" / "bin" / "python",
            "-m",
            "pytest",
            "-q",
            "--numprocesses",
            "2",
            "--dist",
            "loadfile",
            *_TESTS,
        ),
        cwd=checkout,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout[-5_000:]
    say(f"Python {version}: {ended.stdout.splitlines()[-1]}")


def _pythons(version: str) -> Iterator[str]:
    """Paths of that Python, on PATH or of pyenv, which start: a version manager's names may be of what is not there."""
    pyenv = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser()
    for path in (shutil.which(f"python{version}"), *sorted(pyenv.glob(f"versions/{version}.*/bin/python{version}"))):
        if path is not None and not subprocess.run((path, "-I", "-c", ""), capture_output=True, check=False).returncode:
            yield str(path)
