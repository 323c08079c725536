"""What a run of verify_index is asked for: options and settings, put together and checked."""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

from jobs.common.request import Where, recover_options
from jobs.common.settings import Settings, read_settings
from jobs.common.sources import chosen_sources
from kidxlib.discover import Source
from kidxlib.plan import Target, mirror_tree, parse_topics, refuse_overlap
from kidxlib.recover import RecoverOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRequest:
    """What to audit.

    Attributes:
        target: where the side files are.
        where: the catalog may be none; the time is recorded.
        interval_bytes: None where no option was given.
    """

    where: Where
    sources: tuple[Source, ...]
    target: Target
    topics: re.Pattern[str]
    interval_bytes: int | None
    settings: Settings

    @property
    def has_catalog(self) -> bool:
        return self.where.catalog is not None or self.where.database is not None

    @property
    def audit_id(self) -> str:
        """The same for the same question at the same time, so that a run which was stopped can be run again."""
        asked = {
            "sources": [(source.name, str(source.path)) for source in self.sources],
            "index_dir": str(self.target.index_dir),
            "topics": self.topics.pattern,
            "interval_bytes": self.interval_bytes,
        }
        return f"{self.where.now:%Y%m%dT%H%M%SZ}-{hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:8]}"

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
    where = Where.given(settings, catalog, database, now)
    named = {"--index-dir": index_dir, "--catalog": catalog, "--database": database}
    found = chosen_sources(sources, sample=sample, options=named, settings=settings.build)
    refuse_overlap(None, where.catalog, found)
    if not sources and not any(named.values()) and os.path.isdir(settings.build.index_dir):
        index_dir = settings.build.index_dir  # where a build without options has written
    return AuditRequest(
        where=where.with_catalog(),
        sources=found,
        target=Target(index_dir=mirror_tree(index_dir), by_source=len(found) > 1, publish_truncated=False),
        topics=parse_topics(settings.build.topics if topics is None else topics),
        interval_bytes=interval_bytes,
        settings=settings,
    )
