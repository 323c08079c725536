"""The options of `retention`, whoever plans."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from kidxlib.run import options as shared_options
from kidxlib.run.known_topics import metadata_options
from kidxlib.terminal.options.numbers import IntegerRange, Milliseconds

_Command = TypeVar("_Command", bound=Callable[..., Any])

_LIMIT: Final = IntegerRange(-1, 2**63 - 1)

_OPTIONS: Final = (
    shared_options.in_catalog,
    click.option(
        "--policy",
        type=click.Path(path_type=Path),
        help="What kafka-configs --describe --all prints of topics, or a file of policies (TOML); several are "
        "compared.",
    ),
    metadata_options,
    click.option(
        "--retention-ms",
        metavar="MS",
        type=Milliseconds(-1, 2**63 - 1),
        help="retention.ms of all topics, or a duration with its unit, such as 7d; -1: no limit.",
    ),
    click.option(
        "--retention-bytes", metavar="BYTES", type=_LIMIT, help="retention.bytes of all topics; -1: no limit."
    ),
    click.option(
        "--from-files", is_flag=True, help="Look at each time index too, as a broker does; say where it differs."
    ),
    click.option("--include-internal", is_flag=True, help="Plan Kafka's own topics too, as a broker configures them."),
    click.option(
        "--what-if", is_flag=True, help="Take Kafka's own defaults for what nobody said; --apply refuses such a plan."
    ),
    click.option("--segments", is_flag=True, help="List each segment: what becomes of it, why, and when it goes."),
    click.option(
        "--delete-records-json",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Write the plan for kafka-delete-records --offset-json-file.",
    ),
    click.option("--apply", is_flag=True, help="Apply a plan to an archive, in its log dir and its index directory."),
    click.option("--plan", "plan_id", metavar="ID", help="The plan to apply."),
    click.option("--delete-delay", metavar="TIME", help="Time from renaming files to removing them. [default: 60s]"),
    click.option("--max-plan-age", metavar="TIME", help="Refuse a plan that is older. [default: 1h]"),
    click.option(
        "--same-broker",
        is_flag=True,
        help="The log dir is of the broker of --server-properties, and mounted elsewhere than its log.dirs says.",
    ),
    click.option(
        "--max-metadata-lag",
        metavar="TIME",
        help="Refuse cluster metadata that ends so long before a partition's last record. [default: 2h]",
    ),
    shared_options.settings_file,
    click.option(
        "--now",
        metavar="TIME",
        help="Decide for this time: ISO 8601 with a zone, or ms since the epoch; the plan is a --what-if.",
    ),
    shared_options.as_json,
)


def retention_options(command: _Command) -> _Command:
    """What `RetentionOptions` takes, but for the database; and `as_json`."""
    return reduce(lambda decorated, option: option(decorated), reversed(_OPTIONS), command)
