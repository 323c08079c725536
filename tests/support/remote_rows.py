"""The rows of remote segments that audits and repairs have recorded."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kidxlib.catalog.findings import REMOTE_SEGMENTS
from kidxlib.operations.catalog import TablesCatalog
from kidxlib.tables.delta_tables import DeltaTables
from tests.support.files import tree


@functools.cache
def _files_without_rows() -> Mapping[str, bytes]:
    with tempfile.TemporaryDirectory() as place:
        TablesCatalog(DeltaTables(place)).make_tables()
        return tree(Path(place))


def catalog_at(path: Path) -> Path:
    """A catalog without rows, whose files are made once and copied: to make a table takes milliseconds."""
    for name, content in _files_without_rows().items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content)
    return path


def remote_rows(catalog: Path) -> list[dict[str, Any]]:
    """All rows of remote segments, in the order of their keys."""
    rows = DeltaTables(str(catalog)).read(REMOTE_SEGMENTS)
    return rows.sort_by([(name, "ascending") for name in REMOTE_SEGMENTS.key]).to_pylist()


def without_run(row: dict[str, Any]) -> dict[str, Any]:
    """A row without the audit and the times of objects, which differ in each run."""
    objects = [{**remote_object, "written_ms": None} for remote_object in row["objects"]]
    return {**row, "audit_id": None, "audited_at": None, "objects": objects}
