"""The options of an audit that are for tiered storage, and those that it has no use for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any, Final, TypeVar

import click

from kidxlib.audit.tiered.finding import Level
from kidxlib.indexing.remote_logs import LAYOUTS
from kidxlib.log.remote.layout import STORAGE_DIRECTORY
from kidxlib.terminal.options.given import leave_out

_Command = TypeVar("_Command", bound=Callable[..., Any])

_OPTIONS: Final = (
    click.option(
        "--tiered",
        metavar="[NAME=]PLACE",
        help="Audit remote segments in a directory or at s3://BUCKET/PREFIX, by --tiered-metadata. NAME is that of the "
        "source in the catalog.",
    ),
    click.option(
        "--tiered-metadata",
        multiple=True,
        metavar="PLACE",
        help="With --tiered, or of a source that is a bucket: a log dir, or a copy of one, that has partitions of "
        "__remote_log_metadata, or a NAME.parquet to which kidx export has written it; several times where no one has "
        "all of it.",
    ),
    click.option(
        "--layout",
        type=click.Choice(tuple(LAYOUTS)),
        help="The plugin that has named the objects of --tiered, or of a source that is a bucket: Kafka's "
        f"LocalTieredStorage or Aiven's. [default: local; of a source, where {STORAGE_DIRECTORY} is its name, or that "
        "of a directory in it]",
    ),
    click.option(
        "--level",
        type=click.Choice([level.value for level in Level]),
        default=Level.LISTING.value,
        show_default=True,
        help="With --tiered: read names and sizes, the bytes of indexes too, or those of logs too.",
    ),
    click.option(
        "--stuck-after",
        metavar="DURATION",
        default="1h",
        show_default=True,
        help="With --tiered: how long copying or deleting a segment may last, and what is due may stay.",
    ),
    click.option(
        "--what-if",
        multiple=True,
        metavar="NAME=VALUE",
        help="With --tiered: what another retention.ms, retention.bytes, local.retention.ms or local.retention.bytes "
        "would free in the bucket and in the log dirs of --tiered-metadata; several times for several settings.",
    ),
)
#: What only an audit of tiered storage has, beside `tiered`, and what it has no use for; by parameter.
_OF_TIERED: Final = {
    "level": "--level",
    "stuck_after": "--stuck-after",
    "what_if": "--what-if",
}
_OF_OTHERS: Final = {
    "directories": "DIR",
    "sources": "--source",
    "sample": "--sample",
    "index_dir": "--index-dir",
    "max_bytes": "--max-bytes",
    "deep_iteration": "--deep-iteration",
    "require_tiering": "--require-tiering",
    "list_safe": "--list-safe",
    "alone": "--this-dir-alone",
    "shutdown": "--shutdown",
    "copy": "--copy",
    "inactive_only": "--inactive-only",
    "require_checksums": "--require-checksums",
}
#: What only a run has that is recorded.
_OF_CATALOGS: Final = {"settings_file": "--settings"}


def tiered_options(command: _Command) -> _Command:
    """What `TieredOptions` takes, but for what an audit of logs has, too."""
    return reduce(lambda decorated, option: option(decorated), reversed(_OPTIONS), command)


def asks_for_tiered(context: click.Context, options: dict[str, Any]) -> bool:
    """Whether an audit is one of tiered storage. Removes the options that only the other kinds have."""
    return is_tiered(context, options, _OF_TIERED, _OF_OTHERS, "--tiered audits no log dir: leave out {option}")


def is_tiered(
    context: click.Context,
    options: dict[str, Any],
    of_tiered: Mapping[str, str],
    of_others: Mapping[str, str],
    why: str,
) -> bool:
    """Whether a command is to work on tiered storage. Removes the options that only another kind of run has.

    Args:
        options: all of the command's, by parameter.
        of_tiered: what a user calls those that only such a run has, by parameter, beside `tiered`.
        of_others: those that it has no use for.
        why: what to say where one of these was given; `{option}` stands for it.
    """
    if options["tiered"] is None:
        leave_out(context, options, of_tiered, "{option}: only with --tiered")
        del options["tiered"]
        return False
    leave_out(context, options, of_others, why)
    if options["catalog"] is None and options.get("database") is None:
        leave_out(context, options, _OF_CATALOGS, "{option}: only with --catalog")
    return True
