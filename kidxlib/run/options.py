"""Options of several commands, their checks, and the directory of the project."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from kidxlib.errors import UsageError
from kidxlib.terminal.options import IntegerRange

_Result = TypeVar("_Result")
_Value = TypeVar("_Value")

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
    def with_metadata(
        *arguments: Any,
        cluster_metadata: str | None,
        server_properties: Path | None,
        metadata_high_watermark: int | None,
        **options: Any,
    ) -> _Result:
        metadata = MetadataOptions(
            cluster_metadata=cluster_metadata,
            server_properties=server_properties,
            metadata_high_watermark=metadata_high_watermark,
        )
        return command(*arguments, metadata=metadata, **options)

    for option in reversed(_METADATA):
        with_metadata = option(with_metadata)
    return with_metadata


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
