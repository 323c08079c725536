"""A recorded plan that may be applied, and what topics' configurations say of it now."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.common.catalog.catalog import Catalog
from jobs.common.retention.planned import policy_in_plan
from jobs.common.retention.request import ApplyRequest
from kidxlib.catalog.retention_plans import PolicyInPlan
from kidxlib.errors import UsageError
from kidxlib.retention.policy import TopicConfig
from kidxlib.retention.policy_file import read_policies
from kidxlib.times import show_time, to_ms


@dataclass(frozen=True, slots=True)
class RecordedPlan:
    """A plan that may be applied, of one policy."""

    rows: DataFrame
    policy: str
    policy_file: str | None


def plan_to_apply(catalog: Catalog, request: ApplyRequest) -> RecordedPlan:
    """A recorded plan.

    Raises:
        UsageError: it is not there, compares policies, asks what if, or is too old or of the future.
    """
    rows = catalog.plan(request.plan_id)
    head = rows.agg(
        F.unix_millis(F.min("planned_at")).alias("planned_ms"),
        F.array_sort(F.collect_set("policy")).alias("policies"),
        F.bool_or(F.coalesce("what_if", F.lit(True))).alias("what_if"),
        F.max("policy_file").alias("policy_file"),
    ).head()
    name = f"--plan {request.plan_id}"
    if head is None or head["planned_ms"] is None:
        raise UsageError(f"{name}: no such plan in {catalog.path}; retention without --apply makes one")
    if len(head["policies"]) > 1:
        raise UsageError(f"{name}: compares the policies {', '.join(head['policies'])}; plan again with one")
    if head["what_if"]:
        raise UsageError(
            f"{name}: a what-if (made with --now or --what-if, or by an older release), which is never applied; "
            "plan again without these options"
        )
    ensure_recent(name, head["planned_ms"], to_ms(request.context.now), request.max_plan_age)
    return RecordedPlan(rows, head["policies"][0], head["policy_file"])


def ensure_recent(name: str, planned_ms: int, now_ms: int, max_age: timedelta) -> None:
    """Refuse a plan that is too old, or of the future.

    Args:
        now_ms: by the machine's clock.

    Raises:
        UsageError: it is.
    """
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


def current_configs(request: ApplyRequest, plan: RecordedPlan, topics: Collection[str]) -> dict[str, TopicConfig]:
    """What topics' configurations say now, which is what they said when it was planned.

    Raises:
        UsageError: the file of then cannot be read, or says something else.
    """
    if not topics:
        return {}
    file = request.policy_file or (None if plan.policy_file is None else Path(plan.policy_file))
    if file is None:
        raise UsageError(f"--plan {request.plan_id}: made without a file of policies; plan again with --policy")
    policies = {policy.name: policy for policy in read_policies(file)}
    if plan.policy not in policies:
        raise UsageError(f"{file}: no policy {plan.policy}, by which {request.plan_id} was planned; plan again")
    rows = plan.rows.where(F.col("topic").isin(*topics)).groupBy("topic")
    found = rows.agg(*(F.any_value(name).alias(name) for name in PolicyInPlan.names())).collect()
    configs = {}
    for row in found:
        topic, planned = row["topic"], PolicyInPlan.of_dict({name: row[name] for name in PolicyInPlan.names()})
        configs[topic] = policies[plan.policy].of_topic(topic)
        current = policy_in_plan(plan.policy, configs[topic])
        for name, called in _CALLED.items():
            before, now = getattr(planned, name), getattr(current, name)
            if now != before:
                raise UsageError(
                    f"{file}: topic {topic}: {called} is {_shown(now)} now, planned with {_shown(before)}; plan again"
                )
    return configs


#: What a plan says of a topic's policy, and how a message calls it.
_CALLED: Final = {
    "cleanup_policy": "cleanup.policy",
    "retention_ms": "retention.ms",
    "retention_bytes": "retention.bytes",
    "remote_storage": "remote.storage.enable",
    "policy_origins": "who said it",
}


def _shown(value: object) -> str:
    return ", ".join(f"{k}: {v}" for k, v in sorted(value.items())) if isinstance(value, dict) else str(value)
