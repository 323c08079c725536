"""What `kidx verify` without a catalog is asked, checked before anything is listed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from kidxlib.errors import UsageError
from kidxlib.indexing.remote_logs import RemoteOptions
from kidxlib.indexing.source import Target, source_at
from kidxlib.operations.audit.audit_request import AuditRequest, HowToAudit
from kidxlib.run.context import RunContext
from kidxlib.run.index_options import options_of_topic
from kidxlib.run.known_topics import ensure_distinct, read_known_topics
from kidxlib.run.options import MetadataOptions
from kidxlib.terminal.options.directories import existing_index_dir
from kidxlib.terminal.options.sources import parse_topics


def audit_request(
    directories: Sequence[str],
    *,
    index_dir: str | None,
    topics: str | None,
    interval_bytes: int | None,
    metadata: MetadataOptions,
    layout: str | None,
    tiered_metadata: tuple[str, ...],
    **how: Any,
) -> AuditRequest:
    """The options of the command as they were given; for those that were not, what the source's own cluster says, and
    Kafka's defaults.

    Args:
        how: options of `HowToAudit`.
    """
    if index_dir is not None and len(directories) > 1:
        raise UsageError(f"--index-dir {index_dir} and {len(directories)} times DIR: give one DIR, or --catalog")
    sources = tuple(source_at(each, remote=RemoteOptions(layout, tiered_metadata)) for each in directories)
    ensure_distinct(sources)
    known = read_known_topics(metadata, sources)
    place = None if index_dir is None else existing_index_dir("--index-dir", index_dir)
    return AuditRequest(
        context=RunContext(catalog=None, database=None, now=datetime.now(UTC), event_log_dir=None),
        sources=sources,
        target=Target(index_dir=place, by_source=False),
        topics=parse_topics(".*" if topics is None else topics),
        interval_bytes=interval_bytes,
        options_for=lambda partition: options_of_topic(
            known, partition, interval_bytes=interval_bytes, max_index_bytes=None
        ),
        known_topics=known,
        cluster_metadata=metadata.cluster_metadata,
        how=HowToAudit.of(**how),
        is_once=True,
    )
