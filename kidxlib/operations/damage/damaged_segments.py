"""Which segments of a catalog are damaged, new to a run or not, and which of these somebody has accepted.

A segment that was read once is not read again while it stays as it is, so a run that goes by what it has read itself
would call a source free of problems at the second look.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.build.summary import PROBLEMS_KEPT
from kidxlib.catalog.conditions import Among
from kidxlib.catalog.findings import ACCEPTED
from kidxlib.catalog.matching import Values, differing, positions_in
from kidxlib.catalog.segments import SEGMENTS, LogVersion
from kidxlib.format.segment_files import LOG_SUFFIX
from kidxlib.operations.damage.known_damage import ACCEPTED_STATUS, DamagedSegment, KnownDamage
from kidxlib.recovery.outcome import ABSENT, Status
from kidxlib.tables.protocol import Tables

#: Of rows of `segments`: they are damaged.
DAMAGED: Final = Among("status", (Status.OK.value, *(status.value for status in ABSENT)), negated=True)
_COLUMNS: Final = (*SEGMENTS.key, "status", "reason", "reason_position", "reason_detail", "log_path")
#: What a segment and its acceptance agree in as long as that holds, by the columns of `segments`.
_SAME: Final = {
    "reason": "reason",
    "reason_position": "position",
    "log_path": "path",
    **dict(zip(LogVersion.names(), ("file_bytes", "file_mtime_ns", "file_inode"), strict=True)),
}


def known_damage(
    tables: Tables, sources: Collection[str], topics: re.Pattern[str], gone: pa.Table | None = None
) -> KnownDamage:
    """How a catalog's segments stand.

    Args:
        sources, topics: what was asked for; topics by their full names.
        gone: keys of segments that a listing did not find, if that is not recorded yet.
    """
    counts = tables.counts(SEGMENTS, ["source", "status"]).to_pylist()
    segments = Counter({(row["source"], row["status"]): row["rows"] for row in counts})
    damaged = tables.read(SEGMENTS, [*_COLUMNS, *LogVersion.names()], [DAMAGED])
    if gone is not None and gone.num_rows:
        damaged = damaged.filter(positions_in(damaged, gone, SEGMENTS.key) < 0)
    if not damaged.num_rows:
        return KnownDamage(segments=segments)
    found = [DamagedSegment(**row) for row in _with_acceptances(tables, damaged).to_pylist()]
    for row in found:
        if row.is_accepted:
            segments[row.source, row.status] -= 1
            segments[row.source, ACCEPTED_STATUS] += 1
    asked = [row for row in found if row.source in sources and topics.fullmatch(row.topic)]
    asked.sort(key=lambda row: (row.is_accepted, row.source, row.topic, row.partition, row.base_offset))
    accepted = sum(row.is_accepted for row in asked)
    return KnownDamage(
        segments=segments, damaged=len(asked) - accepted, accepted=accepted, listed=asked[:PROBLEMS_KEPT]
    )


def _with_acceptances(tables: Tables, damaged: pa.Table) -> pa.Table:
    """The columns of `DamagedSegment`, each segment with who accepted it as it is now.

    Args:
        damaged: rows of `segments`.
    """
    acceptance = ("accepted_by", "accepted_at", "accepted_reason")
    known = tables.read(ACCEPTED, [*SEGMENTS.key, *_SAME.values(), *acceptance], [Among("file", (LOG_SUFFIX,))])
    known = known.rename_columns({new: old for old, new in _SAME.items()})
    # The reason is of the key: one segment may have been accepted for several, one after the other.
    key = [*SEGMENTS.key, "reason"]
    at = positions_in(_with_text(damaged), _with_text(known), key)
    places: Values = pa.array(np.maximum(at, 0), mask=at < 0)
    beside = known.take(places)
    compared = [name for name in _SAME if name != "reason"]
    types = pa.schema([(name, damaged.schema.field(name).type) for name in compared])  # null where nothing is accepted
    log_is_same = ~differing(damaged, beside.select(compared).cast(types), compared)
    holds = pa.array((at >= 0) & log_is_same)
    rows = damaged.select(_COLUMNS)
    for name in acceptance:
        rows = rows.append_column(name, pc.if_else(holds, beside[name], pa.scalar(None, beside[name].type)))
    return rows


def _with_text(rows: pa.Table) -> pa.Table:
    """The rows, with a reason that is never null."""
    number = rows.schema.get_field_index("reason")
    reason: Values = pc.coalesce(rows["reason"], pa.scalar(""))
    return rows.set_column(number, "reason", reason)
