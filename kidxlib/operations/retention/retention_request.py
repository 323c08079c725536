"""What a run of `retention` is asked for: options, settings and the policy file, put together and checked."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from kidxlib.errors import UsageError
from kidxlib.operations.retention.plan_options import Configs, PlanOptions
from kidxlib.retention.policy import Origin, Policy
from kidxlib.retention.policy_file import read_policies
from kidxlib.run.context import RunContext
from kidxlib.run.known_topics import MetadataOptions
from kidxlib.run.options import DELETE_DELAY, ensure_parent_exists, parse_option
from kidxlib.run.settings import read_settings
from kidxlib.terminal.options.sources import parse_topics
from kidxlib.text.times import parse_duration, to_ms


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
    from_files: bool
    include_internal: bool
    what_if: bool
    delete_records_json: Path | None
    apply: bool
    plan_id: str | None
    delete_delay: str | None
    max_plan_age: str | None
    max_metadata_lag: str | None
    same_broker: bool
    segments: bool
    metadata: MetadataOptions
    settings_file: Path
    now: str | None


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


def retention_request(options: RetentionOptions) -> PlanRequest | ApplyRequest:
    """Put options, settings and policies together."""
    if options.same_broker and options.metadata.server_properties is None:
        raise UsageError("--same-broker: it says of what broker --server-properties FILE is; give both or none")
    if options.same_broker and not options.apply and options.delete_records_json is None:
        raise UsageError("--same-broker: a plan needs no proof; give it with --apply or --delete-records-json")
    settings = read_settings(options.settings_file)
    context = RunContext.of(settings, options.catalog, options.database, options.now)
    return (_apply_request if options.apply else _plan_request)(options, context)


def _apply_request(options: RetentionOptions, context: RunContext) -> ApplyRequest:
    if options.plan_id is None:
        raise UsageError("--apply: name the plan to apply with --plan; retention without --apply makes one")
    _ensure_not_given("--apply goes by this machine's clock", {"--now": options.now})
    _ensure_not_given(
        "--apply takes a plan as it was recorded",
        {
            "--source": options.sources,
            "--topics": options.topics,
            "--retention-ms": options.retention_ms,
            "--retention-bytes": options.retention_bytes,
            "--from-files": options.from_files or None,
            "--include-internal": options.include_internal or None,
            "--what-if": options.what_if or None,
            "--segments": options.segments or None,
            "--delete-records-json": options.delete_records_json,
        },
    )
    return ApplyRequest(
        context=context.with_catalog(),
        plan_id=options.plan_id,
        policy_file=options.policy,
        metadata=options.metadata,
        same_broker=options.same_broker,
        delete_delay=parse_option("--delete-delay", parse_duration, options.delete_delay or DELETE_DELAY),
        max_plan_age=parse_option("--max-plan-age", parse_duration, options.max_plan_age or "1h"),
        max_metadata_lag=_max_metadata_lag(options),
    )


def _max_metadata_lag(options: RetentionOptions) -> timedelta:
    return parse_option("--max-metadata-lag", parse_duration, options.max_metadata_lag or "2h")


def _plan_request(options: RetentionOptions, context: RunContext) -> PlanRequest:
    of_apply = {
        "--plan": options.plan_id,
        "--delete-delay": options.delete_delay,
        "--max-plan-age": options.max_plan_age,
        "--max-metadata-lag": options.max_metadata_lag if options.delete_records_json is None else None,
    }
    _ensure_not_given("without --apply nothing is deleted", of_apply)
    limits = {"retention_ms": options.retention_ms, "retention_bytes": options.retention_bytes}
    given = {name: value for name, value in limits.items() if value is not None}
    if options.policy is not None and given:
        raise UsageError(
            "--policy and --retention-ms or --retention-bytes: put the limits into the file, or leave it out"
        )
    policies = (
        (Policy(values=given, origin=Origin.OPTION),) if options.policy is None else read_policies(options.policy)
    )
    what_if = options.what_if or options.now is not None
    if options.delete_records_json is not None:
        _ensure_not_given(
            "--delete-records-json is for Kafka to delete now",
            {"--now": options.now, "--what-if": options.what_if or None},
        )
        if len(policies) > 1:
            raise UsageError(f"--delete-records-json: {options.policy} has {len(policies)} policies; expected one")
        ensure_parent_exists("--delete-records-json", options.delete_records_json)
    return PlanRequest(
        context=context.with_catalog(),
        sources=options.sources,
        topics=parse_topics(options.topics or ".*"),
        names_topics=options.topics is not None,
        policies=policies,
        # Not where a symlink leads: it may lead elsewhere when the plan is applied, and that is to be read.
        policy_file=None if options.policy is None else options.policy.absolute(),
        metadata=options.metadata,
        same_broker=options.same_broker,
        options=PlanOptions(
            now_ms=to_ms(context.now),
            from_files=options.from_files,
            include_internal=options.include_internal,
            what_if=what_if,
        ),
        delete_records_json=options.delete_records_json,
        max_metadata_lag=_max_metadata_lag(options),
        shows_segments=options.segments,
    )


def _ensure_not_given(why: str, options: Mapping[str, object]) -> None:
    for name, value in options.items():
        if value not in (None, ()):
            raise UsageError(f"{name}: {why}, and takes no such option; leave it out")
