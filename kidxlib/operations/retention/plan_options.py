"""The requests to make a plan and to apply one, and the options by which a plan decides."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

from kidxlib.retention.policy import Policy, TopicConfig
from kidxlib.run.context import RunContext
from kidxlib.terminal.options import MetadataOptions

#: The configuration of each topic under each policy: by topic, then by the policy's name. Every topic has all policies.
Configs = Mapping[str, Mapping[str, TopicConfig]]

#: The column, besides the catalog's, that says whether a segment's partition is the only replica.
IS_ONLY_REPLICA: Final = "is_only_replica"


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """How a plan decides.

    Attributes:
        from_files: also read the time index of each segment.
        what_if: take Kafka's defaults for settings that are not known. Such a plan cannot be applied.
    """

    now_ms: int
    from_files: bool
    include_internal: bool
    what_if: bool


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
        """The configuration of each wanted topic under each policy."""
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
