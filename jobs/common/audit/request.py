"""What a run of verify_index is asked for: options and settings, put together and checked."""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

from kidxlib.build.directories import Target
from kidxlib.build.source import Source
from kidxlib.recovery.options import RecoverOptions
from kidxlib.run.context import RunContext
from kidxlib.run.settings import Settings, read_settings
from kidxlib.run.sources import chosen_sources
from kidxlib.run.topic_options import recover_options
from kidxlib.terminal.options.directories import ensure_no_overlap, existing_index_dir
from kidxlib.terminal.options.sources import parse_topics


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRequest:
    """What to audit.

    Attributes:
        target: where the index files are.
        context: the catalog may be none; the time is recorded.
        interval_bytes: None where no option was given.
    """

    context: RunContext
    sources: tuple[Source, ...]
    target: Target
    topics: re.Pattern[str]
    interval_bytes: int | None
    settings: Settings

    @property
    def has_catalog(self) -> bool:
        return self.context.catalog is not None or self.context.database is not None

    @property
    def audit_id(self) -> str:
        """The run's id. One question at one time has one id, so that a run which was stopped can be run again."""
        asked = {
            "sources": [(source.name, str(source.path)) for source in self.sources],
            "index_dir": str(self.target.index_dir),
            "topics": self.topics.pattern,
            "interval_bytes": self.interval_bytes,
        }
        return self.context.run_id(hashlib.sha256(json.dumps(asked).encode()).hexdigest())

    def recover_options(self, topic: str) -> RecoverOptions:
        """What a topic's indexes should be like, where the catalog does not say."""
        return recover_options(self.settings, topic, self.interval_bytes)


def audit_request(
    *,
    sources: tuple[str, ...],
    sample: bool,
    index_dir: str | None,
    catalog: str | None,
    database: str | None,
    topics: str | None,
    interval_bytes: int | None,
    settings_file: Path,
    now: str | None,
) -> AuditRequest:
    """Put options and settings together.

    Args:
        sources, index_dir, catalog, database, topics, interval_bytes, now: as they were given; None or empty where they
            were not.

    Raises:
        UsageError: the settings file or an option is wrong, or two options contradict each other.
    """
    settings = read_settings(settings_file)
    context = RunContext.given(settings, catalog, database, now)
    named = {"--index-dir": index_dir, "--catalog": catalog, "--database": database}
    found = chosen_sources(sources, sample=sample, options=named, settings=settings.build)
    ensure_no_overlap(None, context.catalog, found)
    if not sources and not any(named.values()) and os.path.isdir(settings.build.index_dir):
        index_dir = settings.build.index_dir  # where a build without options has written
    return AuditRequest(
        context=context.with_catalog(),
        sources=found,
        target=Target(
            index_dir=None if index_dir is None else existing_index_dir("--index-dir", index_dir),
            by_source=len(found) > 1,
        ),
        topics=parse_topics(settings.build.topics if topics is None else topics),
        interval_bytes=interval_bytes,
        settings=settings,
    )
