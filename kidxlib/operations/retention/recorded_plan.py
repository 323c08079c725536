"""A recorded plan that may be applied, and the configurations of its topics now."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final

import pyarrow as pa

from kidxlib.catalog.conditions import Among, Condition
from kidxlib.catalog.matching import positions_in
from kidxlib.catalog.retention_plans import RETENTION_PLANS, PolicyInPlan
from kidxlib.errors import UsageError
from kidxlib.format.topic_partition import PartitionKey, TopicPartition
from kidxlib.operations.retention.plan_options import ApplyRequest
from kidxlib.operations.retention.planned import policy_in_plan
from kidxlib.retention.plan import Written
from kidxlib.retention.policy import Policy, TopicConfig
from kidxlib.retention.policy_file import read_policies
from kidxlib.run.known_topics import KnownTopics
from kidxlib.run.retention_configs import ConfiguredTopics
from kidxlib.run.sources import source_paths
from kidxlib.tables.protocol import Tables
from kidxlib.terminal.console import warn_of_first
from kidxlib.text.times import NS_PER_MS, show_time, to_ms


@dataclass(frozen=True, slots=True)
class RecordedPlan:
    """A plan that may be applied, of one policy."""

    tables: Tables
    plan_id: str
    policy: str
    policy_file: str | None

    def read_columns(self, names: Sequence[str], where: Sequence[Condition] = ()) -> pa.Table:
        """Some columns of the plan's rows, in any order."""
        return _read(self.tables, self.plan_id, names, where)


def plan_to_apply(tables: Tables, request: ApplyRequest) -> RecordedPlan:
    """Find the recorded plan that a request names, and check that it may be applied."""
    names = ["planned_at", "policy", "policy_file", "what_if"]
    rows = _read(tables, request.plan_id, names).group_by(names).aggregate([]).to_pylist()
    name = f"--plan {request.plan_id}"
    if not rows:
        raise UsageError(f"{name}: no such plan in {tables.path}; retention without --apply makes one")
    policies = sorted({row["policy"] for row in rows})
    if len(policies) > 1:
        raise UsageError(f"{name}: compares the policies {', '.join(policies)}; plan again with one")
    if any(row["what_if"] is not False for row in rows):
        raise UsageError(
            f"{name}: a what-if (made with --now or --what-if, or by an older release), which is never applied; "
            "plan again without these options"
        )
    planned_ms = min(to_ms(row["planned_at"]) for row in rows)
    ensure_recent(name, planned_ms, to_ms(request.context.now), request.max_plan_age)
    return RecordedPlan(tables, request.plan_id, policies[0], rows[0]["policy_file"])


def ensure_recent(name: str, planned_ms: int, now_ms: int, max_age: timedelta) -> None:
    """Refuse a plan that is too old, or was made in the future by the machine's clock (`now_ms`)."""
    age = timedelta(milliseconds=now_ms - planned_ms)
    if age < timedelta(0):
        raise UsageError(
            f"{name}: planned for {show_time(planned_ms)}, which is {-age} ahead of this machine's clock "
            f"({show_time(now_ms)}): one of the clocks is wrong; set it right and plan again"
        )
    if age > max_age:
        raise UsageError(
            f"{name}: made {age} ago by this machine's clock, expected {max_age} at most; plan again, or give a longer "
            "--max-plan-age"
        )


