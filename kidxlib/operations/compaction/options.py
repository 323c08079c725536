"""The options of a compaction, whoever does it."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from kidxlib.run import options as shared_options
from kidxlib.terminal.options.numbers import IntegerRange

_Command = TypeVar("_Command", bound=Callable[..., Any])

_OPTIONS: Final = (
    shared_options.catalog,
    shared_options.cataloged_sources,
    shared_options.cataloged_topics,
    click.option(
        "--interval-bytes",
        metavar="BYTES",
        type=IntegerRange(0, 2**31 - 1),
        help="Give segments that are not active this interval.",
    ),
    click.option(
        "--older-than",
        metavar="TIME",
        help="Only segments older than this by their largest timestamp, as 7d. [default: 0]",
    ),
    click.option(
        "--policy",
        type=click.Path(path_type=Path),
        help="A file (TOML) of rules by topic, age and size, in place of the two options above.",
    ),
    click.option("--trim", is_flag=True, help="Trim preallocated index files of segments that are not active."),
    click.option(
        "--orphans", is_flag=True, help="Remove index and auxiliary files without a segment, and what killed runs left."
    ),
    click.option("--delete-delay", metavar="TIME", help="Minimum age of .deleted files. [default: 60s]"),
    click.option("--tables", is_flag=True, help="Optimize and vacuum the catalog's tables; expire rows by the policy."),
    shared_options.apply_changes,
    shared_options.settings_file,
    click.option(
        "--now",
        metavar="TIME",
        help="The time by which segments are --older-than: ISO 8601 with a zone, or ms since the epoch. What is "
        "removed goes by the clock.",
    ),
    shared_options.as_json,
)


def compaction_options(command: _Command) -> _Command:
    """What `CompactIndexOptions` takes, but for the database; and `as_json`."""
    return reduce(lambda decorated, option: option(decorated), reversed(_OPTIONS), command)
