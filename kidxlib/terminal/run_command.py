"""How every command ends: one clear line for what a user can mend, as for wrong usage, and an exit code.

The process ends before Python is finalized. Threads of Arrow and delta-rs give back Python objects whenever they come
to it, perhaps a moment after a command is done. Until 3.13, Python ends a thread that asks for its lock during
finalization by unwinding the thread's stack. Destructors of C++ and Rust do not let that pass: the process aborts
(SIGABRT) after it has done its work well, or waits for that thread forever.
"""

from __future__ import annotations

import contextlib
import errno
import io
import logging
import os
import re
import sys
import traceback
from collections.abc import Sequence
from types import TracebackType
from typing import Final, NoReturn

import click

from kidxlib.errors import KidxError, UsageError
from kidxlib.jit import compiling
from kidxlib.terminal import interrupts
from kidxlib.terminal.console import note, printable, show_details
from kidxlib.terminal.exit_codes import ExitCode, end_process
from kidxlib.terminal.interrupts import Interrupted

#: The modules that write to standard output, and this one, which flushes it; `kidx dump` handles its own errors.
_PRINTERS: Final = ("click.utils", "rich.console", __name__)
#: Errors of a file or directory that has changed, or that this user may not touch: one line says it all.
_ENVIRONMENT: Final = frozenset(
    getattr(errno, name)
    for name in (
        *("EACCES", "EPERM", "ENOENT", "ENOTDIR", "EISDIR", "ELOOP", "ENAMETOOLONG"),
        *("ENOSPC", "EDQUOT", "EFBIG", "EROFS", "EIO", "ESTALE", "EMFILE", "ENFILE"),
    )
)

#: The options of spark-submit, which come after `--`, without those that the jobs have too.
_SPARK_OPTIONS: Final = re.compile(
    "--(master|deploy-mode|class|name|jars|(exclude-)?packages|repositories|py-files|files|archives|conf|queue|"
    "properties-file|load-spark-defaults|proxy-user|principal|keytab|supervise|num-executors|total-executor-cores|"
    "(driver|executor)-(memory|cores)|driver-(java-options|library-path|class-path))|-c"
)
_SPARK_PROGRAM: Final = "./spark-submit.sh"


