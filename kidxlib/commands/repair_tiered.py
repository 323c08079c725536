"""`kidx repair-tiered`, `./spark-submit.sh repair_tiered`: make objects of remote segments anew."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kidxlib.commands.command import FIRST, kidx_command, option
from kidxlib.commands.verify_tiered import LEVELS, OnBucket
from kidxlib.errors import UsageError
from kidxlib.terminal.options import needing_packages
from kidxlib.terminal.outcome import Outcome

if TYPE_CHECKING:
    from kidxlib.operations.backend import Backend
    from kidxlib.operations.tiered.repair import RepairRequest


@dataclass(frozen=True, kw_only=True)
class RepairTieredCommand(OnBucket):
    """What to mend."""

    index_dir: str | None = option(
        "--index-dir",
        metavar="DIR",
        help="Where what is made goes, in directories and files that are named as in the bucket.",
        at=FIRST,
    )
    level: str = option(
        "--level",
        type=click.Choice(LEVELS),
        default=LEVELS[0],
        show_default=True,
        help="Find damage as kidx verify-tiered does at this level. The logs of segments that have some are read then.",
        at=FIRST,
    )
    logs: tuple[str, ...] = option(
        "--logs",
        multiple=True,
        metavar="DIR",
        help="Read logs in this log dir in the place of the bucket's, where they prove to be the same; several times "
        "for several.",
        at=FIRST,
    )
    apply: bool = option(
        "--apply",
        is_flag=True,
        help="Put what was made into the bucket, too, where nobody else has meanwhile.",
        at=FIRST,
    )
    now: None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.resolved  # what is wrong is told before anything is done

    @cached_property
    def resolved(self) -> RepairRequest:
        from kidxlib.indexing.source import ensure_no_overlap, index_dir_to_write, source_at
        from kidxlib.operations.tiered.repair import RepairRequest
        from kidxlib.operations.tiered.tiered_request import tiered_request
        from kidxlib.storage.location import is_inside
        from kidxlib.storage.store.s3 import ObjectPath

        if self.index_dir is None:
            raise UsageError(
                "no --index-dir: name a directory for what is made; --apply puts it into the bucket from there"
            )
        audit = tiered_request(
            self.tiered,
            tiered_metadata=self.tiered_metadata,
            layout="local",
            level=self.level,
            context=self.context,
            metadata=self.metadata,
            topics=self.topics,
            interval_bytes=self.interval_bytes,
            kafka_version=self.kafka_version,
            is_repair=True,
        )
        logs = tuple(source_at(log_dir) for log_dir in self.logs)
        mirror = index_dir_to_write("--index-dir", self.index_dir)
        ensure_no_overlap(mirror, self.context.catalog, [*audit.metadata, *logs])
        bucket = audit.bucket.resolve() if isinstance(audit.bucket, Path) else audit.bucket
        if is_inside(mirror, bucket) or is_inside(bucket, mirror):
            raise UsageError(f"--index-dir {mirror} and {bucket}: one is inside the other; keep them apart")
        if self.apply and isinstance(bucket, ObjectPath):
            with needing_packages("--apply"):
                import kidxlib.storage.store.client  # noqa: F401  # before anything is read
        return RepairRequest(audit=audit, mirror=mirror, apply=self.apply, logs=logs)


def run_repair_tiered(request: RepairTieredCommand, backend: Backend) -> Outcome:
    """Make side objects of remote segments anew that are missing or broken in PLACE, a directory or s3://BUCKET/PREFIX
    in the layout of Kafka's LocalTieredStorage, into --index-dir; with --apply put them into the bucket, too. Logs
    there are only read, and nothing is deleted. NAME is that of the source in the catalog. With --catalog each remote
    segment is recorded there.

    Exit codes: 0 no problems; 2 wrong options or inputs, nothing done; 3 something is broken and not mended; 1 failed.
    """
    from kidxlib.operations.tiered.repair import repair

    return repair(request.resolved, backend)


repair_tiered = kidx_command("repair-tiered", RepairTieredCommand, run_repair_tiered, reports_as="repair_tiered")
