"""What an audit with settings is asked for: options and settings, put together and checked."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from kidxlib.errors import UsageError
from kidxlib.indexing.remote_logs import RemoteOptions
from kidxlib.indexing.source import Target
from kidxlib.operations.audit.audit_request import AuditRequest, HowToAudit
from kidxlib.run.context import RunContext
from kidxlib.run.known_topics import read_known_topics
from kidxlib.run.options import MetadataOptions
from kidxlib.run.recorded_sources import ensure_directories, sources_known_to
from kidxlib.run.settings import read_settings
from kidxlib.run.sources import chosen_sources
from kidxlib.run.topic_options import recover_options
from kidxlib.storage.location import ensure_text
from kidxlib.terminal.options.directories import ensure_no_overlap, existing_index_dir
from kidxlib.terminal.options.sources import parse_topics


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditOptions:
    """The options as they were given; None, empty or False where they were not."""

    sources: tuple[str, ...]
    sample: bool
    index_dir: str | None
    catalog: str | None
    database: str | None
    topics: str | None
    interval_bytes: int | None
    deep_iteration: bool
    fail_on: str
    require_tiering: bool
    shutdown: str | None
    metadata: MetadataOptions
    settings_file: Path
    now: str | None
    layout: str | None = None
    tiered_metadata: tuple[str, ...] = ()
    list_safe: bool = False
    alone: bool = False
    max_bytes: int | None = None


def audit_request(options: AuditOptions) -> AuditRequest:
    """Put options and settings together."""
    settings = read_settings(options.settings_file)
    context = RunContext.given(settings, options.catalog, options.database, options.now)
    index_dir, interval_bytes = options.index_dir, options.interval_bytes
    named = {"--index-dir": index_dir, "--catalog": options.catalog, "--database": options.database}
    remote = RemoteOptions(options.layout, options.tiered_metadata)
    ensure_directories(options.sources, context.catalog)
    sources = chosen_sources(
        options.sources, sample=options.sample, options=named, settings=settings.build, remote=remote
    )
    ensure_no_overlap(None, context.catalog, sources)
    if not options.sources and not any(named.values()) and os.path.isdir(settings.build.index_dir):
        index_dir = settings.build.index_dir  # where a build without options has written
    place = None if index_dir is None else existing_index_dir("--index-dir", index_dir)
    for source in sources:
        ensure_text("--source ", source.path)
    if place is not None:
        ensure_text("--index-dir ", place)
    known = read_known_topics(options.metadata, sources, lambda: sources_known_to(context.catalog))
    return AuditRequest(
        context=context.with_catalog(),
        sources=sources,
        target=Target(index_dir=place, by_source=len(sources) > 1),
        topics=parse_topics(settings.build.topics if options.topics is None else options.topics),
        interval_bytes=interval_bytes,
        options_for=lambda partition: recover_options(settings, known, partition, interval_bytes),
        known_topics=known,
        cluster_metadata=options.metadata.cluster_metadata,
        how=HowToAudit.of(
            deep_iteration=options.deep_iteration,
            fail_on=options.fail_on,
            require_tiering=options.require_tiering,
            shutdown=options.shutdown,
            list_safe=options.list_safe,
            alone=options.alone,
            max_bytes=_max_bytes(options, context),
        ),
    )


def _max_bytes(options: AuditOptions, context: RunContext) -> int | None:
    """The budget, where it is one."""
    max_bytes = options.max_bytes
    if max_bytes == 0:
        raise UsageError("--max-bytes 0: no log would be read; expected a SIZE above 0")
    if max_bytes is not None and not context.has_catalog:
        raise UsageError(
            "--max-bytes: only for an audit with a catalog, which says what was audited when; name it with --catalog"
        )
    if max_bytes is not None and options.require_tiering:
        raise UsageError("--max-bytes and --require-tiering: give one of them; a part says nothing of other segments")
    return max_bytes
