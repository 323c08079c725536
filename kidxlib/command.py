"""How every command ends: one clear line for what a user can mend, and the project's exit codes."""

from __future__ import annotations

import contextlib
import enum
import errno
import logging
import os
import re
import sys
import traceback
from collections.abc import Sequence
from typing import Final, NoReturn

import click

from kidxlib import interrupts
from kidxlib.console import printable
from kidxlib.errors import KidxError, UsageError
from kidxlib.interrupts import Interrupted


class ExitCode(enum.IntEnum):
    OK = 0
    FAILED = 1
    USAGE = 2  # options or inputs are wrong, nothing was done
    NOT_WELL = 3  # done, but some segments are not well and the summary names them
    HUNG_UP = 129  # by SIGHUP, as the end of an ssh session sends it; one line says what is done
    INTERRUPTED = 130  # by SIGINT, as Ctrl-C sends it, likewise
    OUTPUT_CLOSED = (
        141  # whoever reads what it prints has seen enough: as SIGPIPE ends other programs, say nothing of it
    )
    TERMINATED = 143  # by SIGTERM, likewise


#: What is spark-submit's, and so stands after `--`; without those that our jobs have, too.
_SPARK_OPTIONS: Final = re.compile(
    "--(master|deploy-mode|class|name|jars|(exclude-)?packages|repositories|py-files|files|archives|conf|queue|"
    "properties-file|load-spark-defaults|proxy-user|principal|keytab|supervise|num-executors|total-executor-cores|"
    "(driver|executor)-(memory|cores)|driver-(java-options|library-path|class-path))|-c"
)
#: All that writes to standard output, and this module, which flushes it; `kidx dump` sees to its own.
_PRINTERS: Final = ("click.utils", "rich.console", __name__)
#: What the system says of a file or folder that is not what it was, or not for this user: one line can say it all.
_ENVIRONMENT: Final = frozenset(
    getattr(errno, name)
    for name in (
        *("EACCES", "EPERM", "ENOENT", "ENOTDIR", "EISDIR", "ELOOP", "ENAMETOOLONG"),
        *("ENOSPC", "EDQUOT", "EFBIG", "EROFS", "EIO", "ESTALE", "EMFILE", "ENFILE"),
    )
)
_SPARK_PROGRAM: Final = "./spark-submit.sh"


def run(command: click.Command, program: str, arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command and leave the process with its exit code. What is not a user's to mend keeps its stack trace.

    Args:
        program: how a user calls it, for the usage line.
        arguments: its arguments; None takes the process's own.
    """
    _open_missing_streams()
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s", stream=sys.stderr)
    command.context_settings.setdefault("help_option_names", ["-h", "--help"])
    with interrupts.handled(for_good=arguments is None):
        try:
            _refuse_empty(command, sys.argv[1:] if arguments is None else arguments)
            code = int(command.main(arguments, program, standalone_mode=False) or ExitCode.OK)
            sys.stdout.flush()
        except click.ClickException as error:
            code = _say(_wrong_usage(error), ExitCode.USAGE)
        except Interrupted as interrupted:
            code = _say(str(interrupted), ExitCode(interrupted.exit_code))
        except (click.Abort, KeyboardInterrupt):  # raised by a library that waits for input or for a child
            code = _say("interrupted; run the same command again to go on", ExitCode.INTERRUPTED)
        except KidxError as error:
            code = _say(str(error), ExitCode.USAGE if isinstance(error, UsageError) else ExitCode.FAILED)
        except SystemExit:  # of click and rich: who reads standard output, or standard error, has closed it
            code = ExitCode.OUTPUT_CLOSED
        except OSError as error:
            if _is_of_output(error):
                _let_go_of_output()
                if isinstance(error, BrokenPipeError):
                    code = ExitCode.OUTPUT_CLOSED
                else:
                    code = _say(f"standard output: {error.strerror}", ExitCode.FAILED)
            elif error.errno in _ENVIRONMENT and isinstance(error.filename, str | bytes):
                code = _say(f"{os.fsdecode(error.filename)}: {error.strerror}", ExitCode.FAILED)
            else:
                raise
    sys.exit(code)


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


def _let_go_of_output() -> None:
    """What could not be written is not tried again when Python ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _wrong_usage(error: click.ClickException) -> str:
    """What click says, and what to do where it does not say that."""
    message = error.format_message()
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is None:
        return message
    if isinstance(error, click.NoSuchOption) and context.command_path.startswith(_SPARK_PROGRAM):
        name = error.option_name
        if _SPARK_OPTIONS.fullmatch(name):
            how = f"{context.command_path} … -- {name} …"
            return f"{message.rstrip('.')}; it is an option of spark-submit, and those come after --: {how}"
    if message.endswith("?") or (
        isinstance(error, click.BadParameter) and not isinstance(error, click.MissingParameter)
    ):
        return message
    help_option = context.help_option_names[-1] if context.help_option_names else "--help"
    return f"{message.rstrip('.')}; try {context.command_path} {help_option}"


def _refuse_empty(command: click.Command, arguments: Sequence[str]) -> None:
    """An empty word is what is left of a variable that is not set. For a directory it would mean the default one,
    for a pattern everything.
    """
    before = ""
    for word in arguments:
        option, equals, value = word.partition("=")
        if not word or (option.startswith("--") and equals and not value):
            raise UsageError(_what_is_empty(_called(command, arguments), option or before))
        before = word


def _called(command: click.Command, arguments: Sequence[str]) -> click.Command:
    """The command itself, or that of a group that is called."""
    if not isinstance(command, click.Group):
        return command
    return command.get_command(click.Context(command), arguments[0]) or command


def _what_is_empty(command: click.Command, option: str) -> str:
    """What to say of an option that has no value; of an argument, where the word before takes none."""
    flags = [each for each in command.params if isinstance(each, click.Option) and each.is_flag]
    names = {"--"}.union(*(flag.opts + flag.secondary_opts for flag in flags))
    if option.startswith("-") and option not in names:
        return f"{option}: empty; expected a value, or none of it (is a variable not set?)"
    arguments = [each for each in command.params if isinstance(each, click.Argument)]
    name = arguments[0].make_metavar(click.Context(command)).strip("[]…") if len(arguments) == 1 else "an argument"
    return f"{name}: empty; expected a value (is a variable not set?)"


def _say(message: str, code: ExitCode) -> ExitCode:
    with contextlib.suppress(OSError):  # who would read it has gone
        click.echo(f"error: {printable(message)}", err=True)
    return code
