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
class RestoreCommand(WithoutCatalog):
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
        help="Do what the plan with this id says; the plan's last line has the id. Without --apply nothing is "
        "restored.",
    )
    topic_configs: tuple[Path, ...] = option(
        "--topic-configs",
        metavar="FILE",
        multiple=True,
        type=click.Path(path_type=Path),
        help="Output of kafka-configs --describe --all --entity-type topics, for topics whose settings are in no "
        "metadata that is left. Only values that were set for a topic itself count. May be repeated.",
    )
    topics: str = option(
        "--topics",
        metavar="REGEX",
        default=".*",
        help="Restore only topics whose full name matches. Brokers' own topics have to match, too: "
        "__consumer_offsets has the offsets of groups, __transaction_state the open transactions.",
    )
    until_offsets: Path | None = option(
        "--until-offsets",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="End partitions before the offsets in FILE, which has the form of kafka-delete-records; or earlier, where "
        "no transaction is open. Partitions that FILE does not name are restored whole.",
    )
    propose_until: str | None = option(
        "--propose-until",
        metavar="TIME",
        help="Only write --until-offsets FILE, with the offset of the first batch of each partition that has a later "
        "record. TIME is ISO 8601 with a zone, or ms since the epoch.",
    )
    reset_offsets: Path | None = option(
        "--reset-offsets",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="Write the groups whose offsets lie beyond the ends of partitions, with new offsets, for "
        "kafka-consumer-groups --reset-offsets --from-file.",
    )
    holds: bool = option(
        "--hold-retention/--no-hold-retention",
        "holds",
        default=True,
        show_default=True,
        help="Give all topics settings with which Kafka removes no record, until you lift the hold.",
    )
    keeps_cluster_id: bool = option(
        "--keep-cluster-id",
        "keeps_cluster_id",
        is_flag=True,
        help="Accept that the new log dirs have the old cluster's id: no node of the old cluster runs, or will be "
        "started again.",
    )
    accepts_loss: bool = option(
        "--accept-loss", "accepts_loss", is_flag=True, help="Go on without the records that the lines lost: name."
    )
    accepts_divergence: bool = option(
        "--accept-divergence",
        "accepts_divergence",
        is_flag=True,
        help="Take the leader's records where replicas disagree.",
    )
    scan_cache: Path | None = option(
        "--scan-cache",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="Keep in FILE what logs hold, and read no log again that has not changed since, neither for the next plan "
        "nor for --apply, which compares all copies with FILE before it writes metadata.",
    )
    bucket: str | None = option(
        "--bucket",
        metavar="PLACE",
        help="The bucket of the cluster's tiered storage, a directory or s3://…. Partitions that are in no log dir "
        "come back from it; those in a log dir keep their remote segments. Nothing is written there.",
    )
    layout: str | None = option(
        "--layout",
        type=click.Choice(LAYOUT_NAMES),
        help="The plugin that wrote the bucket: Kafka's LocalTieredStorage or Aiven's. [default: local]",
    )
    bucket_protected: str | None = option(
        "--bucket-protected",
        type=click.Choice(PROTECTED),
        help="How you keep the new cluster from deleting in the bucket: the store keeps what is deleted, or brokers "
        "may not delete. kidx checks as much of it as it can see.",
    )
    living_cluster_stopped: bool = option(
        "--living-cluster-stopped",
        is_flag=True,
        help="Say that no node of the cluster that wrote the bucket runs, or will be started again; or that PLACE is a "
        "copy.",
    )

    def __post_init__(self) -> None:
        if self.bucket is None:
            self.refuse(["layout", "bucket_protected", "living_cluster_stopped"], "{option}: only with --bucket")
        else:
            why = "{option}: only without --bucket: a tiered partition ends where its log ends; leave it out"
            self.refuse(["until_offsets", "propose_until"], why)
        written = [path.resolve() for path in (self.scan_cache, self.reset_offsets) if path is not None]
        if len({*written}) < len(written):
            raise UsageError(f"--scan-cache and --reset-offsets: both are {self.scan_cache}; name two files")
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

    @property
    def writes(self) -> bool:
        # --apply says by itself what it has left.
        return bool(self.propose_until or self.reset_offsets or self.scan_cache)

    def _check_proposal(self) -> None:
        if self.until_offsets is None:
            raise UsageError("--propose-until: --until-offsets FILE is missing; name a new file for the proposal")
        if self.apply is not None:
            raise UsageError("--propose-until with --apply: a proposal is written alone; look at it first")
        if not self.sources:
            raise UsageError("DIR[,DIR]…: missing; name the log dirs of each old broker")
        self.refuse(["scan_cache"], "{option}: only without --propose-until, which reads all logs; leave it out")

    @cached_property
    def resolved(self) -> RestoreRequest:
        from kidxlib.indexing.source import parse_topics
        from kidxlib.operations.restore.bucket import BucketOptions
        from kidxlib.operations.restore.bucket_protection import Protected
        from kidxlib.operations.restore.restore import RestoreRequest
        from kidxlib.operations.restore.restore_plan import RestoreOptions
        from kidxlib.operations.restore.until_offsets import read_until_offsets
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
            scan_cache=self.scan_cache,
            proposes_ms=None if self.propose_until is None else milliseconds_of("--propose-until", self.propose_until),
        )


def run_restore(request: RestoreCommand, backend: Backend) -> Outcome:
    """Restore a cluster into new log dirs, from its brokers' disks or its bucket: its metadata and its logs.

    Each DIR[,DIR]… names the log dirs of one old broker or controller, or copies of them, with commas between them.
    Nothing is written there. kidx takes the newest metadata of any node; if no copy is left, it makes metadata from the
    partitions' directories. Without --apply nothing is restored: the plan says what comes from where, who leads
    and why, what is lost or left out, and the steps for the first start.

    Format the new nodes first (kafka-storage format), and start none of them before --apply is done.

    Exit codes: 0 nothing is lost; 2 refused or wrong options, nothing written; 3 records are missing within a log, or
    you have accepted a loss or a disagreement; 1 failed.
    """
    from kidxlib.operations.restore.restore import propose, restore

    resolved = request.resolved
    return restore(resolved, backend) if resolved.proposes_ms is None else propose(resolved, backend)


restore = kidx_command("restore", RestoreCommand, run_restore, opened=open_once, reports_as="restore")
