"""Options that several commands have."""

from __future__ import annotations

from typing import Final

import click

from kidxlib.audit.finding import Verdict
from kidxlib.format.kafka_release import NEWEST, KafkaRelease
from kidxlib.terminal.console import show_details
from kidxlib.terminal.options.numbers import IntegerRange
from kidxlib.terminal.progress import end_phases

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
