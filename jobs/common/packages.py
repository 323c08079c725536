"""Makes the files that a cluster without a checkout needs: the project's modules, and the Python environment of
executors, pinned by `requirements-executors.lock`; or a release.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import platform
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from importlib import metadata
from pathlib import Path
from typing import Final

import click
import pyspark
from rich.filesize import decimal

from kidxlib.errors import KidxError, UsageError
from kidxlib.terminal.console import note, print_line
from kidxlib.terminal.exit_codes import ExitCode
from kidxlib.terminal.options import PROJECT, renamed_option
from kidxlib.terminal.run_command import run

_MODULES: Final = "kidx.zip"
_STAMP: Final = "environment.stamp"
_ARCHIVE_SUFFIXES: Final = (".tar.gz", ".tgz")

#: The project's files in a release, besides the modules.
_FILES: Final = (
    *("jobs/*.py", "conf/kidx.toml", "conf/log4j2.properties", "conf/spark-defaults.conf"),
    *("requirements-executors.lock", "LICENSE", "CHANGELOG.md"),
)
_README: Final = """# kidx {version} for Spark

Python 3.11 to 3.14, Spark {spark} with its Python, and on each node the packages of requirements-executors.lock
(pip install --require-hashes -r requirements-executors.lock). From this directory, or with the paths to it:

    spark-submit --packages io.delta:delta-spark_2.13:{delta} --properties-file conf/spark-defaults.conf \\
      --py-files kidx.zip jobs/build_index.py --source NAME=LOG_DIR --index-dir DIR --catalog DIR

jobs/*.py are the jobs, each with --help. conf/kidx.toml has the settings with their defaults.
"""

_ENVIRONMENT: Final = "environment.tar.gz"

_LOCK: Final = PROJECT / "requirements-executors.lock"
_LOG: Final = "package.log"
#: Tests and headers, a tenth of all.
_EXCLUDED: Final = ("*/tests/*", "*/pyarrow/include/*")
#: A module with loops that numba compiles.
_COMPILED: Final = re.compile("^@njit", re.MULTILINE)


def _write_release(target: Path, modules: Path) -> None:
    """Write a `.tar.gz` of one directory, with the zip of the modules in it. The same sources give the same bytes."""
    version = metadata.version("kidx")
    readme = _README.format(
        version=version, spark=metadata.version("pyspark"), delta=metadata.version("delta-spark")
    ).encode()
    files = [path for pattern in _FILES for path in sorted(PROJECT.glob(pattern))]
    contents = {path.relative_to(PROJECT).as_posix(): path.read_bytes() for path in files if path.name != "__init__.py"}
    part = target.with_name(f"{target.name}.{os.getpid()}.part")
    with (
        part.open("wb") as raw,
        gzip.GzipFile(fileobj=raw, mode="wb", mtime=0, filename="") as packed,
        tarfile.open(fileobj=packed, mode="w") as archive,
    ):
        for name, content in {modules.name: modules.read_bytes(), "README.md": readme, **contents}.items():
            about = tarfile.TarInfo(f"kidx-{version}/{name}")
            about.size, about.mode = len(content), 0o644
            archive.addfile(about, io.BytesIO(content))
    part.replace(target)


def _pack_environment(modules: Path, target: Path) -> None:
    """Make a Python environment from `requirements-executors.lock`, with the library's compiled code, and pack it."""
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
                raise KidxError(
                    f"{log_path}: {Path(command[0]).name} {command[1]} … failed; look into its output there, mend "
                    "that and run it again"
                )

        environment, packed = Path(temporary) / "environment", Path(temporary) / _ENVIRONMENT
        python = environment / "bin" / "python"
        call(sys.executable, "-I", "-m", "venv", "--without-pip", environment)
        pip = (sys.executable, "-I", "-m", "pip", "--disable-pip-version-check", "--no-input", "--python", python)
        call(*pip, "install", "--no-deps", "--no-compile", "--require-hashes", "--requirement", _LOCK)
        of_spark = (Path(pyspark.__file__).parent / "python" / "lib").glob("*.zip")
        search_path = os.pathsep.join(map(str, [modules, *of_spark]))
        # Python's compiled code of needed modules is kept, too.
        forget = {"PYTHONDONTWRITEBYTECODE": "", "NUMBA_CACHE_DIR": ""}
        call(python, "-c", f"import {', '.join(_entries())}", PYTHONPATH=search_path, **forget)
        exclude = [word for pattern in _EXCLUDED for word in ("--exclude", pattern)]
        pack = (sys.executable, "-m", "venv_pack", "--quiet", "--prefix", environment, "--output", packed)
        call(*pack, "--compress-level", "1", *exclude, TMPDIR=temporary)
        packed.chmod(0o644)
        packed.replace(target)
    log_path.unlink()


def _environment_key(modules: Path) -> str:
    """A hash of all inputs of an environment: a new key means a new environment."""
    made_from = [_LOCK.read_bytes(), modules.read_bytes(), Path(__file__).read_bytes(), sys.version.encode()]
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in made_from)).hexdigest()


def _entries() -> list[str]:
    """The modules that tasks and drivers import. Importing them from the zip compiles and checks them."""
    compiled = (path for path in PROJECT.glob("kidxlib/**/*.py") if _COMPILED.search(path.read_text()))
    jobs = (path for path in PROJECT.glob("jobs/*.py") if path.stem != "__init__")
    return sorted(".".join(path.relative_to(PROJECT).with_suffix("").parts) for path in (*compiled, *jobs))


