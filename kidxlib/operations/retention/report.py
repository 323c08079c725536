"""What is shown of a plan: a table on screen, or a JSON object with all segments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

import pyarrow as pa
from rich.filesize import decimal

from kidxlib.catalog.segments import SEGMENTS
from kidxlib.engine.staged import Staged
from kidxlib.operations.retention.summary import RetentionReport, TopicSummary
from kidxlib.retention.reasons import Decision
from kidxlib.retention.topic_policy import DECIDING_CONFIGS, RETENTION_MS_DEFAULT
from kidxlib.terminal.build import TOPICS_SHOWN
from kidxlib.terminal.console import print_line, print_more
from kidxlib.terminal.tables import print_table
from kidxlib.text.counted import counted
from kidxlib.text.times import show_time

#: As many as somebody may want to scroll through.
_SEGMENTS_SHOWN: Final = 10_000
_DEFAULT: Final = timedelta(milliseconds=RETENTION_MS_DEFAULT)
#: A row of the JSON object's `segments`.
JSON_COLUMNS: Final = (
    *(*SEGMENTS.key, "policy", "decision", "reason", "bytes", "warnings", "largest_timestamp_ms", "next_offset"),
    *("age_from_mtime", "retention_ms", "retention_bytes", "future_ms", "backwards_ms", "cut_offset", "rolls_first"),
    *("cleanup_policy", "remote_storage", "policy_origins"),
    *("decision_on_disk", "reason_on_disk", "timestamp_on_disk_ms", "due_ms"),
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
    if found.assumed:
        print_line(_assumed(found.assumed))
    if found.compacted:
        print_line(_compacted(found.compacted))
    for finding in found.findings:
        print_line(f"warning: policy {finding.policy}: {finding.sentence}")
    for what, (count, lines) in (("disagreement", found.disagreements), ("problem", found.problems)):
        for line in lines:
            print_line(f"{what}: {line}")
        print_more(count - len(lines))
    for policy in sorted({topic.policy for topic in found.topics}):
        print_line(_sum(policy, [topic for topic in found.topics if topic.policy == policy]))


def _sum(policy: str, topics: Sequence[TopicSummary]) -> str:
    """What goes under a policy of all that was decided on, and how much was not."""
    undecided = sum(topic.undecided for topic in topics)
    decided = sum(topic.segments for topic in topics) - undecided
    if undecided and not decided:
        return f"policy {policy}: none of {counted(undecided, 'segment')} was decided on"
    freed, of_all = (decimal(sum(getattr(topic, name) for topic in topics)) for name in ("freed", "bytes"))
    if not undecided:
        deleted = sum(topic.deleted for topic in topics)
        return f"policy {policy}: {deleted:,} of {counted(decided, 'segment')} go, {freed} of {of_all}"
    return (
        f"policy {policy}: {sum(topic.deleted for topic in topics):,} of {counted(decided, 'decided segment')} go, "
        f"{freed}; not decided: {counted(undecided, 'segment')} of "
        f"{counted(sum(topic.undecided > 0 for topic in topics), 'topic')}"
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


def _assumed(topics: Mapping[str, Sequence[str]]) -> str:
    called = {"retention.ms": f"retention.ms ({_DEFAULT.days} days)"}
    missing = [name for name in DECIDING_CONFIGS if any(name in names for names in topics.values())]
    return (
        f"Kafka's defaults, not the topics' own: {', '.join(called.get(name, name) for name in missing)} of "
        f"{counted(len(topics), 'topic')} (the first: {min(topics)}); give --policy, or --cluster-metadata and "
        "--server-properties"
    )


def _compacted(topics: Mapping[str, str]) -> str:
    first = min(topics)
    return (
        f"look compacted: {counted(len(topics), 'topic')} (the first: {first}, as {topics[first]}); none of their "
        "segments goes unless a policy says cleanup.policy of that very topic"
    )


def segments_as_json(staged: Staged) -> list[dict[str, Any]]:
    """All segments of a plan in order.

    Args:
        staged: rows of `PLANNED`.
    """
    rows: list[dict[str, Any]] = _in_order(staged, JSON_COLUMNS).to_pylist(maps_as_pydicts="strict")
    return rows


def print_segments(staged: Staged) -> None:
    """Show a row for each segment of a plan: what becomes of it, why, and when it goes.

    Args:
        staged: rows of `PLANNED`.
    """
    rows = _in_order(staged, ["policy", *SEGMENTS.key, "decision", "reason", "due_ms", "bytes"])
    shown = rows.slice(0, _SEGMENTS_SHOWN).to_pylist()
    print_table(
        "segments",
        ("policy", "source", "topic", "decision", "reason", "goes", "partition", "base offset", "bytes"),
        [
            (
                *(row[name] for name in ("policy", "source", "topic", "decision", "reason")),
                _goes(row),
                *(row[name] if row[name] is not None else "-" for name in ("partition", "base_offset", "bytes")),
            )
            for row in shown
        ],
        text_columns=6,
    )
    print_more(rows.num_rows - len(shown), " segments: --json has all of them")


def _in_order(staged: Staged, names: Sequence[str]) -> pa.Table:
    rows = staged.rows("segment", names).select(names)
    return rows.sort_by([(name, "ascending") for name in ("policy", *SEGMENTS.key)])


def _goes(row: Mapping[str, Any]) -> str:
    if row["decision"] == Decision.DELETE.value:
        return "now"
    return "-" if row["due_ms"] is None else show_time(row["due_ms"])
