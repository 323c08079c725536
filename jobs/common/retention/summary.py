"""What a plan comes to: counts by topic, and what a person should know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.common.retention.findings import RetentionFinding, findings_of, segment_name
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.retention.policy import Origin
from kidxlib.retention.reasons import Decision, Reason
from kidxlib.retention.topic_policy import DECIDING_CONFIGS
from kidxlib.terminal.build import PROBLEMS_SHOWN

IS_DELETED: Final = f"decision = '{Decision.DELETE.value}'"


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
        compacted: topics that stay as they look so.
        unknown: of the topics that are not decided on, what nobody said, by Kafka's names.
        problems: segments kept because not all is known of them, a few named; with their number.
        disagreements: a few segments on which the catalog and the time index lead to different decisions, with their
            number.
    """

    topics: list[TopicSummary]
    findings: list[RetentionFinding]
    compacted: list[str]
    unknown: dict[str, list[str]]
    problems: tuple[int, list[str]]
    disagreements: tuple[int, list[str]]


def report(planned: DataFrame) -> RetentionReport:
    """Sum a plan up."""
    goes = F.expr(IS_DELETED)
    by_topic = planned.groupBy("policy", "topic").agg(
        F.count("*").alias("segments"),
        F.coalesce(F.sum("bytes"), F.lit(0)).alias("bytes"),
        F.count_if(goes).alias("deleted"),
        F.coalesce(F.sum(F.when(goes, F.col("bytes"))), F.lit(0)).alias("freed"),
        F.count_if(F.col("decision") == Decision.UNDECIDED.value).alias("undecided"),
        F.min("first_timestamp_ms").alias("oldest_ms"),
        F.any_value("policy_origins").alias("origins"),
        F.bool_or(F.col("reason") == Reason.LOOKS_COMPACTED.value).alias("compacted"),
    )
    rows = [row.asDict() for row in by_topic.collect()]
    compacted = sorted({row["topic"] for row in rows if row.pop("compacted")})
    origins = {(row["policy"], row["topic"]): row.pop("origins") for row in rows}
    topics = [TopicSummary(**row) for row in rows]
    differ = planned.where("decision <> decision_on_disk").select(
        *_NAMED,
        F.concat(
            F.lit("by the catalog "),
            *(F.col("decision"), F.lit(" ("), F.col("reason"), F.lit("), by its time index ")),
            *(F.col("decision_on_disk"), F.lit(" ("), F.col("reason_on_disk"), F.lit("): that says ")),
            F.col("timestamp_on_disk_ms"),
        ).alias("what"),
    )
    problems = planned.where(F.col("reason") == Reason.NOT_WELL.value).select(
        *_NAMED, F.lit("kept, as not all of it is known; run build_index, or look into the catalog").alias("what")
    )
    return RetentionReport(
        topics=sorted(topics, key=lambda topic: (topic.policy, -topic.freed, topic.topic)),
        findings=findings_of(planned),
        compacted=compacted,
        unknown={
            topic.topic: [name for name in DECIDING_CONFIGS if origins[topic.policy, topic.topic][name] == Origin.KAFKA]
            for topic in topics
            if topic.undecided
        },
        problems=_a_few(problems),
        disagreements=_a_few(differ),
    )


_NAMED: Final = (*SEGMENTS.key, "policy")


def _a_few(rows: DataFrame) -> tuple[int, list[str]]:
    shown = rows.orderBy(*_NAMED).limit(PROBLEMS_SHOWN).collect()
    count = len(shown) if len(shown) < PROBLEMS_SHOWN else rows.count()
    return count, [f"{segment_name(*row[:4])}: policy {row['policy']}: {row['what']}" for row in shown]
