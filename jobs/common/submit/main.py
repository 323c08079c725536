"""./spark-submit.sh itself: reads its words, sets up what is missing, and becomes the job.

./spark-submit.sh JOB [job options] [-- spark-submit options]
./spark-submit.sh package …                  make what a cluster's nodes need: docs/clusters.md
./spark-submit.sh --dry-run JOB …            print the command and its environment, and start nothing
./spark-submit.sh --in-image DIR JOB …       where the containers of a Kubernetes cluster have this directory
./spark-submit.sh --version                  print the project's version
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence

from jobs.common.submit.call import (
    HELP,
    MODULES,
    PACKAGE,
    PROJECT,
    PYTHON,
    Call,
    ensure_known_job,
    python_path,
    read_call,
    usage,
    version,
)
from kidxlib.errors import UsageError, describe_error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final, NoReturn

_FAILED: Final = 1
_USAGE: Final = 2
_STDOUT: Final = 1
_STDERR: Final = 2
_SET_UP: Final = f"{PROJECT}/setup.sh"
_ZIP_MODULES: Final = (
    "import pathlib, sys; from jobs.common.packages import zip_modules; zip_modules(pathlib.Path(sys.argv[1]))"
)


class _StepFailedError(Exception):
    """A program that runs before the job has failed, and reported why.

    Attributes:
        exit_code: the program's; after a signal the number that shells use.
    """

    def __init__(self, exit_code: int) -> None:
        super().__init__(exit_code)
        self.exit_code = exit_code


def main(words: Sequence[str]) -> int:
    """Run ./spark-submit.sh and return its exit code. If another program is to run, it replaces this process, and this
    function does not return.
    """
    # Python, or the caller, has changed these, and a program would inherit them.
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    try:
        return _answer(read_call(words))
    except _StepFailedError as error:
        return error.exit_code
    except (UsageError, OSError) as error:
        _write(_STDERR, f"spark-submit.sh: {describe_error(error)}\n")
        return _USAGE if isinstance(error, UsageError) else _FAILED


def _answer(call: Call) -> int:
    if call.job is None:
        _write(_STDERR, usage())
        return _USAGE
    if call.job in HELP:
        _write(_STDOUT, usage())
    elif call.job == "--version":
        _write(_STDOUT, f"{version()}\n")
    else:
        os.environ["PYTHONSAFEPATH"] = "1"  # paths in options start at the caller's directory, imports do not
        if call.job == PACKAGE:
            _package(call)
        ensure_known_job(call.job)
        if any(word in HELP for word in call.job_options):
            _help_of_job(call)
        _run_job(call)
    return 0


def _package(call: Call) -> NoReturn:
    if call.is_dry_run or call.image:
        raise UsageError("package has no such option; there are --directory and --release")
    _call(_SET_UP, "venv")
    _become(["env", f"PYTHONPATH={PROJECT}", PYTHON, "-m", "jobs.common.packages", *call.words])


def _help_of_job(call: Call) -> NoReturn:
    at = min(call.job_options.index(word) for word in HELP if word in call.job_options)
    before = call.job_options[:at]
    _call(_SET_UP, "venv")
    _become(["env", f"PYTHONPATH={python_path(os.environ)}", PYTHON, "-m", f"jobs.{call.job}", *before, "--help"])


def _run_job(call: Call) -> None:
    """Print the command, or become it."""
    from jobs.common.submit.launch import launch, read_spark_options, sends_modules  # not needed for help

    _call(_SET_UP, "job")
    options = read_spark_options(call.spark_options)
    if sends_modules(call, options):
        _call(PYTHON, "-c", _ZIP_MODULES, MODULES, PYTHONPATH=python_path(os.environ))
    launched = launch(call, options, os.environ)
    if not call.is_dry_run:
        _become(launched.words)
    _write(_STDOUT, f"{launched.printed}\n")


def _call(*words: str, **variables: str) -> None:
    process = os.posix_spawn(words[0], words, {**os.environ, **variables})
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    if code != 0:
        raise _StepFailedError(code if code > 0 else 128 - code)


def _become(words: list[str]) -> NoReturn:
    """Replace this process by a program, which keeps the process id, group, files and signals."""
    os.execvp(words[0], words)


def _write(descriptor: int, text: str) -> None:
    with open(descriptor, "wb", closefd=False) as file:
        file.write(os.fsencode(text))  # file names are written unchanged, even if they are not UTF-8
