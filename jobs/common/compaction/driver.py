"""Compacts index files and tables, or says what that would change, and shows what came of it."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime

from pyspark.sql import DataFrame

from jobs.common.catalog.open import existing_catalog
from jobs.common.compaction.files import compact_files
from jobs.common.compaction.report import print_report, print_tables, report_as_json
from jobs.common.compaction.request import CompactionRequest
from jobs.common.compaction.summary import CompactionReport, report
from jobs.common.compaction.tables import MaintainedTable, maintain_tables
from jobs.common.spark.session import session
from kidxlib.run.result import RunResult
from kidxlib.terminal.console import print_json
from kidxlib.terminal.exit_codes import ExitCode
from kidxlib.terminal.progress import begin_phase


def run_compaction(request: CompactionRequest, *, as_json: bool) -> RunResult:
    context = request.context
    with contextlib.ExitStack() as stack:
        spark = stack.enter_context(session("compact_index", context.event_log_dir, changes=request.apply))
        catalog = existing_catalog(spark, context.catalog, context.database, bring_up_to_date=request.apply)
        changes: DataFrame | None = None
        found: CompactionReport | None = None
        if request.files is not None:
            changes = compact_files(catalog, request, request.files, stack)
            found = report(changes)
        tables: list[MaintainedTable] = []
        if request.tables is not None:
            begin_phase("maintaining tables" if request.apply else "looking at tables")
            tables = maintain_tables(catalog, request.tables, datetime.now(UTC), apply=request.apply)
        if as_json:
            run = {"applied": request.apply, "now": context.now.isoformat()}
            print_json({**run, **report_as_json(found, changes, tables)})
        else:
            if found is not None:
                print_report(found, applied=request.apply)
            if tables:
                print_tables(tables, applied=request.apply)
    return _result(found, tables)


def _result(found: CompactionReport | None, tables: list[MaintainedTable]) -> RunResult:
    changed, kept, problems = (found.changed[0], found.kept[0], found.problems) if found is not None else (0, 0, 0)
    return RunResult(
        code=ExitCode.PROBLEMS_FOUND if problems else ExitCode.OK,
        counts={"changed": changed, "kept": kept, "not_well": problems, "tables": len(tables)},
        bytes=sum(topic.bytes_before - topic.bytes_after for topic in found.topics) if found is not None else 0,
    )
