"""What a plan is made for, and which plan is applied: options, settings and the policy file, put together."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

from kidxlib.retention.policy import Policy, TopicConfig
from kidxlib.run.context import RunContext
from kidxlib.run.options import MetadataOptions

#: By topic, what its configuration says by each policy's name; every topic has all policies.
Configs = Mapping[str, Mapping[str, TopicConfig]]

#: The column beside the catalog's that says so of a segment's partition.
IS_ONLY_REPLICA: Final = "is_only_replica"


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """What a plan is made for.

    Attributes:
        from_files: look at each time index, too.
        what_if: take Kafka's own defaults where nobody said anything; nothing is deleted by such a plan.
    """

    now_ms: int
    from_files: bool
    include_internal: bool
    what_if: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """What to plan.

    Attributes:
        sources: by name; empty for all.
        names_topics: topics were asked for, so one that is not decided on is a problem.
        policy_file: where the policies stand; None where options say all.
        metadata: where clusters say what nobody else says of their topics.
        same_broker: a server.properties is that of the log dirs' broker, whatever it says of their place.
        delete_records_json: the file to write for `kafka-delete-records`; None for none.
        max_metadata_lag: as in `ApplyRequest`, for that file.
        shows_segments: on screen, too.
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
        """What each topic's configuration says by each policy, of the topics that are wanted."""
        wanted = sorted(topic for topic in topics if self.topics.fullmatch(topic))
        return {topic: {policy.name: policy.of_topic(topic) for policy in self.policies} for topic in wanted}


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyRequest:
    """Which plan to apply.

    Attributes:
        context: its time is the machine's clock.
        policy_file: what is to say the same as when it was planned; None for the file of then.
        metadata: where clusters are to say the same.
        same_broker: as in `PlanRequest`.
        max_metadata_lag: how long before a partition's last record the metadata may end.
    """

    context: RunContext
    plan_id: str
    policy_file: Path | None
    metadata: MetadataOptions
    same_broker: bool
    delete_delay: timedelta
    max_plan_age: timedelta
    max_metadata_lag: timedelta
