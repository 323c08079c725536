"""The shape of topics: how large batches are, how they are compressed, and what small ones cost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from kidxlib.format.layouts import BATCH_V2
from kidxlib.operations.report.answers import Answers
from kidxlib.operations.report.questions import CODECS, MAGICS, PRODUCERS, SHAPE
from kidxlib.operations.report.savings.saving import TopicSavings

#: Batches below this mean size cost much for what they hold: a header has 61 bytes, and compression finds little.
SMALL_BATCH_BYTES: Final = 1024
#: Fewer batches than that are no cost to speak of.
_BATCHES_LEAST: Final = 1000


def shape_section(answers: Answers, savings: Sequence[TopicSavings]) -> dict[str, Any]:
    """A row for each topic, the largest first; and what was measured of other settings of producers.

    Args:
        savings: of some topics.
    """
    codecs, magics = _by_topic(answers[CODECS], "codec"), _by_topic(answers[MAGICS], "magic")
    producers = {row["topic"]: row["producers"] for row in answers[PRODUCERS]}
    return {
        "small_batch_bytes": SMALL_BATCH_BYTES,
        "small_batches_least": _BATCHES_LEAST,
        "savings": [{**asdict(each), "best": _best(each)} for each in savings],
        "topics": [
            {
                **row,
                "codecs": codecs.get(row["topic"], []),
                "magics": magics.get(row["topic"], []),
                "producers": producers.get(row["topic"], 0),
                "bytes_a_batch": _ratio(row["valid_bytes"], row["batches"]),
                "records_a_batch": _ratio(row["records"], row["batches"]) if not row["uncounted_segments"] else None,
                "header_share": _ratio(BATCH_V2.itemsize * row["batches"], row["valid_bytes"]),
                "index_share": _ratio(row["index_bytes"], row["log_bytes"]),
                "has_small_batches": has_small_batches(row),
            }
            for row in answers[SHAPE]
        ],
    }


def has_small_batches(row: dict[str, Any]) -> bool:
    """Whether a topic's batches are so small that they cost much.

    Args:
        row: of `SHAPE`. Transaction markers are small whatever a producer does; they do not count.
    """
    batches = row["batches"] - row["control_batches"]
    return bool(batches >= _BATCHES_LEAST and row["valid_bytes"] / batches < SMALL_BATCH_BYTES)


def _best(measured: TopicSavings) -> dict[str, Any] | None:
    """The setting with which the sample takes the fewest bytes, and the share of its bytes that this saves; None where
    nothing was read.
    """
    if not measured.with_settings or not measured.sampled_bytes:
        return None
    best = min(measured.with_settings, key=lambda written: written.bytes)
    return {**asdict(best), "saved": 1 - best.bytes / measured.sampled_bytes}


def _by_topic(rows: list[dict[str, Any]], name: str) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        found[row["topic"]].append({"name": row[name], "segments": row["segments"], "log_bytes": row["log_bytes"]})
    return found


def _ratio(value: int, by: int) -> float | None:
    return value / by if by else None
