"""The request for an audit."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field

from kidxlib.audit.finding import Verdict
from kidxlib.format.kafka_release import KafkaRelease
from kidxlib.indexing.source import IndexPlace, Source
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
        clean_shutdown: whether the broker stopped cleanly; None reads that from its log dir.
        list_safe: report each safe file by itself, and not all of a kind together.
        alone: do not count it as a problem that the broker has other log dirs which were not named.
        max_bytes: read at most so many bytes of logs, partitions with the oldest audit first; None for all.
        kafka_version: the brokers' Kafka; None for what each node has registered.
    """

    deep: bool
    fail_on: Verdict
    tiering: bool
    clean_shutdown: bool | None
    list_safe: bool = False
    alone: bool = False
    max_bytes: int | None = None
    kafka_version: KafkaRelease | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRequest:
    """What to audit.

    Attributes:
        index_place: where the index files are.
        interval_bytes: the option's value; None if it was not given.
        options_for: the options of a partition's indexes, used where the catalog has none.
        known_topics: the topics' configurations in the metadata of the sources' clusters.
        cluster_metadata: a copy of the metadata that an option names; None: the sources' own metadata is read.
        is_once: the audit is one of a single directory without a catalog, which its path names, and no id.
    """

    context: RunContext
    sources: tuple[Source, ...]
    index_place: IndexPlace
    topics: re.Pattern[str]
    interval_bytes: int | None
    options_for: OptionsFor
    known_topics: KnownTopics = field(default_factory=KnownTopics)
    cluster_metadata: str | None = None
    how: HowToAudit
    is_once: bool = False

    @property
    def audit_id(self) -> str | None:
        """The run's id. The same request at the same time has the same id, so that a stopped run can be repeated."""
        if self.is_once:
            return None
        asked = {
            "sources": [(source.name, str(source.path)) for source in self.sources],
            "index_dir": str(self.index_place.index_dir),
            "topics": self.topics.pattern,
            "interval_bytes": self.interval_bytes,
        }
        if self.how.max_bytes is not None:
            asked["max_bytes"] = self.how.max_bytes
        if self.how.kafka_version is not None:
            asked["kafka_version"] = str(self.how.kafka_version)
        return self.context.run_id(hashlib.sha256(json.dumps(asked).encode()).hexdigest())
