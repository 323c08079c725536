"""What the nodes of a cluster need of this project, as two files: its modules, and the Python packages they import."""

from __future__ import annotations

import os
import platform
import sys
import zipfile
from importlib import metadata
from pathlib import Path
from typing import Final

import click
from rich.filesize import decimal

from jobs.common.packaging.environment import ENVIRONMENT, environment_key, pack_environment
from jobs.common.packaging.release import write_release
from kidxlib.errors import UsageError
from kidxlib.run.project import PROJECT
from kidxlib.terminal.command import run
from kidxlib.terminal.console import print_line
from kidxlib.terminal.exit_codes import ExitCode
from kidxlib.terminal.options.renamed import renamed_option

MODULES: Final = "kidx.zip"
_STAMP: Final = "environment.stamp"
_ARCHIVE_SUFFIXES: Final = (".tar.gz", ".tgz")


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
    modules, environment = directory / MODULES, directory / ENVIRONMENT
    zip_modules(modules)
    if release is not None:
        write_release(release, modules)
        print_line(f"{_shown(release)}: {decimal(release.stat().st_size)}, for Spark without a checkout")
        return ExitCode.OK
    key = environment_key(modules)
    stamp = directory / _STAMP
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
    """Before anything is written.

    Raises:
        UsageError: it is no name of a gzip tar, or stands below a file.
    """
    if not path.name.endswith(_ARCHIVE_SUFFIXES):
        raise UsageError(f"--release {path}: expected a name that ends in {' or '.join(_ARCHIVE_SUFFIXES)}")
    if path.parent.exists() and not path.parent.is_dir():
        raise UsageError(f"--release {path}: {path.parent} is a file; expected a directory")


def _shown(path: Path) -> str:
    """A path as short as it can be typed here."""
    resolved, here = path.resolve(), Path.cwd().resolve()
    return str(resolved.relative_to(here) if resolved.is_relative_to(here) else resolved)


if __name__ == "__main__":
    run(package, "package")
