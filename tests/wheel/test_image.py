"""The images: the steps of their Dockerfiles, and the script of the init container of docs/before-each-start.md."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import pytest

from kidxlib.format.checkpoint_files import RECOVERY_POINT_CHECKPOINT
from kidxlib.storage.log_dir import META_PROPERTIES
from tests.docs.pages import PROJECT, read

#: By file: what an image starts from.
_BASES: Final = {"Dockerfile": "FROM python:3.12-slim\n", "Dockerfile.spark": "FROM python:3.12-slim-bookworm\n"}
_COPY: Final = re.compile(r"^COPY (.+) (\./\S*)$", re.MULTILINE)
_RUN: Final = re.compile(r"^RUN (.+)$", re.MULTILINE)
_SCRIPT: Final = re.compile(r"^ +args:\n +- \|\n((?: +[^ \n].*\n)+?)(?= +(?:resources|volumeMounts):)", re.MULTILINE)


def _scripts() -> list[str]:
    """What init containers of the page run."""
    found = _SCRIPT.findall(read("docs/before-each-start.md"))
    return ["".join(line.strip() + "\n" for line in script.splitlines()) for script in found]


def _run_script(script: str, places: Mapping[str, Path]) -> str:
    """Run it with other paths in the place of the image's; what it prints."""
    for path, other in places.items():
        assert path in script, script
        script = script.replace(path, str(other))
    done = subprocess.run(("sh", "-c", script), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True)
    return done.stdout


def _crash(log_dir: Path) -> None:
    shutil.copytree(PROJECT / "samples" / "kafka-logs", log_dir)
    (log_dir / META_PROPERTIES).write_text("version=1\nnode.id=1\ncluster.id=c\n")


@pytest.mark.parametrize(("number", "log_dir"), [(0, "data"), (1, "data-0/kafka-log3")])
def test_the_script_of_the_init_container(number: int, log_dir: str, tmp_path: Path) -> None:
    """Before the first start there is no log dir: it lets the broker start. After a crash it recovers."""
    script = _scripts()[number]
    places = {"/opt/kidx/bin/kidx": PROJECT / ".venv" / "bin" / "kidx", "/var/lib/kafka": tmp_path}
    first = _run_script(script, places)
    assert first.startswith("refused: ") and "no such directory" in first and "exit code" not in first
    _crash(tmp_path / log_dir)
    assert "rebuilt: 3 partitions" in _run_script(script, places)
    assert (tmp_path / log_dir / RECOVERY_POINT_CHECKPOINT).exists()
    places["/opt/kidx/bin/kidx"] = tmp_path / "no-such-command"
    assert _run_script(script, places).endswith("exit code 127: the broker recovers by itself\n")


_fetches_all: Final = pytest.mark.exhaustive("fetches all packages anew, and compiles")


@pytest.mark.parametrize("name", _BASES)
def test_a_dockerfile_copies_what_is_there(name: str) -> None:
    ignored = (PROJECT / ".dockerignore").read_text().splitlines()
    dockerfile = (PROJECT / name).read_text()
    sources = [source for sources, _ in _COPY.findall(dockerfile) for source in sources.split()]
    assert _BASES[name] in dockerfile and sources
    for source in sources:
        assert (PROJECT / source).exists() and f"!{source}" in ignored, source


@_fetches_all
def test_the_image_of_the_command(tmp_path: Path) -> None:
    """An environment without Spark, which compiles nothing more as it runs; others may use what it has compiled."""
    opt = tmp_path / "opt" / "kidx"
    _carry_out("Dockerfile", tmp_path / "src", opt)
    assert not list(opt.glob("lib/*/site-packages/pyspark*"))
    compiled = _compiled(opt)
    assert compiled
    crashed = tmp_path / "data"
    _crash(crashed)
    arguments = (opt / "bin" / "kidx", "recover", crashed, "--apply", "--or-leave")
    subprocess.run(arguments, check=True, env=_environment())
    assert (crashed / RECOVERY_POINT_CHECKPOINT).exists() and _compiled(opt) == compiled
    _anybody_writes(opt.glob("lib/*/site-packages/kidxlib/**/__pycache__"))


@_fetches_all
def test_the_image_with_spark(tmp_path: Path) -> None:
    """Its job runs from anywhere, sets nothing up and compiles nothing more."""
    opt = tmp_path / "opt" / "kidx"
    _carry_out("Dockerfile.spark", opt, opt)
    compiled = {path: path.stat().st_mtime_ns for path in opt.rglob("kidxlib/**/*.nb[ci]")}
    assert compiled and not list(opt.glob(".venv/lib/*/site-packages/pytest"))
    places = ("--index-dir", tmp_path / "index", "--catalog", tmp_path / "catalog")
    job = (opt / "spark-submit.sh", "build_index", "--source", f"it={PROJECT / 'samples' / 'kafka-logs'}", *places)
    ended = subprocess.run(job, cwd=tmp_path, env=_environment(), capture_output=True, text=True, check=True)
    assert "12 segments" in ended.stdout and "setup.sh" not in ended.stderr, ended
    assert {path: path.stat().st_mtime_ns for path in opt.rglob("kidxlib/**/*.nb[ci]")} == compiled
    _anybody_writes(opt.glob("kidxlib/**/__pycache__"))


def _carry_out(name: str, source: Path, opt: Path) -> None:
    """`COPY` and `RUN` of a Dockerfile in a directory, in the place of a container's; but for Debian's packages."""
    dockerfile = (PROJECT / name).read_text()
    source.mkdir(parents=True)
    for sources, target in _COPY.findall(dockerfile):
        for each in sources.split():
            _copy(PROJECT / each, source / target if target != "./" else source / each)
    for step in _RUN.findall(dockerfile):
        if not step.startswith("apt-get "):
            command = step.replace("/opt/kidx", str(opt)).replace("python -m venv", f"{sys.executable} -I -m venv")
            subprocess.run(("bash", "-ec", command), cwd=source, check=True, env=_environment())


def _anybody_writes(caches: Iterable[Path]) -> None:
    found = list(caches)
    assert found and all(path.stat().st_mode & 0o007 == 0o007 for path in found)


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy(source, target)


def _environment() -> dict[str, str]:
    """Without what this process has for Python."""
    kept = {"PATH", "HOME", "LANG", "TMPDIR", "PIP_INDEX_URL", "PIP_CONFIG_FILE", "HTTPS_PROXY", "SSL_CERT_FILE"}
    return {name: value for name, value in os.environ.items() if name in kept}


def _compiled(environment: Path) -> dict[str, int]:
    """The files of compiled loops, and when they were written."""
    return {path.name: path.stat().st_mtime_ns for path in environment.glob("lib/*/site-packages/kidxlib/**/*.nb[ci]")}
