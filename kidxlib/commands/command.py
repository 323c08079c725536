"""Makes `kidx X` and the job X of ./spark-submit.sh from one dataclass, whose fields are the options, and one function
that does the work. The function imports what does the work itself: help and completion do not wait for that. With the
optional reports of how a run ended, for monitoring: a JSON line, and metrics for Prometheus.
"""

from __future__ import annotations

import functools
import json
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from functools import cached_property
from importlib import import_module
from inspect import cleandoc
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, TypeAlias, TypeVar

import click
from click.core import ParameterSource

from kidxlib.errors import KidxError, UsageError
from kidxlib.terminal import interrupts
from kidxlib.terminal import options as shared_options
from kidxlib.terminal.console import end_phases, warn
from kidxlib.terminal.exit_codes import ExitCode
from kidxlib.terminal.interrupts import Interrupted
from kidxlib.terminal.options import ensure_parent_exists, needing_packages
from kidxlib.terminal.outcome import Outcome

if TYPE_CHECKING:
    import re

    from kidxlib.operations.backend import Backend
    from kidxlib.run.context import RunContext
    from kidxlib.run.settings import Settings

KIDX: Final = "kidx"
SPARK: Final = "./spark-submit.sh"

#: The key of a context's `meta` under which the new spelling of an old option is kept.
_NOW: Final = f"{__name__}.now"

_Options = TypeVar("_Options", bound="CommandOptions")
#: Does the work. A command that opens neither workers nor a catalog gets None.
_Run: TypeAlias = "Callable[[_Options, Any], Outcome]"
#: Opens the workers and the catalog.
_Open: TypeAlias = "Callable[[_Options], AbstractContextManager[Backend | None]]"


class Former(NamedTuple):
    """A command that was an option of another command once.

    Attributes:
        now: the command line to type now.
        command: what to run.
        is_argument: whether the new command takes the option's value as an argument; if not, it has the option too.
    """

    now: str
    command: Callable[[], click.Command]
    is_argument: bool = True


def command_in(module: str) -> Callable[[], click.Command]:
    """What a former option runs: the command in a module of this package, imported once it is called."""
    return lambda: getattr(import_module(f"kidxlib.commands.{module}"), module)


#: Former commands by their option; the key None stands for a command that itself has a new name.
Formerly: TypeAlias = "Mapping[str | None, Former]"

#: The groups of parameters in the order in which help lists them: the command's first and own, then shared ones.
FIRST, OWN, SETTINGS, NOW, JSON, PROCESSES = range(6)


def option(*declarations: str, only: str | None = None, at: int = OWN, **attributes: Any) -> Any:
    """Declare a field of a command's class that is an option, with the arguments of `click.option` and `parameter`."""
    return parameter(click.option(*declarations, **attributes), only=only, at=at)


def parameter(decorator: Callable[[Any], Any], *, only: str | None = None, at: int = OWN) -> Any:
    """Declare a field of a command's class that is an option or an argument: `decorator` is click's for a parameter
    with the field's name. If only `KIDX` or `SPARK` has the parameter, the field is None in the other.
    """
    return field(metadata={"decorator": decorator, "only": only, "at": at})


@dataclass(frozen=True, kw_only=True)
class CommandOptions:
    """The options of a command. A field to which a subclass gives a constant is no option.

    Attributes:
        needs: the option that needs the packages of an extra; None: the command itself needs them.
        given: the options on the command line, as a user types them, by the parameter's name.
        is_job: whether ./spark-submit.sh runs the command, and not kidx.
    """

    needs: ClassVar[str | None] = None

    as_json: bool = parameter(shared_options.as_json, at=JSON)
    given: Mapping[str, str] = field(default_factory=dict)
    is_job: bool = False

    def refuse(self, parameters: Iterable[str], why: str) -> None:
        """Refuse options that cannot be used with others; `{option}` in `why` stands for the one that was given."""
        for name in parameters:
            if name in self.given:
                raise UsageError(why.format(option=self.given[name]))

    @property
    def writes(self) -> bool:
        """Whether the command may write or record anything; an interruption of one that does not says that nothing was
        done.
        """
        return True

    def held(self) -> AbstractContextManager[object]:
        """Locks and other resources that the command holds from before it opens workers and a catalog until it ends."""
        return nullcontext()


