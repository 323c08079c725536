"""`kidx recover`: make a crashed broker's log dirs ready, so that it starts at once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from kidxlib.commands.command import (
    FIRST,
    Former,
    WithoutCatalog,
    command_in,
    kidx_command,
    open_once,
    option,
    parameter,
)
from kidxlib.errors import UsageError
from kidxlib.format.kafka_release import KafkaRelease
from kidxlib.terminal import options as shared_options
from kidxlib.terminal.options import MetadataOptions, metadata_options
from kidxlib.terminal.outcome import Outcome

if TYPE_CHECKING:
    from kidxlib.operations.backend import Backend
    from kidxlib.operations.recover.recover import RecoverRequest

#: The values of `RecoverLevel`, written out here: importing it would slow `--help`.
_LEVELS: Final = ("checkpoint", "marker")


@dataclass(frozen=True, kw_only=True)
class RecoverCommand(WithoutCatalog):
    """What to recover. The fields mean what those of `RecoverRequest` mean."""

    log_dirs: tuple[str, ...] = parameter(click.argument("log_dirs", metavar="LOG_DIR…", nargs=-1), at=FIRST)
    apply: bool = option("--apply", is_flag=True, help="Do what the plan says. Without it nothing is written.")
    level: str = option(
        "--level",
        type=click.Choice(_LEVELS),
        default=_LEVELS[0],
        show_default=True,
        help="checkpoint: the broker reads the last segment of each partition again, and judges for itself. marker: it "
        "reads none.",
    )
    everything: bool = option(
        "--all",
        "everything",
        is_flag=True,
        help="Read all segments, as a broker without recovery points would. [default: from the recovery points on]",
    )
    truncate: bool = option(
        "--truncate",
        is_flag=True,
        help="Cut logs where the broker would cut them as it starts, and drop later segments where it would. Needs "
        "--keep.",
    )
    keep: Path | None = option(
        "--keep",
        metavar="DIR",
        type=click.Path(path_type=Path),
        help="Where --truncate copies what it cuts off, and what the broker will drop; and --mend the files that it "
        "replaces. Outside of all log dirs.",
    )
    mends: bool = option(
        "--mend",
        "mends",
        is_flag=True,
        help="Put small files in place that are missing or cannot be read, where logs and the cluster's metadata tell "
        "what they were: leader epochs, recovery points, and with the next two options more. Needs --keep.",
    )
    accepted_topics: tuple[str, ...] = option(
        "--accept-topic-id",
        "accepted_topics",
        metavar="NAME",
        multiple=True,
        help="With --mend: partitions of this topic that have no partition.metadata are those of the topic that the "
        "metadata knows by this name, and not of a deleted one. May be repeated.",
    )
    replicas: tuple[str, ...] = option(
        "--replica",
        "replicas",
        metavar="DIR",
        multiple=True,
        help="With --mend: a log dir of another broker, or a copy of one. Where a partition has no partition.metadata, "
        "and the replica there has the topic id that the metadata has and the same batches, that confirms it. May be "
        "repeated.",
    )
    sets_snapshot_aside: bool = option(
        "--set-aside-snapshot",
        "sets_snapshot_aside",
        is_flag=True,
        help="With --mend: move a snapshot of the cluster's metadata that cannot be read to --keep, where an older one "
        "and the log lead to the same end.",
    )
    accept_loss: bool = option(
        "--accept-loss",
        is_flag=True,
        help="Go on though records are lost: --truncate cuts also below the high watermark or the recovery point; "
        "without it, the broker cuts these partitions itself.",
    )
    alone: bool = option(
        "--this-dir-alone",
        "alone",
        is_flag=True,
        help="The broker's other log dirs are lost: go on with those that are named. At level checkpoint only.",
    )
    trusts: bool = option(
        "--trust-page-cache",
        "trusts",
        is_flag=True,
        help="Read batch headers alone, where a note of the last run and the kernel show that nothing is lost that the "
        "broker had written; else read all. --apply makes the note for the next run.",
    )
    broker_logs: tuple[Path, ...] = option(
        "--broker-log",
        "broker_logs",
        metavar="FILE",
        multiple=True,
        type=click.Path(path_type=Path),
        help="The broker's log since its last start. If it has an error of a disk, nothing is trusted. May be "
        "repeated.",
    )
    or_leave: bool = option(
        "--or-leave",
        is_flag=True,
        help="For a start script: exit with 0 also where nothing could be done, and where something is dropped, so "
        "that the broker starts in any case.",
    )
    kafka_version: KafkaRelease | None = parameter(shared_options.kafka_version)
    metadata: MetadataOptions = parameter(metadata_options)

    def __post_init__(self) -> None:
        if not self.log_dirs:
            raise UsageError("LOG_DIR…: missing; name all log dirs of one broker, as log.dirs names them")
        if (self.truncate or self.mends) != (self.keep is not None):
            raise UsageError("--keep DIR: needed by --truncate and by --mend, and of no use without one of them")
        if (self.accepted_topics or self.replicas or self.sets_snapshot_aside) and not self.mends:
            raise UsageError(
                "--accept-topic-id, --replica, --set-aside-snapshot: only --mend puts files in place; give it too"
            )
        if self.trusts and self.everything:
            raise UsageError(
                "--all and --trust-page-cache: --all reads every log, whatever is in the page cache; give one of them"
            )
        if self.broker_logs and not self.trusts:
            raise UsageError("--broker-log: only --trust-page-cache looks there; give it too")

    @property
    def writes(self) -> bool:
        return self.apply

    @cached_property
    def resolved(self) -> RecoverRequest:
        from kidxlib.operations.recover.recover import RecoverRequest
        from kidxlib.operations.recover.recovery_plan import RecoverLevel

        return RecoverRequest(
            log_dirs=self.log_dirs,
            apply=self.apply,
            level=RecoverLevel(self.level),
            everything=self.everything,
            truncate=self.truncate,
            keep=self.keep,
            mends=self.mends,
            accepted_topics=self.accepted_topics,
            replicas=self.replicas,
            sets_snapshot_aside=self.sets_snapshot_aside,
            accept_loss=self.accept_loss,
            alone=self.alone,
            trusts=self.trusts,
            broker_logs=self.broker_logs,
            or_leave=self.or_leave,
            kafka_version=self.kafka_version,
            metadata=self.metadata,
        )


def run_recover(request: RecoverCommand, backend: Backend) -> Outcome:
    """Make a killed broker's log dirs ready for its start, so that it need not read its logs again.

    Without --apply nothing is written. The plan says what the broker's next start would do, and what it would lose.
    --apply writes the indexes, producer snapshots and leader epochs of all segments that may not be flushed. Then it
    flushes logs, and sets recovery points to their ends.

    LOG_DIR… are all log dirs of one broker that has stopped. No log is changed: the broker still cuts off torn ends
    itself. --truncate cuts them off here, and keeps what it cuts off. --mend puts small files in place that are missing
    or cannot be read. kidx fleet says how long a broker would take with each source of a catalog.

    Exit codes: 0 the broker drops nothing, and with --apply it is ready; 2 refused or wrong options, nothing changed;
    3 the same, and the broker drops what the lines name, or starts without it; 1 failed.
    """
    from kidxlib.operations.recover.recover import recover_log_dirs

    return recover_log_dirs(request.resolved, backend, as_it_comes=not request.as_json)


recover = kidx_command(
    "recover",
    RecoverCommand,
    run_recover,
    opened=open_once,
    reports_as="recover",
    formerly={"--catalog": Former("kidx fleet --catalog DIR", command_in("fleet"), is_argument=False)},
)
