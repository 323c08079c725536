"""What an audit found, recorded in the catalog."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.audit.finding import IN_USE, Verdict
from kidxlib.audit.rows import Kind
from kidxlib.build.plan import Plan
from kidxlib.catalog import updates
from kidxlib.catalog.findings import FINDINGS
from kidxlib.catalog.matching import Values, positions_in
from kidxlib.catalog.segment_key import PARTITION_KEY, SEGMENT_KEY
from kidxlib.catalog.segments import SEGMENTS, LogVersion
from kidxlib.format.segment_files import LOG_SUFFIX
from kidxlib.format.topic_partition import PartitionKey
from kidxlib.operations.audit.found import Found
from kidxlib.operations.damage.acceptance_rule import VERSION_NAMES
from kidxlib.tables.protocol import Tables


def record_audit(
    tables: Tables, found: Found, audit_id: str, now: datetime, plan: Plan, unread: Collection[PartitionKey]
) -> None:
    """Make these findings all that there is of an audit, in one commit: one that is run again replaces its own rows.

    Args:
        plan: by which logs were read.
        unread: partitions whose logs were not: what the audit before has found of them stays the last word.

    Raises:
        CatalogError: as `Tables.change`.
    """
    findings = found.rows(Kind.FILE)
    if unread:
        keys = pa.table([list(column) for column in zip(*unread, strict=True)], schema=SEGMENTS.schema(PARTITION_KEY))
        findings = findings.filter(pa.array(positions_in(findings, keys, PARTITION_KEY) < 0))
    findings = _with_versions(findings, plan)
    for name, value in {"audit_id": audit_id, "audited_at": now}.items():
        values = pa.repeat(pa.scalar(value, FINDINGS.schema().field(name).type), findings.num_rows)
        findings = findings.append_column(name, values)
    rows = findings.select(FINDINGS.column_names).cast(FINDINGS.schema())
    audit = pa.table({"audit_id": [audit_id]})
    tables.change(FINDINGS, {"audit": audit, "finding": rows}, updates.audited, by=["audit_id"])


def _with_versions(findings: pa.Table, plan: Plan) -> pa.Table:
    """The findings, with the state in which each log was that has no damage: as it was listed. One that changes while
    it is read has another finding.
    """
    is_sound = pc.and_(
        pc.equal(findings["file"], pa.scalar(LOG_SUFFIX)),
        pc.is_in(findings["verdict"], value_set=pa.array([Verdict.WHOLE.value, Verdict.SAFE.value])),
    )
    is_in_use = pc.equal(pc.coalesce(findings["reason"], pa.scalar("")), pa.scalar(IN_USE))
    at = positions_in(findings.select(SEGMENT_KEY), plan.keys(plan.segments), SEGMENT_KEY).copy()
    at[~pc.and_(is_sound, pc.invert(is_in_use)).to_numpy().astype(np.bool_)] = -1
    places: Values = pa.array(np.maximum(at, 0), mask=at < 0)
    for name, listed in zip(VERSION_NAMES, LogVersion.names(), strict=True):
        field = findings.schema.field(name)
        seen = plan.segments[listed].take(places).cast(field.type, safe=False)
        number = findings.schema.get_field_index(name)
        findings = findings.set_column(number, field, pc.coalesce(findings[name], seen))
    return findings
