"""The requests to make a plan and to apply one, and the configurations of topics that both may rest on."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from kidxlib.errors import UsageError
from kidxlib.format.topic_partition import PartitionKey, TopicPartition
from kidxlib.operations.retention.plan_work import PlanOptions
from kidxlib.retention.policy import Policy, TopicConfig, Written
from kidxlib.run.context import RunContext
from kidxlib.run.known_topics import KnownTopics
from kidxlib.run.retention_configs import Configs, RetentionConfigs
from kidxlib.terminal.options import MetadataOptions
from kidxlib.text.times import NS_PER_MS, show_time


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """What to plan.

    Attributes:
        sources: names of sources; empty for all.
        names_topics: whether --topics was given; then a topic that is not decided on is a problem.
        policy_file: the file with the policies; None if options name the limits.
        metadata: where to read topics' configurations that neither the file nor an option has.
        same_broker: take a server.properties for that of the log dirs' broker even if it names other log dirs.
        delete_records_json: the file to write for `kafka-delete-records`; None for none.
        max_metadata_lag: as in `ApplyRequest`; checked before `delete_records_json` is written.
        shows_segments: show each segment on screen, too.
    """

    context: RunContext
    sources: tuple[str, ...]
    topics: re.Pattern[str]
    names_topics: bool
    policies: tuple[Policy, ...]
    policy_file: Path | None
    metadata: MetadataOptions
    same_broker: bool
    options: PlanOptions
    delete_records_json: Path | None
    max_metadata_lag: timedelta
    shows_segments: bool

    def configs_of(self, topics: Collection[str]) -> Configs:
        """The configurations of the requested topics, by policy."""
        wanted = sorted(topic for topic in topics if self.topics.fullmatch(topic))
        return {topic: {policy.name: policy.of_topic(topic) for policy in self.policies} for topic in wanted}


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyRequest:
    """Which plan to apply.

    Attributes:
        context: the run's; its time is that of the machine's clock.
        policy_file: the file that must have the same policy as the plan; None for the file by which it was planned.
        metadata: where topics' configurations are read, which must be those of the plan.
        same_broker: as in `PlanRequest`.
        max_metadata_lag: by how much the metadata's last record may be older than a partition's last record.
    """

    context: RunContext
    plan_id: str
    policy_file: Path | None
    metadata: MetadataOptions
    same_broker: bool
    delete_delay: timedelta
    max_plan_age: timedelta
    max_metadata_lag: timedelta


@dataclass(frozen=True, slots=True)
class RequestConfigs:
    """The configurations of topics that a request rests on.

    Attributes:
        by_topic: the configurations, by the names of topics.
        configured: the configurations in the clusters' metadata.
        completed: topics with settings that only the clusters' metadata has.
        listing: the output of Kafka's tools that has the policy; None if the policy is from elsewhere.
    """

    by_topic: Mapping[str, TopicConfig] = field(default_factory=dict)
    configured: RetentionConfigs = field(default_factory=lambda: RetentionConfigs(KnownTopics()))
    completed: Collection[str] = ()
    listing: Path | None = None

    def ensure_recent(self, written: Mapping[PartitionKey, Written], limit: timedelta) -> None:
        """Refuse a request by metadata that may be out of date (`RetentionConfigs.ensure_recent`), or by a listing that
        is much older than a partition's last record. `written` says when each partition of the plan was last written.
        """
        if self.listing is not None:
            made_ms = self.listing.stat().st_mtime_ns // NS_PER_MS
            for (_, topic, number), partition in written.items():
                if partition.written_ms - made_ms > limit / timedelta(milliseconds=1):
                    raise UsageError(
                        f"{self.listing}: made at {show_time(made_ms)}, and {TopicPartition(topic, number).directory} "
                        f"was written to until {show_time(partition.written_ms)}, expected {limit} later at most: its "
                        "topic may have been configured anew since. Print the listing again, or give a longer "
                        "--max-metadata-lag"
                    )
        written_of_completed = {key: partition for key, partition in written.items() if key[1] in self.completed}
        self.configured.ensure_recent(written_of_completed, limit)
