"""The options of a build, whoever does it."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any, Final, TypeVar

import click

from kidxlib.operations.tiered.repair_options import tiered_options
from kidxlib.run import options as shared_options
from kidxlib.run.options import metadata_options
from kidxlib.terminal.options.numbers import ByteSize, IntegerRange

_Command = TypeVar("_Command", bound=Callable[..., Any])

_OPTIONS: Final = (
    shared_options.sources,
    shared_options.sample,
    click.option(
        "--index-dir",
        metavar="DIR",
        help="Where <topic>-<partition>/<base offset>.index and .timeindex go. [settings: build.index_dir]",
    ),
    click.option("--in-place", is_flag=True, help="Write beside the segments instead, under the log dir's lock."),
    shared_options.accept_truncated,
    shared_options.catalog,
    shared_options.topics_to_read,
    click.option(
        "--interval-bytes",
        metavar="BYTES",
        type=IntegerRange(0, 2**31 - 1),
        help="Kafka's index.interval.bytes. [default: settings: build.interval_bytes, else the topic's]",
    ),
    click.option(
        "--max-index-bytes",
        metavar="BYTES",
        type=IntegerRange(12, 2**31 - 1),
        help="Kafka's segment.index.bytes. [default: settings: build.max_index_bytes, else the topic's]",
    ),
    click.option(
        "--verify-crc/--no-verify-crc",
        default=None,
        help="Check every batch's checksum, or read batch headers only. [settings: build.verify_crc]",
    ),
    click.option(
        "--snapshots/--no-snapshots", default=None, help="Write producer snapshots too. [settings: build.snapshots]"
    ),
    click.option(
        "--epochs/--no-epochs", default=None, help="Write leader-epoch-checkpoint files too. [settings: build.epochs]"
    ),
    click.option("--rebuild", is_flag=True, help="Read every segment again, whatever the catalog says of it."),
    click.option(
        "--fill-facts",
        metavar="SIZE",
        type=ByteSize(),
        help="Read logs once more for facts that the catalog lacks of them: of at most SIZE bytes together, such as "
        "500MB or 2TiB.",
    ),
    click.option(
        "--plan-on-executors",
        is_flag=True,
        help="Let executors, or processes of kidx, list segments and compare them with the catalog, also where there "
        "are few. "
        "[settings: build.driver_listing_max]",
    ),
    metadata_options,
    click.option("--repair", is_flag=True, help="Write only the files that the last audit found broken."),
    click.option("--dry-run", is_flag=True, help="Say what would be read and how long that takes; write nothing."),
    tiered_options,
    shared_options.settings_file,
    shared_options.time_to_record,
    shared_options.as_json,
)


def build_options(command: _Command) -> _Command:
    """What `BuildOptions` takes, but for the database; what `RepairOptions` takes besides; `dry_run` and `as_json`."""
    return reduce(lambda decorated, option: option(decorated), reversed(_OPTIONS), command)
