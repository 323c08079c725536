"""What ./setup.sh makes of the file of Java classes, in a directory where all else is in place; no Spark is started."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.support.spark.jobs import PROJECT, clean_environment

_MADE: Final = 'echo classes > "$KIDX_CLASS_ARCHIVE"'


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """What ./setup.sh takes for a project whose packages and jars are up to date."""
    directory = tmp_path / "project"
    (directory / ".venv/bin").mkdir(parents=True)
    (directory / ".venv/bin/python").symlink_to("/bin/true")
    (directory / ".jars").mkdir()
    (directory / ".jars/delta").symlink_to(PROJECT / ".jars/delta")
    (directory / "conf").symlink_to(PROJECT / "conf")
    for name in ("setup.sh", "requirements.lock", "requirements-dev.lock", "pyproject.toml"):
        shutil.copy2(PROJECT / name, directory)
    packages = _sha256(directory / "requirements.lock", directory / "setup.sh")
    (directory / ".venv/packages.stamp").write_text(f"{directory} {packages}  -\n")
    (directory / ".venv/project.stamp").write_text(f"{_sha256(directory / 'pyproject.toml')}  pyproject.toml\n")
    return directory


def _sha256(*files: Path) -> str:
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def _set_up(project: Path, build: str, **variables: str) -> str:
    """What it says, where the sample's build does so."""
    script = project / "spark-submit.sh"
    script.write_text(f"#!/usr/bin/env bash\necho built >>builds\n{build}\n")
    script.chmod(0o755)
    ended = subprocess.run(
        [project / "setup.sh"], capture_output=True, text=True, check=False, env={**clean_environment(), **variables}
    )
    assert (ended.returncode, ended.stdout) == (0, ""), ended
    return ended.stderr


def _builds(project: Path) -> int:
    return len((project / "builds").read_text().splitlines())


def _left(project: Path) -> set[str]:
    return {path.name for path in (project / ".jars").iterdir()} - {"delta", "lock"}


def test_a_file_that_was_made_is_kept_and_made_once(project: Path) -> None:
    said = _set_up(project, _MADE)
    assert len(said.splitlines()) == 1 and _left(project) == {"spark.jsa", "spark.jsa.key"}
    assert (project / ".jars/spark.jsa").read_text() == "classes\n"
    assert _set_up(project, _MADE) == "" and _builds(project) == 1


def test_a_java_that_makes_none_is_asked_once(project: Path) -> None:
    assert "this Java makes no such file" in _set_up(project, "true")
    assert _left(project) == {"spark.jsa.key"}
    assert _set_up(project, "true") == "" and _builds(project) == 1


def test_a_build_that_fails_says_nothing_of_java(project: Path) -> None:
    """As where Java took too long and was ended, perhaps amid writing: half a file would kill each Java after it."""
    assert "the sample's build failed" in _set_up(project, f"{_MADE}; echo why; exit 1")
    assert _left(project) == {"spark.jsa.made"}
    assert [path.name for path in (project / ".jars/spark.jsa.made").iterdir()] == ["log"]
    _set_up(project, _MADE)
    assert _left(project) == {"spark.jsa", "spark.jsa.key"} and _builds(project) == 2


def test_what_an_earlier_set_up_left_goes_with_its_packages(project: Path) -> None:
    """As it stood where Java wrote the file after ./setup.sh had looked for it."""
    left = project / ".jars/spark.jsa.made"
    left.mkdir()
    (left / "spark.jsa").touch()
    (project / ".jars/spark.jsa.key").touch()
    (project / ".venv/packages.stamp").write_text("of another lock file\n")
    python = project / "python"
    python.write_text("#!/bin/sh\nmkdir -p .venv/bin && ln -sf /bin/true .venv/bin/python\n")
    python.chmod(0o755)
    said = _set_up(project, _MADE, KIDX_PYTHON=str(python))
    assert said.startswith(f"setup.sh: setting up .venv with {python}"), said
    assert _left(project) == {"spark.jsa", "spark.jsa.key"}


@pytest.mark.parametrize("linked", [".venv", ".jars"])
def test_what_is_of_another_checkout_is_left_alone(project: Path, tmp_path: Path, linked: str) -> None:
    """As in a worktree whose .venv is a link: its owner's stamps and file of Java classes went; its tests failed."""
    other = tmp_path / "other"
    other.mkdir()
    shutil.copy2(project / "setup.sh", other)
    (project / linked).rename(other / linked)
    (project / linked).symlink_to(other / linked)
    (project / ".venv/packages.stamp").write_text("of another directory\n")
    (project / ".jars/spark.jsa").touch()
    before = sorted(other.rglob("*")), (project / ".venv/packages.stamp").read_bytes()
    ended = subprocess.run(
        [project / "setup.sh"], capture_output=True, text=True, check=False, env={**clean_environment()}
    )
    assert (ended.returncode, ended.stdout) == (2, "") and f"setup.sh: {linked} is that of {other}" in ended.stderr
    assert (sorted(other.rglob("*")), (project / ".venv/packages.stamp").read_bytes()) == before


@pytest.mark.exhaustive("sets up all anew; continuous integration begins with that, in a new checkout")
def test_a_new_checkout_answers_with_its_first_command(tmp_path: Path) -> None:
    """In a clone of this repository: what is not committed is not tested."""
    checkout, uv = tmp_path / "checkout", tmp_path / "bin/uv"
    subprocess.run(("git", "clone", "--quiet", PROJECT, checkout), check=True)
    uv.parent.mkdir()
    uv.write_text("#!/bin/sh\necho no index\nexit 2\n")
    uv.chmod(0o755)
    environment = clean_environment()
    environment["PATH"] = f"{uv.parent}{os.pathsep}{environment['PATH']}"
    ended = subprocess.run(
        (checkout / "spark-submit.sh", "build_index"), capture_output=True, text=True, check=False, env=environment
    )
    assert ended.returncode == 0, ended
    set_up = [line for line in ended.stderr.splitlines() if line.startswith("setup.sh: ")]
    failed = "setup.sh: uv failed, so pip installs; what uv said is in .venv/setup.log"
    assert [line for line in set_up if line == failed] == [failed] * 2, ended  # of the packages and of the project
    assert "setup.sh: compiling the library's loops for this processor …" in set_up, ended
    assert "12 segments, 4.6 MB" in ended.stderr and "(12 rows of segments added or changed)" in ended.stdout, ended

    # What still compiles packages has the lock.
    with (checkout / ".jars/lock").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
    assert list(checkout.glob("kidxlib/recovery/scan/__pycache__/*.nbi"))
    assert list(checkout.glob(".venv/lib/python3.*/site-packages/pandas/__pycache__/*.pyc"))
    assert not (checkout / ".jars/loops.made").exists()
    again = subprocess.run((checkout / "setup.sh", "venv"), capture_output=True, text=True, check=True, env=environment)
    assert (again.stdout, again.stderr) == ("", "")
    shutil.rmtree(checkout)  # more than a gigabyte
