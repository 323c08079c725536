"""`kidx verify-tiered`, `./spark-submit.sh verify_tiered`: are the remote segments of tiered storage right."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

import click

from kidxlib.commands.command import FIRST, WithOrWithoutCatalog, kidx_command, option, parameter
from kidxlib.format.kafka_release import KafkaRelease
from kidxlib.terminal import options as shared_options
from kidxlib.terminal.options import IntegerRange, MetadataOptions, metadata_options
from kidxlib.terminal.outcome import Outcome

if TYPE_CHECKING:
    from kidxlib.operations.backend import Backend
    from kidxlib.operations.tiered.tiered_request import TieredRequest

#: The values of `AuditLevel`, written out here: importing it would slow `--help`.
LEVELS: Final = ("listing", "indexes", "full")


@dataclass(frozen=True, kw_only=True)
class OnBucket(WithOrWithoutCatalog):
    """The options of a command that works on a bucket of tiered storage.

    Attributes:
        tiered: the bucket, perhaps with the name of its source in the catalog.
    """

    tiered: str = parameter(click.argument("tiered", metavar="[NAME=]PLACE"), at=FIRST)
    tiered_metadata: tuple[str, ...] = option(
        "--tiered-metadata",
        multiple=True,
        metavar="PLACE",
        help="A log dir, or a copy of one, that has partitions of __remote_log_metadata, or a NAME.parquet to which "
        "kidx export has written it; several times where no one has all of it.",
        at=FIRST,
    )
    catalog: str | None = option("--catalog", metavar="DIR", help="Record each remote segment in this catalog.")
    topics: str | None = option("--topics", metavar="REGEX", help="Only topics whose full name matches.")
    interval_bytes: int | None = option(
        "--interval-bytes",
        metavar="BYTES",
        type=IntegerRange(0, 2**31 - 1),
        help="Kafka's index.interval.bytes. [default: the topic's]",
    )
    kafka_version: KafkaRelease | None = parameter(shared_options.kafka_version)
    metadata: MetadataOptions = parameter(metadata_options)

    def __post_init__(self) -> None:
        if not self.has_catalog:
            self.refuse(["settings_file"], "{option}: only with --catalog")


@dataclass(frozen=True, kw_only=True)
class VerifyTieredCommand(OnBucket):
    """What to audit, and how."""

    layout: str | None = option(
        "--layout",
        type=click.Choice(shared_options.LAYOUT_NAMES),
        help="The plugin that has named the objects: Kafka's LocalTieredStorage or Aiven's. [default: local]",
        at=FIRST,
    )
    level: str = option(
        "--level",
        type=click.Choice(LEVELS),
        default=LEVELS[0],
        show_default=True,
        help="Read names and sizes, the bytes of indexes too, or those of logs too.",
        at=FIRST,
    )
    stuck_after: str = option(
        "--stuck-after",
        metavar="DURATION",
        default="1h",
        show_default=True,
        help="How long copying or deleting a segment may last, and what is due may stay.",
    )
    what_if: tuple[str, ...] = option(
        "--what-if",
        multiple=True,
        metavar="NAME=VALUE",
        help="What another retention.ms, retention.bytes, local.retention.ms or local.retention.bytes would free in "
        "the bucket and in the log dirs of --tiered-metadata; several times for several settings.",
    )
    fail_on: str = parameter(shared_options.fail_on)

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.resolved  # what is wrong is told before anything is done

    @property
    def writes(self) -> bool:
        return not self.is_once

    @cached_property
    def resolved(self) -> TieredRequest:
        from kidxlib.operations.tiered.tiered_request import tiered_request

        return tiered_request(
            self.tiered,
            tiered_metadata=self.tiered_metadata,
            layout=self.layout,
            level=self.level,
            context=self.context,
            metadata=self.metadata,
            stuck_after=self.stuck_after,
            topics=self.topics,
            interval_bytes=self.interval_bytes,
            fail_on=self.fail_on,
            what_if=self.what_if,
            now=self.now,
            kafka_version=self.kafka_version,
        )


def run_verify_tiered(request: VerifyTieredCommand, backend: Backend) -> Outcome:
    """Audit remote segments in PLACE, a directory or s3://BUCKET/PREFIX: their metadata, their objects and, by --level,
    the bytes of these. NAME is that of the source in the catalog. With --catalog each segment is recorded there.
    Nothing else is written, and nothing deleted.

    Exit codes: 0 no problems; 2 wrong options or inputs, nothing done; 3 a finding is as bad as --fail-on says;
    1 failed.
    """
    from kidxlib.operations.tiered.audit_tiered import audit_tiered

    return audit_tiered(request.resolved, backend)


verify_tiered = kidx_command("verify-tiered", VerifyTieredCommand, run_verify_tiered, reports_as="verify_tiered")
