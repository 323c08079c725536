"""What an audit found, recorded in the catalog."""

from __future__ import annotations

from datetime import datetime

import pyarrow as pa

from kidxlib.audit.rows import Kind
from kidxlib.catalog import updates
from kidxlib.catalog.findings import FINDINGS
from kidxlib.operations.audit.found import Found
from kidxlib.tables.protocol import Tables


def record_audit(tables: Tables, found: Found, audit_id: str, now: datetime) -> None:
    """Make these findings all that there is of an audit, in one commit: one that is run again replaces its own rows.

    Raises:
        CatalogError: as `Tables.change`.
    """
    findings = found.rows(Kind.FILE)
    for name, value in {"audit_id": audit_id, "audited_at": now}.items():
        values = pa.repeat(pa.scalar(value, FINDINGS.schema().field(name).type), findings.num_rows)
        findings = findings.append_column(name, values)
    rows = findings.select(FINDINGS.column_names).cast(FINDINGS.schema())
    audit = pa.table({"audit_id": [audit_id]})
    tables.change(FINDINGS, {"audit": audit, "finding": rows}, updates.audited, by=["audit_id"])
