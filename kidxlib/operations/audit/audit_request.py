"""What is to be audited, and how."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field

from kidxlib.audit.finding import Verdict
from kidxlib.indexing.source import Source, Target
from kidxlib.run.context import RunContext
from kidxlib.run.index_options import OptionsFor
from kidxlib.run.known_topics import KnownTopics


@dataclass(frozen=True, slots=True, kw_only=True)
class HowToAudit:
    """How to audit.

    Attributes:
        deep: look at the records, too.
        fail_on: the mildest verdict that the command fails for.
        tiering: also check segments against what tiered storage needs.
        clean_shutdown: how the broker stopped; None asks its log dir.
        list_safe: report each safe file, and not those of a kind together.
        alone: that other log dirs of the broker are not there is well.
        max_bytes: read logs of so many bytes together, of the partitions whose last audit is the oldest; None for all.
    """

    deep: bool
    fail_on: Verdict
    tiering: bool
    clean_shutdown: bool | None
    list_safe: bool = False
    alone: bool = False
    max_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRequest:
    """What to audit.

    Attributes:
        context: the catalog may be none; the time is recorded.
        target: where the index files are.
        interval_bytes: None where no option was given.
        options_for: what a partition's indexes should be like, where the catalog does not say.
        known_topics: what the sources' clusters say of topics.
        cluster_metadata: the copy that somebody has named; None where the sources' own are read.
        is_once: of one directory, by which it is called, and not by an id.
    """

    context: RunContext
    sources: tuple[Source, ...]
    target: Target
    topics: re.Pattern[str]
    interval_bytes: int | None
    options_for: OptionsFor
    known_topics: KnownTopics = field(default_factory=KnownTopics)
    cluster_metadata: str | None = None
    how: HowToAudit
    is_once: bool = False

    @property
    def audit_id(self) -> str | None:
        """The run's id. One question at one time has one id, so that a run which was stopped can be run again."""
        if self.is_once:
            return None
        asked = {
            "sources": [(source.name, str(source.path)) for source in self.sources],
            "index_dir": str(self.target.index_dir),
            "topics": self.topics.pattern,
            "interval_bytes": self.interval_bytes,
        }
        if self.how.max_bytes is not None:
            asked["max_bytes"] = self.how.max_bytes
        return self.context.run_id(hashlib.sha256(json.dumps(asked).encode()).hexdigest())