@dataclass(frozen=True, kw_only=True)
class WithoutCatalog(CommandOptions):
    """The options of a command that never has a catalog."""

    processes: int | None = parameter(shared_options.processes, at=JSON - 1)


@dataclass(frozen=True, kw_only=True)
class OnCatalog(CommandOptions):
    catalog: str | None = parameter(shared_options.catalog)
    settings_file: Path = parameter(shared_options.settings_file, at=SETTINGS)
    now: str | None = parameter(shared_options.time_to_record, at=NOW)
    processes: int | None = parameter(shared_options.processes, only=KIDX, at=PROCESSES)
    database: str | None = parameter(shared_options.database, only=SPARK, at=PROCESSES)

    @cached_property
    def settings(self) -> Settings:
        from kidxlib.run.settings import read_settings

        return read_settings(self.settings_file)

    @cached_property
    def context(self) -> RunContext:
        """The catalog, which must exist, and the time."""
        from kidxlib.run.context import RunContext

        return RunContext.from_options_or_settings(
            self.settings, self.catalog, self.database, self.now
        ).with_existing_catalog()

    @property
    def makes_catalog(self) -> bool:
        """Whether the command makes a catalog where there is none."""
        return False


@dataclass(frozen=True, kw_only=True)
class WithOrWithoutCatalog(OnCatalog):
    """The options of a command that also works without a catalog. Without one, `kidx` needs no package of an extra and
    reads no settings.
    """

    needs: ClassVar[str | None] = "--catalog"

    @property
    def has_catalog(self) -> bool:
        return self.catalog is not None or self.database is not None

    @property
    def is_once(self) -> bool:
        """Whether nothing but files outlasts the run, as with `kidx` without a catalog."""
        return not self.has_catalog and not self.is_job

    @cached_property
    def context(self) -> RunContext:
        """The catalog, which only the options can name, and the time."""
        from kidxlib.run.context import RunContext

        if self.is_once:
            return RunContext(catalog=None, database=None, now=datetime.now(UTC), event_log_dir=None)
        context = RunContext.from_options(self.settings, self.catalog, self.database, self.now)
        return context if self.makes_catalog else context.with_existing_catalog()


@dataclass(frozen=True, kw_only=True)
class OnSources(OnCatalog):
    """The options of a command that works on sources and topics of a catalog."""

    sources: tuple[str, ...] = parameter(shared_options.cataloged_sources)
    topics: str | None = parameter(shared_options.cataloged_topics)

    def __post_init__(self) -> None:
        _ = self.pattern  # a wrong pattern is refused before anything is done

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        from kidxlib.indexing.source import parse_topics

        return parse_topics(self.topics or ".*")


def open_once(request: WithoutCatalog) -> AbstractContextManager[Backend]:
    """Open what a command that never has a catalog works with: processes of this machine, and tables in memory."""
    from kidxlib.operations.backend import open_without_catalog

    return open_without_catalog(request.processes)


def open_here(request: OnCatalog) -> AbstractContextManager[Backend]:
    """Open what a command works with: processes of this machine, and its catalog, or else tables in memory."""
    if not request.context.has_catalog:
        from kidxlib.operations.backend import open_without_catalog

        return open_without_catalog(request.processes)
    from kidxlib.operations.local_backend import open_local

    return open_local(request.context, request.processes, must_exist=not request.makes_catalog)


def open_nothing(_: CommandOptions) -> AbstractContextManager[None]:
    """Open nothing, for a command that has neither workers nor a catalog."""
    return nullcontext()


def kidx_command(
    name: str,
    options_type: type[_Options],
    run: _Run[_Options],
    *,
    opened: _Open[Any] = open_here,
    reports_as: str,
    formerly: Formerly | None = None,
) -> click.Command:
    """`kidx X`: processes of this machine do the work. Its help is the docstring of `run`. `reports_as` is the name of
    the job that does the same: monitoring asks for that name, whichever engine did the work.
    """
    return _command(
        name, options_type, run, opened, entry=KIDX, reports_as=reports_as, text=run.__doc__, formerly=formerly
    )


