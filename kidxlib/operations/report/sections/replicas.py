"""Replicas: how each compares with those that most of its partition's sources agree with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import asdict
from typing import Any

from kidxlib.operations.compare.replicas.verdict import ReplicaVerdict, Verdict
from kidxlib.operations.report.answers import Answers
from kidxlib.operations.report.questions import PARTITION_COUNTS, REMOTE
from kidxlib.tables.protocol import TablesToRead


def replicas_section(tables: TablesToRead, answers: Answers, compacted: Collection[str]) -> dict[str, Any]:
    """A row for each replica that was compared, those with something to look at first; those that are the same are only
    counted.

    Args:
        compacted: topics that are configured so; others are known by what their logs lack.

    Raises:
        CatalogError: the catalog cannot be read.
    """
    if not _several_sources(answers):
        return {
            "verdicts": {},
            "partitions": [],
            "missing": [],
        }  # without what compares them, which takes long to be compiled
    from kidxlib.operations.compare.replicas.compare import compare_replicas
    from kidxlib.operations.compare.replicas.missing import missing_partitions

    buckets = {row["source"] for row in answers[REMOTE]}
    found = [each for each in compare_replicas(tables, compacted=compacted) if each.source not in buckets]
    order = list(Verdict)
    found.sort(key=lambda each: order.index(each.verdict))
    return {
        "verdicts": dict(Counter(each.verdict.value for each in found)),
        "partitions": [
            {**asdict(each), "sentence": each.sentence(), "damaged": _is_damaged(each)}
            for each in found
            if each.verdict is not Verdict.SAME
        ],
        "missing": missing_partitions(tables, buckets),
    }


def _is_damaged(found: ReplicaVerdict) -> bool:
    """Whether a replica was not compared because its log, or that of the other, is damaged or not known."""
    return found.verdict is Verdict.NOT_COMPARABLE and found.compacted is None and found.undecided_offsets > 0


def _several_sources(answers: Answers) -> bool:
    """Whether a topic is in several sources."""
    topics = [row["topic"] for row in answers[PARTITION_COUNTS] if row["present"]]
    return len(topics) > len(set(topics))
