"""The counts of a build, from the rows that workers have staged."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.build.comparison.facts_to_fill import count_unknown
from kidxlib.build.summary import PROBLEMS_KEPT, Counts, SegmentProblem
from kidxlib.build.topic_counts import PROBLEM_FREE
from kidxlib.catalog.matching import Values
from kidxlib.catalog.segments import FillableFacts
from kidxlib.engine.staged import Staged
from kidxlib.recovery.outcome import USABLE, Status

_PROBLEM: Final = tuple(SegmentProblem.__dataclass_fields__)
#: How many segments of a topic finishing gave the same outcome, and the transactions aborted in them.
_BY_TOPIC: Final[list[pa.Field[Any]]] = [
    pa.field("topic", pa.string()),
    pa.field("published", pa.string()),
    pa.field("segments", pa.int64()),
    pa.field("aborted", pa.int64()),
]
FINISHED_BY_TOPIC: Final = pa.schema(_BY_TOPIC)
_ENTRIES: Final = ("offset_index_entries", "time_index_entries")


def count_scanned(staged: Staged, counts: Counts) -> None:
    """Add a wave's segments to the counts.

    Args:
        staged: rows of `SCANNED`.
    """
    kinds = ["topic", "status", "published"]
    rows = staged.rows("segment", [*kinds, "log_bytes", "batches", *_ENTRIES, *FillableFacts.names()])
    counts.unknown_facts.update(count_unknown(rows.filter(pc.field("status").isin([*USABLE, Status.QUARANTINED]))))
    # Kafka's indexes of one segment have no more entries than an int32 counts, but all of a topic may.
    offset_entries, time_entries = (_or_zero(rows[name]) for name in _ENTRIES)
    entries: Values = pc.add(offset_entries, time_entries)
    summed = (
        rows.append_column("entries", entries)
        .group_by(kinds)
        .aggregate([([], "count_all"), *((name, "sum") for name in ("log_bytes", "batches", "entries"))])
    )
    for row in summed.to_pylist():
        counts.topic(row["topic"]).add(
            segments=row["count_all"],
            log_bytes=row["log_bytes_sum"] or 0,
            batches=row["batches_sum"] or 0,
            entries=row["entries_sum"] or 0,
            status=row["status"],
            published=row["published"],
        )
    if counts.problem_count > len(counts.problems):
        problem_free = pa.array([status.value for status in PROBLEM_FREE])
        problems = staged.rows("segment", _PROBLEM).filter(~pc.field("status").isin(problem_free))
        _name(problems, counts)


def finished_by_topic(rows: pa.Table) -> pa.Table:
    """Rows of `FINISHED_BY_TOPIC`.

    Args:
        rows: segments that are finished, with `topic`, `published` and `aborted_transactions`.
    """
    kinds = ["topic", "published"]
    summed = rows.group_by(kinds).aggregate([([], "count_all"), ("aborted_transactions", "sum")])
    summed = summed.select([*kinds, "count_all", "aborted_transactions_sum"])
    return summed.rename_columns(FINISHED_BY_TOPIC.names).cast(FINISHED_BY_TOPIC)


def count_finished(staged: Staged, unfolded: pa.Table, withdrawn: pa.Table, counts: Counts) -> None:
    """Add what finishing partitions came to.

    Args:
        staged: rows of `FINISHED`.
        unfolded: rows of `FINISHED_BY_TOPIC`: segments of the same partitions that were not folded again.
        withdrawn: the segments that turned out as quarantined: `SegmentProblem`'s columns, and `status_before`.
    """
    counts.kept += map(str, staged.rows("kept", ["path"])["path"].to_pylist())
    folded = finished_by_topic(staged.rows("segment", ["topic", "published", "aborted_transactions"]))
    for row in pa.concat_tables([folded, unfolded]).to_pylist():
        topic = counts.topic(row["topic"])
        topic.aborted_transactions += row["aborted"] or 0
        topic.by_transaction_index[row["published"]] += row["segments"]
    kinds = ["topic", "status_before"]
    for row in withdrawn.group_by(kinds).aggregate([([], "count_all")]).to_pylist():
        counts.topic(row["topic"]).withdraw(row["status_before"], row["count_all"])
    _name(withdrawn, counts)


def _or_zero(column: Values) -> Values:
    return pc.coalesce(column.cast(pa.int64()), pa.scalar(0, pa.int64()))


def _name(problems: pa.Table, counts: Counts) -> None:
    """Name the first segments with problems, up to the limit."""
    room = max(0, PROBLEMS_KEPT - len(counts.problems))
    first = problems.select(_PROBLEM).sort_by([(name, "ascending") for name in _PROBLEM[:4]]).slice(0, room)
    counts.problems.extend(SegmentProblem(**row) for row in first.to_pylist())
