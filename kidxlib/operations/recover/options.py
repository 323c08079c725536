"""The options of `recover`."""

from __future__ import annotations

import enum
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from kidxlib.run.options import metadata_options
from kidxlib.terminal.options import shared as shared_options

_Command = TypeVar("_Command", bound=Callable[..., Any])


class Level(enum.StrEnum):
    """How much of its recovery a broker is spared."""

    CHECKPOINT = "checkpoint"  # recovery points are advanced: it reads the last segment of each partition again
    MARKER = "marker"  # it finds a clean shutdown, and reads nothing again


_OPTIONS: Final = (
    click.argument("log_dirs", metavar="LOG_DIR…", nargs=-1),
    click.option("--apply", is_flag=True, help="Do what the plan says. Without it nothing is written."),
    click.option(
        "--level",
        type=click.Choice([level.value for level in Level]),
        default=Level.CHECKPOINT.value,
        show_default=True,
        help="checkpoint: the broker reads the last segment of each partition again, and judges for itself. marker: it "
        "reads none.",
    ),
    click.option(
        "--all",
        "everything",
        is_flag=True,
        help="Read all segments, as a broker without recovery points would. [default: from the recovery points on]",
    ),
    click.option(
        "--truncate",
        is_flag=True,
        help="Cut logs where the broker would cut them as it starts, and drop later segments where it would. Needs "
        "--keep.",
    ),
    click.option(
        "--keep",
        metavar="DIR",
        type=click.Path(path_type=Path),
        help="Where --truncate copies what it cuts off, and what the broker will drop; and --mend the files that it "
        "replaces. Outside of all log dirs.",
    ),
    click.option(
        "--mend",
        "mends",
        is_flag=True,
        help="Put small files in place that are missing or cannot be read, where logs and the cluster's metadata tell "
        "what they were: leader epochs, recovery points, and with the next two options more. Needs --keep.",
    ),
    click.option(
        "--accept-topic-id",
        "accepted_topics",
        metavar="NAME",
        multiple=True,
        help="With --mend: partitions of this topic that have no partition.metadata are those of the topic that the "
        "metadata knows by this name, and not of a deleted one. May be repeated.",
    ),
    click.option(
        "--replica",
        "replicas",
        metavar="DIR",
        multiple=True,
        help="With --mend: a log dir of another broker, or a copy of one. Where a partition has no partition.metadata, "
        "and the replica there has the topic id that the metadata has and the same batches, that confirms it. May be "
        "repeated.",
    ),
    click.option(
        "--set-aside-snapshot",
        "sets_snapshot_aside",
        is_flag=True,
        help="With --mend: move a snapshot of the cluster's metadata that cannot be read to --keep, where an older one "
        "and the log lead to the same end.",
    ),
    click.option(
        "--accept-loss",
        is_flag=True,
        help="Go on where records are dropped: by --truncate below the high watermark or the recovery point; else by "
        "the broker, to which those partitions are left.",
    ),
    click.option(
        "--this-dir-alone",
        "alone",
        is_flag=True,
        help="The broker's other log dirs are lost: go on with those that are named. At level checkpoint only.",
    ),
    click.option(
        "--trust-page-cache",
        "trusts",
        is_flag=True,
        help="Read batch headers alone, where a note of the last run and the kernel show that nothing is lost that the "
        "broker had written; else read all. --apply makes the note for the next run.",
    ),
    click.option(
        "--broker-log",
        "broker_logs",
        metavar="FILE",
        multiple=True,
        type=click.Path(path_type=Path),
        help="What the broker has said since its last start; with an error of a disk in it nothing is trusted. May be "
        "repeated.",
    ),
    click.option(
        "--or-leave",
        is_flag=True,
        help="For a start script: exit with 0 also where nothing could be done, and where something is dropped, so "
        "that the broker starts in any case.",
    ),
    metadata_options,
    shared_options.processes,
    shared_options.as_json,
)


def recover_options(command: _Command) -> _Command:
    """What `recover_request` takes."""
    return reduce(lambda decorated, option: option(decorated), reversed(_OPTIONS), command)
