"""What a run of `retention` is asked for: options, settings and the policy file, put together and checked."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from jobs.common.plan_partitions import Configs, PlanOptions
from jobs.common.request import DELETE_DELAY, Where
from jobs.common.settings import read_settings
from kidxlib.errors import UsageError
from kidxlib.plan import parse_topics
from kidxlib.policy import Origin, Policy, read_policies
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
    what_if: bool
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
        policy_file: where the policies stand; None where options say all.
        delete_records_json: the file to write for `kafka-delete-records`; None for none.
    """

    where: Where
    sources: tuple[str, ...]
    topics: re.Pattern[str]
    policies: tuple[Policy, ...]
    policy_file: Path | None
    options: PlanOptions
    delete_records_json: Path | None

    def configs_of(self, topics: Collection[str]) -> Configs:
        """What each topic's configuration says by each policy, of the topics that are wanted.

        Raises:
            UsageError: two patterns of a policy match a topic, and nothing says which comes first.
        """
        wanted = sorted(topic for topic in topics if self.topics.fullmatch(topic))
        return {topic: {policy.name: policy.of_topic(topic) for policy in self.policies} for topic in wanted}


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyRequest:
    """Which plan to carry out.

    Attributes:
        where: its time is the machine's clock.
        policy_file: what is to say the same as when it was planned; None for the file of then.
    """

    where: Where
    plan_id: str
    policy_file: Path | None
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
    _refuse_given("--apply goes by this machine's clock", {"--now": options.now})
    _refuse_given(
        "--apply carries out a plan as it was recorded",
        {
            "--source": options.sources,
            "--topics": options.topics,
            "--retention-ms": options.retention_ms,
            "--retention-bytes": options.retention_bytes,
            "--high-watermark": options.high_watermark,
            "--from-files": options.from_files or None,
            "--include-internal": options.include_internal or None,
            "--what-if": options.what_if or None,
            "--delete-records-json": options.delete_records_json,
        },
    )
    return ApplyRequest(
        where=where.with_catalog(),
        plan_id=options.plan_id,
        policy_file=options.policy,
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
    policies = (
        (Policy(values=given, origin=Origin.OPTION),) if options.policy is None else read_policies(options.policy)
    )
    what_if = options.what_if or options.now is not None or options.high_watermark is not None
    if options.delete_records_json is not None:
        _refuse_given(
            "--delete-records-json is for Kafka to delete now",
            {
                "--now": options.now,
                "--what-if": options.what_if or None,
                "--high-watermark": options.high_watermark,
            },
        )
        if len(policies) > 1:
            raise UsageError(f"--delete-records-json: {options.policy} has {len(policies)} policies; expected one")
    return PlanRequest(
        where=where.with_catalog(),
        sources=options.sources,
        topics=parse_topics(options.topics or ".*"),
        policies=policies,
        # Not where a link leads: it may lead elsewhere when the plan is carried out, and that is to be read.
        policy_file=None if options.policy is None else options.policy.absolute(),
        options=PlanOptions(
            now_ms=to_ms(where.now),
            high_watermark=options.high_watermark,
            from_files=options.from_files,
            include_internal=options.include_internal,
            what_if=what_if,
        ),
        delete_records_json=options.delete_records_json,
    )


def _refuse_given(why: str, options: Mapping[str, object]) -> None:
    for name, value in options.items():
        if value not in (None, ()):
            raise UsageError(f"{name}: {why}, and takes no such option")
