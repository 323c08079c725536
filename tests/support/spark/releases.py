"""The release archive, which Spark's own spark-submit runs without a checkout."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Final

import pyspark
from click.testing import CliRunner

from jobs.common.packages import package

_JARS: Final = Path(__file__).parents[3] / ".jars" / "delta"


def release_archive(directory: Path) -> Path:
    """`./spark-submit.sh package --release` in a directory."""
    archive = directory / "kidx.tar.gz"
    ended = CliRunner().invoke(
        package, ["--directory", str(directory), "--release", str(archive)], standalone_mode=False
    )
    assert ended.exit_code == 0, ended.output
    return archive


def unpacked_release(directory: Path) -> Path:
    """The one directory of an unpacked release archive."""
    with tarfile.open(release_archive(directory)) as archive:
        archive.extractall(directory, filter="data")
    [unpacked] = (path for path in directory.iterdir() if path.is_dir())
    return unpacked


def spark_submit(release: Path) -> tuple[str, ...]:
    """The words of Spark's own spark-submit on this machine, with a release's settings and modules, before a job."""
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    jars = ",".join(map(str, sorted(_JARS.glob("*.jar"))))
    settings = ("--properties-file", release / "conf" / "spark-defaults.conf", "--py-files", release / "kidx.zip")
    return (str(submit), "--master", "local[2]", "--jars", jars, *map(str, settings))
