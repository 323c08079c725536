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
            {**asdict(each), "sentence": _sentence(each), "damaged": _is_damaged(each)}
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


def _sentence(found: ReplicaVerdict) -> str:
    """What is said of a replica, in one line."""
    if found.verdict is Verdict.DIFFERS and found.difference is not None:
        difference = found.difference
        first = "" if difference.offset is None else f", first at offset {difference.offset}"
        ranges = f" and {difference.ranges - 1:,} more ranges" if difference.ranges > 1 else ""
        right = "" if found.has_majority else "; which is right, the catalog does not know"
        return (
            f"source {found.source} has other batches than {', '.join(found.agreeing)} in offsets "
            f"{difference.first_offset} to {difference.last_offset}{ranges}{first}{right}"
        )
    if found.verdict is Verdict.EPOCHS_DISAGREE and found.epochs is not None:
        epochs = found.epochs
        return (
            f"source {found.source} has leader epoch {epochs.epoch} at offset {epochs.offset}, "
            f"{found.compared_with} has {epochs.other_epoch}"
        )
    if found.verdict is Verdict.LACKS and found.lacks is not None:
        lacks = found.lacks
        ranges = f" ({lacks.ranges:,} ranges in these)" if lacks.ranges > 1 else ""
        other = found.compared_with if lacks.source == found.source else found.source
        offsets = f"offsets {lacks.first_offset}–{lacks.last_offset}{ranges}"
        return f"source {lacks.source} lacks {offsets}, which {other} has"
    reason = "" if found.reason is None else f"; {found.reason}"
    if found.verdict is Verdict.BEHIND:
        return f"source {found.source} ends {found.behind_offsets:,} offsets before {found.compared_with}{reason}"
    if found.verdict is Verdict.SAME_UP_TO:
        to = f"up to offset {found.compared_to} of {found.log_end_offset}"
        return f"source {found.source}: the same as {found.compared_with} {to}{reason}"
    return (
        f"source {found.source}: {'not comparable' if found.verdict is Verdict.NOT_COMPARABLE else 'the same'}{reason}"
    )
