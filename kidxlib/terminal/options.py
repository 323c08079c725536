"""Options that several commands have, the types of their values, and their checks.

Types are whole numbers, numbers of bytes with a unit, and milliseconds (Kafka's `.ms`, a plain number or a duration
with its unit). The metavar says of what: `BYTES`, `MS`, `OFFSET`, else `N`. A renamed option works for one more
release, with a warning, and no help shows it.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from datetime import timedelta
from functools import wraps
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from click.core import ParameterSource

from kidxlib.audit.finding import Verdict
from kidxlib.errors import UsageError
from kidxlib.format.kafka_release import NEWEST, KafkaRelease
from kidxlib.terminal.console import end_phases, show_details, warn
from kidxlib.text.times import parse_duration

_Command = TypeVar("_Command", bound=Callable[..., Any])
_Result = TypeVar("_Result")
_Value = TypeVar("_Value")

_LONG_MIN: Final = -(2**63)
_LONG_MAX: Final = 2**63 - 1

_UNITS: Final = {
    "": 1,
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmgtp", start=1)},
    **{f"{letter}ib": 1024**power for power, letter in enumerate("kmgtp", start=1)},
}
_SIZE: Final = re.compile(r"([0-9]+) ?([a-z]*)", re.IGNORECASE)


class IntegerRange(click.IntRange):
    """Click's own type, with the range in words in a command's help, and with the value and the range in an error."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        problem = f"{value}: expected a whole number{self._bounds()}"
        if isinstance(value, str) and not value.isascii():  # int() takes the digits of all scripts
            self.fail(problem, param, ctx)
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            self.fail(problem, param, ctx)

    def _describe_range(self) -> str:
        """The range in a command's help; empty if all of Java's long is allowed."""
        has_min = self.min is not None and self.min > _LONG_MIN
        has_max = self.max is not None and self.max < _LONG_MAX
        if has_max:
            return f"{self.min} to {self.max}"
        return f"{self.min} or more" if has_min else ""

    def _bounds(self) -> str:
        if self.max is not None:
            return f" from {self.min} to {self.max}"
        return "" if self.min is None else f", {self.min} or more"


class ByteSize(click.ParamType[int]):
    """A number of bytes: whole, and with a unit (kB, MB, GB, TB, PB, or KiB and so on, in any case) or none."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        match = _SIZE.fullmatch(value.strip())
        unit = None if match is None else _UNITS.get(match[2].lower())
        size = -1 if match is None or unit is None else int(match[1]) * unit
        if not 0 <= size <= _LONG_MAX:
            self.fail(f"{value}: expected a number of bytes below 2⁶³, such as 1000000, 500MB or 20GiB", param, ctx)
        return size


class Milliseconds(IntegerRange):
    """A number of milliseconds: whole, or a duration with its unit, such as 7d."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, str) and value[-1:].isalpha():
            try:
                value = parse_duration(value) // timedelta(milliseconds=1)
            except UsageError as error:
                self.fail(f"{error}; or a plain number of milliseconds", param, ctx)
        return super().convert(value, param, ctx)


topics: Final = click.option("--topics", metavar="REGEX", default=".*", help="Only topics whose full name matches.")
accept_truncated: Final = click.option(
    "--accept-truncated", is_flag=True, help="With --in-place: also write the index of a corrupt log's valid prefix."
)
fail_on: Final = click.option(
    "--fail-on",
    type=click.Choice([Verdict.BROKEN.value, Verdict.TORN.value, Verdict.SAFE.value]),
    default=Verdict.BROKEN.value,
    show_default=True,
    help="Exit 3 if a file has this verdict or a worse one; safe is the mildest, broken the worst.",
)
#: More than a machine has cores. Bins of work are made for each process, even if there is no work for it.
_PROCESSES_MAX: Final = 1024
processes: Final = click.option(
    "--processes",
    metavar="N",
    type=IntegerRange(1, _PROCESSES_MAX),
    help="Number of processes that read. [default: one per core]",
)


def _begin(context: click.Context, _: click.Parameter, verbose: bool) -> None:
    show_details(verbose)
    context.call_on_close(lambda: show_details(False))  # called after `end_phases`: last in, first out
    context.call_on_close(end_phases)


