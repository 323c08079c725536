"""A call of ./spark-submit.sh: its words (its own options, a job, the job's options, `--`, spark-submit's options), the
jobs that there are, its help, and the project's paths.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from kidxlib.errors import UsageError

TYPE_CHECKING = False  # importing typing takes longer than all the work here
if TYPE_CHECKING:
    from typing import Final

HELP: Final = ("-h", "--help")


class Call:
    """A call of ./spark-submit.sh.

    Attributes:
        job: a job's name, or the word in its place; None: no word.
        words: the words after the job.
        is_dry_run: whether the command is printed in place of being run.
        image: the project's directory in the containers of a Kubernetes cluster; empty: not given.
    """

    def __init__(
        self, job: str | None, words: Sequence[str] = (), *, is_dry_run: bool = False, image: str = ""
    ) -> None:
        self.job: Final = job
        self.words: Final = tuple(words)
        self.is_dry_run: Final = is_dry_run
        self.image: Final = image

    @property
    def job_options(self) -> tuple[str, ...]:
        """The words between the job and the first `--`."""
        return self.words[: self._end_of_job_options]

    @property
    def spark_options(self) -> tuple[str, ...]:
        """The words after the first `--`, which are for spark-submit."""
        return self.words[self._end_of_job_options + 1 :]

    @property
    def _end_of_job_options(self) -> int:
        return self.words.index("--") if "--" in self.words else len(self.words)


def read_call(words: Sequence[str]) -> Call:
    """Separate the script's own options from the job and the words after it."""
    is_dry_run, image = False, ""
    rest = iter(words)
    for word in rest:
        if word == "--dry-run":
            is_dry_run = True
        elif word == "--in-image":
            directory = next(rest, "")
            if not directory.startswith("/"):
                raise UsageError(
                    f"--in-image: {directory or 'nothing'}; expected the directory's path in the image, from / on"
                )
            image = directory.removesuffix("/")
        else:
            return Call(word, tuple(rest), is_dry_run=is_dry_run, image=image)
    return Call(None, is_dry_run=is_dry_run, image=image)


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
    """The search path for Python's modules, as ./spark-submit.sh sets it: the project's directory, then the caller's
    path.
    """
    return ":".join(filter(None, [PROJECT, environ.get("PYTHONPATH")]))


def visible_names_in(directory: str, start: str = "", end: str = "") -> list[str]:
    """The names in a directory, by which ./spark-submit.sh finds jobs, jars and Python's libraries: those with this
    beginning and end, sorted, without hidden ones; none if there is no such directory.
    """
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return []
    return sorted(name for name in names if name.startswith(start) and name.endswith(end) and name[0] != ".")


def job_names() -> list[str]:
    """The sorted names of all jobs, which are those of their files."""
    names = [name.removesuffix(".py") for name in visible_names_in(f"{PROJECT}/jobs", end=".py")]
    return [name for name in names if name != "__init__"]


def ensure_known_job(name: str) -> None:
    """Refuse a name that no job has."""
    jobs = job_names()
    if name in jobs:
        return
    import difflib

    nearest = "".join(f"did you mean {job}? " for job in difflib.get_close_matches(name, [*jobs, PACKAGE], n=1))
    raise UsageError(f"no such job: {name}; {nearest}there are: {' '.join(jobs)} {PACKAGE}")


def usage() -> str:
    """The script's help (./spark-submit.sh --help), with the first line of each job's docstring."""
    return _USAGE.format(jobs="\n".join(f"  {job:15} {_summary(job)}" for job in job_names()))


def _summary(job: str) -> str:
    with open(f"{PROJECT}/jobs/{job}.py", encoding="utf-8") as file:
        # Searched as text: importing `ast` takes longer than all else in --help.
        docstring = file.read().partition(_QUOTES)[2].partition(_QUOTES)[0]
    return docstring.partition("\n")[0]


def version() -> str:
    """The project's version, as ./spark-submit.sh --version prints it."""
    import tomllib

    with open(f"{PROJECT}/pyproject.toml", "rb") as file:
        return f"kidx {tomllib.load(file)['project']['version']}"
