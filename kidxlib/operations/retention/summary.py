"""What a plan comes to: counts by topic, and what a person should know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.catalog.segments import SEGMENTS
from kidxlib.engine.staged import Staged
from kidxlib.format.topic_partition import INTERNAL_TOPICS
from kidxlib.operations.retention.findings import RetentionFinding, findings_of, segment_name
from kidxlib.operations.retention.plan_options import Configs
from kidxlib.retention.policy import Origin
from kidxlib.retention.reasons import Decision, Reason
from kidxlib.retention.topic_policy import DECIDING_CONFIGS
from kidxlib.terminal.build import PROBLEMS_SHOWN

_NAMED: Final = (*SEGMENTS.key, "policy")
_ON_DISK: Final = ("decision", "reason", "decision_on_disk", "reason_on_disk", "timestamp_on_disk_ms")


@dataclass(frozen=True, slots=True)
class TopicSummary:
    """One topic under one policy.

    Attributes:
        deleted, freed: segments that go, and their bytes.
        undecided: segments that are not decided on, as not all of the topic's policy is known.
        oldest_ms: timestamp of the first record that stays, the smallest of its partitions; None where the logs are not
            at hand or hold none.
    """

    policy: str
    topic: str
    segments: int
    bytes: int
    deleted: int
    freed: int
    undecided: int
    oldest_ms: int | None


@dataclass(frozen=True, slots=True)
class RetentionReport:
    """What a plan comes to.

    Attributes:
        compacted: topics that stay as they look so, each with the first place that looks so.
        unknown: of the topics that are not decided on, what nobody said, by Kafka's names.
        assumed: of topics of a what-if, for what Kafka's own defaults stood in.
        problems: segments kept because not all is known of them, a few named; with their number.
        disagreements: a few segments on which the catalog and the time index lead to different decisions, with their
            number.
    """

    topics: list[TopicSummary]
    findings: list[RetentionFinding]
    compacted: Mapping[str, str]
    unknown: dict[str, list[str]]
    assumed: dict[str, list[str]]
    problems: tuple[int, list[str]]
    disagreements: tuple[int, list[str]]


def report(staged: Staged, configs: Configs, looks_compacted: Mapping[str, str], *, what_if: bool) -> RetentionReport:
    """Sum a plan up.

    Args:
        staged: rows of `PLANNED`.
        configs: what they were decided by; in a what-if with Kafka's own defaults for what nobody said.
        looks_compacted: as `topics_that_look_compacted`.
    """
    names = ["policy", "topic", "decision", "reason", "decision_on_disk"]
    rows = staged.rows("segment", [*names, "bytes", "first_timestamp_ms"])
    summed = rows.group_by(names).aggregate([([], "count_all"), ("bytes", "sum"), ("first_timestamp_ms", "min")])
    topics: dict[tuple[str, str], TopicSummary] = {}
    compacted = set()
    for row in summed.to_pylist():
        key = row["policy"], row["topic"]
        topics[key] = _added(topics.get(key, TopicSummary(*key, 0, 0, 0, 0, 0, None)), row)
        if row["reason"] == Reason.LOOKS_COMPACTED.value:
            compacted.add(row["topic"])
    return RetentionReport(
        topics=sorted(topics.values(), key=lambda topic: (topic.policy, -topic.freed, topic.topic)),
        findings=findings_of(staged, looks_compacted),
        compacted={topic: looks_compacted[topic] for topic in sorted(compacted)},
        unknown={topic.topic: _unknown(configs, topic) for topic in topics.values() if topic.undecided},
        assumed=_assumed(configs) if what_if else {},
        problems=_problems(staged, summed),
        disagreements=_disagreements(staged, summed),
    )


def _added(topic: TopicSummary, row: Mapping[str, Any]) -> TopicSummary:
    """A topic with some more of its segments, which have one reason."""
    count, size = row["count_all"], row["bytes_sum"] or 0
    goes = row["decision"] == Decision.DELETE.value
    oldest = [each for each in (topic.oldest_ms, row["first_timestamp_ms_min"]) if each is not None]
    return TopicSummary(
        policy=topic.policy,
        topic=topic.topic,
        segments=topic.segments + count,
        bytes=topic.bytes + size,
        deleted=topic.deleted + goes * count,
        freed=topic.freed + goes * size,
        undecided=topic.undecided + (row["decision"] == Decision.UNDECIDED.value) * count,
        oldest_ms=min(oldest, default=None),
    )


def _unknown(configs: Configs, topic: TopicSummary) -> list[str]:
    origins = configs[topic.topic][topic.policy].origins
    return [name for name in DECIDING_CONFIGS if origins[name] is Origin.KAFKA]


def _assumed(configs: Configs) -> dict[str, list[str]]:
    """Kafka's own topics are made by a broker with what stands in for them."""
    found: dict[str, list[str]] = {}
    for topic, by_policy in configs.items():
        names = {name for config in by_policy.values() for name in config.unknown}
        if names and topic not in INTERNAL_TOPICS:
            found[topic] = [name for name in DECIDING_CONFIGS if name in names]
    return found


def _problems(staged: Staged, summed: pa.Table) -> tuple[int, list[str]]:
    is_problem = pc.field("reason") == Reason.NOT_WELL.value
    if not summed.filter(is_problem).num_rows:
        return 0, []
    rows = staged.rows("segment", [*_NAMED, "reason"]).filter(is_problem)
    what = "kept, as not all of it is known; run build_index, or look into the catalog"
    return rows.num_rows, [f"{_named(row)}: {what}" for row in _first(rows)]


def _disagreements(staged: Staged, summed: pa.Table) -> tuple[int, list[str]]:
    differ = pc.field("decision") != pc.field("decision_on_disk")
    if not summed.filter(differ).num_rows:
        return 0, []
    rows = staged.rows("segment", [*_NAMED, *_ON_DISK]).filter(differ)
    return rows.num_rows, [
        f"{_named(row)}: by the catalog {row['decision']} ({row['reason']}), by its time index "
        f"{row['decision_on_disk']} ({row['reason_on_disk']}): that says {row['timestamp_on_disk_ms']}"
        for row in _first(rows)
    ]


def _named(row: Mapping[str, Any]) -> str:
    return f"{segment_name(*(row[name] for name in SEGMENTS.key))}: policy {row['policy']}"


def _first(rows: pa.Table) -> list[dict[str, Any]]:
    return rows.sort_by([(name, "ascending") for name in _NAMED]).slice(0, PROBLEMS_SHOWN).to_pylist()