@dataclass(frozen=True, slots=True)
class CurrentConfigs:
    """The configurations of topics when a plan is applied.

    Attributes:
        by_topic: the configurations, by the names of topics.
        configured: the configurations in the clusters' metadata.
        completed: topics with settings that only the clusters' metadata has.
        listing: the output of Kafka's tools that has the policy; None if the policy is from elsewhere.
    """

    by_topic: Mapping[str, TopicConfig] = field(default_factory=dict)
    configured: ConfiguredTopics = field(default_factory=lambda: ConfiguredTopics(KnownTopics()))
    completed: Collection[str] = ()
    listing: Path | None = None

    def ensure_recent(self, written: Mapping[PartitionKey, Written], limit: timedelta) -> None:
        """Refuse metadata that may be out of date (`ConfiguredTopics.ensure_recent`), and a listing that is much older
        than a partition's last record. `written` says when each partition of the plan was last written.
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


def current_configs(request: ApplyRequest, plan: RecordedPlan, topics: Collection[str]) -> CurrentConfigs:
    """The configurations of topics now. They must be those by which the plan was made; a difference is refused."""
    if not topics:
        return CurrentConfigs()
    file = request.policy_file or (None if plan.policy_file is None else Path(plan.policy_file))
    policies = {policy.name: policy for policy in (read_policies(file) if file is not None else (Policy(),))}
    if plan.policy not in policies:
        raise UsageError(f"{file}: no policy {plan.policy}, by which {request.plan_id} was planned; plan again")
    configured = _configured(request, plan, topics)
    if file is None and not configured.values:
        raise UsageError(
            f"--plan {request.plan_id}: made without a file of policies, and no cluster's metadata says what its "
            "topics are configured to; plan again with --policy or --cluster-metadata"
        )
    own = {topic: policies[plan.policy].of_topic(topic) for topic in sorted(topics)}
    completed = configured.complete(
        {topic: {plan.policy: config} for topic, config in own.items()},
        deletes=True,
        described=[plan.policy] if policies[plan.policy].described else [],
    )
    current = {topic: configs[plan.policy] for topic, configs in completed.items()}
    told_by = " and ".join(str(origin) for origin in (file, configured.known.as_of) if origin is not None)
    for topic, planned in sorted(_planned_policies(plan, topics).items()):
        _ensure_same(told_by, topic, planned, policy_in_plan(plan.policy, current[topic]))
    listing = file if policies[plan.policy].described else None
    return CurrentConfigs(current, configured, [topic for topic in own if own[topic] != current[topic]], listing)


def _configured(request: ApplyRequest, plan: RecordedPlan, topics: Collection[str]) -> ConfiguredTopics:
    ids = plan.read_columns(["source", "topic", "topic_id"], [Among("topic", topics)])
    sources = set(map(str, ids["source"].to_pylist()))
    paths = source_paths(plan.tables)
    configured = ConfiguredTopics.from_metadata(
        request.metadata, paths, sources, lambda: ids, deletes=True, same_broker=request.same_broker
    )
    warn_of_first(configured.known.warnings)
    return configured


def _ensure_same(told_by: str, topic: str, planned: PolicyInPlan, current: PolicyInPlan) -> None:
    for name, called in _CALLED.items():
        before, now = getattr(planned, name), getattr(current, name)
        if now != before:
            raise UsageError(
                f"{told_by}: topic {topic}: {called} is {_shown(now)} now, planned with {_shown(before)}; plan again, "
                "or give --policy, --cluster-metadata and --server-properties as then"
            )


#: The columns of a plan with a topic's policy, each with its name in messages.
_CALLED: Final = {
    "cleanup_policy": "cleanup.policy",
    "retention_ms": "retention.ms",
    "retention_bytes": "retention.bytes",
    "remote_storage": "remote.storage.enable",
    "policy_origins": "who said it",
}


def _planned_policies(plan: RecordedPlan, topics: Collection[str]) -> dict[str, PolicyInPlan]:
    """The policy by which each topic was decided; it is the same for all segments of a topic."""
    rows = plan.read_columns(["topic", *PolicyInPlan.names()], [Among("topic", topics)])
    one_each = rows.take(positions_in(rows.group_by("topic").aggregate([]), rows, ["topic"]))
    return {row.pop("topic"): PolicyInPlan.of_dict(row) for row in one_each.to_pylist(maps_as_pydicts="strict")}


def _read(tables: Tables, plan_id: str, names: Sequence[str], where: Sequence[Condition] = ()) -> pa.Table:
    return tables.read(RETENTION_PLANS, names, [Among("plan_id", (plan_id,)), *where])


def _shown(value: object) -> str:
    return ", ".join(f"{k}: {v}" for k, v in sorted(value.items())) if isinstance(value, dict) else str(value)