@click.command(context_settings={"max_content_width": 110})
@renamed_option(
    "--directory",
    old="--folder",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    default=PROJECT / "dist",
    help="Where the two files go. [default: dist, beside spark-submit.sh]",
)
@click.option(
    "--release",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write a release instead, a .tar.gz or .tgz: kidx.zip, jobs, conf and the lock of executors' packages.",
)
def package(directory: Path, release: Path | None) -> ExitCode:
    """Pack the project's modules (kidx.zip) and the Python packages of executors (environment.tar.gz), and print the
    options that bring them to a cluster's nodes. What is up to date stays as it is.

    The nodes need the same Python version at the same path as here. .venv is only read.
    """
    if release is not None:
        _ensure_archive_name(release)
        release.parent.mkdir(parents=True, exist_ok=True)
    directory.mkdir(parents=True, exist_ok=True)
    directory = directory.resolve()
    modules, environment = directory / _MODULES, directory / _ENVIRONMENT
    zip_modules(modules)
    if release is not None:
        _write_release(release, modules)
        print_line(f"{_shown(release)}: {decimal(release.stat().st_size)}, for Spark without a checkout")
        return ExitCode.OK
    key = _environment_key(modules)
    stamp = directory / _STAMP
    if not (environment.exists() and stamp.exists() and stamp.read_text() == key):
        stamp.unlink(missing_ok=True)
        _pack_environment(modules, environment)
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
        page = ("page.html", "report.css", "scripts/*.js", "echarts/*")
        data = ("kidxlib/messages/*.json", *(f"kidxlib/operations/report/page/{pattern}" for pattern in page))
        patterns = ("kidxlib/**/*.py", "jobs/**/*.py", *data)
        for source in sorted(path for pattern in patterns for path in PROJECT.glob(pattern)):
            archive.writestr(zipfile.ZipInfo(source.relative_to(PROJECT).as_posix()), source.read_bytes())
        # A driver in the cluster asks for the version.
        about = f"Metadata-Version: 2.1\nName: kidx\nVersion: {version}\n"
        archive.writestr(zipfile.ZipInfo(f"kidx-{version}.dist-info/METADATA"), about)
    part.replace(target)


def _ensure_archive_name(path: Path) -> None:
    if not path.name.endswith(_ARCHIVE_SUFFIXES):
        raise UsageError(f"--release {path}: expected a name that ends in {' or '.join(_ARCHIVE_SUFFIXES)}")
    if path.parent.exists() and not path.parent.is_dir():
        raise UsageError(f"--release {path}: {path.parent} is a file; expected a directory")


def _shown(path: Path) -> str:
    """The shortest form of a path in this directory."""
    resolved, here = path.resolve(), Path.cwd().resolve()
    return str(resolved.relative_to(here) if resolved.is_relative_to(here) else resolved)


if __name__ == "__main__":
    run(package, "package")
