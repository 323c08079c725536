"""The release archive, by a Python that knows nothing of this checkout. Spark runs it in tests/jobs/test_cluster.py."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

from jobs.common.packages import package
from kidxlib.messages.definitions import messages_of
from kidxlib.terminal.exit_codes import ExitCode
from tests.support.spark.jobs import PROJECT, Ended, run_here
from tests.support.spark.releases import release_archive, unpacked_release


def _refused(directory: Path, archive: Path) -> Ended:
    """A run that ends with a user's mistake, and has written nothing."""
    ended = run_here(package, "--directory", directory, "--release", archive)
    assert (ended.code, ended.out) == (ExitCode.USAGE, "")
    assert not directory.exists()
    return ended


@pytest.mark.parametrize("name", ["kidx.zip", "kidx", "kidx.gz", "kidx.tar"])
def test_a_name_of_something_else_is_refused(tmp_path: Path, name: str) -> None:
    archive = tmp_path / "new" / name
    ended = _refused(tmp_path / "dist", archive)
    assert ended.err == f"error: --release {archive}: expected a name that ends in .tar.gz or .tgz\n"
    assert not archive.parent.exists()


def test_a_file_in_place_of_its_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    archive = tmp_path / "file" / "kidx.tar.gz"
    ended = _refused(tmp_path / "dist", archive)
    assert ended.err == f"error: --release {archive}: {tmp_path / 'file'} is a file; expected a directory\n"


@pytest.mark.parametrize("name", ["kidx.tar.gz", "kidx.tgz"])
def test_its_directory_is_made(tmp_path: Path, name: str) -> None:
    archive = tmp_path / "a" / "b" / name
    ended = run_here(package, "--directory", tmp_path / "dist", "--release", archive)
    assert ended.code == ExitCode.OK, ended.err
    assert [path.name for path in archive.parent.iterdir()] == [name]
    with tarfile.open(archive, "r:gz") as released:
        assert any(member.endswith("/kidx.zip") for member in released.getnames())


def _environment() -> dict[str, str]:
    """Of a shell that knows nothing of this checkout, as other tests of this process may."""
    return {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "JAVA_HOME", "TMPDIR")}


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpacked_release(tmp_path_factory.mktemp("release"))


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the packages of this environment, but not with the checkout, which they name in a `.pth`."""
    directory = tmp_path_factory.mktemp("python")
    subprocess.run((sys.executable, "-I", "-m", "venv", "--without-pip", directory), check=True)
    [packages] = directory.glob("lib/*/site-packages")
    (packages / "others.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    made = directory / "bin" / "python"
    for module in ("jobs", "kidxlib"):
        command = (made, "-c", f"import {module}")
        missing = subprocess.run(command, cwd=directory, env=_environment(), capture_output=True, check=False)
        assert missing.returncode == 1
    return made


def test_the_same_sources_give_the_same_archive(tmp_path: Path) -> None:
    digests = set()
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        digests.add(hashlib.sha256(release_archive(tmp_path / name).read_bytes()).hexdigest())
    assert len(digests) == 1


def test_what_its_modules_read_is_beside_them(release: Path, python: Path, tmp_path: Path) -> None:
    program = "from kidxlib.messages.definitions import messages_of; print(*messages_of('kafka-metadata'))"
    environment = _environment() | {"PYTHONPATH": str(release / "kidx.zip")}
    ended = subprocess.run((python, "-c", program), cwd=tmp_path, env=environment, capture_output=True, check=True)
    assert ended.stdout.decode().split() == [*messages_of("kafka-metadata")]


def test_the_reports_page_is_in_its_modules(release: Path) -> None:
    """Whoever makes a report from them reads these files."""
    page = "kidxlib/operations/report/page"
    files = [path for path in (PROJECT / page).rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    names = zipfile.ZipFile(release / "kidx.zip").namelist()
    assert {f"{page}/{path.relative_to(PROJECT / page)}" for path in files} <= set(names)
