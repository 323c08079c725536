"""A compaction from the catalog's rows to the report."""

from __future__ import annotations

import contextlib
from typing import Any

from kidxlib.engine.staged import Staged
from kidxlib.operations.backend import OpenBackend
from kidxlib.operations.compaction.files import compact_files
from kidxlib.operations.compaction.report import print_report, report_as_json
from kidxlib.operations.compaction.request import CompactionRequest
from kidxlib.operations.compaction.summary import CompactionReport, report
from kidxlib.operations.maintenance.maintain import ALL, MaintainedTable, maintain_tables
from kidxlib.operations.maintenance.report import print_tables, tables_as_json
from kidxlib.run.result import RunResult
from kidxlib.tables.maintenance import MaintenanceOf
from kidxlib.terminal import interrupts
from kidxlib.terminal.console import print_json, print_line
from kidxlib.terminal.exit_codes import ExitCode

_INTERRUPTED = "what is recorded stays, the rest is not done; run the same command again"


def run_compaction(
    request: CompactionRequest, open_backend: OpenBackend, maintenance_of: MaintenanceOf, *, as_json: bool
) -> RunResult:
    """Compact index files and tables, or say what that would change.

    Raises:
        UsageError: nothing is known of what was asked for, or a log dir is in use.
        KidxError: files or tables cannot be written.
    """
    with contextlib.ExitStack() as stack:
        backend = stack.enter_context(open_backend())
        stack.enter_context(interrupts.telling(lambda: _INTERRUPTED))
        changes: Staged | None = None
        found: CompactionReport | None = None
        if request.files is not None:
            changes = compact_files(backend, request, request.files, stack)
            found = report(changes)
        tables: list[MaintainedTable] = []
        if request.tables is not None:
            of_catalog = backend.catalog.tables
            tables = maintain_tables(of_catalog, maintenance_of(of_catalog), request.tables, ALL, apply=request.apply)
        if as_json:
            shown: dict[str, Any] = {"applied": request.apply, "now": request.context.now.isoformat()}
            shown["tables"] = tables_as_json(tables)
            if found is not None and changes is not None:
                shown |= report_as_json(found, changes)
            print_json(shown)
        else:
            if found is not None:
                print_report(found, applied=request.apply)
            if tables:
                print_tables(tables, applied=request.apply)
            print_line(f"catalog: {backend.catalog.path}")
    return _result(found, tables)


def _result(found: CompactionReport | None, tables: list[MaintainedTable]) -> RunResult:
    changed, kept, problems = (found.changed[0], found.kept[0], found.problems) if found is not None else (0, 0, 0)
    return RunResult(
        code=ExitCode.PROBLEMS_FOUND if problems else ExitCode.OK,
        counts={"changed": changed, "kept": kept, "not_well": problems, "tables": len(tables)},
        bytes=sum(topic.bytes_before - topic.bytes_after for topic in found.topics) if found is not None else 0,
    )
