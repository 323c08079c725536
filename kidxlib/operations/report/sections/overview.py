"""The overview: how much there is, what has changed since the last build, and what is not well."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from kidxlib.operations.report.answers import Answers
from kidxlib.operations.report.questions import LARGEST, PARTITION_COUNTS, REMOTE, TOTALS
from kidxlib.recovery.outcome import ABSENT


def overview_section(answers: Answers) -> dict[str, Any]:
    """Sums over what is present."""
    absent = {status.value for status in ABSENT}
    present = [row for row in answers[TOTALS] if row["status"] not in absent]
    partitions: dict[str, Counter[str]] = {"source": Counter(), "topic": Counter()}
    for row in answers[PARTITION_COUNTS]:
        for name, counts in partitions.items():
            counts[row[name]] += row["present"]
    return {
        "log_bytes": sum(row["log_bytes"] for row in present),
        "segments": sum(row["segments"] for row in present),
        "partitions": sum(partitions["source"].values()),
        "absent_segments": sum(row["segments"] for row in answers[TOTALS]) - sum(row["segments"] for row in present),
        "remote_segments": sum(row["segments"] for row in answers[REMOTE]),
        "remote_bytes": sum(row["log_bytes"] for row in answers[REMOTE]),
        "sources": _by(present, "source", partitions["source"]),
        "topics": _by(present, "topic", partitions["topic"]),
        "largest": answers[LARGEST],
    }


def _by(rows: list[dict[str, Any]], name: str, partitions: Counter[str]) -> list[dict[str, Any]]:
    sums: dict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        for column in ("segments", "log_bytes"):
            sums[row[name]][column] += row[column]
    found = [{name: value, "partitions": partitions[value], **counts} for value, counts in sums.items()]
    return sorted(found, key=lambda row: (-row["log_bytes"], row[name]))
