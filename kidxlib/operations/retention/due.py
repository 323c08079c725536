"""When segments that stay will go by time: each once it is old enough, and all before it are."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kidxlib.catalog.matching import Flags, Values, differing
from kidxlib.catalog.partitions import PARTITIONS
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.retention.reasons import Decision, Reason

#: What `with_due` needs of a plan's rows.
FACTS_OF_DUE: Final = ("policy", *SEGMENTS.key, "decision", "reason", "largest_timestamp_ms", "retention_ms")
#: Nothing goes then or later: 10000-01-01, behind which nobody can show a time.
NEVER_MS: Final = 253_402_300_800_000

_BY_TIME: Final = (Reason.TIME_NOT_REACHED, Reason.FUTURE_TIMESTAMP, Reason.NO_TIMESTAMPS)


def with_due(rows: pa.Table) -> pa.Table:
    """Rows of a plan in order, with `due_ms`: the first ms since the epoch at which a segment goes by time, if its
    topic stays configured so. Null where it goes now, never, or by something else than time, or where one before it
    does.

    Args:
        rows: `FACTS_OF_DUE` of all segments of a plan, and other columns.
    """
    rows = rows.sort_by([(name, "ascending") for name in ("policy", *SEGMENTS.key)])
    own = _own(rows)
    count = rows.num_rows
    if not count:
        return rows.append_column("due_ms", pa.array([], pa.int64()))
    begins: Flags = np.ones(count, np.bool_)
    begins[1:] = differing(rows.slice(1), rows.slice(0, count - 1), ("policy", *PARTITIONS.key))
    due = np.empty(count, np.int64)
    for start, end in pairwise([*np.flatnonzero(begins).tolist(), count]):
        due[start:end] = np.maximum.accumulate(own[start:end])
    return rows.append_column("due_ms", pa.array(due, mask=(due >= NEVER_MS) | (own < 0)))


def _own(rows: pa.Table) -> NDArray[np.int64]:
    """When each goes if nothing before it stays; −1 for one that goes now."""
    names = ("largest_timestamp_ms", "retention_ms")
    largest, retention = (rows[name].fill_null(pa.scalar(NEVER_MS, pa.int64())).to_numpy() for name in names)
    # Kafka deletes what is older than the limit (`UnifiedLog.deleteRetentionMsBreachedSegments`).
    is_shown = (largest < NEVER_MS) & (retention < NEVER_MS)
    by_time = np.where(is_shown, largest + np.where(is_shown, retention, 0) + 1, NEVER_MS)
    own = np.where(_among(rows["reason"], _BY_TIME), by_time, NEVER_MS)
    own = np.where(_among(rows["reason"], (Reason.AFTER_KEPT,)), 0, own)
    result: NDArray[np.int64] = np.where(_among(rows["decision"], (Decision.DELETE,)), -1, own)
    return result


def _among(column: Values, words: tuple[Reason | Decision, ...]) -> Flags:
    found: Values = pc.is_in(column, value_set=pa.array([word.value for word in words]))
    flags: Flags = found.to_numpy().astype(np.bool_)
    return flags
