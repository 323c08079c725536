"""The rows of a plan of one partition under one policy: what is decided of each segment, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from jobs.common.retention.options import PlanOptions
from jobs.common.retention.partition import Partition, first_timestamp, first_unexpired_offset
from kidxlib.catalog.partitions import PARTITIONS
from kidxlib.catalog.results import PLANNED
from kidxlib.catalog.retention_plans import PolicyInPlan
from kidxlib.catalog.rows import rows_of_columns
from kidxlib.retention.decide import Decisions, decide, keep_all
from kidxlib.retention.partition import Bounds, Segments
from kidxlib.retention.policy import TopicConfig, kept_for_its_topic
from kidxlib.retention.reasons import REASONS, PlanWarning, Reason, decision_of
from kidxlib.retention.time_index_files import OnDisk
from kidxlib.retention.topic_policy import TopicPolicy

_WORDS: Final = np.array([reason.value for reason in REASONS], object)
_DECISIONS: Final = np.array([decision_of(reason).value for reason in REASONS], object)

#: Columns of a plan that are those of the catalog.
_AS_IN_CATALOG: Final = (
    *(*PARTITIONS.key, "base_offset", "topic_id", "log_mtime_ns", "log_inode", "log_path", "index_directory"),
    *("log_start_offset", "high_watermark"),
)


@dataclass(frozen=True, slots=True)
class _Rule:
    """What a partition's segments are decided by.

    Attributes:
        kept: why all of them stay; None where the policy decides.
    """

    bounds: Bounds
    policy: TopicPolicy
    kept: Reason | None
    now_ms: int

    def decide(self, segments: Segments) -> Decisions:
        if self.kept is not None:
            return keep_all(segments, self.kept)
        return decide(segments, self.bounds, self.policy, self.now_ms)


def planned_rows(
    partition: Partition,
    name: str,
    config: TopicConfig,
    options: PlanOptions,
    on_disk: Sequence[OnDisk | None] | None,
) -> pa.Table:
    """The rows of `PLANNED`, one for each segment.

    Args:
        name: of the policy.
        on_disk: what the time indexes say; None where only the catalog was asked.
    """
    topic = partition.of_first_row("topic")
    looks_compacted = topic in options.compacted_topics
    kept = kept_for_its_topic(
        topic,
        config,
        include_internal=options.include_internal,
        what_if=options.what_if,
        looks_compacted=looks_compacted,
    )
    bounds = partition.bounds(config.policy)
    rule = _Rule(bounds, config.policy, kept, options.now_ms)
    decisions = rule.decide(partition.segments)
    columns: dict[str, Any] = {
        **{column: partition.table[column] for column in _AS_IN_CATALOG},
        **_of_policy(name, config, len(partition.segments)),
        **_of_decisions(partition, decisions),
        **_of_logs(partition, rule, decisions),
        "warnings": pa.array(_warnings(decisions, on_disk, looks_compacted), pa.list_(pa.string())),
    }
    if on_disk is not None:
        columns |= _by_files(partition.segments, rule, on_disk)
    # Columns from the catalog to here: a row in Python for each of a million segments would take minutes.
    return rows_of_columns(columns, len(partition.segments), PLANNED)


def policy_in_plan(name: str, config: TopicConfig) -> PolicyInPlan:
    """What a plan says of a topic's policy, whose name is given."""
    policy = config.policy
    return PolicyInPlan(
        policy=name,
        retention_ms=policy.retention_ms,
        retention_bytes=policy.retention_bytes,
        cleanup_policy=policy.cleanup_text,
        remote_storage=policy.remote_storage,
        policy_origins=config.origins,
    )


def _of_policy(name: str, config: TopicConfig, count: int) -> dict[str, Any]:
    known = policy_in_plan(name, config).values()
    scalars: dict[str, Any] = {
        each.name: pa.scalar(known[each.name], each.arrow_type) for each in PolicyInPlan.columns()
    }
    return {column: pa.repeat(scalar, count) for column, scalar in scalars.items()}


def _of_decisions(partition: Partition, decisions: Decisions) -> dict[str, Any]:
    segments = partition.segments
    count = len(segments)
    return {
        "decision": _DECISIONS[decisions.reasons],
        "reason": _WORDS[decisions.reasons],
        "bytes": partition.table["log_bytes"],
        "largest_timestamp_ms": decisions.largest_timestamps,
        "age_from_mtime": decisions.age_from_mtime,
        "counted_bytes": segments.sizes,
        "future_ms": decisions.future_ms,
        "backwards_ms": decisions.backwards_ms,
        "rolls_first": (np.arange(count) == count - 1) & decisions.whole_partition,
        "next_offset": np.append(segments.base_offsets[1:], partition.log_end_offset),
    }


def _of_logs(partition: Partition, rule: _Rule, decisions: Decisions) -> dict[str, Any]:
    """What is read from the log of one segment each."""
    count = len(partition.segments)
    first = None if rule.kept else first_unexpired_offset(partition, rule.bounds, rule.policy, decisions, rule.now_ms)
    return {
        "cut_offset": _at(count, first),
        "first_timestamp_ms": _at(count, first_timestamp(partition, decisions)),
    }


def _by_files(segments: Segments, rule: _Rule, on_disk: Sequence[OnDisk | None]) -> dict[str, Any]:
    """What would be decided by the time indexes as they are now."""
    timestamps = np.array(
        [
            known if read is None else read.max_timestamp
            for known, read in zip(segments.max_timestamps, on_disk, strict=True)
        ],
        np.int64,
    )
    decisions = rule.decide(replace(segments, max_timestamps=timestamps))
    return {
        "decision_on_disk": _DECISIONS[decisions.reasons],
        "reason_on_disk": _WORDS[decisions.reasons],
        "timestamp_on_disk_ms": timestamps,
    }


def _warnings(decisions: Decisions, on_disk: Sequence[OnDisk | None] | None, looks_compacted: bool) -> list[list[str]]:
    found: list[list[str]] = [[] for _ in decisions.reasons]
    if looks_compacted:
        for words in found[: decisions.deleted]:
            words.append(PlanWarning.LOOKS_COMPACTED.value)
    if decisions.whole_partition:
        for words in found:
            words.append(PlanWarning.WHOLE_PARTITION.value)
    for column, warning in (
        (decisions.future_ms, PlanWarning.FUTURE_TIMESTAMP),
        (decisions.backwards_ms, PlanWarning.TIMESTAMPS_BACKWARDS),
    ):
        for number in column.nonzero()[0].tolist():
            found[number].append(warning.value)
    for words, read in zip(found, on_disk or (), strict=False):
        if read is not None and read.warning is not None:
            words.append(read.warning.value)
    return found


def _at(count: int, value: tuple[int, int | None] | None) -> Any:
    """A column that is null but in one place."""
    column: list[int | None] = [None] * count
    if value is not None:
        column[value[0]] = value[1]
    return pa.array(column, pa.int64())
