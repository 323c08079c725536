"""What a run of verify_index is asked for: options and settings, put together and checked."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from jobs.common.open_catalog import refuse_unusable
from jobs.common.request import absolute, recover_options, sources_or_sample
from jobs.common.settings import Settings, read_settings
from kidxlib.discover import Source
from kidxlib.errors import UsageError
from kidxlib.plan import Target, mirror_tree, parse_topics, refuse_overlap
from kidxlib.recover import RecoverOptions
from kidxlib.times import parse_time


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRequest:
    """What to audit.

    Attributes:
        target: where the side files are.
        catalog: absolute path or URL of the catalog's folder; None where `database` names it, or none is asked for.
        interval_bytes: None where no option was given.
        now: the time to record.
    """

    sources: tuple[Source, ...]
    target: Target
    catalog: str | None
    database: str | None
    topics: re.Pattern[str]
    interval_bytes: int | None
    settings: Settings
    now: datetime

    @property
    def has_catalog(self) -> bool:
        return self.catalog is not None or self.database is not None

    @property
    def audit_id(self) -> str:
        """The same for the same question at the same time, so that a run which was stopped can be run again."""
        asked = {
            "sources": [(source.name, str(source.path)) for source in self.sources],
            "index_dir": str(self.target.index_dir),
            "topics": self.topics.pattern,
            "interval_bytes": self.interval_bytes,
        }
        return f"{self.now:%Y%m%dT%H%M%SZ}-{hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:8]}"

    def recover_options(self, topic: str) -> RecoverOptions:
        """What a topic's indexes should be like, where the catalog does not say."""
        return recover_options(self.settings, topic, self.interval_bytes)


def audit_request(
    *,
    sources: tuple[str, ...],
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
    if catalog and database:
        raise UsageError("--catalog and --database: give one of them")
    found = sources_or_sample(sources)
    location = None if catalog is None else absolute(catalog)
    refuse_overlap(None, location, found)
    if location is not None:
        refuse_unusable(location)
    return AuditRequest(
        sources=found,
        target=Target(index_dir=mirror_tree(index_dir), by_source=len(found) > 1, publish_truncated=False),
        catalog=location,
        database=database,
        topics=parse_topics(settings.build.topics if topics is None else topics),
        interval_bytes=interval_bytes,
        settings=settings,
        now=datetime.now(UTC) if now is None else parse_time(now),
    )
