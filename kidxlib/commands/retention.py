"""`kidx retention`, `./spark-submit.sh retention`: plan what Kafka's retention would delete, or apply a plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from kidxlib.commands.command import NOW, OnSources, kidx_command, option, parameter
from kidxlib.errors import UsageError
from kidxlib.terminal.options import (
    DELETE_DELAY,
    IntegerRange,
    MetadataOptions,
    Milliseconds,
    ensure_parent_exists,
    metadata_options,
    parse_option,
)
from kidxlib.terminal.outcome import Outcome
from kidxlib.text.times import parse_duration, to_ms

if TYPE_CHECKING:
    from kidxlib.operations.backend import Backend
    from kidxlib.operations.retention.retention_request import ApplyRequest, PlanRequest
    from kidxlib.retention.policy import Policy

_LIMIT: Final = IntegerRange(-1, 2**63 - 1)


@dataclass(frozen=True, kw_only=True)
class RetentionCommand(OnSources):
    policy: Path | None = option(
        "--policy",
        type=click.Path(path_type=Path),
        help="What kafka-configs --describe --all prints of topics, or a file of policies (TOML); several are "
        "compared.",
    )
    metadata: MetadataOptions = parameter(metadata_options)
    retention_ms: int | None = option(
        "--retention-ms",
        metavar="MS",
        type=Milliseconds(-1, 2**63 - 1),
        help="retention.ms of all topics, or a duration with its unit, such as 7d; -1: no limit.",
    )
    retention_bytes: int | None = option(
        "--retention-bytes", metavar="BYTES", type=_LIMIT, help="retention.bytes of all topics; -1: no limit."
    )
    from_files: bool = option(
        "--from-files", is_flag=True, help="Look at each time index too, as a broker does; say where it differs."
    )
    include_internal: bool = option(
        "--include-internal", is_flag=True, help="Plan Kafka's own topics too, as a broker configures them."
    )
    what_if: bool = option(
        "--what-if", is_flag=True, help="Take Kafka's own defaults for what nobody said; --apply refuses such a plan."
    )
    segments: bool = option(
        "--segments", is_flag=True, help="List each segment: what becomes of it, why, and when it goes."
    )
    delete_records_json: Path | None = option(
        "--delete-records-json",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Write the plan for kafka-delete-records --offset-json-file.",
    )
    apply: bool = option(
        "--apply", is_flag=True, help="Apply a plan to an archive, in its log dir and its index directory."
    )
    plan_id: str | None = option("--plan", "plan_id", metavar="ID", help="The plan to apply.")
    delete_delay: str | None = option(
        "--delete-delay", metavar="TIME", help="Time from renaming files to removing them. [default: 60s]"
    )
    max_plan_age: str | None = option(
        "--max-plan-age", metavar="TIME", help="Refuse a plan that is older. [default: 1h]"
    )
    same_broker: bool = option(
        "--same-broker",
        is_flag=True,
        help="The log dir is of the broker of --server-properties, and mounted elsewhere than its log.dirs says.",
    )
    max_metadata_lag: str | None = option(
        "--max-metadata-lag",
        metavar="TIME",
        help="Refuse cluster metadata that ends so long before a partition's last record. [default: 2h]",
    )
    now: str | None = parameter(
        click.option(
            "--now",
            metavar="TIME",
            help="Decide for this time: ISO 8601 with a zone, or ms since the epoch; the plan is a --what-if.",
        ),
        at=NOW,
    )

    def __post_init__(self) -> None:
        if self.same_broker and self.metadata.server_properties is None:
            raise UsageError("--same-broker: it says of what broker --server-properties FILE is; give both or none")
        if self.same_broker and not self.apply and self.delete_records_json is None:
            raise UsageError("--same-broker: a plan needs no proof; give it with --apply or --delete-records-json")
        super().__post_init__()
        _ = self.resolved  # what is wrong is told before anything is done

    @cached_property
    def resolved(self) -> PlanRequest | ApplyRequest:
        return self._to_apply() if self.apply else self._to_plan()

    def _to_apply(self) -> ApplyRequest:
        from kidxlib.operations.retention.retention_request import ApplyRequest

        if self.plan_id is None:
            raise UsageError("--apply: name the plan to apply with --plan; retention without --apply makes one")
        _ensure_not_given("--apply goes by this machine's clock", {"--now": self.now})
        _ensure_not_given(
            "--apply takes a plan as it was recorded",
            {
                "--source": self.sources,
                "--topics": self.topics,
                "--retention-ms": self.retention_ms,
                "--retention-bytes": self.retention_bytes,
                "--from-files": self.from_files or None,
                "--include-internal": self.include_internal or None,
                "--what-if": self.what_if or None,
                "--segments": self.segments or None,
                "--delete-records-json": self.delete_records_json,
            },
        )
        return ApplyRequest(
            context=self.context,
            plan_id=self.plan_id,
            policy_file=self.policy,
            metadata=self.metadata,
            same_broker=self.same_broker,
            delete_delay=parse_option("--delete-delay", parse_duration, self.delete_delay or DELETE_DELAY),
            max_plan_age=parse_option("--max-plan-age", parse_duration, self.max_plan_age or "1h"),
            max_metadata_lag=self._max_metadata_lag(),
        )

    def _to_plan(self) -> PlanRequest:
        from kidxlib.operations.retention.plan_work import PlanOptions
        from kidxlib.operations.retention.retention_request import PlanRequest

        of_apply = {
            "--plan": self.plan_id,
            "--delete-delay": self.delete_delay,
            "--max-plan-age": self.max_plan_age,
            "--max-metadata-lag": self.max_metadata_lag if self.delete_records_json is None else None,
        }
        _ensure_not_given("without --apply nothing is deleted", of_apply)
        policies = self._policies()
        if self.delete_records_json is not None:
            _ensure_not_given(
                "--delete-records-json is for Kafka to delete now",
                {"--now": self.now, "--what-if": self.what_if or None},
            )
            if len(policies) > 1:
                raise UsageError(f"--delete-records-json: {self.policy} has {len(policies)} policies; expected one")
            ensure_parent_exists("--delete-records-json", self.delete_records_json)
        return PlanRequest(
            context=self.context,
            sources=self.sources,
            topics=self.pattern,
            names_topics=self.topics is not None,
            policies=policies,
            # A symlink is not resolved: it may point elsewhere when the plan is applied, and that file is to be read
            # then.
            policy_file=None if self.policy is None else self.policy.absolute(),
            metadata=self.metadata,
            same_broker=self.same_broker,
            options=PlanOptions(
                now_ms=to_ms(self.context.now),
                from_files=self.from_files,
                include_internal=self.include_internal,
                what_if=self.what_if or self.now is not None,
            ),
            delete_records_json=self.delete_records_json,
            max_metadata_lag=self._max_metadata_lag(),
            shows_segments=self.segments,
        )

    def _policies(self) -> tuple[Policy, ...]:
        from kidxlib.retention.policy import Origin, Policy
        from kidxlib.retention.policy_file import read_retention_policies

        limits = {"retention_ms": self.retention_ms, "retention_bytes": self.retention_bytes}
        given = {name: value for name, value in limits.items() if value is not None}
        if self.policy is None:
            return (Policy(values=given, origin=Origin.OPTION),)
        if given:
            raise UsageError(
                "--policy and --retention-ms or --retention-bytes: put the limits into the file, or leave it out"
            )
        return read_retention_policies(self.policy)

    def _max_metadata_lag(self) -> timedelta:
        return parse_option("--max-metadata-lag", parse_duration, self.max_metadata_lag or "2h")


def _ensure_not_given(why: str, options: Mapping[str, object]) -> None:
    for name, value in options.items():
        if value not in (None, ()):
            raise UsageError(f"{name}: {why}, and takes no such option; leave it out")


def run_retention(request: RetentionCommand, backend: Backend) -> Outcome:
    """Plan which segments Kafka's retention would delete, with a reason for each, and record that in the catalog's
    table retention_plans. Without --apply nothing is deleted. kidx retention and ./spark-submit.sh retention are the
    same, with the same table.

    Exit codes: 0 no problems; 2 wrong options or inputs, nothing done; 3 done, but some segments have problems,
    their time indexes lead to other decisions, or nobody said all that decides on a topic that --topics asks for;
    1 failed.
    """
    from kidxlib.operations.retention.apply import apply_plan
    from kidxlib.operations.retention.make_plan import make_plan
    from kidxlib.operations.retention.retention_request import PlanRequest

    if isinstance(request.resolved, PlanRequest):
        return make_plan(backend, request.resolved)
    return apply_plan(backend, request.resolved)


retention = kidx_command("retention", RetentionCommand, run_retention, reports_as="retention")
