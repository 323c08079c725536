"""How every job ends: one clear line for what a user can mend, and the project's exit codes."""

from __future__ import annotations

import enum
import logging
import re
import sys
from typing import Final, NoReturn

import click
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from kidxlib.errors import KidxError, UsageError

#: One of our own errors inside the traceback that Spark brings back from an executor.
_OUR_ERROR: Final = re.compile(r"kidxlib\.errors\.\w+: (.+)")


class ExitCode(enum.IntEnum):
    OK = 0
    FAILED = 1
    USAGE = 2  # options or inputs are wrong, nothing was done
    NOT_WELL = 3  # done, but some segments are not well and the summary names them


def run(command: click.Command) -> NoReturn:
    """Run a job's command and leave the process with its exit code."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s", stream=sys.stderr)
    sys.exit(_run(command))


def _run(command: click.Command) -> int:
    try:
        return int(command.main(standalone_mode=False) or ExitCode.OK)
    except click.ClickException as error:
        return _say(error.format_message(), ExitCode.USAGE)
    except click.Abort:
        return _say("interrupted", ExitCode.FAILED)
    except UsageError as error:
        return _say(str(error), ExitCode.USAGE)
    except KidxError as error:
        return _say(str(error), ExitCode.FAILED)
    except (PySparkException, Py4JJavaError) as error:
        ours = _OUR_ERROR.search(str(error))
        if ours is None:
            raise
        return _say(ours[1], ExitCode.FAILED)


def _say(message: str, code: ExitCode) -> ExitCode:
    click.echo(f"error: {message}", err=True)
    return code
