"""Makes `kidx X` and the job X of ./spark-submit.sh from one dataclass, whose fields are the options, and one function
that does the work. A module of a command imports the code that does the work inside of this function, so that help and
completion need not wait for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from functools import cached_property
from inspect import cleandoc
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, TypeAlias, TypeVar

import click
from click.core import ParameterSource

from kidxlib.errors import KidxError, UsageError
from kidxlib.run import options as shared_options
from kidxlib.run.run_report import reports_run
from kidxlib.terminal.console import warn
from kidxlib.terminal.extras import needing_packages
from kidxlib.terminal.options import shared as of_kidx
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

_Given = TypeVar("_Given", bound="Asked")
#: Does the work. A command that opens neither workers nor a catalog gets None.
_Run: TypeAlias = "Callable[[_Given, Any], Outcome]"
_Open: TypeAlias = "Callable[[_Given], AbstractContextManager[Backend | None]]"


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


#: Former commands by their option; the key None stands for a command that itself has a new name.
Formerly: TypeAlias = "Mapping[str | None, Former]"

#: Where help lists a parameter: the first, the command's own, and those that many commands have, in this order.
FIRST, OWN, SETTINGS, NOW, JSON, PROCESSES = range(6)


def option(*declarations: str, only: str | None = None, at: int = OWN, **attributes: Any) -> Any:
    """A field that is an option. It takes the arguments of `click.option` and of `parameter`."""
    return parameter(click.option(*declarations, **attributes), only=only, at=at)


def parameter(decorator: Callable[[Any], Any], *, only: str | None = None, at: int = OWN) -> Any:
    """A field that is an option or an argument.

    Args:
        decorator: click's decorator of a parameter with the field's name.
        only: `KIDX` or `SPARK` if only one of them has the parameter; the field is None in the other.
        at: the parameter's place in help.
    """
    return field(metadata={"decorator": decorator, "only": only, "at": at})


@dataclass(frozen=True, kw_only=True)
class Asked:
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
        """Refuse options that cannot be used with others.

        Args:
            why: the error's text; `{option}` in it stands for the option that was given.
        """
        for name in parameters:
            if name in self.given:
                raise UsageError(why.format(option=self.given[name]))

    def held(self) -> AbstractContextManager[object]:
        """Locks and other resources that the command holds from before it opens workers and a catalog until it ends."""
        return nullcontext()


@dataclass(frozen=True, kw_only=True)
class OnCatalog(Asked):
    """The options of a command that works on a catalog."""

    catalog: str | None = parameter(shared_options.catalog)
    settings_file: Path = parameter(shared_options.settings_file, at=SETTINGS)
    now: str | None = parameter(shared_options.time_to_record, at=NOW)
    processes: int | None = parameter(of_kidx.processes, only=KIDX, at=PROCESSES)
    database: str | None = parameter(shared_options.database, only=SPARK, at=PROCESSES)

    @cached_property
    def settings(self) -> Settings:
        from kidxlib.run.settings import read_settings

        return read_settings(self.settings_file)

    @cached_property
    def context(self) -> RunContext:
        """The catalog, which must exist, and the time."""
        from kidxlib.run.context import RunContext

        return RunContext.of(self.settings, self.catalog, self.database, self.now).with_catalog()

    @property
    def makes_catalog(self) -> bool:
        """Whether the command makes a catalog that does not exist."""
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

    @cached_property
    def context(self) -> RunContext:
        """The catalog, which only the options can name, and the time."""
        from kidxlib.run.context import RunContext

        if not self.has_catalog and not self.is_job:
            return RunContext(catalog=None, database=None, now=datetime.now(UTC), event_log_dir=None)
        context = RunContext.given(self.settings, self.catalog, self.database, self.now)
        return context if self.makes_catalog else context.with_catalog()


@dataclass(frozen=True, kw_only=True)
class OnSources(OnCatalog):
    """The options of a command that works on sources and topics of a catalog.

    Attributes:
        sources: names of sources; empty for all.
    """

    sources: tuple[str, ...] = parameter(shared_options.cataloged_sources)
    topics: str | None = parameter(shared_options.cataloged_topics)

    def __post_init__(self) -> None:
        _ = self.pattern  # a wrong pattern is refused before anything is done

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        from kidxlib.indexing.source import parse_topics

        return parse_topics(self.topics or ".*")


def open_here(request: OnCatalog) -> AbstractContextManager[Backend]:
    """Open processes of this machine, and the request's catalog. Without a catalog, tables are kept in memory."""
    if not request.context.has_catalog:
        from kidxlib.operations.local_once import open_local_once

        return open_local_once(request.processes)
    from kidxlib.operations.local import open_local

    return open_local(request.context, request.processes, must_exist=not request.makes_catalog)


