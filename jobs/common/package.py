"""What the nodes of a cluster need of this project, as two files: its modules, and the Python packages they import."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Final

import click
import pyspark
from rich.filesize import decimal

from jobs.common.settings import PROJECT
from kidxlib.command import ExitCode, run
from kidxlib.console import note, print_line
from kidxlib.errors import KidxError

MODULES: Final = "kidx.zip"
ENVIRONMENT: Final = "environment.tar.gz"

_LOCK: Final = PROJECT / "requirements.lock"
_STAMP: Final = "environment.stamp"
_LOG: Final = "package.log"
#: Spark itself brings pyspark and py4j to every node; deltalake is for `kidx seek`, which starts no Spark.
_LEFT_OUT: Final = frozenset(["pyspark", "deltalake"])
#: Tests and headers, a tenth of all.
_EXCLUDED: Final = ("*/tests/*", "*/pyarrow/include/*")
#: What tasks and drivers import. It is compiled and checked by importing it out of the zip.
_ENTRIES: Final = "from kidxlib import kernels, search, walk; from jobs import {jobs}"


@click.command(context_settings={"max_content_width": 110})
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=PROJECT / "dist",
    help="Where the two files go. [default: dist, beside spark-submit.sh]",
)
def package(folder: Path) -> ExitCode:
    """Pack the project's modules (kidx.zip) and the Python packages of executors (environment.tar.gz), and print the
    options that bring them to a cluster's nodes. What is up to date stays as it is.

    The nodes need the same Python version at the same path as here. .venv is only read.
    """
    folder.mkdir(parents=True, exist_ok=True)
    folder = folder.resolve()
    modules, environment = folder / MODULES, folder / ENVIRONMENT
    zip_modules(modules)
    key = _key(modules)
    stamp = folder / _STAMP
    if not (environment.exists() and stamp.exists() and stamp.read_text() == key):
        stamp.unlink(missing_ok=True)
        pack_environment(modules, environment)
        stamp.write_text(key)
    python = f"Python {platform.python_version()}, {platform.machine()}, at {Path(sys.base_prefix).resolve()}"
    archive = f"--archives {_shown(environment)}#environment --conf spark.pyspark.python=./environment/bin/python"
    print_line(f"{_shown(modules)}: {decimal(modules.stat().st_size)}, the project's modules")
    print_line(f"{_shown(environment)}: {decimal(environment.stat().st_size)}, packages for {python}")
    print_line("")
    print_line("options for ./spark-submit.sh JOB … --, which sends the modules along by itself:")
    print_line(f"  {archive}")
    print_line("and for Spark's own spark-submit:")
    print_line(f"  --py-files {_shown(modules)} {archive}")
    return ExitCode.OK


def zip_modules(target: Path) -> None:
    """Zip the project's modules. The same sources give the same bytes."""
    part = target.with_name(f"{target.name}.{os.getpid()}.part")
    version = metadata.version("kidx")
    with zipfile.ZipFile(part, "w") as archive:
        # ZipInfo's date is a fixed one.
        for source in sorted([*PROJECT.glob("kidxlib/**/*.py"), *PROJECT.glob("jobs/**/*.py")]):
            archive.writestr(zipfile.ZipInfo(source.relative_to(PROJECT).as_posix()), source.read_bytes())
        # A driver in the cluster asks for the version.
        about = f"Metadata-Version: 2.1\nName: kidx\nVersion: {version}\n"
        archive.writestr(zipfile.ZipInfo(f"kidx-{version}.dist-info/METADATA"), about)
    part.replace(target)


def pack_environment(modules: Path, target: Path) -> None:
    """Make a Python environment of what `requirements.lock` pins for executors, with the library's compiled code in it,
    and pack it.

    Raises:
        KidxError: a step failed; its output is in the log beside `target`.
    """
    note("packing the environment of executors (about a minute) …")
    log_path = target.parent / _LOG
    with (
        tempfile.TemporaryDirectory(dir=target.parent, prefix="environment-") as temporary,
        log_path.open("w") as log,
    ):

        def call(*command: str | Path, **variables: str) -> None:
            ended = subprocess.run(
                command,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **variables},
                cwd=temporary,
                check=False,
            )
            if ended.returncode != 0:
                raise KidxError(f"{log_path}: {Path(command[0]).name} {command[1]} … failed; what it said stands there")

        environment, locked = Path(temporary) / "environment", Path(temporary) / "requirements.txt"
        python, packed = environment / "bin" / "python", Path(temporary) / ENVIRONMENT
        locked.write_text("".join(_locked()))
        call(sys.executable, "-I", "-m", "venv", "--without-pip", environment)
        pip = (sys.executable, "-I", "-m", "pip", "--disable-pip-version-check", "--no-input", "--python", python)
        call(*pip, "install", "--no-deps", "--no-compile", "--require-hashes", "--requirement", locked)
        of_spark = (Path(pyspark.__file__).parent / "python" / "lib").glob("*.zip")
        search_path = os.pathsep.join(map(str, [modules, *of_spark]))
        jobs = sorted(path.stem for path in PROJECT.glob("jobs/*.py") if path.stem != "__init__")
        # Python too keeps what it compiles, of those modules alone that are needed.
        forget = {"PYTHONDONTWRITEBYTECODE": "", "NUMBA_CACHE_DIR": ""}
        call(python, "-c", _ENTRIES.format(jobs=", ".join(jobs)), PYTHONPATH=search_path, **forget)
        exclude = [word for pattern in _EXCLUDED for word in ("--exclude", pattern)]
        pack = (sys.executable, "-m", "venv_pack", "--quiet", "--prefix", environment, "--output", packed)
        call(*pack, "--compress-level", "1", *exclude, TMPDIR=temporary)
        packed.chmod(0o644)
        packed.replace(target)
    log_path.unlink()


def _key(modules: Path) -> str:
    """What an environment is made from: another key, another environment."""
    made_from = [_LOCK.read_bytes(), modules.read_bytes(), Path(__file__).read_bytes(), sys.version.encode()]
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in made_from)).hexdigest()


def _locked() -> Iterator[str]:
    """The lock's entries of the packages that executors need, with their hashes."""
    needed = _needed()
    for entry in re.split(r"^(?=\S)", _LOCK.read_text(), flags=re.MULTILINE):
        if (name := re.match(r"[\w.-]+(?===)", entry)) and _normal(name[0]) in needed:
            yield entry


def _needed() -> set[str]:
    """The project's dependencies and theirs, as `.venv` has them."""
    needed: set[str] = set()
    to_do = ["kidx"]
    while to_do:
        for requirement in metadata.requires(to_do.pop()) or []:
            name = _normal(re.split(r"[^\w.-]", requirement, maxsplit=1)[0])
            if name in needed or name in _LEFT_OUT or "extra ==" in requirement:
                continue
            try:
                metadata.distribution(name)
            except metadata.PackageNotFoundError:
                continue  # for another platform or Python
            needed.add(name)
            to_do.append(name)
    return needed


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _shown(path: Path) -> str:
    """A path as short as it can be typed here."""
    resolved, here = path.resolve(), Path.cwd().resolve()
    return str(resolved.relative_to(here) if resolved.is_relative_to(here) else resolved)


if __name__ == "__main__":
    run(package, "package")