def spark_job(
    name: str,
    options_type: type[_Options],
    run: _Run[_Options],
    opened: _Open[_Options],
    text: str | None,
    *,
    formerly: Formerly | None = None,
) -> click.Command:
    """The job X of ./spark-submit.sh. `text` is its module's docstring, whose first line is for the list of jobs. The
    rest is the job's help; if there is no rest, the docstring of `run` is.
    """
    _, _, explained = (text or "").partition("\n\n")
    text = explained or run.__doc__
    return _command(name, options_type, run, opened, entry=SPARK, reports_as=name, text=text, formerly=formerly)


def former_job(name: str, former: Former) -> click.Command:
    """The job X of ./spark-submit.sh under a former name."""
    return _Command(name, formerly={None: former})


class _Command(click.Command):
    """A command with options that have become commands of their own. Such an option runs the other command, and says
    what to type now.
    """

    def __init__(self, *arguments: Any, formerly: Formerly, **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self._formerly = formerly

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        for option, former in self._formerly.items():
            rest = list(args) if option is None else _without(option, args)
            if rest is not None:
                command = former.command()
                program, space, _ = (info_name or "").rpartition(" ")
                words = rest if former.is_argument else args
                old = " ".join(filter(None, (info_name, option)))
                now = f"{old} is now {former.now}; the old spelling goes with the next release"
                try:
                    context = command.make_context(f"{program}{space}{command.name}", words, parent, **extra)
                except (click.ClickException, KidxError):
                    warn(now)
                    raise
                context.meta[_NOW] = now
                return context
        return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        if ctx.command is not self:
            return ctx.command.invoke(ctx)
        try:
            return super().invoke(ctx)
        finally:
            if (now := ctx.meta.pop(_NOW, None)) is not None:
                warn(now)


def _without(option: str, words: Sequence[str]) -> list[str] | None:
    """A command line's words without an option, whose value becomes an argument; None if the option is not there."""
    for number, word in enumerate(words):
        name, equals, value = word.partition("=")
        if word == "--":
            return None
        if name == option:
            return [*words[:number], *([value] if equals else []), *words[number + 1 :]]
    return None


def _command(
    name: str,
    options_type: type[_Options],
    run: _Run[_Options],
    opened: _Open[_Options],
    *,
    entry: str,
    reports_as: str,
    text: str | None,
    formerly: Formerly | None,
) -> click.Command:
    parameters = sorted((item for item in fields(options_type) if item.metadata), key=lambda item: item.metadata["at"])
    absent: dict[str, Any] = {item.name: None for item in parameters if item.metadata["only"] not in (None, entry)}

    def work(**options: Any) -> Outcome:
        with needing_packages(options_type.needs or f"{entry} {name}"):
            on_command_line = _on_command_line(click.get_current_context())
            request = options_type(**options, **absent, given=on_command_line, is_job=entry == SPARK)
            backend = opened(request)
        interrupts.tell_from_here(interrupts.DONE_STAYS if request.writes else interrupts.NOTHING_DONE)
        with request.held(), backend as opened_backend:
            outcome = run(request, opened_backend)
            interrupts.tell_from_here(outcome.done)
            with interrupts.telling(lambda: outcome.done):
                outcome.show(as_json=request.as_json)
            interrupts.tell_from_here(interrupts.DONE_AND_PRINTED)
        return outcome

    command = reports_run(reports_as)(work)
    for item in reversed(parameters):
        if item.name not in absent:
            command = item.metadata["decorator"](command)
    context_settings = {"max_content_width": 110}
    return click.command(
        name, _Command, help=cleandoc(text or ""), context_settings=context_settings, formerly=formerly or {}
    )(command)


def _on_command_line(context: click.Context) -> dict[str, str]:
    """The options and arguments on the command line, as a user types them, by the parameter's name."""
    return {
        str(item.name): item.opts[0] if isinstance(item, click.Option) else item.make_metavar(context).strip("[].")
        for item in context.command.params
        if context.get_parameter_source(str(item.name)) is ParameterSource.COMMANDLINE
    }


_STATUS: Final = {
    ExitCode.OK: "ok",
    ExitCode.FAILED: "failed",
    ExitCode.USAGE: "refused",
    ExitCode.PROBLEMS_FOUND: "not_well",
    ExitCode.HUNG_UP: "interrupted",
    ExitCode.INTERRUPTED: "interrupted",
    ExitCode.TERMINATED: "interrupted",
}
_TO_APPEND: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
#: The value of `--json-line` without a file.
_STANDARD_ERROR: Final = "-"
#: The suffixes of a file without a directory after `--json-line`. Another word after it is the command's own argument.
_SUFFIXES: Final = (".json", ".jsonl", ".log")


def reports_run(name: str) -> Callable[[Callable[..., Outcome]], Callable[..., ExitCode]]:
    """A decorator that makes a function and its options a command that reports how it ended: adds `--metrics-file`,
    `--json-line` and `--verbose`, and ends its phases. Reports give `name` as the job's, whichever engine did the work.
    """
    return functools.partial(_reporting, name=name)


def _reporting(job: Callable[..., Outcome], name: str) -> Callable[..., ExitCode]:
    @shared_options.verbose
    @click.option(
        "--json-line",
        is_flag=False,
        flag_value=_STANDARD_ERROR,
        metavar="[FILE]",
        callback=_json_line_file,
        help="Say in a line of JSON how the run ended, on standard error, or at the end of FILE: a path with a /, or a "
        f"name that ends in {', '.join(_SUFFIXES)}; - is standard error.",
    )
    @click.option(
        "--metrics-file",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="Write how the run ended for Prometheus: a .prom file where node exporter's textfile collector looks.",
    )
    @functools.wraps(job)
    def command(metrics_file: Path | None, json_line: str | None, **options: Any) -> ExitCode:
        if metrics_file is not None:
            with needing_packages("--metrics-file"):
                from kidxlib.run.metrics import ensure_collected, write_metrics
            ensure_collected(metrics_file)
        if json_line not in (None, _STANDARD_ERROR):
            ensure_parent_exists("--json-line", Path(json_line))
        began_at, start = datetime.now(UTC), time.monotonic()
        result, error = Outcome(code=ExitCode.FAILED), ""
        try:
            result = job(**options)
        except UsageError:
            result = Outcome(code=ExitCode.USAGE)
            raise
        except Interrupted as interrupted:
            result, error = Outcome(code=ExitCode(interrupted.exit_code)), str(interrupted)
            raise
        except BaseException as raised:
            error = str(raised).partition("\n")[0] or type(raised).__name__
            raise
        finally:
            seconds = time.monotonic() - start
            end_phases()
            if json_line is not None and result.code is not ExitCode.USAGE:  # nothing was done, and one line says why
                _write_json_line(json_line, name, began_at, seconds, result, error)
            if metrics_file is not None:
                write_metrics(metrics_file, name, seconds, result)
        return result.code

    return command


def _json_line_file(context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    """Check the value of `--json-line` at once, before the command misses a word that the option took."""
    if value is None or value == _STANDARD_ERROR or "/" in value or value.endswith(_SUFFIXES):
        return value
    raise UsageError(
        f"--json-line {value}: taken for the file to write; expected a path with a /, or a name that ends in "
        f"{', '.join(_SUFFIXES)}. Is {value} meant for the command? Then put it first, or say --json-line -"
    )


def _write_json_line(where: str, job: str, began_at: datetime, seconds: float, result: Outcome, error: str) -> None:
    line = {
        "job": job,
        "run_id": result.run_id,
        "began_at": began_at.isoformat(timespec="milliseconds"),
        "seconds": round(seconds, 3),
        "status": _STATUS[result.code],
        "exit_code": int(result.code),
        "bytes": result.bytes,
        "counts": dict(result.counts),
        **({"requests": result.requests.as_json()} if result.requests else {}),
        **({"error": error} if error else {}),
    }
    if where == _STANDARD_ERROR:
        click.echo(json.dumps(line), err=True)
        return
    try:
        # Without O_NONBLOCK, opening a pipe that nobody reads would block forever.
        with open(os.open(where, _TO_APPEND, 0o666), "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
    except OSError as failed:
        warn(f"--json-line {where}: not written: {failed.strerror}")