def nothing(_: Asked) -> AbstractContextManager[None]:
    """Neither workers nor a catalog."""
    return nullcontext()


def kidx_command(
    name: str,
    given: type[_Given],
    run: _Run[_Given],
    *,
    opened: _Open[Any] = open_here,
    reports_as: str,
    formerly: Formerly | None = None,
) -> click.Command:
    """`kidx X`: processes of this machine do the work. Its help is the docstring of `run`.

    Args:
        opened: opens the workers and the catalog.
        reports_as: the job's name in reports, whichever engine did the work: monitoring asks for that name.
    """
    return _command(name, given, run, opened, entry=KIDX, reports_as=reports_as, text=run.__doc__, formerly=formerly)


def spark_job(
    name: str,
    given: type[_Given],
    run: _Run[_Given],
    opened: _Open[_Given],
    text: str | None,
    *,
    formerly: Formerly | None = None,
) -> click.Command:
    """The job X of ./spark-submit.sh.

    Args:
        opened: opens the workers and the catalog.
        text: its module's docstring: the first line is for the list of jobs, the rest is its help; where there is
            none, the docstring of `run` is.
    """
    _, _, explained = (text or "").partition("\n\n")
    text = explained or run.__doc__
    return _command(name, given, run, opened, entry=SPARK, reports_as=name, text=text, formerly=formerly)


def former_job(name: str, former: Former) -> click.Command:
    """A job that has another name now."""
    return _Command(name, formerly={None: former})


class _Command(click.Command):
    """A command some options of which made another command once. Such an option runs that command, and says what to
    type now.
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
                made = former.command()
                program, space, _ = (info_name or "").rpartition(" ")
                words = rest if former.is_argument else args
                old = " ".join(filter(None, (info_name, option)))
                now = f"{old} is now {former.now}; the old spelling goes with the next release"
                try:
                    context = made.make_context(f"{program}{space}{made.name}", words, parent, **extra)
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
    given: type[_Given],
    run: _Run[_Given],
    opened: _Open[_Given],
    *,
    entry: str,
    reports_as: str,
    text: str | None,
    formerly: Formerly | None,
) -> click.Command:
    parameters = sorted((each for each in fields(given) if each.metadata), key=lambda each: each.metadata["at"])
    of_other: dict[str, Any] = {each.name: None for each in parameters if each.metadata["only"] not in (None, entry)}

    def work(**options: Any) -> Outcome:
        with needing_packages(given.needs or f"{entry} {name}"):
            on_command_line = _on_command_line(click.get_current_context())
            request = given(**options, **of_other, given=on_command_line, is_job=entry == SPARK)
            backend = opened(request)
        with request.held(), backend as opened_backend:
            outcome = run(request, opened_backend)
            outcome.show(as_json=request.as_json)
        return outcome

    command = reports_run(reports_as)(work)
    for each in reversed(parameters):
        if each.name not in of_other:
            command = each.metadata["decorator"](command)
    context_settings = {"max_content_width": 110}
    return click.command(
        name, _Command, help=cleandoc(text or ""), context_settings=context_settings, formerly=formerly or {}
    )(command)


def _on_command_line(context: click.Context) -> dict[str, str]:
    """The options and arguments on the command line, as a user types them, by the parameter's name."""
    return {
        str(each.name): each.opts[0] if isinstance(each, click.Option) else each.make_metavar(context).strip("[].")
        for each in context.command.params
        if context.get_parameter_source(str(each.name)) is ParameterSource.COMMANDLINE
    }
