"""What a run of `retention` is asked for: options, settings and the policy file, put together and checked."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from jobs.common.plan_partitions import PlanOptions, Policies
from jobs.common.request import DELETE_DELAY, Where
from jobs.common.settings import read_settings
from kidxlib.errors import UsageError
from kidxlib.plan import parse_topics
from kidxlib.policy import Policy, read_policies
from kidxlib.times import parse_duration, to_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionOptions:
    """The options as they were given; None, empty or False where they were not."""

    catalog: str | None
    database: str | None
    sources: tuple[str, ...]
    topics: str | None
    policy: Path | None
    retention_ms: int | None
    retention_bytes: int | None
    high_watermark: int | None
    from_files: bool
    include_internal: bool
    delete_records_json: Path | None
    apply: bool
    plan_id: str | None
    delete_delay: str | None
    max_plan_age: str | None
    settings_file: Path
    now: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """What to plan.

    Attributes:
        sources: by name; empty for all.
        delete_records_json: the file to write for `kafka-delete-records`; None for none.
    """

    where: Where
    sources: tuple[str, ...]
    topics: re.Pattern[str]
    policies: tuple[Policy, ...]
    options: PlanOptions
    delete_records_json: Path | None

    def policies_of(self, topics: Collection[str]) -> Policies:
        """What each topic's configuration says by each policy, of the topics that are wanted.

        Raises:
            UsageError: two patterns of a policy match a topic, and nothing says which comes first.
        """
        wanted = sorted(topic for topic in topics if self.topics.fullmatch(topic))
        return {topic: {policy.name: policy.of_topic(topic) for policy in self.policies} for topic in wanted}


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyRequest:
    """Which plan to carry out."""

    where: Where
    plan_id: str
    delete_delay: timedelta
    max_plan_age: timedelta


def retention_request(options: RetentionOptions) -> PlanRequest | ApplyRequest:
    """Put options, settings and policies together.

    Raises:
        UsageError: a file or an option is wrong, or options contradict each other.
    """
    settings = read_settings(options.settings_file)
    where = Where.of(settings, options.catalog, options.database, options.now)
    return _apply_request(options, where) if options.apply else _plan_request(options, where)


def _apply_request(options: RetentionOptions, where: Where) -> ApplyRequest:
    if options.plan_id is None:
        raise UsageError("--apply: name the plan to carry out with --plan; retention without --apply makes one")
    _refuse_given(
        "--apply carries out a plan as it was recorded",
        {
            "--source": options.sources,
            "--topics": options.topics,
            "--policy": options.policy,
            "--retention-ms": options.retention_ms,
            "--retention-bytes": options.retention_bytes,
            "--high-watermark": options.high_watermark,
            "--from-files": options.from_files or None,
            "--include-internal": options.include_internal or None,
            "--delete-records-json": options.delete_records_json,
        },
    )
    return ApplyRequest(
        where=where,
        plan_id=options.plan_id,
        delete_delay=parse_duration(options.delete_delay or DELETE_DELAY),
        max_plan_age=parse_duration(options.max_plan_age or "1h"),
    )


def _plan_request(options: RetentionOptions, where: Where) -> PlanRequest:
    of_apply = {
        "--plan": options.plan_id,
        "--delete-delay": options.delete_delay,
        "--max-plan-age": options.max_plan_age,
    }
    _refuse_given("without --apply nothing is deleted", of_apply)
    limits = {"retention_ms": options.retention_ms, "retention_bytes": options.retention_bytes}
    given = {name: value for name, value in limits.items() if value is not None}
    if options.policy is not None and given:
        raise UsageError("--policy and --retention-ms or --retention-bytes: put the limits into the file, or leave it")
    policies = (Policy(values=given),) if options.policy is None else read_policies(options.policy)
    if options.delete_records_json is not None and len(policies) > 1:
        raise UsageError(f"--delete-records-json: {options.policy} has {len(policies)} policies; expected one")
    return PlanRequest(
        where=where,
        sources=options.sources,
        topics=parse_topics(options.topics or ".*"),
        policies=policies,
        options=PlanOptions(
            now_ms=to_ms(where.now),
            high_watermark=options.high_watermark,
            from_files=options.from_files,
            include_internal=options.include_internal,
        ),
        delete_records_json=options.delete_records_json,
    )


def _refuse_given(why: str, options: Mapping[str, object]) -> None:
    for name, value in options.items():
        if value not in (None, ()):
            raise UsageError(f"{name}: {why}, and takes no such option")
