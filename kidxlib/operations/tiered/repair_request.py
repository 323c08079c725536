"""What is asked of a repair of tiered storage: options, put together and checked."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from kidxlib.errors import UsageError
from kidxlib.indexing.source import Source, source_at
from kidxlib.log.remote.layout import LOCAL
from kidxlib.operations.tiered.tiered_request import TieredRequest, tiered_request
from kidxlib.run.context import RunContext
from kidxlib.run.options import MetadataOptions
from kidxlib.storage.location import Location, is_inside
from kidxlib.storage.store.s3 import ObjectPath
from kidxlib.terminal.extras import needing_packages
from kidxlib.terminal.options.directories import ensure_no_overlap, index_dir_to_write


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairOptions:
    """The options as they were given; None or empty where they were not."""

    tiered: str
    tiered_metadata: tuple[str, ...]
    level: str
    apply: bool
    index_dir: str | None
    topics: str | None
    interval_bytes: int | None
    metadata: MetadataOptions
    catalog: str | None = None
    database: str | None = None
    settings_file: Path | None = None
    logs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairRequest:
    """What to mend.

    Attributes:
        audit: finds it.
        mirror: where what is made goes, in directories and files that are named as in the bucket.
        apply: whether it goes to the bucket, too.
        logs: log dirs whose logs are read in the place of the bucket's, where they prove to be the same.
    """

    audit: TieredRequest
    mirror: Location
    apply: bool
    logs: tuple[Source, ...] = ()


def repair_request(options: RepairOptions) -> RepairRequest:
    """Put options together."""
    if options.index_dir is None:
        raise UsageError(
            "--tiered: give --index-dir DIR, a directory for what is made; --apply puts it into the bucket from there"
        )
    context = RunContext(catalog=None, database=None, now=datetime.now(UTC), event_log_dir=None)
    if options.catalog is not None or options.database is not None:
        from kidxlib.run.settings import read_settings

        assert options.settings_file is not None
        context = RunContext.given(
            read_settings(options.settings_file), options.catalog, options.database, None
        ).with_catalog()
    audit = tiered_request(
        options.tiered,
        tiered_metadata=options.tiered_metadata,
        layout=LOCAL.name,
        level=options.level,
        context=context,
        metadata=options.metadata,
        topics=options.topics,
        interval_bytes=options.interval_bytes,
        is_repair=True,
    )
    logs = tuple(source_at(each) for each in options.logs)
    mirror = index_dir_to_write("--index-dir", options.index_dir)
    ensure_no_overlap(
        mirror, None if audit.recording is None else audit.recording.context.catalog, [*audit.metadata, *logs]
    )
    bucket = audit.bucket if isinstance(audit.bucket, ObjectPath) else audit.bucket.resolve()
    if is_inside(mirror, bucket) or is_inside(bucket, mirror):
        raise UsageError(f"--index-dir {mirror} and --tiered {bucket}: one is inside the other; keep them apart")
    if options.apply and isinstance(bucket, ObjectPath):
        with needing_packages("--apply"):
            import kidxlib.storage.store.client  # noqa: F401  # before anything is read
    return RepairRequest(audit=audit, mirror=mirror, apply=options.apply, logs=logs)
