"""The image of docs/recover.md: the steps of its Dockerfile, and the script of the init container."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from kidxlib.format.checkpoint_files import RECOVERY_POINT_CHECKPOINT
from kidxlib.storage.log_dir import META_PROPERTIES
from tests.docs.pages import PROJECT, read

_DOCKERFILE: Final = (PROJECT / "Dockerfile").read_text()
_BASE: Final = "FROM python:3.12-slim"
_COPY: Final = re.compile(r"^COPY (.+) (\./\S*)$", re.MULTILINE)
_RUN: Final = re.compile(r"^RUN (.+)$", re.MULTILINE)
_SCRIPT: Final = re.compile(r"^ +args:\n +- \|\n((?: +[^ \n].*\n)+?)(?= +(?:resources|volumeMounts):)", re.MULTILINE)


def _scripts() -> list[str]:
    """What init containers of the page run."""
    found = _SCRIPT.findall(read("docs/recover.md"))
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
    assert "refused: " in first and "no such directory" in first and "the broker starts by itself" in first
    _crash(tmp_path / log_dir)
    assert "rebuilt: 3 partitions" in _run_script(script, places)
    assert (tmp_path / log_dir / RECOVERY_POINT_CHECKPOINT).exists()
    places["/opt/kidx/bin/kidx"] = tmp_path / "no-such-command"
    assert _run_script(script, places).endswith("exit code 127: the broker recovers by itself\n")


def test_the_dockerfile_copies_what_is_there() -> None:
    ignored = (PROJECT / ".dockerignore").read_text().splitlines()
    sources = [source for sources, _ in _COPY.findall(_DOCKERFILE) for source in sources.split()]
    assert _BASE in _DOCKERFILE and sources
    for source in sources:
        assert (PROJECT / source).exists() and f"!{source}" in ignored, source


def test_the_steps_of_the_dockerfile(tmp_path: Path, exhaustive: bool) -> None:
    """Goal: an environment without Spark, which compiles nothing more when it runs; other users may use what it has
    compiled.

    Method: `COPY` and `RUN` are carried out in a directory, in the place of a container's.
    """
    if not exhaustive:
        pytest.skip("with --exhaustive: it fetches all packages anew, and compiles")
    source, opt = tmp_path / "src", tmp_path / "opt" / "kidx"
    source.mkdir()
    for sources, target in _COPY.findall(_DOCKERFILE):
        for each in sources.split():
            _copy(PROJECT / each, source / target if target != "./" else source / each)
    for step in _RUN.findall(_DOCKERFILE):
        command = step.replace("/opt/kidx", str(opt)).replace("python -m venv", f"{sys.executable} -I -m venv")
        subprocess.run(("bash", "-ec", command), cwd=source, check=True, env=_environment())
    assert not list(opt.glob("lib/*/site-packages/pyspark*"))
    compiled = _compiled(opt)
    assert compiled
    crashed = tmp_path / "data"
    _crash(crashed)
    arguments = (opt / "bin" / "kidx", "recover", crashed, "--apply", "--or-leave")
    subprocess.run(arguments, check=True, env=_environment())
    assert (crashed / RECOVERY_POINT_CHECKPOINT).exists() and _compiled(opt) == compiled
    caches = list(opt.glob("lib/*/site-packages/kidxlib/**/__pycache__"))
    assert caches and all(path.stat().st_mode & 0o007 == 0o007 for path in caches)


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
