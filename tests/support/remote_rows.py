"""Rows of remote segments that audits and repairs have recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kidxlib.catalog.remote_segments import REMOTE_SEGMENTS
from kidxlib.operations.catalog import TablesCatalog
from kidxlib.tables.delta_tables import DeltaTables


def catalog_at(path: Path) -> Path:
    """A catalog without rows."""
    TablesCatalog(DeltaTables(str(path))).make_tables()
    return path


def remote_rows(catalog: Path) -> list[dict[str, Any]]:
    """All, in the order of their keys."""
    rows = DeltaTables(str(catalog)).read(REMOTE_SEGMENTS)
    return rows.sort_by([(name, "ascending") for name in REMOTE_SEGMENTS.key]).to_pylist()


def without_run(row: dict[str, Any]) -> dict[str, Any]:
    """What a row says of the bucket, and not of the run or of when files were copied."""
    objects = [{**each, "written_ms": None} for each in row["objects"]]
    return {**row, "audit_id": None, "audited_at": None, "objects": objects}
