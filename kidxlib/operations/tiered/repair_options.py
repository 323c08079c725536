"""The options of a build that are for tiered storage, and those that it has no use for."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any, Final, TypeVar

import click

from kidxlib.audit.tiered.finding import Level
from kidxlib.operations.tiered.options import is_tiered
from kidxlib.terminal.options import shared as of_kidx

_Command = TypeVar("_Command", bound=Callable[..., Any])

_OPTIONS: Final = (
    click.option(
        "--tiered",
        metavar="[NAME=]PLACE",
        help="Make side objects of remote segments anew that are missing or broken, in a directory or at "
        "s3://BUCKET/PREFIX in the layout of Kafka's LocalTieredStorage, by --tiered-metadata; into --index-dir.",
    ),
    click.option(
        "--tiered-metadata",
        multiple=True,
        metavar="PLACE",
        help="With --tiered, or of a source that is a bucket: a log dir that has partitions of __remote_log_metadata, "
        "or an export of them; several times where no one has all of it. Of a source those segments are read then that "
        "brokers read.",
    ),
    of_kidx.layout,
    click.option(
        "--level",
        type=click.Choice([level.value for level in Level]),
        default=Level.LISTING.value,
        show_default=True,
        help="With --tiered: find damage as kidx verify-tiered does at this level. The logs of segments that have "
        "some are read then.",
    ),
    click.option(
        "--logs",
        multiple=True,
        metavar="DIR",
        help="With --tiered: read logs in this log dir in the place of the bucket's, where they prove to be the same; "
        "several times for several.",
    ),
    click.option(
        "--apply",
        is_flag=True,
        help="With --tiered: put what was made into the bucket, too, where nobody else has meanwhile.",
    ),
)
#: What only a repair of tiered storage has, beside `tiered`, and what it has no use for; by parameter.
_OF_TIERED: Final = {"level": "--level", "logs": "--logs", "apply": "--apply"}
_OF_OTHERS: Final = {
    "directory": "DIR",
    "sources": "--source",
    "sample": "--sample",
    "in_place": "--in-place",
    "layout": "--layout",
    "accept_truncated": "--accept-truncated",
    "max_index_bytes": "--max-index-bytes",
    "verify_crc": "--verify-crc",
    "snapshots": "--snapshots",
    "epochs": "--epochs",
    "rebuild": "--rebuild",
    "fill_facts": "--fill-facts",
    "plan_on_executors": "--plan-on-executors",
    "repair": "--repair",
    "dry_run": "--dry-run",
    "now": "--now",
}


def tiered_options(command: _Command) -> _Command:
    """What `RepairOptions` takes, but for what a build of indexes has, too."""
    return reduce(lambda decorated, option: option(decorated), reversed(_OPTIONS), command)


def asks_for_tiered(context: click.Context, options: dict[str, Any]) -> bool:
    """Whether a build is a repair of tiered storage. Removes the options that only the other kind has."""
    return is_tiered(context, options, _OF_TIERED, _OF_OTHERS, "--tiered builds from no log dir: leave out {option}")


def reported_as(options: dict[str, Any]) -> str:
    """The name by which a build reports: who watches that logs are indexed does not take a repair for it."""
    return "build_index" if options["tiered"] is None else "repair_tiered"
