"""The project, for ./spark-submit.sh: paths in its directory, its jobs, and its version."""

from __future__ import annotations

import os
from collections.abc import Mapping

from kidxlib.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

#: The directory with spark-submit.sh; this file is four levels below.
PROJECT: Final = os.path.abspath(__file__).rsplit(os.sep, 4)[0]
#: setup.sh makes this environment.
PYTHON: Final = f"{PROJECT}/.venv/bin/python"
#: The project's modules, as they are sent to the nodes of a cluster.
MODULES: Final = f"{PROJECT}/.jars/kidx.zip"

#: The word in place of a job that needs no Spark.
PACKAGE: Final = "package"
_QUOTES: Final = '"""'
_USAGE: Final = """\
Usage: ./spark-submit.sh [--dry-run] [--in-image DIR] JOB [job options] [-- spark-submit options]
       ./spark-submit.sh package [--directory DIR] [--release FILE]
       ./spark-submit.sh --version

Jobs, each with its own --help:
{jobs}

  package         make what a cluster's nodes need: the modules and an environment of Python packages

For a cluster, for example: -- --master spark://host:7077 --conf spark.executor.memory=4g
With --dry-run the command is printed in place of being run.
"""


def python_path(environ: Mapping[str, str]) -> str:
    """The search path of the project's modules, and then the caller's."""
    return ":".join(filter(None, [PROJECT, environ.get("PYTHONPATH")]))


def names_in(directory: str, start: str = "", end: str = "") -> list[str]:
    """The names in a directory with this beginning and end, sorted, without hidden ones; none if there is no such
    directory.
    """
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return []
    return sorted(name for name in names if name.startswith(start) and name.endswith(end) and name[0] != ".")


def job_names() -> list[str]:
    """The sorted names of all jobs, which are those of their files."""
    names = [name.removesuffix(".py") for name in names_in(f"{PROJECT}/jobs", end=".py")]
    return [name for name in names if name != "__init__"]


def ensure_known_job(name: str) -> None:
    jobs = job_names()
    if name in jobs:
        return
    import difflib

    nearest = "".join(f"did you mean {job}? " for job in difflib.get_close_matches(name, [*jobs, PACKAGE], n=1))
    raise UsageError(f"no such job: {name}; {nearest}there are: {' '.join(jobs)} {PACKAGE}")


def usage() -> str:
    """The help of ./spark-submit.sh, with the first line of each job's docstring."""
    return _USAGE.format(jobs="\n".join(f"  {job:15} {_summary(job)}" for job in job_names()))


def _summary(job: str) -> str:
    with open(f"{PROJECT}/jobs/{job}.py", encoding="utf-8") as file:
        # Searched as text: importing `ast` takes longer than all else in --help.
        docstring = file.read().partition(_QUOTES)[2].partition(_QUOTES)[0]
    return docstring.partition("\n")[0]


def version() -> str:
    import tomllib

    with open(f"{PROJECT}/pyproject.toml", "rb") as file:
        return f"kidx {tomllib.load(file)['project']['version']}"