#: For a command that begins phases: they end with the command, however it ends.
verbose: Final = click.option(
    "-v",
    "--verbose",
    is_flag=True,
    expose_value=False,
    callback=_begin,
    help="Also say what was skipped, and how long each phase took.",
)


def _release(_context: click.Context, parameter: click.Parameter, value: str | None) -> KafkaRelease | None:
    return None if value is None else KafkaRelease.given(parameter.opts[0], value)


#: For a command whose answers differ between versions of Kafka (`NodeRelease`).
kafka_version: Final = click.option(
    "--kafka-version",
    metavar="VERSION",
    callback=_release,
    help=f"Answer as this Kafka, where versions differ. [default: the node's, as it has registered; else {NEWEST}]",
)
as_json: Final = click.option("--json", "as_json", is_flag=True, help="Print one JSON object on standard output.")

#: The keys of `LAYOUTS`, written out here: importing it would slow `--help`.
LAYOUT_NAMES: Final = ("local", "aiven")
layout: Final = click.option(
    "--layout",
    type=click.Choice(LAYOUT_NAMES),
    help="DIR is a bucket of tiered storage, whose objects are named as by this plugin: Kafka's LocalTieredStorage or "
    "Aiven's. [default: local, where kafka-tiered-storage is its name, or that of a directory in it]",
)
tiered_metadata: Final = click.option(
    "--tiered-metadata",
    multiple=True,
    metavar="PLACE",
    help="Take only the segments of a bucket that brokers read, by the __remote_log_metadata in this log dir or "
    "export. May be repeated, if several have parts of it.",
)


#: The sources to read, each a directory.
sources: Final = click.option(
    "--source",
    "sources",
    multiple=True,
    metavar="[NAME=]DIR",
    help="A Kafka log dir or one partition's directory, or such a prefix s3://BUCKET/PREFIX; repeatable, then with "
    "a name each. [default: a checkout's sample, where no other place is named]",
)
sample: Final = click.option("--sample", is_flag=True, help="Read the sample that comes with a checkout.")
topics_to_read: Final = click.option(
    "--topics", metavar="REGEX", help="Only topics whose full name matches. [settings: build.topics]"
)

#: The sources of a catalog, each by its name.
cataloged_sources: Final = click.option(
    "--source", "sources", multiple=True, metavar="NAME", help="Only this source; repeatable. [default: all]"
)
cataloged_topics: Final = click.option("--topics", metavar="REGEX", help="Only topics whose full name matches.")

catalog: Final = click.option(
    "--catalog", metavar="DIR", help="Directory of the catalog's Delta tables. [settings: build.catalog]"
)
database: Final = click.option(
    "--database", metavar="NAME", help="The catalog is in a database of Spark's metastore instead."
)

#: The checkout, or the directory of a release, in which kidx.zip holds this module.
PROJECT: Final = next(path for path in Path(__file__).resolve().parents[2:] if path.is_dir())
SETTINGS_FILE: Final = PROJECT / "conf" / "kidx.toml"

settings_file: Final = click.option(
    "--settings",
    "settings_file",
    type=click.Path(path_type=Path),
    default=SETTINGS_FILE,
    help="The settings file. [default: conf/kidx.toml of the checkout or release that kidx is in; a wheel has none]",
)
time_to_record: Final = click.option(
    "--now", metavar="TIME", help="The time to record: ISO 8601 with a zone, or ms since the epoch."
)

apply_changes: Final = click.option("--apply", is_flag=True, help="Apply the changes. [default: dry run]")

