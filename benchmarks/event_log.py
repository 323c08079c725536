"""What Spark did in a run of a job, and when: its event log."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.submit import JobRun

_MS: Final = 1e-3
#: How the job calls what its executors do, and the folds among that.
_WORK: Final = "kidx: "
_FINISHES: Final = "-finish"


@dataclass(frozen=True, slots=True)
class Span:
    """Seconds since the epoch."""

    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Query:
    """A query of Spark SQL; its stages are those that ran."""

    description: str
    span: Span
    stages: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class EventLog:
    """What Spark did in one run.

    Attributes:
        began_at: when the SparkContext was begun; seconds since the epoch, as all times.
        first_task_at: when the first task was started.
        queries: in the order in which they began.
    """

    began_at: float
    first_task_at: float
    queries: tuple[Query, ...]

    @classmethod
    def read(cls, events: Path) -> EventLog | None:
        """The log that a run left in `events`; None of a run that started no Spark."""
        path = next((path for path in events.iterdir() if not path.name.startswith(".")), None)
        if path is None:
            return None
        of_kind: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for line in path.read_text().splitlines():
            event = json.loads(line)
            of_kind[event["Event"].rpartition(".")[2]].append(event)
        stages = {
            (about := event["Stage Info"])["Stage ID"]: Span(
                about["Submission Time"] * _MS, about["Completion Time"] * _MS
            )
            for event in of_kind["SparkListenerStageCompleted"]
        }
        stages_of: dict[str, set[int]] = defaultdict(set)
        for event in of_kind["SparkListenerJobStart"]:
            stages_of[event["Properties"].get("spark.sql.execution.id", "")].update(event["Stage IDs"])
        ended = {event["executionId"]: event["time"] for event in of_kind["SparkListenerSQLExecutionEnd"]}
        queries = [
            Query(
                description=event["description"],
                span=Span(event["time"] * _MS, ended[event["executionId"]] * _MS),
                stages=tuple(stages[stage] for stage in stages_of[str(event["executionId"])] if stage in stages),
            )
            for event in of_kind["SparkListenerSQLExecutionStart"]
        ]
        return cls(
            began_at=of_kind["SparkListenerApplicationStart"][0]["Timestamp"] * _MS,
            first_task_at=min(event["Task Info"]["Launch Time"] for event in of_kind["SparkListenerTaskStart"]) * _MS,
            queries=tuple(sorted(queries, key=lambda query: query.span.start)),
        )


def covered(spans: Iterable[Span]) -> float:
    """Seconds in which at least one of them was."""
    seconds, reached = 0.0, float("-inf")
    for span in sorted(spans, key=lambda span: span.start):
        seconds += max(0.0, span.end - max(span.start, reached))
        reached = max(reached, span.end)
    return seconds


def seconds_of_build(run: JobRun, log: EventLog | None) -> dict[str, float]:
    """What the time of a build went into.

    Returns:
        Seconds: `start_up`, up to the first query, listing included; `scan`, of these `scan_stage` on executors;
        `fold`; `commits`, all other queries; `driver`, when no query was running; and `all`.
    """
    if log is None or not log.queries:
        nothing = dict.fromkeys(("start_up", "scan_stage", "scan", "fold", "commits"), 0.0)
        return {**nothing, "driver": run.seconds, "all": run.seconds}
    of_units = [query for query in log.queries if query.description.startswith(_WORK)]
    folds = [query for query in of_units if _FINISHES in query.description]
    scans = [query for query in of_units if query not in folds]
    scan, fold = covered(query.span for query in scans), covered(query.span for query in folds)
    queried, start_up = covered(query.span for query in log.queries), log.queries[0].span.start - run.began_at
    return {
        "start_up": start_up,
        "scan_stage": covered(stage for query in scans for stage in query.stages),
        "scan": scan,
        "fold": fold,
        "commits": queried - scan - fold,
        "driver": run.seconds - start_up - queried,
        "all": run.seconds,
    }
