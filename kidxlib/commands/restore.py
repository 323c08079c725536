"""`kidx restore`: a cluster back from its brokers' disks, or from its bucket."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from kidxlib.commands.command import FIRST, WithoutCatalog, kidx_command, open_once, option, parameter
from kidxlib.errors import UsageError
from kidxlib.terminal.options import LAYOUT_NAMES
from kidxlib.terminal.outcome import Outcome

if TYPE_CHECKING:
    from kidxlib.operations.backend import Backend
    from kidxlib.operations.restore.restore import RestoreRequest

#: The values of `Protected`, written out here: importing it would slow `--help`.
PROTECTED: Final = ("versioning", "read-only")


@dataclass(frozen=True, kw_only=True)
class Restore(WithoutCatalog):
    """What to restore, and into what. The fields mean what those of `RestoreRequest` and `RestoreOptions` mean."""

    sources: tuple[str, ...] = parameter(click.argument("sources", metavar="DIR[,DIR]…", nargs=-1), at=FIRST)
    brokers: tuple[str, ...] = option(
        "--broker",
        "brokers",
        metavar="ID=DIR[,DIR]",
        multiple=True,
        help="A new broker, and its log dirs, which kafka-storage format has just made. It gets the partitions of the "
        "old broker with this id. May be repeated.",
    )
    controllers: tuple[Path, ...] = option(
        "--controller",
        "controllers",
        metavar="DIR",
        multiple=True,
        type=click.Path(path_type=Path),
        help="The metadata log dir of a new controller: metadata.log.dir, or the first of its log.dirs. Name those of "
        "all controllers. May be repeated.",
    )
    apply: str | None = option(
        "--apply",
        metavar="PLAN",
        help="Do what the plan with this id says, which the plan ends with. Without it nothing is written.",
    )
    topic_configs: tuple[Path, ...] = option(
        "--topic-configs",
        "topic_configs",
        metavar="FILE",
        multiple=True,
        type=click.Path(path_type=Path),
        help="Output of kafka-configs --describe --all --entity-type topics, for topics whose settings no surviving "
        "metadata has. Only values that were set for a topic itself count. May be repeated.",
    )
    topics: str = option(
        "--topics",
        metavar="REGEX",
        default=".*",
        help="Restore only topics whose full name matches. Topics of brokers are among them only if they match: "
        "__consumer_offsets for the offsets of groups, __transaction_state for transactions that are open.",
    )
    until_offsets: Path | None = option(
        "--until-offsets",
        "until_offsets",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="End partitions before these offsets, or earlier, where no transaction is open: a file as kafka-delete-"
        "records has it. Partitions that it does not name are restored whole.",
    )
    propose_until: str | None = option(
        "--propose-until",
        "propose_until",
        metavar="TIME",
        help="Only write --until-offsets FILE: each partition before its first batch with a record that is later than "
        "this: ISO 8601 with a zone, or ms since the epoch.",
    )
    reset_offsets: Path | None = option(
        "--reset-offsets",
        "reset_offsets",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="Write the offsets of groups that lie beyond the ends of partitions, for kafka-consumer-groups "
        "--reset-offsets --from-file.",
    )
    holds: bool = option(
        "--hold-retention/--no-hold-retention",
        "holds",
        default=True,
        show_default=True,
        help="Give all topics settings with which Kafka removes no record, until you lift that.",
    )
    keeps_cluster_id: bool = option(
        "--keep-cluster-id",
        "keeps_cluster_id",
        is_flag=True,
        help="The new log dirs have the old cluster's id: no node of the old cluster lives, or will be started again.",
    )
    accepts_loss: bool = option(
        "--accept-loss", "accepts_loss", is_flag=True, help="Go on without the records that the lost lines name."
    )
    accepts_divergence: bool = option(
        "--accept-divergence",
        "accepts_divergence",
        is_flag=True,
        help="Where replicas disagree, take the leader's records.",
    )

    bucket: str | None = option(
        "--bucket",
        metavar="PLACE",
        help="The bucket of the cluster's tiered storage, a directory or s3://…: partitions that no log dir has come "
        "back from it, and tiered topics of log dirs with it. Nothing is written there.",
    )
    layout: str | None = option(
        "--layout",
        type=click.Choice(LAYOUT_NAMES),
        help="The plugin that has named the bucket's objects: Kafka's LocalTieredStorage or Aiven's. [default: local]",
    )
    bucket_protected: str | None = option(
        "--bucket-protected",
        "bucket_protected",
        type=click.Choice(PROTECTED),
        help="How you have made it impossible that the new cluster deletes from the bucket: the store keeps what is "
        "deleted, or brokers may not delete. It is checked as far as that can be seen from here.",
    )
    living_cluster_stopped: bool = option(
        "--living-cluster-stopped",
        "living_cluster_stopped",
        is_flag=True,
        help="No node of the cluster that wrote the bucket runs, or will be started again; or PLACE is a copy.",
    )

    def __post_init__(self) -> None:
        if self.bucket is None:
            self.refuse(["layout", "bucket_protected", "living_cluster_stopped"], "{option}: only with --bucket")
        else:
            why = "{option}: only without --bucket: a tiered partition ends where its log ends; leave it out"
            self.refuse(["until_offsets", "propose_until"], why)
        if self.propose_until is not None:
            self._check_proposal()
            return
        for what, given in (
            (
                "DIR[,DIR]…: missing; name the log dirs of each old broker, or a --bucket",
                self.sources or self.bucket is not None,
            ),
            ("--broker ID=DIR[,DIR]: missing; name each new broker, and its log dirs", self.brokers),
            ("--controller DIR: missing; name the metadata log dir of each new controller", self.controllers),
        ):
            if not given:
                raise UsageError(what)

    def _check_proposal(self) -> None:
        if self.until_offsets is None:
            raise UsageError("--propose-until: --until-offsets FILE is missing; name a new file for the proposal")
        if self.apply is not None:
            raise UsageError("--propose-until with --apply: a proposal is written alone; look at it first")
        if not self.sources:
            raise UsageError("DIR[,DIR]…: missing; name the log dirs of each old broker")

    @cached_property
    def resolved(self) -> RestoreRequest:
        from kidxlib.indexing.source import parse_topics
        from kidxlib.operations.restore.protection import Protected
        from kidxlib.operations.restore.restore import BucketOptions, RestoreRequest
        from kidxlib.operations.restore.restore_plan import RestoreOptions
        from kidxlib.operations.restore.until import read_until_offsets
        from kidxlib.text.times import milliseconds_of

        is_proposal, until = self.propose_until is not None, self.until_offsets
        return RestoreRequest(
            sources=self.sources,
            bucket=None
            if self.bucket is None
            else BucketOptions(
                place=self.bucket,
                layout=self.layout,
                protected=None if self.bucket_protected is None else Protected(self.bucket_protected),
                is_cluster_stopped=self.living_cluster_stopped,
            ),
            brokers=self.brokers,
            controllers=self.controllers,
            topic_configs=self.topic_configs,
            options=RestoreOptions(
                holds=self.holds,
                keeps_cluster_id=self.keeps_cluster_id,
                accepts_loss=self.accepts_loss,
                accepts_divergence=self.accepts_divergence,
                topics=parse_topics(self.topics),
                until=None if until is None or is_proposal else read_until_offsets(until),
                resets=self.reset_offsets,
            ),
            apply=self.apply,
            now=datetime.now(UTC),
            until=until,
            proposes_ms=None if self.propose_until is None else milliseconds_of("--propose-until", self.propose_until),
        )


def run_restore(request: Restore, backend: Backend) -> Outcome:
    """Restore a cluster from its brokers' disks, or its bucket: its metadata, and the logs, into new directories.

    DIR[,DIR]… are the log dirs of one old broker or controller each, with commas between them, or copies of them.
    Nothing is written there. The newest metadata of any node is taken; if no copy survives, metadata is made from the
    folders. Without --apply nothing is written: the plan says what comes from where, who leads and why, what is lost or
    left out, and the steps for the first start.

    --bucket names the bucket of tiered storage. Topics come back from it alone where no log dir is left.

    Format the new nodes first (kafka-storage format), and start none of them before --apply is done.

    Exit codes: 0 nothing is lost; 2 refused or wrong options, nothing written; 3 something is lost, replicas disagree,
    or records are missing within a log, and you have accepted it; 1 failed.
    """
    from kidxlib.operations.restore.restore import propose, restore

    resolved = request.resolved
    return restore(resolved, backend) if resolved.proposes_ms is None else propose(resolved, backend)


restore = kidx_command("restore", Restore, run_restore, opened=open_once, reports_as="restore")
