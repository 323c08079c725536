"""What a plan comes to: counts by topic, what a person should know, segments for JSON, offsets for Kafka's own tool."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from rich.filesize import decimal

from jobs.common.tables import SEGMENTS
from kidxlib.console import print_line, print_table
from kidxlib.errors import KidxError, UsageError
from kidxlib.policy import Origin
from kidxlib.retention import RESTED_ON, Decision, Reason, Surprise
from kidxlib.summary import NOT_WELL_SHOWN, TOPICS_SHOWN
from kidxlib.times import show_time

#: A row of the JSON object's `segments`.
JSON_COLUMNS: Final = (
    *(*SEGMENTS.key, "policy", "decision", "reason", "bytes", "warnings", "largest_timestamp_ms", "next_offset"),
    *("of_mtime", "retention_ms", "retention_bytes", "future_ms", "backwards_ms", "cut_offset", "rolls_first"),
    *("cleanup_policy", "remote_storage", "policy_origins"),
    *("decision_on_disk", "reason_on_disk", "timestamp_on_disk_ms"),
)

#: Beyond this nobody counts in days; timestamps of broken clocks reach further than `timedelta`.
_SECONDS_SHOWN: Final = 10**11

_GOES: Final = f"decision = '{Decision.DELETE.value}'"


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
class Finding:
    """Something about segments under one policy that a person would not expect.

    Attributes:
        first: one of them.
        most_ms: how far a timestamp lies in the future, or runs back, at most.
    """

    policy: str
    surprise: Surprise
    segments: int
    partitions: int
    first: str
    most_ms: int

    @property
    def sentence(self) -> str:
        seconds = self.most_ms // 1000
        far = timedelta(seconds=seconds) if 0 < seconds < _SECONDS_SHOWN else f"{self.most_ms} ms"
        return {
            Surprise.WHOLE_PARTITION: f"{self.partitions:,} partitions lose all their segments; a broker then starts "
            "an empty one, --apply keeps the last",
            Surprise.LOOKS_COMPACTED: f"{self.segments:,} segments go though their topics look compacted: offsets are "
            "missing in them; cleanup.policy was said to be delete",
            Surprise.FUTURE_TIMESTAMP: f"{self.segments:,} segments have timestamps in the future, by up to {far}; "
            "time alone keeps them until long after that",
            Surprise.TIMESTAMPS_BACKWARDS: f"{self.segments:,} segments are old enough and stay behind one that is "
            f"not; timestamps run backwards, by up to {far}",
            Surprise.TIME_INDEX_PADDED: f"{self.segments:,} time indexes are padded with zeros; a broker takes their "
            "segments for those of 1970 and deletes them by time at once",
            Surprise.TIME_INDEX_CUT_SHORT: f"{self.segments:,} time indexes end before the largest timestamp of their "
            "segments; a broker deletes these too early",
        }[self.surprise] + f" (the first: {self.first})"

    def as_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in (*self.__dataclass_fields__, "sentence")}


@dataclass(frozen=True, slots=True)
class Report:
    """What a plan comes to.

    Attributes:
        compacted: topics that stay as they look so.
        unknown: of the topics that are not decided on, what nobody said, by Kafka's names.
        not_well: segments kept because not all is known of them, a few named; with their number.
        disagreements: likewise, those on which the catalog and the time index lead to other decisions.
    """

    topics: list[TopicSummary]
    findings: list[Finding]
    compacted: list[str]
    unknown: dict[str, list[str]]
    not_well: tuple[int, list[str]]
    disagreements: tuple[int, list[str]]


def report(planned: DataFrame) -> Report:
    """Sum a plan up."""
    goes = F.expr(_GOES)
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
    not_well = planned.where(F.col("reason") == Reason.NOT_WELL.value).select(
        *_NAMED, F.lit("kept, as not all of it is known; build it again, or look into the catalog").alias("what")
    )
    return Report(
        topics=sorted(topics, key=lambda topic: (topic.policy, -topic.freed, topic.topic)),
        findings=_findings(planned),
        compacted=compacted,
        unknown={
            topic.topic: [name for name in RESTED_ON if origins[topic.policy, topic.topic][name] == Origin.KAFKA]
            for topic in topics
            if topic.undecided
        },
        not_well=_a_few(not_well),
        disagreements=_a_few(differ),
    )


_NAMED: Final = (*SEGMENTS.key, "policy")


def _a_few(rows: DataFrame) -> tuple[int, list[str]]:
    shown = rows.orderBy(*_NAMED).limit(NOT_WELL_SHOWN).collect()
    count = len(shown) if len(shown) < NOT_WELL_SHOWN else rows.count()
    return count, [f"{_name(*row[:4])}: policy {row['policy']}: {row['what']}" for row in shown]


def _name(source: str, topic: str, partition: int, base_offset: int) -> str:
    return f"{source}: {topic}-{partition}/{base_offset}"


def _findings(planned: DataFrame) -> list[Finding]:
    exploded = planned.withColumn("surprise", F.explode("warnings"))
    grouped = exploded.groupBy("policy", "surprise").agg(
        F.count("*").alias("segments"),
        F.count_distinct(*SEGMENTS.key[:3]).alias("partitions"),
        F.min(F.struct(*SEGMENTS.key)).alias("first"),
        F.max(
            F.when(F.col("surprise") == Surprise.FUTURE_TIMESTAMP.value, F.col("future_ms")).otherwise(
                F.col("backwards_ms")
            )
        ).alias("most_ms"),
    )
    found = [
        Finding(
            policy=row["policy"],
            surprise=Surprise(row["surprise"]),
            segments=row["segments"],
            partitions=row["partitions"],
            first=_name(*row["first"]),
            most_ms=row["most_ms"],
        )
        for row in grouped.collect()
    ]
    return sorted(found, key=lambda finding: (finding.policy, finding.surprise))


def print_report(plan_id: str, found: Report, *, what_if: bool) -> None:
    """Show a row per topic, and what a person should know."""
    shown = found.topics[:TOPICS_SHOWN]
    print_table(
        f"plan {plan_id}",
        ("policy", "topic", "oldest record left", "segments", "bytes", "delete", "bytes freed", "left", "bytes left"),
        [
            (
                topic.policy,
                topic.topic,
                "-" if topic.oldest_ms is None else show_time(topic.oldest_ms),
                topic.segments,
                topic.bytes,
                topic.deleted,
                topic.freed,
                topic.segments - topic.deleted,
                topic.bytes - topic.freed,
            )
            for topic in shown
        ],
        text_columns=3,
    )
    if len(found.topics) > len(shown):
        print_line(f"… and {len(found.topics) - len(shown):,} more topics")
    if what_if:
        print_line("what if: this plan says what would be; --apply refuses it")
    if found.unknown:
        print_line(_not_decided(found))
    if found.compacted:
        print_line(_compacted(found.compacted))
    for finding in found.findings:
        print_line(f"warning: policy {finding.policy}: {finding.sentence}")
    for what, (count, lines) in (("disagreement", found.disagreements), ("not well", found.not_well)):
        for line in lines:
            print_line(f"{what}: {line}")
        if count > len(lines):
            print_line(f"… and {count - len(lines):,} more")
    for policy in sorted({topic.policy for topic in found.topics}):
        of_policy = [topic for topic in found.topics if topic.policy == policy]
        print_line(
            f"policy {policy}: {sum(topic.deleted for topic in of_policy):,} of "
            f"{sum(topic.segments for topic in of_policy):,} segments go, "
            f"{decimal(sum(topic.freed for topic in of_policy))} of {decimal(sum(topic.bytes for topic in of_policy))}"
        )


def _not_decided(found: Report) -> str:
    topics = sorted(found.unknown)
    missing = [name for name in RESTED_ON if any(name in names for names in found.unknown.values())]
    segments = sum(topic.undecided for topic in found.topics)
    return (
        f"not decided: {segments:,} segments of {len(topics):,} topics (the first: {topics[0]}): nobody "
        f"said their {', '.join(missing)}; give --policy FILE with what kafka-configs --describe "
        "--all --entity-type topics prints, or ask --what-if"
    )


def _compacted(topics: Collection[str]) -> str:
    return (
        f"look compacted: {len(topics):,} topics (the first: {min(topics)}): offsets are missing in them; none of "
        "their segments goes unless a policy says cleanup.policy of that very topic"
    )


def segments_as_json(planned: DataFrame) -> list[dict[str, Any]]:
    """All segments of a plan in order."""
    table = planned.select(*JSON_COLUMNS).orderBy("policy", *SEGMENTS.key).toArrow()
    rows: list[dict[str, Any]] = table.to_pylist(maps_as_pydicts="strict")
    return rows


def refuse_copies(planned: DataFrame) -> None:
    """A request to delete records names a partition once.

    Raises:
        UsageError: several sources hold one partition.
    """
    copies = planned.groupBy("topic", "partition").agg(F.array_sort(F.collect_set("source")).alias("sources"))
    row = copies.where(F.size("sources") > 1).orderBy("topic", "partition").head()
    if row is not None:
        raise UsageError(
            f"--delete-records-json: {row['topic']}-{row['partition']} stands in the sources "
            f"{', '.join(row['sources'])}; choose one with --source"
        )


def write_delete_records(planned: DataFrame, path: Path) -> int:
    """Write what `kafka-delete-records --offset-json-file` takes: up to where each partition is to be deleted.

    Returns:
        How many partitions it names.

    Raises:
        KidxError: the file cannot be written.
    """
    rows = planned.where(_GOES).groupBy("topic", "partition").agg(F.max("next_offset").alias("offset"))
    partitions = [row.asDict() for row in rows.orderBy("topic", "partition").collect()]
    try:
        path.write_text(json.dumps({"partitions": partitions, "version": 1}, indent=2) + "\n")
    except OSError as error:
        raise KidxError(
            f"--delete-records-json {path}: cannot be written: {error.strerror}; the plan stands"
        ) from error
    return len(partitions)
