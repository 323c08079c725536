"""A release for Spark without a checkout: modules, jobs, their settings and the lock of executors' packages."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
from importlib import metadata
from pathlib import Path
from typing import Final

from kidxlib.run.project import PROJECT

#: What it holds of the project, besides the modules.
_FILES: Final = (
    *("jobs/*.py", "conf/kidx.toml", "conf/log4j2.properties", "conf/spark-defaults.conf"),
    *("requirements-executors.lock", "LICENSE", "CHANGELOG.md"),
)
_README: Final = """# kidx {version} for Spark

Python 3.11 to 3.13, Spark {spark} with its Python, and on each node the packages of requirements-executors.lock
(pip install --require-hashes -r requirements-executors.lock). From this directory, or with the paths to it:

    spark-submit --packages io.delta:delta-spark_2.13:{delta} --properties-file conf/spark-defaults.conf \\
      --py-files kidx.zip jobs/build_index.py --source NAME=LOG_DIR --index-dir DIR --catalog DIR

jobs/*.py are the jobs, each with --help. conf/kidx.toml has the settings with their defaults.
"""


def write_release(target: Path, modules: Path) -> None:
    """Write the archive, a `.tar.gz` of one directory. The same sources give the same bytes.

    Args:
        modules: the zip of them, which it takes along.
    """
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
