"""The wheel in an environment that has nothing else: what it brings, and that it works outside a checkout."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from packaging.requirements import Requirement

from tests.conftest import Say
from tests.docs.pages import PROJECT, blocks, read
from tests.support.logs.golden import DATA, SAMPLES
from tests.support.spark.jobs import clean_environment

#: A partition of the sample with aborted transactions.
PARTITION = "txn-mixed-0"
INDEXES = (".index", ".timeindex", ".txnindex")
CATALOG = PROJECT / "tests" / "catalogs" / "version-10.tar.gz"
#: What a message ends with that names an extra.
_INSTALL = "install kidx with the extra that brings them: pip install 'WHEEL"
#: Printed last by a program of the library: its version, and what it has imported that the wheel does not bring.
LOADED = """
import importlib.util, json, sys
others = {"jobs", "pyspark", "delta", "deltalake", "pandas"}
print(json.dumps([kidxlib.__version__, kidxlib.__file__, sorted(others & sys.modules.keys())]))
print(json.dumps([name for name in ("jobs", "pyspark") if importlib.util.find_spec(name)]))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("wheel")
    build = (sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", directory)
    subprocess.run(build, cwd=PROJECT, check=True, capture_output=True)
    [made] = directory.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("environment")
    subprocess.run((sys.executable, "-I", "-m", "venv", "--without-pip", directory / ".venv"), check=True)
    _pip(directory / ".venv", wheel)
    return directory / ".venv"


@pytest.fixture(scope="module")
def with_catalog(environment: Path, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another one with the same packages and the extra."""
    directory = tmp_path_factory.mktemp("with-catalog") / ".venv"
    shutil.copytree(environment, directory, symlinks=True, copy_function=os.link)
    _pip(directory, "--force-reinstall", "--no-deps", wheel)  # its command names the Python beside it
    _pip(directory, f"{wheel}[catalog]")
    return directory


def _pip(environment: Path, *arguments: str | Path) -> None:
    """With the versions that the lock pins: others are the user's to try. What no test imports is not compiled."""
    pins = environment.parent / "pins.txt"
    pins.write_text("\n".join(re.findall(r"^[\w.-]+==[^\\\n]+", (PROJECT / "requirements.lock").read_text(), re.M)))
    pip = (sys.executable, "-I", "-m", "pip", "--disable-pip-version-check", "--no-input", "--quiet")
    install = ("--python", environment / "bin" / "python", "install", "--no-compile", "--constraint", pins)
    subprocess.run((*pip, *install, *arguments), check=True)


def _installed(environment: Path) -> set[str]:
    """The names of its packages."""
    return {path.name.partition("-")[0] for path in environment.glob("lib/*/site-packages/*.dist-info")}


def test_it_holds_the_library_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0] for name in names if ".dist-info/" not in name} == {"kidxlib"}
    assert "kidxlib/py.typed" in names
    page = PROJECT / "kidxlib" / "operations" / "report" / "page"
    files = [path for path in page.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    parts = {f"kidxlib/operations/report/page/{path.relative_to(page)}" for path in files}
    assert parts <= set(names), "the report's page"
    sources = {path.relative_to(PROJECT).as_posix() for path in PROJECT.glob("kidxlib/**/*.py")}
    assert sources <= set(names)


def test_it_brings_neither_spark_nor_java(environment: Path) -> None:
    installed = _installed(environment)
    declared = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["dependencies"]
    here = [each for each in map(Requirement, declared) if each.marker is None or each.marker.evaluate()]
    needed = {re.sub(r"[-.]", "_", requirement.name) for requirement in here}
    assert {name.lower() for name in needed} <= {name.lower() for name in installed}
    assert not installed & {"pyspark", "delta_spark", "deltalake", "pandas", "pydantic"}


def test_no_pin_is_in_its_metadata(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = archive.read(name).decode()
    requirements = re.findall(r"^Requires-Dist: (.*)$", metadata, re.M)
    assert requirements and not [line for line in requirements if "==" in line.partition(";")[0]]


def _run(
    *words: str | Path, cwd: Path, home: Path | None = None, path: str = os.environ["PATH"]
) -> subprocess.CompletedProcess[str]:
    """As from a shell that knows nothing of this checkout, where the library's directory is not to be written to."""
    known = {"HOME": str(home or cwd), "PATH": path, "LANG": "C.UTF-8"}
    return subprocess.run(words, cwd=cwd, env=known, capture_output=True, text=True, check=False)


def _kidx(
    environment: Path, *arguments: str | Path, cwd: Path, home: Path | None = None
) -> subprocess.CompletedProcess[str]:
    return _run(environment / "bin" / "kidx", *arguments, cwd=cwd, home=home)


@pytest.fixture(scope="module")
def home(environment: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of a user who has compiled all loops, which `environment` keeps there."""
    directory = tmp_path_factory.mktemp("home")
    ended = _kidx(environment, "doctor", "--compile", "--json", cwd=directory)
    assert ended.stderr.startswith("compiling kidx's loops that this command needs, once "), ended
    assert "not compiled" not in ended.stderr and "Warning" not in ended.stderr
    return directory


def test_the_command_builds_audits_and_seeks(environment: Path, home: Path, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    shutil.copytree(SAMPLES / PARTITION, logs / PARTITION)
    ended = _kidx(environment, "--help", cwd=tmp_path)
    assert ended.returncode == 0 and "Commands:" in ended.stdout
    ended = _kidx(environment, "build", logs, "--index-dir", tmp_path / "index", cwd=tmp_path, home=home)
    assert ended.returncode == 0 and "compiling" not in ended.stderr, ended
    written = {path.name: path.read_bytes() for path in (tmp_path / "index" / PARTITION).iterdir()}
    kafkas = [path for path in (DATA / "expected" / PARTITION).rglob("*") if path.suffix in INDEXES]
    assert len(kafkas) == len(written) and all(written[path.name] == path.read_bytes() for path in kafkas)
    ended = _kidx(environment, "verify", logs, "--index-dir", tmp_path / "index", cwd=tmp_path, home=home)
    assert ended.returncode == 0, ended
    asked = ("--topic", "txn-mixed", "--partition", "0", "--offset", "90")
    ended = _kidx(environment, "seek", logs, "--index-dir", tmp_path / "index", *asked, cwd=tmp_path, home=home)
    assert ended.returncode == 0 and "90" in ended.stdout, ended
    ended = _kidx(environment, "seek", "--catalog", tmp_path, *asked, cwd=tmp_path)
    assert (ended.returncode, ended.stderr) == (
        2,
        "error: --catalog: needs packages that are not installed: deltalake, pydantic, prometheus_client; "
        f"{_INSTALL}[catalog]'\n",
    )
    places = ("--index-dir", tmp_path / "index")
    ended = _kidx(environment, "build", logs, *places, "--catalog", tmp_path / "catalog", cwd=tmp_path)
    assert ended.returncode == 2 and ended.stderr.startswith("error: --catalog: needs packages "), ended
    ended = _kidx(environment, "retention", "--catalog", tmp_path / "catalog", cwd=tmp_path)
    assert ended.returncode == 2 and ended.stderr.startswith("error: kidx retention: needs packages "), ended
    copy = ("--copy", "s3://archive/logs", "--catalog", tmp_path)
    ended = _kidx(environment, "verify", *copy, cwd=tmp_path)
    assert (ended.returncode, ended.stderr) == (
        2,
        "warning: verify --copy is now kidx compare SOURCE URL --catalog DIR; the old spelling goes with the next "
        "release\n"
        "error: --copy: needs packages that are not installed: deltalake, pydantic, prometheus_client, botocore; "
        f"{_INSTALL}[copies]'\n",
    )
    ended = _kidx(environment, "build", logs, *places, "--metrics-file", tmp_path / "run.prom", cwd=tmp_path)
    assert (ended.returncode, ended.stderr) == (
        2,
        "error: --metrics-file: needs packages that are not installed: deltalake, pydantic, prometheus_client; "
        f"{_INSTALL}[catalog]'\n",
    )


def test_the_library_recovers_as_its_page_says(environment: Path, home: Path, tmp_path: Path) -> None:
    """Both calls below `Recover`, outside the checkout, print what the page shows, and load nothing of Spark."""
    shutil.copytree(SAMPLES, tmp_path / "samples" / "kafka-logs")
    of_file, of_directory = (block for block in blocks("docs/library.md") if ".recover_" in block.text)
    for block in (of_file, of_directory):
        ended = _run(environment / "bin" / "python", "-c", block.text + LOADED, cwd=tmp_path, home=home)
        assert ended.returncode == 0, ended
        *printed, loaded, found = ended.stdout.splitlines()
        assert tuple(printed) == block.output
        version, file, others = json.loads(loaded)
        assert version == tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["version"]
        assert Path(file).is_relative_to(environment) and (others, json.loads(found)) == ([], [])
    written = {path.name: path.read_bytes() for path in (tmp_path / "var/library" / PARTITION).glob("*index")}
    kafkas = {path.name: path.read_bytes() for path in (DATA / "expected" / PARTITION).rglob("*index")}
    assert written == kafkas


def test_the_extra_reads_a_catalog_without_java(with_catalog: Path, tmp_path: Path) -> None:
    """Where the log ends is in the catalog's rows alone: its logs are not here."""
    with tarfile.open(CATALOG) as archive:
        archive.extractall(tmp_path, filter="data")
    assert not _installed(with_catalog) & {"pyspark", "delta_spark", "pandas"}
    asked = ("--source", "sample", "--topic", "txn-mixed", "--partition", "0", "--timestamp", "-1", "--json")
    seek = (with_catalog / "bin" / "kidx", "seek", "--catalog", tmp_path / "catalog", *asked)
    ended = _run(*seek, cwd=tmp_path, path=str(with_catalog / "bin"))
    assert "Error" not in ended.stderr and ended.stdout, ended
    [answer] = json.loads(ended.stdout)["answers"]
    assert (answer["source"], answer["found"], answer["offset"]) == ("sample", True, 10333), ended
    report = ("report", "--catalog", tmp_path / "catalog", "--output", tmp_path / "report.html")
    ended = _kidx(with_catalog, *report, cwd=tmp_path)
    assert ended.returncode == 3, "that catalog has damaged segments"
    assert (tmp_path / "report.html").stat().st_size > 1_000_000, ended


def test_each_extra_is_named_by_what_needs_it(with_catalog: Path, tmp_path: Path) -> None:
    """With a catalog, and without what asks for copies."""
    copy = ("--copy", "s3://archive/logs", "--catalog", tmp_path)
    ended = _kidx(with_catalog, "verify", *copy, cwd=tmp_path)
    assert (ended.returncode, ended.stderr.splitlines(keepends=True)[-1]) == (  # it may compile first
        2,
        f"error: --copy: needs packages that are not installed: botocore; {_INSTALL}[copies]'\n",
    )


def test_the_sample_is_said_to_be_in_a_checkout(with_catalog: Path, tmp_path: Path) -> None:
    ended = _kidx(with_catalog, "build", "--sample", "--catalog", tmp_path / "catalog", cwd=tmp_path)
    assert (ended.returncode, ended.stderr) == (
        2,
        "error: --sample: the sample comes with a checkout, and this kidx is not in one; "
        "name the log dir to read with --source\n",
    )


def test_the_extra_of_the_jobs_is_what_the_lock_pins(wheel: Path) -> None:
    """Where these packages are, it needs no others. Nothing is downloaded, as that would be half a gigabyte."""
    pip = (sys.executable, "-I", "-m", "pip", "--disable-pip-version-check", "--no-input", "--quiet")
    asked = ("install", "--dry-run", "--no-index", "--report", "-", f"{wheel}[spark]")
    ended = subprocess.run((*pip, *asked), capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended
    needed = {each["metadata"]["name"] for each in json.loads(ended.stdout)["install"]}
    assert needed == {tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["name"]}
    extra = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["spark"]
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        assert archive.read(name).decode().count("; extra == 'spark'") == len(extra)


@pytest.mark.parametrize("on_path", [False, True], ids=["in-the-checkout", "on-the-path"])
def test_a_shell_takes_the_line_of_the_page(on_path: bool, environment: Path) -> None:
    """As it stands, and for a `kidx` that the shell finds by itself."""
    [line] = re.findall(r"^eval .*_KIDX_COMPLETE.*$", read("docs/install.md"), re.M)
    assert ".venv/bin/kidx" in line
    if on_path:
        line = line.replace(".venv/bin/", "")
    path = os.pathsep.join([str(environment / "bin"), os.environ["PATH"]])
    ended = _run("bash", "-c", f"{line}; complete -p kidx", cwd=environment.parent, path=path)
    assert (ended.returncode, ended.stderr) == (0, "") and ended.stdout.startswith("complete -o nosort -F"), ended


def test_a_shell_completes_its_commands(environment: Path, tmp_path: Path) -> None:
    kidx = environment / "bin" / "kidx"
    source = {"_KIDX_COMPLETE": "bash_source", "PATH": os.environ["PATH"]}
    script = subprocess.run((kidx,), env=source, capture_output=True, text=True, check=True)
    assert "complete -o nosort -F" in script.stdout
    asked = {"_KIDX_COMPLETE": "bash_complete", "COMP_WORDS": "kidx ", "COMP_CWORD": "1", "PATH": os.environ["PATH"]}
    words = subprocess.run((kidx,), env=asked, capture_output=True, text=True, check=True).stdout
    assert {"plain,build", "plain,dump", "plain,seek", "plain,verify"} <= set(words.split())


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
