"""What `kidx verify` without a catalog is asked, checked before anything is listed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from kidxlib.build.directories import Target
from kidxlib.build.source import source_at
from kidxlib.operations.audit.request import AuditRequest, HowToAudit
from kidxlib.recovery.options import INTERVAL_BYTES_DEFAULT, RecoverOptions
from kidxlib.run.context import RunContext
from kidxlib.terminal.options.directories import existing_index_dir
from kidxlib.terminal.options.sources import parse_topics


def audit_request(
    directory: str, *, index_dir: str | None, topics: str | None, interval_bytes: int | None, **how: Any
) -> AuditRequest:
    """The options of the command as they were given; Kafka's defaults for those that were not.

    Args:
        how: options of `HowToAudit`.

    Raises:
        UsageError: a directory is none that can be read, or an option is wrong.
    """
    like = RecoverOptions(interval_bytes=INTERVAL_BYTES_DEFAULT if interval_bytes is None else interval_bytes)
    source = source_at(directory)
    place = None if index_dir is None else existing_index_dir("--index-dir", index_dir)
    return AuditRequest(
        context=RunContext(catalog=None, database=None, now=datetime.now(UTC), event_log_dir=None),
        sources=(source,),
        target=Target(index_dir=place, by_source=False),
        topics=parse_topics(".*" if topics is None else topics),
        interval_bytes=interval_bytes,
        recover_options=lambda topic: like,
        how=HowToAudit.of(**how),
        is_once=True,
    )
