"""What compaction has changed, or would change, summed up by topic, with a few files by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.catalog.conditions import Among, rows_where
from kidxlib.catalog.matching import Values
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.compaction.change import NOT_OURS, ChangeAction, ChangeOutcome
from kidxlib.engine.staged import Staged
from kidxlib.terminal.build import PROBLEMS_SHOWN

_KEPT: Final = Among("outcome", (ChangeOutcome.KEPT.value,))
_CHANGED: Final = Among("outcome", (ChangeOutcome.KEPT.value, ChangeOutcome.UNCHANGED.value), negated=True)
_MEANS: Final = ("mean_scan_bytes_before", "mean_scan_bytes_after")
_MOST: Final = ("max_scan_bytes_before", "max_scan_bytes_after")
_KINDS: Final = ["topic", "action"]
#: What the line of a file says.
_LINE: Final = (
    *(*SEGMENTS.key, "action", "outcome", "reason", "path", "bytes_before", "bytes_after"),
    *("interval_before", "interval_bytes"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSavings:
    """What one action does to the files of one topic; files that stay are not counted.

    Attributes:
        changes: files, or pairs of indexes.
        mean_scan_bytes_before, mean_scan_bytes_after: bytes of log that a lookup walks through, on average.
        max_scan_bytes_before, max_scan_bytes_after: at most.
    """

    topic: str
    action: str
    changes: int
    bytes_before: int
    bytes_after: int
    mean_scan_bytes_before: int | None
    max_scan_bytes_before: int | None
    mean_scan_bytes_after: int | None
    max_scan_bytes_after: int | None


@dataclass(frozen=True, slots=True)
class CompactionReport:
    """What it comes to.

    Attributes:
        changed: some of the files that change, as lines, and how many there are.
        unchanged: how many pairs of indexes have the same bytes at the interval that they are to have.
        kept: some of the files that stay though they were to change, as lines, and how many there are.
        problems: how many of these a person should look into.
    """

    topics: list[TopicSavings]
    changed: tuple[int, list[str]]
    unchanged: int
    kept: tuple[int, list[str]]
    problems: int


def report(changes: Staged) -> CompactionReport:
    """Sum changes up.

    Args:
        changes: rows of `COMPACTED`.
    """
    rows = changes.rows("compacted", _LINE)
    changed, kept = rows_where(rows, [_CHANGED]), rows_where(rows, [_KEPT])
    of_others = rows_where(kept, [Among("reason", (NOT_OURS,))]).num_rows
    return CompactionReport(
        topics=_savings(changes),
        changed=(changed.num_rows, _lines(changed)),
        unchanged=rows.num_rows - changed.num_rows - kept.num_rows,
        kept=(kept.num_rows, _lines(kept)),
        problems=kept.num_rows - of_others,
    )


def in_order(changes: pa.Table, first: int | None = None) -> pa.Table:
    """Changes as they are listed: by partition, files that are of no segment before those of segments.

    Args:
        first: how many of these; None for all.
    """
    names = (*SEGMENTS.key, "action", "path")
    order: Any = [(name, "ascending", "at_start") for name in names]
    at: Values = pc.sort_indices(changes, sort_keys=order)
    return changes.take(at if first is None else at.slice(0, first))


def _savings(changes: Staged) -> list[TopicSavings]:
    names = [*_KINDS, "outcome", "bytes_before", "bytes_after", "log_bytes", *_MEANS, *_MOST]
    rows = rows_where(changes.rows("compacted", names), [_CHANGED])
    # An average over logs goes by their bytes; products of two sizes have no room in 64 bits.
    weight: Values = pc.coalesce(rows["log_bytes"].cast(pa.float64()), pa.scalar(0.0))
    for name in _MEANS:
        weighted: Values = pc.multiply(rows[name].cast(pa.float64()), weight)
        counted: Values = pc.if_else(rows[name].is_valid(), weight, pa.scalar(0.0))
        rows = rows.append_column(f"{name}_weighted", weighted).append_column(f"{name}_weight", counted)
    sums = ["bytes_before", "bytes_after", *(f"{name}_{of}" for name in _MEANS for of in ("weighted", "weight"))]
    summed = rows.group_by(_KINDS).aggregate(
        [([], "count_all"), *((name, "sum") for name in sums), *((name, "max") for name in _MOST)]
    )
    return [
        TopicSavings(
            topic=row["topic"],
            action=row["action"],
            changes=row["count_all"],
            bytes_before=row["bytes_before_sum"],
            bytes_after=row["bytes_after_sum"] or 0,
            mean_scan_bytes_before=_mean(row, "mean_scan_bytes_before"),
            max_scan_bytes_before=row["max_scan_bytes_before_max"],
            mean_scan_bytes_after=_mean(row, "mean_scan_bytes_after"),
            max_scan_bytes_after=row["max_scan_bytes_after_max"],
        )
        for row in summed.sort_by([(name, "ascending") for name in _KINDS]).to_pylist()
    ]


def _mean(row: dict[str, Any], name: str) -> int | None:
    weight = row[f"{name}_weight_sum"]
    return int(row[f"{name}_weighted_sum"] / weight + 0.5) if weight else None


def _lines(changes: pa.Table) -> list[str]:
    return [_line(row) for row in in_order(changes, PROBLEMS_SHOWN).to_pylist()]


def _line(row: dict[str, Any]) -> str:
    what = f"{row['action']}: {row['path']}: "
    if row["outcome"] == ChangeOutcome.KEPT.value:
        return f"kept: {what}{row['reason']}"
    if row["action"] == ChangeAction.REMOVE.value:
        return f"{what}{row['bytes_before']:,} bytes, {row['reason']}"
    of_index = (
        " with its .timeindex" if row["action"] in (ChangeAction.COARSEN.value, ChangeAction.DENSIFY.value) else ""
    )
    intervals = (
        "" if row["interval_before"] is None else f", every {row['interval_before']:,} → {row['interval_bytes']:,}"
    )
    return f"{what}{row['bytes_before']:,} → {row['bytes_after']:,} bytes{of_index}{intervals}"
