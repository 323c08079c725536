"""How every command ends: one clear line for what a user can mend, and an exit code."""

from __future__ import annotations

import contextlib
import errno
import io
import logging
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Final, NoReturn

import click

from kidxlib.errors import KidxError, UsageError
from kidxlib.jit import compiling
from kidxlib.terminal import interrupts
from kidxlib.terminal.console import note, printable, show_details
from kidxlib.terminal.exit_codes import ExitCode
from kidxlib.terminal.process_end import end_process, end_with_trace
from kidxlib.terminal.signals import Interrupted
from kidxlib.terminal.usage import ensure_no_empty_values, ensure_no_option_twice, wrong_usage

#: All that writes to standard output, and this module, which flushes it; `kidx dump` sees to its own.
_PRINTERS: Final = ("click.utils", "rich.console", __name__)
#: What the system says of a file or directory that is not what it was, or not for this user: one line can say it all.
_ENVIRONMENT: Final = frozenset(
    getattr(errno, name)
    for name in (
        *("EACCES", "EPERM", "ENOENT", "ENOTDIR", "EISDIR", "ELOOP", "ENAMETOOLONG"),
        *("ENOSPC", "EDQUOT", "EFBIG", "EROFS", "EIO", "ESTALE", "EMFILE", "ENFILE"),
    )
)


def run(command: click.Command, program: str, arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command and leave the process with its exit code. What is not a user's to mend keeps its stack trace.

    Args:
        program: how a user calls it, for the usage line.
        arguments: its arguments; None takes the process's own, and ends the process for good.

    Raises:
        SystemExit: with arguments.
    """
    _open_missing_streams()
    if isinstance(sys.stdout, io.TextIOWrapper):  # names of files hold what not every encoding has
        sys.stdout.reconfigure(errors="backslashreplace")
    logging.addLevelName(logging.WARNING, "warning")  # as all others are told
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s", stream=sys.stderr)
    compiling.tell_with(lambda: note("compiling kidx's loops for this processor, once; this takes half a minute …"))
    if arguments is not None:
        sys.exit(_exit_code(command, program, arguments))
    sys.excepthook = end_with_trace
    end_process(_exit_code(command, program, None))


def _exit_code(command: click.Command, program: str, arguments: Sequence[str] | None) -> int:
    """Run a command, and say what is a user's to mend."""
    with interrupts.handled(for_good=arguments is None):
        try:
            given = sys.argv[1:] if arguments is None else arguments
            ensure_no_empty_values(command, given)
            ensure_no_option_twice(command, given)
            # The command itself stays as it is: its help is asked for in other ways, too.
            result = command.main(arguments, program, standalone_mode=False, help_option_names=["-h", "--help"])
            code = int(result or ExitCode.OK)
            sys.stdout.flush()
        except click.ClickException as error:
            code = _say(wrong_usage(error), ExitCode.USAGE)
        except Interrupted as interrupted:
            code = _say(str(interrupted), ExitCode(interrupted.exit_code))
        except (click.Abort, KeyboardInterrupt):  # raised by a library that waits for input or for a child
            code = _say("interrupted; run the same command again to go on", ExitCode.INTERRUPTED)
        except KidxError as error:
            code = _say(str(error), ExitCode.USAGE if isinstance(error, UsageError) else ExitCode.FAILED)
        except SystemExit as ended:
            # Of click where a shell has asked how a word goes on; of click and rich where who reads standard output, or
            # standard error, has closed it.
            code = ExitCode.OUTPUT_CLOSED if ended.code else ExitCode.OK
        except OSError as error:
            if _is_of_output(error):
                discard_output()
                if isinstance(error, BrokenPipeError):
                    code = ExitCode.OUTPUT_CLOSED
                else:
                    code = _say(f"standard output: {error.strerror}", ExitCode.FAILED)
            elif error.errno in _ENVIRONMENT and isinstance(error.filename, str | bytes):
                code = _say(f"{os.fsdecode(error.filename)}: {error.strerror}", ExitCode.FAILED)
            else:
                raise
        finally:
            show_details(False)  # click closes no command whose options are refused after `--verbose`
    return code


def _open_missing_streams() -> None:
    """Where this process was started without standard output or standard error, what goes there goes nowhere."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - for as long as the process lasts
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115


def _is_of_output(error: OSError) -> bool:
    """Whether it was raised where something was printed."""
    *_, innermost = traceback.walk_tb(error.__traceback__)
    return innermost[0].f_globals["__name__"] in _PRINTERS


def discard_output() -> None:
    """What could not be written is not tried again when Python ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _say(message: str, code: ExitCode) -> ExitCode:
    with contextlib.suppress(OSError):  # who would read it has gone
        click.echo(f"error: {printable(message)}", err=True)
    return code
