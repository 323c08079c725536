"""What the audits that last looked at partitions have found."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.catalog.conditions import Among, Condition
from kidxlib.catalog.findings import FINDINGS
from kidxlib.catalog.matching import positions_in
from kidxlib.catalog.partitions import PARTITIONS
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.recovery.outcome import ABSENT
from kidxlib.tables.protocol import Tables
from kidxlib.tables.scope import scope_of

_ABSENT: Final = Among("status", tuple(status.value for status in ABSENT))


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
