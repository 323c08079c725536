"""The Python environment of executors: what `requirements-executors.lock` pins, packed into one file."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import pyspark

from kidxlib.errors import KidxError
from kidxlib.run.project import PROJECT
from kidxlib.terminal.console import note

ENVIRONMENT: Final = "environment.tar.gz"

_LOCK: Final = PROJECT / "requirements-executors.lock"
_LOG: Final = "package.log"
#: Tests and headers, a tenth of all.
_EXCLUDED: Final = ("*/tests/*", "*/pyarrow/include/*")
#: A module with loops that numba compiles.
_COMPILED: Final = re.compile("^@njit", re.MULTILINE)


def pack_environment(modules: Path, target: Path) -> None:
    """Make a Python environment of what `requirements-executors.lock` pins, with the library's compiled code in it,
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
                raise KidxError(
                    f"{log_path}: {Path(command[0]).name} {command[1]} … failed; look into its output there, mend "
                    "that and run it again"
                )

        environment, packed = Path(temporary) / "environment", Path(temporary) / ENVIRONMENT
        python = environment / "bin" / "python"
        call(sys.executable, "-I", "-m", "venv", "--without-pip", environment)
        pip = (sys.executable, "-I", "-m", "pip", "--disable-pip-version-check", "--no-input", "--python", python)
        call(*pip, "install", "--no-deps", "--no-compile", "--require-hashes", "--requirement", _LOCK)
        of_spark = (Path(pyspark.__file__).parent / "python" / "lib").glob("*.zip")
        search_path = os.pathsep.join(map(str, [modules, *of_spark]))
        # Python too keeps what it compiles, of those modules alone that are needed.
        forget = {"PYTHONDONTWRITEBYTECODE": "", "NUMBA_CACHE_DIR": ""}
        call(python, "-c", f"import {', '.join(_entries())}", PYTHONPATH=search_path, **forget)
        exclude = [word for pattern in _EXCLUDED for word in ("--exclude", pattern)]
        pack = (sys.executable, "-m", "venv_pack", "--quiet", "--prefix", environment, "--output", packed)
        call(*pack, "--compress-level", "1", *exclude, TMPDIR=temporary)
        packed.chmod(0o644)
        packed.replace(target)
    log_path.unlink()


def environment_key(modules: Path) -> str:
    """What an environment is made from: another key, another environment."""
    made_from = [_LOCK.read_bytes(), modules.read_bytes(), Path(__file__).read_bytes(), sys.version.encode()]
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in made_from)).hexdigest()


def _entries() -> list[str]:
    """What tasks and drivers import. It is compiled and checked by importing it out of the zip."""
    compiled = (path for path in PROJECT.glob("kidxlib/**/*.py") if _COMPILED.search(path.read_text()))
    jobs = (path for path in PROJECT.glob("jobs/*.py") if path.stem != "__init__")
    return sorted(".".join(path.relative_to(PROJECT).with_suffix("").parts) for path in (*compiled, *jobs))
