"""Growth: records and bytes of each day, by the timestamps of batches."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from kidxlib.operations.report.answers import Answers
from kidxlib.operations.report.questions import GROWTH, UNTIMED


def growth_section(answers: Answers) -> dict[str, Any]:
    """Days from first to last, and what each topic has of each.

    Days are whole days since the epoch, in UTC. Records count for the day of their batch's largest timestamp; bytes are
    those of the segment, divided among its records.
    """
    rows = answers[GROWTH]
    days = sorted({row["day"] for row in rows})
    place = {day: number for number, day in enumerate(days)}
    topics: dict[str, dict[str, list[float]]] = defaultdict(
        lambda: {"records": [0] * len(days), "bytes": [0] * len(days), "certain_records": [0] * len(days)}
    )
    for row in rows:
        of_topic = topics[row["topic"]]
        of_topic["records"][place[row["day"]]] = row["records"]
        of_topic["certain_records"][place[row["day"]]] = row["certain_records"] or 0
        of_topic["bytes"][place[row["day"]]] = round(row["bytes"])
    ordered = sorted(topics.items(), key=lambda topic: (-sum(topic[1]["bytes"]), topic[0]))
    return {
        "days": days,
        "topics": [{"topic": topic, **columns} for topic, columns in ordered],
        "uncounted": answers[UNTIMED],
    }
