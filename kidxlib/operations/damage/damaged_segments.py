"""Which segments of a catalog are damaged, by builds or by the audits that last looked at them, new to a run or not,
and which of these somebody has accepted.

A segment that was read once is not read again while it stays as it is, so a run that goes by what it has read itself
would call a source free of problems at the second look.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.catalog.conditions import Among, Condition
from kidxlib.catalog.findings import ACCEPTED, FINDINGS
from kidxlib.catalog.matching import Values, positions_in
from kidxlib.catalog.partitions import PARTITIONS
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.format.segment_files import LOG_SUFFIX
from kidxlib.indexing.summary import PROBLEMS_KEPT
from kidxlib.operations.damage.acceptance_rule import COLUMNS, SEGMENT_COLUMNS, findings_of_segments, held
from kidxlib.operations.damage.known_damage import ACCEPTED_STATUS, DamagedSegment, KnownDamage
from kidxlib.recovery.outcome import ABSENT, Status
from kidxlib.tables.protocol import Tables, scope_of

#: Of rows of `segments`: they are damaged.
DAMAGED: Final = Among("status", (Status.OK.value, *(status.value for status in ABSENT)), negated=True)
_COLUMNS: Final = (*SEGMENTS.key, "status", "reason", "reason_position", "reason_detail", "log_path")
_ACCEPTANCE: Final = ("accepted_by", "accepted_at", "accepted_reason")

_ABSENT: Final = Among("status", tuple(status.value for status in ABSENT))


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


def last_findings(
    tables: Tables, sources: Collection[str], where: Condition, names: Sequence[str] | None = None
) -> pa.Table:
    """Rows of `findings` of which a condition is true, of the audit that last looked at their partition: an audit of
    other topics says nothing of it. Without those of segments that are missing from their source.

    Args:
        names: of columns; None for all.
    """
    key, of_sources = list(PARTITIONS.key), Among("source", tuple(sources))
    wanted = FINDINGS.schema(names).names
    read = FINDINGS.schema({*wanted, *SEGMENTS.key, "audit_id"}).names
    found = tables.read(FINDINGS, read, [of_sources, where])
    if not found.num_rows:
        return found.select(wanted)
    scope = scope_of({"found": found}, key)
    audits = tables.read(FINDINGS, [*key, "audited_at", "audit_id"], scope)
    audits = audits.sort_by([("audited_at", "ascending"), ("audit_id", "ascending")])
    last = audits.group_by(key, use_threads=False).aggregate([("audit_id", "last")])
    last_of = last["audit_id_last"].take(positions_in(found, last, key))
    found = found.filter(pc.equal(found["audit_id"], last_of))
    gone = tables.read(SEGMENTS, SEGMENTS.key, [*scope, _ABSENT])
    return found.filter(pa.array(positions_in(found, gone, SEGMENTS.key) < 0)).select(wanted)


def audited_sources(tables: Tables) -> list[str]:
    """The sources that were ever audited."""
    return [str(source) for source in pc.unique(tables.read(FINDINGS, ["source"])["source"]).to_pylist()]
