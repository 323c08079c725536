"""Makes `kidx X` and the job X of ./spark-submit.sh from one dataclass, whose fields are the options, and one function
that does the work. A module of a command imports what does the work once the function is called: help and completion
wait for none of it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields
from functools import cached_property
from inspect import cleandoc
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import click

from kidxlib.run import options as shared_options
from kidxlib.run.result import Outcome
from kidxlib.run.run_report import reports_run_of
from kidxlib.terminal.extras import needing_packages
from kidxlib.terminal.options import shared as of_kidx

if TYPE_CHECKING:
    import re

    from kidxlib.operations.backend import Backend
    from kidxlib.run.context import RunContext
    from kidxlib.run.settings import Settings

KIDX: Final = "kidx"
SPARK: Final = "./spark-submit.sh"

_Given = TypeVar("_Given", bound="OnCatalog")
_Run: TypeAlias = "Callable[[_Given, Backend], Outcome]"
_OpenBackend: TypeAlias = "Callable[[_Given], AbstractContextManager[Backend]]"


def option(*declarations: str, **attributes: Any) -> Any:
    """A field that is an option: the arguments are those of `click.option`."""
    return parameter(click.option(*declarations, **attributes))


def parameter(decorator: Callable[[Any], Any], *, last: bool = False, only: str | None = None) -> Any:
    """A field that is an option or an argument.

    Args:
        decorator: click's, of a parameter with the field's name.
        last: help lists it behind those that are not.
        only: whose parameter it is, where not both have it; the field is None for the other one.
    """
    return field(metadata={"decorator": decorator, "last": last, "only": only})


@dataclass(frozen=True, kw_only=True)
class OnCatalog:
    """What a command that works on a catalog is asked for. A field that a command makes a constant is no option."""

    catalog: str | None = parameter(shared_options.catalog)
    settings_file: Path = parameter(shared_options.settings_file, last=True)
    now: str | None = parameter(shared_options.time_to_record, last=True)
    as_json: bool = parameter(shared_options.as_json, last=True)
    processes: int | None = parameter(of_kidx.processes, last=True, only=KIDX)
    database: str | None = parameter(shared_options.database, last=True, only=SPARK)

    @cached_property
    def settings(self) -> Settings:
        from kidxlib.run.settings import read_settings

        return read_settings(self.settings_file)

    @cached_property
    def context(self) -> RunContext:
        """The catalog, which is there, and the time."""
        from kidxlib.run.context import RunContext

        return RunContext.of(self.settings, self.catalog, self.database, self.now).with_catalog()


@dataclass(frozen=True, kw_only=True)
class OnSources(OnCatalog):
    """What a command is asked for that works on sources and topics of a catalog.

    Attributes:
        sources: by name; empty for all.
    """

    sources: tuple[str, ...] = parameter(shared_options.cataloged_sources)
    topics: str | None = parameter(shared_options.cataloged_topics)

    def __post_init__(self) -> None:
        _ = self.pattern  # a wrong one is told before anything is done

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        from kidxlib.terminal.options.sources import parse_topics

        return parse_topics(self.topics or ".*")


def kidx_command(name: str, given: type[_Given], run: _Run[_Given], *, reports_as: str) -> click.Command:
    """`kidx X`: processes of this machine do the work. Its help is the docstring of `run`.

    Args:
        reports_as: the job's name: who watches asks for that, whichever engine did it.
    """

    def open_backend(request: _Given) -> AbstractContextManager[Backend]:
        from kidxlib.operations.local import open_local

        return open_local(request.context, request.processes, must_exist=True)

    return _command(name, given, run, open_backend, entry=KIDX, reports_as=reports_as, text=run.__doc__)


def spark_job(
    name: str, given: type[_Given], run: _Run[_Given], open_backend: _OpenBackend[_Given], text: str | None
) -> click.Command:
    """The job X of ./spark-submit.sh.

    Args:
        text: its module's docstring: the first line is for the list of jobs, the rest is its help.
    """
    _, _, explained = (text or "").partition("\n\n")
    return _command(name, given, run, open_backend, entry=SPARK, reports_as=name, text=explained)


def _command(
    name: str,
    given: type[_Given],
    run: _Run[_Given],
    open_backend: _OpenBackend[_Given],
    *,
    entry: str,
    reports_as: str,
    text: str | None,
) -> click.Command:
    parameters = sorted((each for each in fields(given) if each.metadata), key=lambda each: each.metadata["last"])
    of_other: dict[str, Any] = {each.name: None for each in parameters if each.metadata["only"] not in (None, entry)}

    def work(**options: Any) -> Outcome:
        with needing_packages(f"{entry} {name}"):
            request = given(**options, **of_other)
            opened = open_backend(request)
        with opened as backend:
            outcome = run(request, backend)
            outcome.show(as_json=request.as_json)
        return outcome

    command = reports_run_of(reports_as)(work)
    for each in reversed(parameters):
        if each.name not in of_other:
            command = each.metadata["decorator"](command)
    return click.command(name, help=cleandoc(text or ""), context_settings={"max_content_width": 110})(command)
