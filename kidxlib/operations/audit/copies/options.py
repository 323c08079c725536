"""The options of an audit that are for copies, and those that a copy has no use for."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any, Final, TypeVar

import click

from kidxlib.terminal.options.given import leave_out

_Command = TypeVar("_Command", bound=Callable[..., Any])

_OPTIONS: Final = (
    click.option(
        "--copy",
        metavar="URL",
        help="Read no log: compare the copy of a log dir at s3://BUCKET/PREFIX with the checksums in the catalog, with "
        "one HEAD a segment. --source then is a NAME in the catalog, where that has several.",
    ),
    click.option(
        "--inactive-only",
        is_flag=True,
        help="With --copy: leave out the last segment of each partition, to which a broker may still write.",
    ),
    click.option(
        "--require-checksums",
        is_flag=True,
        help="With --copy: exit 3 also where an object and the catalog have no checksum in common.",
    ),
)
#: What an audit of copies has beside `copy`, and what only one that reads logs has; by parameter.
_OF_COPIES: Final = {"inactive_only": "--inactive-only", "require_checksums": "--require-checksums"}
_OF_LOGS: Final = {
    "directories": "DIR",
    "sample": "--sample",
    "index_dir": "--index-dir",
    "max_bytes": "--max-bytes",
    "interval_bytes": "--interval-bytes",
    "deep_iteration": "--deep-iteration",
    "fail_on": "--fail-on",
    "require_tiering": "--require-tiering",
    "list_safe": "--list-safe",
    "alone": "--this-dir-alone",
    "shutdown": "--shutdown",
    "now": "--now",
    "layout": "--layout",
    "tiered_metadata": "--tiered-metadata",
    "cluster_metadata": "--cluster-metadata",
    "server_properties": "--server-properties",
    "metadata_high_watermark": "--metadata-high-watermark",
}


def copy_options(command: _Command) -> _Command:
    """What `CopyOptions` takes, but for what an audit of logs has, too."""
    return reduce(lambda decorated, option: option(decorated), reversed(_OPTIONS), command)


def asks_for_copy(context: click.Context, options: dict[str, Any]) -> bool:
    """Whether an audit is one of copies. Removes the options that only the other kind has."""
    is_of_copy = options["copy"] is not None
    if is_of_copy:
        leave_out(context, options, _OF_LOGS, "--copy reads no log: leave out {option}")
    else:
        leave_out(context, options, _OF_COPIES, "{option}: only with --copy")
    del options["metadata" if is_of_copy else "copy"]
    return is_of_copy


def reported_as(options: dict[str, Any]) -> str:
    """The name by which an audit reports: who watches that logs are read does not take another audit for one."""
    if options["tiered"] is not None:
        return "verify_tiered"
    return "verify_index" if options["copy"] is None else "verify_copy"
