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

from kidxlib.build.summary import PROBLEMS_KEPT
from kidxlib.catalog.conditions import Among
from kidxlib.catalog.findings import ACCEPTED
from kidxlib.catalog.matching import Values, positions_in
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.format.segment_files import LOG_SUFFIX
from kidxlib.operations.damage.acceptance_rule import COLUMNS, SEGMENT_COLUMNS, findings_of_segments, held
from kidxlib.operations.damage.known_damage import ACCEPTED_STATUS, DamagedSegment, KnownDamage
from kidxlib.recovery.outcome import ABSENT, Status
from kidxlib.tables.protocol import Tables

#: Of rows of `segments`: they are damaged.
DAMAGED: Final = Among("status", (Status.OK.value, *(status.value for status in ABSENT)), negated=True)
_COLUMNS: Final = (*SEGMENTS.key, "status", "reason", "reason_position", "reason_detail", "log_path")
_ACCEPTANCE: Final = ("accepted_by", "accepted_at", "accepted_reason")


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
    damaged = tables.read(SEGMENTS, SEGMENT_COLUMNS, [DAMAGED])
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
        damaged: `SEGMENT_COLUMNS` of them.
    """
    accepted = tables.read(ACCEPTED, [*COLUMNS, *_ACCEPTANCE], [Among("file", (LOG_SUFFIX,))])
    found = held(findings_of_segments(damaged), accepted)
    places: Values = pa.array(np.maximum(found.at, 0), mask=~found.is_accepted)
    rows, beside = damaged.select(_COLUMNS), accepted.take(places)
    for name in _ACCEPTANCE:
        rows = rows.append_column(name, beside[name])
    return rows
