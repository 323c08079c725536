"""How every command ends: one clear line for what a user can mend, and the project's exit codes."""

from __future__ import annotations

import enum
import logging
import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from kidxlib.console import printable
from kidxlib.errors import KidxError, UsageError


class ExitCode(enum.IntEnum):
    OK = 0
    FAILED = 1
    USAGE = 2  # options or inputs are wrong, nothing was done
    NOT_WELL = 3  # done, but some segments are not well and the summary names them


def run(command: click.Command, program: str, arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command and leave the process with its exit code. What is not a user's to mend keeps its stack trace.

    Args:
        program: how a user calls it, for the usage line.
        arguments: its arguments; None takes the process's own.
    """
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s", stream=sys.stderr)
    try:
        code = int(command.main(arguments, program, standalone_mode=False) or ExitCode.OK)
    except click.ClickException as error:
        code = _say(error.format_message(), ExitCode.USAGE)
    except click.Abort:
        code = _say("interrupted", ExitCode.FAILED)
    except KidxError as error:
        code = _say(str(error), ExitCode.USAGE if isinstance(error, UsageError) else ExitCode.FAILED)
    sys.exit(code)


def _say(message: str, code: ExitCode) -> ExitCode:
    click.echo(f"error: {printable(message)}", err=True)
    return code