def _end_with_trace(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> NoReturn:
    """`sys.excepthook`, which then ends the process."""
    sys.__excepthook__(kind, error, trace)
    end_process(ExitCode.FAILED)


def run(command: click.Command, program: str, arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command and leave the process with its exit code. An error that a user cannot mend keeps its stack trace.
    `program` is for the usage line. Without `arguments` the command gets the process's own, and the process ends for
    good.
    """
    _open_missing_streams()
    if isinstance(sys.stdout, io.TextIOWrapper):  # not every encoding has all that file names hold
        sys.stdout.reconfigure(errors="backslashreplace")
    logging.addLevelName(logging.WARNING, "warning")  # as in kidx's own warnings
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s", stream=sys.stderr)
    compiling.at_first_compilation(
        lambda: note(
            "compiling kidx's loops that this command needs, once for this processor, for up to half a minute; "
            "kidx doctor --compile compiles the loops of all commands …"
        )
    )
    if arguments is not None:
        sys.exit(_exit_code(command, program, arguments))
    sys.excepthook = _end_with_trace
    end_process(_exit_code(command, program, None))


def _wrong_usage(error: click.ClickException) -> str:
    """Click's message, with what to do if the message does not say that."""
    message = error.format_message()
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is None:
        return message
    if isinstance(error, click.NoSuchOption) and context.command_path.startswith(_SPARK_PROGRAM):
        name = error.option_name
        if _SPARK_OPTIONS.fullmatch(name):
            how = f"{context.command_path} … -- {name} …"
            return f"{message.rstrip('.')}; it is an option of spark-submit, and those come after --: {how}"
    if message.startswith("Got unexpected extra argument") and _works_from_catalog(context.command):
        return f"{message.rstrip('.')}; {context.command_path} works from a catalog: name it with --catalog DIR"
    if message.endswith("?") or (
        isinstance(error, click.BadParameter) and not isinstance(error, click.MissingParameter)
    ):
        return message
    help_option = context.help_option_names[-1] if context.help_option_names else "--help"
    return f"{message.rstrip('.')}; try {context.command_path} {help_option}"


def _works_from_catalog(command: click.Command) -> bool:
    """Whether a command reads a catalog, and takes no log dir."""
    by_name = {parameter.name: parameter for parameter in command.params}
    takes_directories = any(isinstance(parameter, click.Argument) for parameter in command.params)
    if "sources" in by_name:
        takes_directories = takes_directories or by_name["sources"].metavar != "NAME"
    return "catalog" in by_name and not takes_directories


def _ensure_no_empty_values(command: click.Command, arguments: Sequence[str]) -> None:
    """Refuse an empty word, which is left of a variable that is not set. As a directory it would mean the default one,
    as a pattern everything.
    """
    before = ""
    for word in arguments:
        option, equals, value = word.partition("=")
        if not word or (option.startswith("--") and equals and not value):
            raise UsageError(_what_is_empty(_called(command, arguments), option or before))
        before = word


def ensure_no_option_twice(command: click.Command, arguments: Sequence[str]) -> None:
    """Refuse, before a command runs, a second value of an option that takes one: the last would count, and the others
    would be ignored.
    """
    if not arguments:
        return
    options = [option for option in _called(command, arguments).params if isinstance(option, click.Option)]
    by_name = {name: option for option in options for name in (*option.opts, *option.secondary_opts)}
    seen: set[str | None] = set()
    words = iter(arguments)
    for word in words:
        if word == "--":
            return
        name, equals, _ = word.partition("=")
        option = by_name.get(name)
        if option is None or option.is_flag or option.count:
            continue
        if not option.multiple and option.name in seen:
            raise UsageError(f"{name}: given twice, and takes one value; give it once")
        seen.add(option.name)
        if not equals:
            next(words, None)


def _called(command: click.Command, arguments: Sequence[str]) -> click.Command:
    """The command itself, or the one of a group that is called."""
    if not isinstance(command, click.Group):
        return command
    return command.get_command(click.Context(command), arguments[0]) or command


def _what_is_empty(command: click.Command, option: str) -> str:
    """The message about an option without a value, or about an argument if the word before takes no value."""
    flags = [option for option in command.params if isinstance(option, click.Option) and option.is_flag]
    names = {"--"}.union(*(flag.opts + flag.secondary_opts for flag in flags))
    if option.startswith("-") and option not in names:
        return f"{option}: empty; expected a value; else leave the option out (is a variable not set?)"
    arguments = [argument for argument in command.params if isinstance(argument, click.Argument)]
    name = arguments[0].make_metavar(click.Context(command)).strip("[].…") if len(arguments) == 1 else "an argument"
    return f"{name}: empty; expected a value (is a variable not set?)"


def _exit_code(command: click.Command, program: str, arguments: Sequence[str] | None) -> int:
    """Run a command, and print the line of an error that a user can mend."""
    with interrupts.handled(for_good=arguments is None):
        try:
            given = sys.argv[1:] if arguments is None else arguments
            _ensure_no_empty_values(command, given)
            ensure_no_option_twice(command, given)
            # The names of the help option are no setting of the command: its help is asked for in other ways, too.
            result = command.main(arguments, program, standalone_mode=False, help_option_names=["-h", "--help"])
            code = int(result or ExitCode.OK)
            sys.stdout.flush()
        except click.ClickException as error:
            code = _say(_wrong_usage(error), ExitCode.USAGE)
        except Interrupted as interrupted:
            code = _say(str(interrupted), ExitCode(interrupted.exit_code))
        except (click.Abort, KeyboardInterrupt):  # raised by a library that waits for input or for a child
            code = _say("interrupted; run the same command again to go on", ExitCode.INTERRUPTED)
        except KidxError as error:
            code = _say(str(error), ExitCode.USAGE if isinstance(error, UsageError) else ExitCode.FAILED)
        except SystemExit as ended:
            # Click raises it after completing a word for a shell; click and rich raise it if the reader of standard
            # output, or of standard error, has closed that.
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
    """Discard what goes to a standard stream that this process was started without."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - for as long as the process lasts
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115


def _is_of_output(error: OSError) -> bool:
    """Whether an error was raised by printing."""
    *_, innermost = traceback.walk_tb(error.__traceback__)
    return innermost[0].f_globals["__name__"] in _PRINTERS


def discard_output() -> None:
    """Discard output that could not be written; else Python would try again at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _say(message: str, code: ExitCode) -> ExitCode:
    with contextlib.suppress(OSError):  # the reader has gone
        click.echo(f"error: {printable(message)}", err=True)
    return code
