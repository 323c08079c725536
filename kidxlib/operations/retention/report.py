"""What is shown of a plan: a table on screen, or a JSON object with all segments."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from rich.filesize import decimal

from kidxlib.catalog.segments import SEGMENTS
from kidxlib.engine.staged import Staged
from kidxlib.operations.retention.summary import RetentionReport
from kidxlib.retention.topic_policy import DECIDING_CONFIGS
from kidxlib.terminal.build import TOPICS_SHOWN
from kidxlib.terminal.console import print_line, print_more
from kidxlib.terminal.tables import print_table
from kidxlib.text.counted import counted
from kidxlib.text.times import show_time

#: A row of the JSON object's `segments`.
JSON_COLUMNS: Final = (
    *(*SEGMENTS.key, "policy", "decision", "reason", "bytes", "warnings", "largest_timestamp_ms", "next_offset"),
    *("age_from_mtime", "retention_ms", "retention_bytes", "future_ms", "backwards_ms", "cut_offset", "rolls_first"),
    *("cleanup_policy", "remote_storage", "policy_origins"),
    *("decision_on_disk", "reason_on_disk", "timestamp_on_disk_ms"),
)


def print_report(plan_id: str, found: RetentionReport, *, what_if: bool) -> None:
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
    print_more(len(found.topics) - len(shown), " topics")
    if what_if:
        print_line("what if: this plan says what would be; --apply refuses it")
    if found.unknown:
        print_line(_not_decided(found))
    if found.compacted:
        print_line(_compacted(found.compacted))
    for finding in found.findings:
        print_line(f"warning: policy {finding.policy}: {finding.sentence}")
    for what, (count, lines) in (("disagreement", found.disagreements), ("problem", found.problems)):
        for line in lines:
            print_line(f"{what}: {line}")
        print_more(count - len(lines))
    for policy in sorted({topic.policy for topic in found.topics}):
        of_policy = [topic for topic in found.topics if topic.policy == policy]
        print_line(
            f"policy {policy}: {sum(topic.deleted for topic in of_policy):,} of "
            f"{counted(sum(topic.segments for topic in of_policy), 'segment')} go, "
            f"{decimal(sum(topic.freed for topic in of_policy))} of {decimal(sum(topic.bytes for topic in of_policy))}"
        )


def _not_decided(found: RetentionReport) -> str:
    topics = sorted(found.unknown)
    missing = [name for name in DECIDING_CONFIGS if any(name in names for names in found.unknown.values())]
    segments = sum(topic.undecided for topic in found.topics)
    return (
        f"not decided: {counted(segments, 'segment')} of {counted(len(topics), 'topic')} (the first: {topics[0]}): "
        f"nobody said their {', '.join(missing)}; give --policy FILE with what kafka-configs --describe "
        "--all --entity-type topics prints, or --cluster-metadata and --server-properties, or ask --what-if"
    )


def _compacted(topics: Collection[str]) -> str:
    return (
        f"look compacted: {counted(len(topics), 'topic')} (the first: {min(topics)}): offsets are missing in them; "
        "none of their segments goes unless a policy says cleanup.policy of that very topic"
    )


def segments_as_json(staged: Staged) -> list[dict[str, Any]]:
    """All segments of a plan in order.

    Args:
        staged: rows of `PLANNED`.
    """
    rows = staged.rows("segment", JSON_COLUMNS).select(JSON_COLUMNS)
    rows = rows.sort_by([(name, "ascending") for name in ("policy", *SEGMENTS.key)])
    return rows.to_pylist(maps_as_pydicts="strict")