_METADATA: Final = (
    click.option(
        "--cluster-metadata",
        metavar="DIR",
        help="A node's __cluster_metadata-0, for what topics are configured to. [default: each source's own, where it "
        "has one]",
    ),
    click.option(
        "--server-properties",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="The properties file that the source's broker is started with: its configs hold where a topic has none of "
        "its own.",
    ),
    click.option(
        "--metadata-high-watermark",
        metavar="OFFSET",
        type=IntegerRange(0, 2**63 - 1),
        help="The high watermark of the metadata quorum, as kafka-metadata-quorum describe --status prints it. "
        "[default: the end of the latest snapshot; with one voter, the end of the log]",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataOptions:
    """The values of the metadata's options; None: not given."""

    cluster_metadata: str | None = None
    server_properties: Path | None = None
    metadata_high_watermark: int | None = None


def metadata_options(command: Callable[..., _Result]) -> Callable[..., _Result]:
    """Add the options of `MetadataOptions` to a command, which gets them as its parameter `metadata`."""

    @wraps(command)
    def with_metadata(*arguments: Any, **options: Any) -> _Result:
        given = {field.name: options.pop(field.name) for field in fields(MetadataOptions)}
        return command(*arguments, metadata=MetadataOptions(**given), **options)

    for option in reversed(_METADATA):
        with_metadata = option(with_metadata)
    return with_metadata


#: The key of a context's `meta` for values given by old names: new name -> value.
_GIVEN: Final = f"{__name__}.given"


def renamed_option(
    new: str,
    *,
    old: str,
    old_type: click.ParamType[Any] | None = None,
    read_old: Callable[[Any], Any] = lambda value: value,
    **attributes: Any,
) -> Callable[[_Command], _Command]:
    """An option as `click.option` makes it, which had another name until now. The old option always takes a value, of
    the type `old_type` or else the new one's; `read_old` turns that value into the new option's. The `attributes` are
    the new option's, without a callback.
    """

    def keep(context: click.Context, _: click.Parameter, value: Any) -> None:
        if value is None:
            return
        context.meta.setdefault(_GIVEN, {})[new] = read_old(value)
        if not context.resilient_parsing:  # a shell that completes the line wants no warning
            warn(f"{old} is now {new}; the old name goes with the next release")

    def take(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
        given = context.meta.get(_GIVEN, {})
        if new not in given:
            return value
        if context.get_parameter_source(str(parameter.name)) is ParameterSource.COMMANDLINE:
            raise UsageError(f"{old}: is the old name of {new}; give one of the two")
        return given[new]

    # Click reads eager options first, so `take` finds what `keep` has kept.
    of_old = click.option(
        old,
        type=old_type or attributes.get("type"),
        hidden=True,
        is_eager=True,
        expose_value=False,
        callback=keep,
    )
    of_new = click.option(new, callback=take, **attributes)
    return lambda command: of_new(of_old(command))


#: The time from renaming a file until it is removed (`file.delete.delay.ms`).
DELETE_DELAY: Final = "60s"


def parse_option(option: str, parse: Callable[[str], _Value], text: str) -> _Value:
    """Parse an option's value with a function such as those of `kidxlib.text.times`."""
    try:
        return parse(text)
    except UsageError as error:
        raise UsageError(f"{option}: {error}") from error


def ensure_parent_exists(option: str, file: Path) -> None:
    """Refuse a file that cannot be written, before anything is done."""
    if str(file) == "-":
        raise UsageError(f"{option} -: not written to standard output; name a file, or ./- for one of that name")
    if file.is_dir():
        raise UsageError(f"{option} {file}: a directory; expected a file's name")
    if not file.parent.is_dir():
        raise UsageError(f"{option} {file}: no directory {file.parent}; make it first")


#: The packages that each extra brings, the smaller extra first.
_CATALOG: Final = ("deltalake", "pydantic", "prometheus_client")
_EXTRAS: Final = {"catalog": _CATALOG, "copies": (*_CATALOG, "botocore"), "check": ("confluent_kafka",)}


@contextlib.contextmanager
def needing_packages(option: str, extra: str = "catalog") -> Iterator[None]:
    """Within the context, import what an option needs; `extra` is expected to bring all of it."""
    try:
        yield
    except ModuleNotFoundError as error:
        able = [name for name in _EXTRAS if error.name in _EXTRAS[name]]
        if not able:
            raise
        enough = extra if extra in able else able[0]
        missing = [name for name in _EXTRAS[enough] if find_spec(name) is None]
        raise UsageError(
            f"{option}: needs packages that are not installed: {', '.join(missing)}; "
            f"install kidx with the extra that brings them: pip install 'WHEEL[{enough}]'"
        ) from error
