"""The options of an audit, whoever does it."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any, Final, TypeVar

import click

from kidxlib.audit.finding import Verdict
from kidxlib.operations.audit.copies.options import copy_options
from kidxlib.operations.tiered.options import tiered_options
from kidxlib.run import options as shared_options
from kidxlib.run.options import metadata_options
from kidxlib.terminal.options.given import renamed_option
from kidxlib.terminal.options.numbers import ByteSize, IntegerRange

#: A value of `--shutdown`.
CLEAN: Final = "clean"

_Command = TypeVar("_Command", bound=Callable[..., Any])

_OPTIONS: Final = (
    shared_options.sources,
    shared_options.sample,
    click.option(
        "--index-dir",
        metavar="DIR",
        help="The directory of the index files. [default: where the catalog says, without one beside the logs]",
    ),
    click.option("--catalog", metavar="DIR", help="Record what is found in this catalog, and take intervals from it."),
    shared_options.topics_to_read,
    click.option(
        "--max-bytes",
        metavar="SIZE",
        type=ByteSize(),
        help="With --catalog: read logs of at most SIZE bytes together, such as 500GB or 2TiB. Partitions that were "
        "never audited come first, then those of the oldest audits; one that is larger than SIZE is read alone. What "
        "is left out is counted. [default: all]",
    ),
    click.option(
        "--interval-bytes",
        metavar="BYTES",
        type=IntegerRange(0, 2**31 - 1),
        help="Kafka's index.interval.bytes. "
        "[default: the catalog's of each segment, else settings: build.interval_bytes, else the topic's]",
    ),
    click.option(
        "--deep-iteration",
        is_flag=True,
        help="Also decompress and read all records, and check them against the headers of their batches.",
    ),
    click.option(
        "--fail-on",
        type=click.Choice([Verdict.BROKEN.value, Verdict.TORN.value, Verdict.SAFE.value]),
        default=Verdict.BROKEN.value,
        show_default=True,
        help="Exit 3 if a file has this verdict or a worse one; safe is the mildest, broken the worst.",
    ),
    click.option(
        "--list-safe",
        is_flag=True,
        help="Print each file that is safe. [default: of more than three for one reason a line with their number]",
    ),
    renamed_option(
        "--require-tiering",
        old="--gate",
        old_type=click.Choice(["tiering"]),
        read_old=lambda _: True,
        is_flag=True,
        help="Exit 3 if a segment lacks what tiered storage needs.",
    ),
    click.option(
        "--this-dir-alone",
        "alone",
        is_flag=True,
        help="Do not exit 3 for other log dirs of the broker that nobody has given, or a lost __cluster_metadata-0.",
    ),
    click.option(
        "--shutdown",
        type=click.Choice([CLEAN, "unclean"]),
        help="How the broker stopped, for its next start. [default: as the log dir says]",
    ),
    metadata_options,
    copy_options,
    tiered_options,
    shared_options.settings_file,
    shared_options.time_to_record,
    shared_options.as_json,
)


def audit_options(command: _Command) -> _Command:
    """What `AuditOptions` takes, but for the database; what `CopyOptions` and `TieredOptions` take besides; and
    `as_json`.
    """
    return reduce(lambda decorated, option: option(decorated), reversed(_OPTIONS), command)
